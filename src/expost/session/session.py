"""An analyst's entry point: statistics and fits about one dataset, paid from one budget."""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import is_dataclass, replace
from fractions import Fraction
from functools import partial, reduce
from types import TracebackType
from typing import Any, Self, Unpack

from expost.accounting.neighbour_change import replaced_loss
from expost.accounting.privacy_event import PrivacyEvent
from expost.answer import answer, question_in_part
from expost.core import (
    Adjacency,
    BudgetExceeded,
    Guarantee,
    InvalidRequest,
    Loss,
    PlanContext,
    PureLoss,
    Query,
    QuestionCap,
    Receipt,
    Release,
    as_guarantee,
    explain_arguments,
)
from expost.core.captured_fit import capture_fit
from expost.core.release import draw_picture
from expost.core.table_text import html_table
from expost.data import Dataset, Expression
from expost.data.filter_note import describe_unlisted
from expost.data.source_identity import SourceIdentity
from expost.data.sql_expression import parse_sql
from expost.ledger import Hold, Ledger, LedgerHistory, Protected, open_ledger
from expost.ledger.known_source import check_reason
from expost.ledger.ledger_account import LARGEST_QUESTION_CAP, check_budget, check_name, check_question_cap
from expost.ledger.opening import open_existing_ledger
from expost.ledger.source_binding import missing_account
from expost.noise import BitSource, SeededBits
from expost.noise.bits import resolve_randomness
from expost.session.price_quote import (
    CurveTerms,
    PriceCurve,
    PriceQuote,
    QuotedTerms,
    describe_margin,
    guess_bill,
    guess_fit_bill,
    public_fit_terms,
)
from expost.session.sql_methods import SqlMethods
from expost.session.statistic_methods import StatisticMethods
from expost.session.table_part import TablePart, column_part, time_windows
from expost.stats import ReleaseCache
from expost.stats.pick import PickPlan
from expost.stats.price_forecast import describe_guess, forecast_bill
from expost.stats.query_terms import Column, read_list

__all__ = ["Session"]

_NOTHING = Fraction(1, 10**12)  # what rounding of earlier questions may leave of a budget
_RECENT_ENTRIES = 500  # of an account that are searched for receipts of the same question

Budget = Guarantee | float | tuple[float, float] | dict[str, float] | None
KeepAnswer = Callable[[Hold, Release[Any], PrivacyEvent | None], object]


class Session(StatisticMethods, SqlMethods):
    """Answers statistics about a dataset and pays for them from a budget kept in a ledger.

    Every statistic takes an accuracy (``within=100``, ``within="5%"``) or a privacy level (``epsilon=0.1``). With an
    accuracy the answer is the most private one that reaches it; ``max_epsilon`` caps what it may cost (default: the
    question cap of the account, a tenth of its budget). The ledger is charged before an answer leaves. Asking again is
    free, asking for more accuracy pays the difference.

    Parameters
    ----------
    dataset : Dataset
        The table and its public description.
    budget : float, (float, float), dict or Guarantee, optional
        The dataset's budget: an epsilon, a pair (epsilon, delta), ``{"rho": 0.1}``, ``{"mu": 1}`` or a guarantee. It
        opens the dataset's account, which is the owner's right, and may be left out if the ledger has the account.
    question_cap : float, optional
        The epsilon that one question may cost if its asker names none, for a new account. Default: a tenth of the budget.
    ledger : str, path or Ledger, optional
        Where charges are recorded. Default: in memory.
    analyst : str, optional
        Charge this analyst's account too.
    analyst_budget : float, (float, float), dict or Guarantee, optional
        The analyst's budget, needed when the account is new.
    tables : sequence of Dataset, optional
        Other tables about the same ids, which the same budget pays for: see ``table`` and ``view``. They need names.
    another_budget : str, optional
        The owner's reason why rows that another account of the ledger pays for get another budget under this name. It
        is recorded. Without it a second name for the same file, table or content is refused.
    bits : BitSource, optional
        The source of random bits. Default: the system's cryptographic source.
    simulation : bool, default False
        Allow seeded bits. Receipts then say that the answers are not private.

    Raises
    ------
    InvalidRequest
        If the arguments do not fit together; no ledger is created.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from expost import Dataset
    >>> people = Dataset(pa.table({"age": list(range(100)) * 50}), name="people", bounds={"age": (0, 120)})
    >>> with Session(people, budget=1.0) as session:
    ...     release = session.count(within=100)
    >>> abs(release.value - 5000) < 1000, release.receipt.outcome.value
    (True, 'certified')
    >>> session.mean("age", withim=3)
    Traceback (most recent call last):
    expost.core.errors.WrongArguments: mean() got an unexpected argument 'withim'. Did you mean 'within'?
    """

    @explain_arguments
    def __init__(
        self,
        dataset: Dataset,
        budget: Budget = None,
        *,
        question_cap: float | None = None,
        ledger: Any = None,
        analyst: str | None = None,
        analyst_budget: Budget = None,
        tables: Sequence[Dataset] = (),
        another_budget: str | None = None,
        bits: BitSource | None = None,
        simulation: bool = False,
    ) -> None:
        if not isinstance(dataset, Dataset):
            raise InvalidRequest("Expected an expost.Dataset", got=dataset, do="Describe the table with expost.Dataset")
        if dataset.window is not None:
            raise InvalidRequest(
                "Expected the whole dataset, whose account is spent in every window too",
                got=dataset.name,
                do=f'Open the session on the whole and call session.window("{dataset.window.label}")',
            )
        resolve_randomness(bits, simulation)
        self.dataset = dataset
        self.tables = _check_tables(dataset, tables)
        in_process = ledger is None or (isinstance(ledger, Ledger) and not ledger.durable)
        if not (dataset.name or in_process):
            raise InvalidRequest("Expected a name for a dataset in a durable ledger", do="Pass Dataset(..., name=...)")
        budgets = {check_name(f"dataset:{dataset.name or 'table'}"): (budget, "budget")}
        if analyst is not None:
            budgets[check_name(f"analyst:{analyst}")] = (analyst_budget, "analyst_budget")
        about, *also = budgets
        cap = check_question_cap(question_cap)
        source = reduce(
            SourceIdentity.with_table, (each.source_identity() for each in (dataset, *self.tables.values()))
        )
        self._ledger = _open_accounts(budgets, ledger, source, question_cap=cap, another_budget=another_budget)
        self._about: tuple[str, ...] = (about,)
        self._also = tuple(also)
        # Losses add up for one notion of a person only: an account keeps the unit that its first hold had.
        self._protected = Protected(about, dataset.adjacency, dataset.unit)
        self._ledger.check_protected(self._protected)
        self._bits, self._simulation = bits, simulation
        self._cache, self._view_cache = self._open_cache(), ReleaseCache(None)
        self._sql_views: dict[str, Dataset] = {}
        self._part: TablePart | None = None
        self._whole: tuple[Session, tuple[Any, ...]] | None = None
        self._parts: dict[tuple[Any, ...], Session] = {}

    def _open_cache(self) -> ReleaseCache:
        """Return a cache for gradual releases.

        The bill of a refinement is a difference, which is sound only for accounts that paid for the first part too. So
        releases are stored for sessions that charge the same accounts: those of an analyst are apart. Simulations and
        tables that live in this process store nothing.
        """
        shared = self._ledger.durable and not (self._simulation or self.dataset.in_memory)
        payers = hashlib.sha256("\n".join(self._also).encode()).hexdigest()[:32] if self._also else ""
        return ReleaseCache(self._ledger if shared else None, payers=payers)

    # Parts -------------------------------------------------------------------------------------------------------

    @explain_arguments
    def part(self, column: str, value: Any) -> Session:
        """Return a session about the rows whose column has one of its public categories, with an account of its own.

        Parts by one column are disjoint, so the dataset's account pays only for the largest of them, in addition to
        what was asked about the whole; under replace-one adjacency for the two largest
        (docs/proofs/parallel-parts.md).

        Parameters
        ----------
        column : str
            A stored column with public categories.
        value : object
            One of the categories.

        Raises
        ------
        InvalidRequest
            If a unit is an id, which may have rows in several parts, or the value is not a public category.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset
        >>> table = pa.table({"site": ["A", "B"] * 5000})
        >>> session = Session(Dataset(table, name="people", categories={"site": ["A", "B"]}), budget=1)
        >>> for part in session.parts("site").values():
        ...     release = part.count(epsilon=0.25)
        >>> print(session.spent())
        epsilon 0.25
        """
        return self._open_part(("part", column, value), lambda: column_part(self.dataset, column, value))

    @explain_arguments
    def parts(self, column: str) -> dict[Any, Session]:
        """Return the parts of all public categories of a column.

        Parameters
        ----------
        column : str
            A stored column with public categories.

        Returns
        -------
        dict
            One session per category.

        Raises
        ------
        InvalidRequest
            As ``part``.
        """
        return {value: self.part(column, value) for value in self.dataset.axis(column).values if value is not None}

    @explain_arguments
    def window(self, first: str, last: str | None = None) -> Session:
        """Return a session about one or several time windows of a unit with a time window.

        Each window has the dataset's budget for itself, less what was asked about the whole; a question about several
        windows charges each of them.

        Parameters
        ----------
        first : str
            A day in the first window, written ``YYYY-MM-DD``.
        last : str, optional
            A day in the last window. Default: the first window only.

        Raises
        ------
        InvalidRequest
            If the dataset's unit has no time window, or a day cannot be read.
        """
        return self._open_part(("window", first, last), lambda: time_windows(self.dataset, first, last))

    def _open_part(self, step: tuple[Any, ...], find_part: Callable[[], TablePart]) -> Session:
        """Open the accounts of a part and return its session, the same one each time."""
        key = (*step, type(step[-1]))
        try:
            hash(step)  # a tuple is Hashable even if what it holds is not
        except TypeError:
            message = "Expected a column and one of its values, or days"
            raise InvalidRequest(message, got=step[-1], do="Pass one value") from None
        if key not in self._parts:
            if len(self._about) > 1:
                raise InvalidRequest("Expected a session about one window or the whole", do="Start from the whole")
            part, whole = find_part(), self._about[0]
            accounts = part.accounts(whole, self._ledger.parts(whole, by=part.by))
            terms: dict[str, Any] = {"by": part.by, "touching": part.touching, "protected": self._protected}
            self._ledger.open_part(accounts, of=whole, **terms)
            inner = self._with_dataset(self.dataset.where(part.condition))
            inner._about, inner._part, inner._whole = accounts, part, (self, step)
            self._parts[key] = inner
        return self._parts[key]

    # Tables ------------------------------------------------------------------------------------------------------

    @explain_arguments
    def table(self, name: str) -> Session:
        """Return a session about another of its tables, paid from the same budget.

        Parameters
        ----------
        name : str
            The name of one of ``tables``, or of the dataset itself.

        Raises
        ------
        InvalidRequest
            If there is no such table.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset
        >>> visits = Dataset(pa.table({"id": [1, 1, 2] * 400}), name="visits", unit="id", max_rows_per_unit=10)
        >>> people = Dataset(pa.table({"id": range(900), "age": [40] * 900}), name="people", unit="id", max_rows_per_unit=1)
        >>> session = Session(visits, budget=1, tables=[people])
        >>> abs(session.table("people").count(epsilon=0.5).value - 900) < 100, session.remaining()
        (True, PureLoss(epsilon=Fraction(1, 2)))
        """
        if name == self.dataset.name:
            return self
        if name not in self.tables:
            names = ", ".join(map(str, (self.dataset.name, *self.tables)))
            raise InvalidRequest(f"Expected one of {names}", got=name, do="Pass Session(..., tables=[...])")
        return self.view(self.tables[name])

    @explain_arguments
    def view(self, dataset: Dataset) -> Session:
        """Return a session about a view of its tables, such as a join, paid from the same accounts.

        Parameters
        ----------
        dataset : Dataset
            What ``where``, ``derive``, ``join`` or ``per_unit`` made of the tables of this session.

        Raises
        ------
        InvalidRequest
            If it protects another unit, or reads a source that another account pays for.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset
        >>> visits = Dataset(pa.table({"id": [1, 2, 2] * 400}), name="visits", unit="id", max_rows_per_unit=10)
        >>> people = Dataset(pa.table({"id": range(900), "age": [40] * 900}), name="people", unit="id", max_rows_per_unit=1)
        >>> session = Session(visits, budget=1, tables=[people])
        >>> joined = session.view(visits.join(people, on="id", how="inner").where("age >= 18"))
        >>> abs(joined.count(epsilon=0.9).value - 20) < 200, session.remaining()
        (True, PureLoss(epsilon=Fraction(1, 10)))
        """
        if not isinstance(dataset, Dataset) or dataset.window is not None or self._part is not None:
            raise InvalidRequest("Expected a Dataset and a session about the whole", do="Pass a view of its tables")
        about = Protected(self._about[0], dataset.adjacency, dataset.unit)
        if about != self._protected:
            raise InvalidRequest(
                f"Expected a view that protects {self.dataset.unit}", got=str(dataset.unit), do="Pass the same unit"
            )
        self._ledger.bind_source(self._about[0], dataset.source_identity())
        return self._with_dataset(dataset)

    def _with_dataset(self, dataset: Dataset) -> Session:
        """Return a session about another view that charges the same accounts; a new one would open its own."""
        inner = object.__new__(type(self))
        inner.__dict__ |= self.__dict__
        inner.dataset, inner._parts = dataset, {}
        if dataset.in_memory != self.dataset.in_memory:
            inner._cache = self._view_cache  # another process cannot read the same view
        return inner

    def _paying_definitions(self) -> frozenset[str]:
        """Return the privacy definitions of the accounts that pay."""
        return frozenset(self._ledger.budget(account).definition for account in self.accounts)

    @property
    def _place(self) -> str | None:
        """Return the part this session is about, in public words."""
        if self._part is None or self._whole is None:
            return None
        around = self._whole[0]._place
        return self._part.text if around is None else f"{around}, {self._part.text}"

    # Questions ---------------------------------------------------------------------------------------------------

    @explain_arguments
    def ask(self, query: Query, *, request_id: str | None = None, keep: KeepAnswer | None = None) -> Release[Any]:
        """Answer any query; the named methods build the common ones.

        A query that an earlier answer already serves is free; one that asks for more pays the difference. One by
        private keys is settled in two steps, so that what the second has not used is given back.

        Parameters
        ----------
        query : Query
            A statistic of ``expost.stats`` or a hypothesis test.
        request_id : str, optional
            A name for this request. A second run under the same name is refused.
        keep : callable, optional
            Called with the hold, the release and what did run, before the ledger settles them, so that a service can
            deliver the answer after a crash.

        Returns
        -------
        Release
            The value, its interval and its receipt.

        Raises
        ------
        InvalidRequest, BudgetExceeded
            Before the data is touched; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough. The error carries the release that was paid for.
        EngineFailed
            If the data source failed; the worst case stays charged.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset, stats
        >>> session = Session(Dataset(pa.table({"age": [30, 50] * 500})), budget=1)
        >>> abs(session.ask(stats.Count(epsilon=0.5)).value - 1000) < 100
        True
        """
        _check_query(query)
        stages = getattr(query, "keys_first", None)
        if stages is None:
            return self._answer_query(query, request_id=request_id, keep=keep)
        for account in self.accounts:
            # All steps must fit into the budget together: otherwise the first would be paid in vain.
            left = self._left_for_query(account)
            if left.definition == stages.worst_case.definition and not stages.worst_case.within(left):
                raise BudgetExceeded(
                    f"Expected a worst case of at most {left.text(down=True)} in account {account!r}",
                    got=str(stages.worst_case),
                    do="Ask for less, or have the owner raise the budget",
                )
        released: Release[Any] = stages.ask_in_stages(self.ask, self.dataset, request_id)
        return released

    def _answer_query(
        self,
        query: Query,
        source: Any = None,
        request_id: str | None = None,
        cap: QuestionCap | None = None,
        keep: KeepAnswer | None = None,
    ) -> Release[Any]:
        """Answer a query about this session's rows, continuing earlier releases; a fit passes its own source.

        ``cap`` is the question cap that the query has because its asker named none; the receipt states it.
        """
        if source is None and getattr(query, "keys_first", None) is not None:
            return self.ask(query, request_id=request_id, keep=keep)
        cap = _default_cap(query) if cap is None else cap
        notes = {} if cap is None else {"question cap": cap.note}
        if filtered := self._note_filter(query):
            notes["filter"] = filtered
        if len(self.dataset.tables) > 1:
            notes["tables"] = (
                f"{', '.join(self.dataset.tables)}: one {self.dataset.unit.column} is one person in all of them"
            )
        with self._cache.take_turn() if source is None else nullcontext() as cache:
            release = answer(
                query,
                self.dataset if source is None else source,
                ledger=self._ledger,
                accounts=self.accounts,
                released=cache,
                bits=self._bits,
                simulation=self._simulation,
                request_id=request_id,
                place=self._place,
                protected=self._protected,
                notes=notes,
                keep=keep,
                has_changed=self.dataset.has_changed,
            )
        return release

    @explain_arguments
    def fit(
        self,
        estimator: Any,
        *,
        features: Sequence[str] | None = None,
        target: str | None = None,
        public_validation: Any = None,
        request_id: str | None = None,
        keep: KeepAnswer | None = None,
    ) -> Any:
        """Fit an estimator of ``expost`` to columns of the dataset, paid from this session's accounts.

        Fits protect what the dataset protects. Where rows are added or removed their number is private: pass ``rows=``
        to the estimator, about how many there are; linear models count them under noise, inside the bill, if it is
        left out. With an id as unit and ``max_rows_per_unit`` the rows of a person have one weight together.

        Parameters
        ----------
        estimator : estimator
            An unfitted estimator, such as ``expost.Ridge(...)``.
        features : sequence of str, optional
            The feature columns. ``Classifier`` and ``Regressor`` take those that their ``columns`` or the dataset declare.
        target : str, optional
            The target column. Only transformers without a target, such as ``expost.StandardScaler``, leave it out.
        public_validation : (array, array), optional
            Public features (in this order) and targets, for gradient descent only.
        request_id : str, optional
            As in ``ask``. A fit of several steps has several requests: their names end in a number.
        keep : callable, optional
            As in ``ask``, for the last step alone. The value of its release is the fitted estimator.

        Returns
        -------
        estimator
            The fitted estimator.

        Raises
        ------
        InvalidRequest, BudgetExceeded
            Before the data is touched; nothing is spent.
        TargetNotMet
            If no level under the cap was accurate enough.
        """
        if not hasattr(estimator, "fit_with"):
            # A pipeline of another library reads rows without paying for them.
            use = (
                "expost.Pipeline([...]), whose steps are private"
                if hasattr(estimator, "steps")
                else "expost.Ridge(...)"
            )
            raise InvalidRequest("Expected an estimator of expost", got=estimator, do=f"Pass e.g. {use}")
        if self._part is not None:
            raise InvalidRequest(
                "Expected a whole dataset: models are not fitted to parts of a table", do="Fit with the whole session"
            )
        public = public_fit_terms(estimator, public_validation)
        with self._capped(estimator) as (capped, cap):
            steps = itertools.count(1)
            terms: dict[str, Any] = {"features": features, "target": target, **public}
            keeper = None if keep is None else _keep_model(keep, copy.copy(capped), self.dataset, terms)

            def pay(query: Query, source: Any = None) -> Release[Any]:
                name = None if request_id is None else f"{request_id}/{next(steps)}"
                return self._answer_query(query, source, request_id=name, cap=cap, keep=keeper)

            return capped.fit_with(pay, self.dataset, **terms)

    @contextmanager
    def _capped(self, estimator: Any) -> Iterator[tuple[Any, QuestionCap | None]]:
        """Lend an estimator without a cap, which asks for an accuracy, the question cap of the accounts that pay."""
        level = [getattr(estimator, name, None) for name in ("epsilon", "noise_multiplier")]
        if getattr(estimator, "max_epsilon", 1) is not None or level != [None, None]:
            yield estimator, None
            return
        cap = self._question_cap()
        if is_dataclass(estimator) and not isinstance(
            estimator, type
        ):  # a choice of models, which is not fitted itself
            yield replace(estimator, max_epsilon=cap), cap
            return
        # The cap is that of this session, not of the estimator: another one may pay for its next fit.
        estimator.max_epsilon = cap
        try:
            yield estimator, cap
        finally:
            estimator.max_epsilon = None

    @explain_arguments
    def price(
        self, statistic: Any, *subject: Column | float | Sequence[Column | float], **terms: Unpack[QuotedTerms]
    ) -> PriceQuote:
        """Return what a query would cost: the worst case, and a guess from receipts that are public already.

        With ``expect=`` the guess is what a climb costs if the answer is about that: a count or a sum, for means and
        spreads ``{"rows": 5000, "mean": 40, "std": 10}``, or one of these per group. Nothing is spent and no row is read.

        Parameters
        ----------
        statistic : str, Query or estimator
            A statistic's name, a query, or an unfitted estimator.
        *subject : str, Expression, float or a sequence of these
            With a name: the positional arguments of the statistic, such as its column.
        **terms : QuotedTerms
            With a name: the keyword arguments of the statistic, such as ``within=3``, and perhaps ``expect=``. With an
            estimator: ``features=``, ``target=`` and perhaps ``public_validation=``. ``expect=`` is then about the number of
            rows, from which ``Classifier`` and ``Regressor`` show the margin of the test; by default ``rows`` of the estimator.

        Raises
        ------
        InvalidRequest
            If the name or an argument is unknown, or the table's description cannot answer.
        BudgetExceeded
            If the price is above ``max_epsilon``.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset
        >>> session = Session(Dataset(pa.table({"age": [30, 50] * 500})), budget=1)
        >>> print(session.price("count", within=10))
        count of rows: at most epsilon 0.2844, probably about epsilon 0.2844; more than epsilon 0.1, a tenth of the ...
        >>> print(session.price("count", within="5%", expect=50_000, max_epsilon=1))
        count of rows: at most epsilon 1, probably about epsilon 0.001393
        >>> session.price("count", withim=10)
        Traceback (most recent call last):
        expost.core.errors.WrongArguments: Count() got an unexpected argument 'withim'. Did you mean 'within'?
        """
        given: dict[str, Any] = dict(terms)
        if hasattr(statistic, "fit_with"):
            return self._price_fit(statistic, **given)
        expect = given.pop("expect", None)
        query = self.build_query(statistic, *subject, **given) if isinstance(statistic, str) else statistic
        _check_query(query)
        above = ""
        with self._cache.take_turn() as cache:
            use = partial(self._ledger.budget_use, self.accounts, protected=self._protected)
            context = PlanContext(cache, self._paying_definitions(), use)
            try:
                plan = query.plan(self.dataset, context)
            except BudgetExceeded:
                cap = _default_cap(query)
                if cap is None:
                    raise
                # Here a price above the question cap is the answer, not a refusal.
                above = f"more than {cap.note}"
                query = self.build_query(statistic, *subject, **given, max_epsilon=LARGEST_QUESTION_CAP)
                plan = query.plan(self.dataset, context)
        question = question_in_part(query.question, self._place)
        target, receipts = getattr(query, "target", None), self._own_receipts()
        climbs = not isinstance(plan, PickPlan) and getattr(plan, "climbs", True)
        if expect is None:
            likely = guess_bill(plan.worst_case, target, receipts, climbs=climbs, question=question)
        else:
            found = forecast_bill(plan, expect)
            if found is None and isinstance(statistic, str):
                # A price above the cap is the answer here, too.
                above = f"probably more than {plan.worst_case}, so this cap would not reach it"
                query = self.build_query(statistic, *subject, **given | {"max_epsilon": LARGEST_QUESTION_CAP})
                found = forecast_bill(query.plan(self.dataset, PlanContext()), expect)
            likely = None if found is None else PureLoss(found) if climbs else plan.worst_case
        note, noise = self._account_note(plan.worst_case), getattr(plan, "comparison", "")
        supposed = "" if expect is None else describe_guess(plan, expect)
        return PriceQuote(
            question,
            plan.worst_case,
            likely,
            above_cap=above,
            account_note=note,
            noise=noise,
            supposed=supposed,
            filter_note=self._note_filter(query),
        )

    @explain_arguments
    def price_curve(
        self,
        statistic: str,
        *subject: Column | float | Sequence[Column | float],
        within: Sequence[float | str],
        **terms: Unpack[CurveTerms],
    ) -> PriceCurve:
        """Return what a query would cost at several accuracies, as a table and a picture. Nothing is spent.

        Parameters
        ----------
        statistic : str
            A statistic's name.
        *subject : str, Expression, float or a sequence of these
            The positional arguments of the statistic, such as its column.
        within : sequence of float or str
            The errors allowed, such as ``["1%", "5%", "20%"]``.
        **terms : CurveTerms
            The other keyword arguments of ``price``; ``expect=`` where the price depends on the data.

        Raises
        ------
        InvalidRequest
            If the name or an argument is unknown, or the table's description cannot answer.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset
        >>> session = Session(Dataset(pa.table({"age": [30, 50] * 500})), budget=1)
        >>> print(session.price_curve("count", within=["5%", "20%"], expect=1000, max_epsilon=1))
        count of rows
        within 5%: at most epsilon 1, probably about epsilon 0.06935
        within 20%: at most epsilon 1, probably about epsilon 0.01661
        """
        asked = read_list(within, "within", do='Pass e.g. ["1%", "5%", "20%"]')
        if not asked:
            raise InvalidRequest("Expected at least one accuracy", do='Pass e.g. ["1%", "5%", "20%"]')
        return PriceCurve(asked, tuple(self.price(statistic, *subject, within=each, **terms) for each in asked))

    @explain_arguments
    def simulate(
        self,
        statistic: Any,
        *subject: Column | float | Sequence[Column | float],
        made_up_rows: int = 1000,
        seed: int = 0,
        **terms: Unpack[QuotedTerms],
    ) -> Release[Any]:
        """Answer a query about made-up rows of the same description, to see what it would show and cost. It is free.

        No real row is read, and the receipt states that it is a simulation.

        Parameters
        ----------
        statistic : str or Query
            A statistic's name, or a query.
        *subject : str, Expression, float or a sequence of these
            With a name: the positional arguments of the statistic, such as its column.
        made_up_rows : int, default 1000
            How many rows to make up.
        seed : int, default 0
            Equal seeds give equal rows and equal noise.
        **terms : QuotedTerms
            With a name: the keyword arguments of the statistic, such as ``within=3``.

        Returns
        -------
        Release
            The value, its interval and its receipt, for made-up rows.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset
        >>> session = Session(Dataset(pa.table({"age": [30, 50]}), bounds={"age": (0, 100)}), budget=1)
        >>> release = session.simulate("mean", "age", within=3, made_up_rows=100_000)
        >>> 45 < release.value < 55, release.receipt.simulation, session.spent()
        (True, True, PureLoss(epsilon=Fraction(0, 1)))
        """
        query = self.build_query(statistic, *subject, **terms) if isinstance(statistic, str) else statistic
        dataset, budget = self.dataset.dummy(made_up_rows, seed=seed), self._ledger.budget(self._about[0])
        with Session(dataset, budget, bits=SeededBits(seed), simulation=True) as session:
            return session.ask(query)

    @explain_arguments
    def _price_fit(
        self,
        estimator: Any,
        *,
        features: Sequence[str] | None = None,
        target: str | None = None,
        public_validation: Any = None,
        expect: Any = None,
    ) -> PriceQuote:
        public = public_fit_terms(estimator, public_validation)
        with self._capped(estimator) as (capped, _):
            query, source = capture_fit(copy.copy(capped), self.dataset, features=features, target=target, **public)
        plan = query.plan(source, PlanContext(definitions=self._paying_definitions()))
        question = question_in_part(plan.question, self._place)
        likely = guess_fit_bill(plan, self._own_receipts(), question=question)
        margin = describe_margin(estimator, plan, expect)
        note = self._account_note(plan.worst_case)
        return PriceQuote(question, plan.worst_case, likely, account_note=note, margin=margin)

    def _note_filter(self, query: Any) -> str:
        """Return what the filter of a query compares with a constant that the description does not list."""
        condition = getattr(query, "where", None)
        try:
            parsed = parse_sql(condition) if isinstance(condition, str) else condition
        except InvalidRequest:
            return ""  # the plan says what is wrong
        return describe_unlisted(parsed, self.dataset.categories) if isinstance(parsed, Expression) else ""

    def _account_note(self, worst_case: Loss) -> str | None:
        """Return what the dataset's account would do with a charge, if it counts another adjacency than this session."""
        if self._counts_replaced:
            what = "rows" if self.dataset.unit.is_row else "units"
            return f"counted as at most {replaced_loss(worst_case)}, because this account counts replaced {what}"
        return self._ledger.explain_change(self._protected)

    def _own_receipts(self) -> Iterator[Receipt]:
        """Yield recent receipts of what was asked from exactly these accounts: public, so a guess from them is free.

        The ledger is read when the first one is wanted: a fixed price needs none.
        """
        for entry in self._ledger.history(self._about[0], last=_RECENT_ENTRIES):
            if entry.body.get("charges", {}).keys() == set(self.accounts) and entry.receipt is not None:
                yield entry.receipt

    def _question_cap(self) -> QuestionCap:
        """Return the smallest question cap of the accounts that pay, or what is left if that is less."""
        cap = min(map(self._cap_in, self.accounts))
        for account in self.accounts:
            left = self._left_for_query(account).amounts().get("epsilon")
            if left is not None and left <= _NOTHING:
                raise InvalidRequest(f"The budget of {account!r} is used up", do="Have the owner raise the budget")
            if left is not None and left < cap:
                cap = QuestionCap(left, f"all that is left of {account!r}")
        return cap

    def _cap_in(self, account: str) -> QuestionCap:
        """Return the question cap of an account in the terms of this session."""
        cap = self._ledger.question_cap(account)
        if account in self._also or not self._counts_replaced:
            return cap
        return QuestionCap(cap / 2, f"half of that of {account!r}, which counts replaced units")

    @property
    def _counts_replaced(self) -> bool:
        """Whether this session is about added and removed units and its account counts replaced ones."""
        added = self._protected.adjacency is Adjacency.ADD_REMOVE
        return added and self._ledger.counts(self._about[0]) is Adjacency.REPLACE_ONE

    def _left_for_query(self, account: str) -> Loss:
        """Return what a query of this session may cost in one of its accounts, by its own adjacency."""
        if account in self._also:
            return self._ledger.remaining(account)
        return self._ledger.remaining_for(account, self._protected)

    # The books ---------------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """Return the ledger that is billed."""
        return self._ledger

    @property
    def accounts(self) -> Sequence[str]:
        """Return the accounts that every query charges."""
        return (*self._about, *self._also)

    def remaining(self) -> Loss:
        """Return what is left: the least of all accounts that pay and are in the definition of the dataset's.

        It is in the terms of the account. If that counts replaced units, a query about added and removed ones may cost
        half of it. It prints rounded down, with the name of the account if that is not the dataset's.
        """
        left = {account: self._ledger.remaining(account) for account in self.accounts}
        definition = left[self._about[0]].definition
        alike = {account: each for account, each in left.items() if each.definition == definition}
        least = min(alike, key=lambda account: next(iter(alike[account].amounts().values())))
        return _each_amount(min, list(alike.values())).as_balance(None if least in self._about else least)

    def spent(self) -> Loss:
        """Return what the dataset's or the part's account has paid or holds; of several windows, the most."""
        return _each_amount(max, [self._ledger.spent(account) for account in self._about])

    def history(self) -> LedgerHistory:
        """Return everything that touched the account of the dataset or part, oldest first; it prints as a table."""
        about = set(self._about)
        return LedgerHistory(entry for entry in self._ledger.history() if not about.isdisjoint(entry.accounts))

    def receipt(self, entry: str) -> Receipt:
        """Return the receipt kept under an entry's id.

        Parameters
        ----------
        entry : str
            The id, as in ``release.receipt.ledger_entry``.

        Raises
        ------
        InvalidRequest
            If the ledger has no such entry.
        """
        return self._ledger.receipt(entry)

    def plot(self, path: str | None = None) -> Any:
        """Draw the budget over time; of several windows, the first.

        Parameters
        ----------
        path : str, optional
            A PNG or SVG file to write.
        """
        account = self._about[0]
        entries, budget = self._ledger.history(account), self._ledger.budget(account)
        return draw_picture("budget", entries, account=account, budget=budget, path=path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ledger.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a reference to rows and ledger; never rows, releases or randomness."""
        in_memory = any(each.in_memory for each in (self.dataset, *self.tables.values()))
        if not self._ledger.durable or in_memory or self._simulation:
            raise TypeError("Only a session on a file with a durable ledger can be pickled; this one is in memory.")
        if self._whole is not None:
            whole, (kind, *words) = self._whole
            return _reopen_part, (whole, kind, tuple(words))
        analyst = self._also[0].removeprefix("analyst:") if self._also else None
        return _reopen_session, (self.dataset, self._ledger.url, analyst, tuple(self.tables.values()))

    def __repr__(self) -> str:
        about = self._about[0] if len(self._about) == 1 else f"{self._about[0]} .. {self._about[-1]}"
        return f"Session({about!r}, remaining {self.remaining()})"

    def _repr_html_(self) -> str:
        facts = [("accounts", ", ".join(self.accounts)), ("spent", str(self.spent())), ("left", str(self.remaining()))]
        return html_table(("session", ""), facts) + self.dataset._repr_html_()


def _check_tables(dataset: Dataset, tables: Any) -> dict[str, Dataset]:
    """Return further tables by name; raise if they do not protect what the dataset protects."""
    found: dict[str, Dataset] = {}
    for each in read_list(tables, "tables", do="Pass tables=[people]"):
        named = isinstance(each, Dataset) and each.name is not None and each.name not in (dataset.name, *found)
        if not named or each.unit != dataset.unit or each.unit.is_row or each.adjacency is not dataset.adjacency:
            raise InvalidRequest(
                "Expected tables with names of their own and the unit of the dataset, an id, with the same adjacency",
                got=each,
                do='Pass Dataset(..., name="people", unit="id") for all of them',
            )
        found[each.name] = each
    return found


def _check_query(query: Any) -> None:
    """Raise if something else is passed in place of a query."""
    if isinstance(query, type) or not hasattr(query, "plan"):
        got = query.__name__ if isinstance(query, type) else query
        do = "Build one, such as expost.stats.Count(within=100), or call a method: session.count(within=100)"
        raise InvalidRequest("Expected a query, not SQL or a class", got=got, do=do)


def _open_accounts(
    budgets: dict[str, tuple[Budget, str]],
    where: Any,
    source: SourceIdentity,
    *,
    question_cap: Fraction | None,
    another_budget: str | None,
) -> Ledger:
    """Open a ledger and accounts in it, the first for the dataset. All arguments are checked first: a refusal leaves no
    file behind.
    """
    guarantees = {
        check_name(account): None if budget is None else check_budget(as_guarantee(budget, argument))
        for account, (budget, argument) in budgets.items()
    }
    if another_budget is not None:
        check_reason(another_budget)

    def without_budget(account: str) -> InvalidRequest:
        argument = budgets[account][1]
        place = where.url if isinstance(where, Ledger) else where
        if place is None:
            return InvalidRequest(f"Expected a budget for {account}", do=f"Pass {argument}=1.0")
        return missing_account(account, str(place), argument=argument)

    unopened = next((account for account, budget in guarantees.items() if budget is None), None)
    ledger = open_ledger(where) if unopened is None else open_existing_ledger(where)
    if ledger is None:
        assert unopened is not None
        raise without_budget(unopened)
    about = next(iter(guarantees))
    for account, budget in guarantees.items():
        if budget is None and account not in ledger.accounts():
            raise without_budget(account)
    for account, budget in guarantees.items():
        if account in ledger.accounts() and ledger.whole_of(account) is not None:
            # Charges of a part count in the whole only as far as they are the largest: not for a whole table.
            raise InvalidRequest("Expected the name of a table, not of a part", got=account, do="Use Session.part(...)")
        if account == about:
            ledger.bind_source(account, source, budget=budget, question_cap=question_cap, another_budget=another_budget)
        elif budget is not None:
            ledger.open_account(account, budget)
    return ledger


class _StepFollowsError(Exception):
    """More was asked for than has been released: the fit has another step."""


def _keep_model(keep: KeepAnswer, unfitted: Any, dataset: Dataset, terms: dict[str, Any]) -> KeepAnswer:
    """Return what keeps the last step of a fit, with the estimator that its releases make, before it is settled."""
    drawn: list[Release[Any]] = []

    def keep_last(hold: Hold, release: Release[Any], outcome: PrivacyEvent | None) -> None:
        drawn.append(release)
        rest = iter(drawn)

        def replay(*_: Any, **__: Any) -> Release[Any]:
            found = next(rest, None)
            if found is None:
                raise _StepFollowsError
            return found

        model = copy.copy(unfitted)
        try:
            model.fit_with(replay, dataset, **terms)  # reads no row: what reads rows is the query, which is not run
        except _StepFollowsError:
            return
        keep(hold, replace(release, value=model), outcome)

    return keep_last


def _default_cap(query: Any) -> QuestionCap | None:
    """Return the question cap that a query has because its asker named none."""
    asked = getattr(getattr(query, "query", query), "max_epsilon", None)
    return asked if isinstance(asked, QuestionCap) else None


def _each_amount(choose: Callable[[list[Any]], Any], losses: list[Loss]) -> Loss:
    """Return the least or the most of several losses, number by number."""
    amounts = [loss.amounts() for loss in losses]
    return losses[0].with_amounts({name: choose([one[name] for one in amounts]) for name in amounts[0]})


def _reopen_session(dataset: Dataset, ledger: str, analyst: str | None, tables: tuple[Dataset, ...]) -> Session:
    return Session(dataset, ledger=ledger, analyst=analyst, tables=tables)


def _reopen_part(whole: Session, kind: str, words: tuple[Any, ...]) -> Session:
    part: Session = getattr(whole, kind)(*words)
    return part
