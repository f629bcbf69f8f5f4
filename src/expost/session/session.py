"""An analyst's way in: questions about one dataset, paid from one budget."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from types import TracebackType
from typing import Any, Self

from expost.answer import answer, plan_query, question_in_part
from expost.core import BudgetExceeded, Guarantee, InvalidRequest, Loss, Receipt, Release, Request, Target
from expost.core.picture import draw
from expost.data import Dataset
from expost.ledger import Entry, Ledger, Protected, open_ledger
from expost.ledger.account import checked_budget, checked_name
from expost.ledger.opening import existing_ledger
from expost.noise import BitSource
from expost.noise.bits import randomness
from expost.session.desk import Desk
from expost.session.parts import Scope, column_part, time_windows
from expost.session.price import Price, last_bill, likely_cost, public_terms_of, quoted
from expost.session.questions import Questions
from expost.stats import ByPrivateKeys

__all__ = ["Session"]


class Session(Questions):
    """Asks questions about a dataset and pays for them from a budget kept in a ledger.

    Every question takes an accuracy (``within=100``, ``within="5%"``) or a privacy level (``epsilon=0.1``). With an
    accuracy the answer is the most private one that reaches it; ``max_epsilon`` caps what it may cost (default: all
    that is left). The ledger is charged before an answer leaves.

    >>> import pyarrow as pa
    >>> from expost import Dataset, epsilon
    >>> people = Dataset(pa.table({"age": list(range(100)) * 50}), name="people", bounds={"age": (0, 120)})
    >>> with Session(people, epsilon(1)) as session:
    ...     release = session.count(within=100)
    >>> abs(release.value - 5000) < 1000, release.receipt.outcome.value
    (True, 'certified')
    """

    def __init__(
        self,
        dataset: Dataset,
        budget: Guarantee | None = None,
        *,
        ledger: Any = None,
        analyst: str | None = None,
        analyst_budget: Guarantee | None = None,
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
        randomness(bits, simulation)  # refused before there is a ledger
        self.dataset = dataset
        about = _Charged.checked(f"dataset:{dataset.name or 'table'}", budget, "budget")
        also = [] if analyst is None else [_Charged.checked(f"analyst:{analyst}", analyst_budget, "analyst_budget")]
        in_process = ledger is None or (isinstance(ledger, Ledger) and not ledger.durable)
        if not (dataset.name or in_process):
            raise InvalidRequest("Expected a name for a dataset in a durable ledger", do="Pass Dataset(..., name=...)")
        self._ledger: Ledger = _ledger_for([about, *also], ledger)
        self._about: tuple[str, ...] = (self._open(about),)
        self._also = tuple(self._open(each) for each in also)
        self._root = self._about[0]
        # Losses add up for one notion of a person only: an account keeps the unit that its first hold had.
        self._protected = Protected(self._root, dataset.adjacency, dataset.unit)
        self._unit_known = self._ledger.check_protected(self._protected)
        self._bits, self._simulation = bits, simulation
        self._desk = self._open_desk()
        self._scope: Scope | None = None
        self._whole: tuple[Session, tuple[Any, ...]] | None = None
        self._parts: dict[tuple[Any, ...], Session] = {}

    def _open(self, charged: _Charged) -> str:
        name = charged.account
        if charged.budget is not None:
            self._ledger.open_account(name, charged.budget)
        elif name not in self._ledger.accounts():
            raise charged.without_budget()
        if self._ledger.whole_of(name) is not None:
            # Its charges count in the whole only as far as they are the largest: not for a table that is no part.
            raise InvalidRequest("Expected the name of a table, not of a part", got=name, do="Use Session.part(...)")
        return name

    def _open_desk(self) -> Desk | None:
        """Where gradual releases are kept between questions, if refining them can be billed.

        The bill of a refinement is the difference of two pure levels: sound where pure losses add up, that is in pure
        and (epsilon, delta) accounts, and only for accounts that paid for the first part too. So nothing is kept for
        other currencies; and only what every account of a later session has paid for is stored for it, which excludes
        simulations, tables that live in this process, and sessions that charge an analyst.
        """
        definitions = {self._ledger.budget(account).definition for account in self.accounts}
        if not definitions <= {"pure", "approx"}:
            return None
        shared = self._ledger.durable and not (self._simulation or self.dataset.in_memory or self._also)
        return Desk(self._ledger if shared else None)

    @contextmanager
    def _shelved(self, request: Request) -> Iterator[Request]:
        """The request beside the paths of earlier ones, for as long as it is this thread's turn."""
        if self._desk is None or not hasattr(request, "on"):
            yield request
            return
        with self._desk.turn() as shelf:
            yield request.on(shelf)

    # Parts -------------------------------------------------------------------------------------------------------

    def part(self, column: str, value: Any) -> Session:
        """A session about the rows whose column has one of its public categories, with an account of its own.

        Parts by one column are disjoint, so the dataset's account pays only the largest of them, beside what was asked
        about the whole; under replace-one adjacency the two largest (docs/proofs/parallel-parts.md). Refused where a
        unit is an id, which may have rows in several parts.

        >>> import pyarrow as pa
        >>> from expost import Dataset, epsilon
        >>> table = pa.table({"site": ["A", "B"] * 5000})
        >>> session = Session(Dataset(table, name="people", categories={"site": ["A", "B"]}), epsilon(1))
        >>> for part in session.parts("site").values():
        ...     release = part.count(epsilon=0.25)
        >>> print(session.spent())
        epsilon 0.25
        """
        return self._within(("part", column, value), lambda: column_part(self.dataset, column, value))

    def parts(self, column: str) -> dict[Any, Session]:
        """The parts of all public categories of a column, by category."""
        return {value: self.part(column, value) for value in self.dataset.axis(column).values if value is not None}

    def window(self, first: str, last: str | None = None) -> Session:
        """A session about the time window of a user-time unit that holds a day, or all windows up to a last day's.

        Each window has the dataset's budget for itself, less what was asked about the whole; a question about several
        windows charges each of them. Days are written ``YYYY-MM-DD``.
        """
        return self._within(("window", first, last), lambda: time_windows(self.dataset, first, last))

    def _within(self, step: tuple[Any, ...], scope_of: Callable[[], Scope]) -> Session:
        key = (*step, type(step[-1]))
        if not all(isinstance(word, Hashable) for word in step):
            raise InvalidRequest("Expected a column and one of its values, or days", got=step[-1], do="Pass one value")
        if key not in self._parts:
            if len(self._about) > 1:
                raise InvalidRequest("Expected a session about one window or the whole", do="Start from the whole")
            scope, whole = scope_of(), self._about[0]
            accounts = scope.accounts(whole, self._ledger.parts(whole, by=scope.by))
            for account in accounts:
                self._ledger.open_part(account, of=whole, by=scope.by, touching=scope.touching)
            inner = object.__new__(type(self))  # a copy would be a session of its own, opened anew
            inner.__dict__ |= self.__dict__
            inner.dataset, inner._about, inner._scope = self.dataset.where(scope.condition), accounts, scope
            inner._whole, inner._parts = (self, step), {}
            self._parts[key] = inner
        return self._parts[key]

    # Questions ---------------------------------------------------------------------------------------------------

    def ask(self, request: Request, *, request_id: str | None = None) -> Release[Any]:
        """The release of any request; the named questions build the common ones.

        A question that an earlier answer already reaches is free; one that asks for more pays the difference. One by
        private keys is settled in two steps, so that what the second has not used is given back.
        """
        if isinstance(request, ByPrivateKeys):
            self._check_room(request.worst_case)
            return request.in_stages(self.ask, self.dataset, request_id)
        with self._shelved(request) as shelved:
            return self._answer(shelved, self.dataset, request_id)

    def _check_room(self, worst_case: Loss) -> None:
        """Refuse what is held step by step while nothing is paid: a first step alone would be paid in vain."""
        for account in self.accounts:
            left = self._ledger.remaining(account)
            if left.definition == worst_case.definition and not worst_case.within(left):
                raise BudgetExceeded(
                    f"Expected a worst case of at most {left.text(down=True)} in account {account!r}",
                    got=str(worst_case),
                    do="Ask for less, or have the owner raise the budget",
                )

    def _answer(self, request: Request, data: Any, request_id: str | None = None) -> Release[Any]:
        release = answer(
            request,
            data,
            ledger=self._ledger,
            accounts=self.accounts,
            bits=self._bits,
            simulation=self._simulation,
            request_id=request_id,
            place=self._place,
            protected=None if self._unit_known else self._protected,
        )
        self._unit_known = True
        return release

    def fit(self, estimator: Any, *, features: Sequence[str], target: str, public_validation: Any = None) -> Any:
        """Fit an estimator of ``expost`` to columns of the dataset, paid from this session's accounts.

        Most estimators need a public number of rows: ``adjacency="replace-one", rows=...``. Gradient descent
        (``SGDClassifier``, ``SGDRegressor``) and ``method="absolute_loss"`` need ``adjacency="add-remove"`` instead. Only
        they take ``public_validation``, a pair of features (in this order) and targets that are nobody's secret.
        """
        if not hasattr(estimator, "fit_with"):
            raise InvalidRequest("Expected an estimator of expost", got=estimator, do="Pass e.g. expost.Ridge(...)")
        public = public_terms_of(estimator, public_validation)
        return estimator.fit_with(self._answer, self.dataset, features=features, target=target, **public)

    def price(self, statistic: Any, *subject: Any, **terms: Any) -> Price:
        """What a question would cost: the worst case, and a guess from receipts that are public already.

        Takes a statistic's name with its terms, a request, or an estimator with ``features=`` and ``target=``; nothing
        is spent and no row is read.
        """
        if hasattr(statistic, "fit_with"):
            return self._price_of_fit(statistic, **terms)
        request = self.request(statistic, *subject, **terms) if isinstance(statistic, str) else statistic
        with self._shelved(request) as shelved:
            shelved.check(self.dataset)
            worst_case = shelved.worst_case
        within = terms.get("within")
        target = None if within is None else Target.within(within, confidence=terms.get("confidence", 0.95))
        question = question_in_part(request.question, self._place)
        likely = likely_cost(worst_case, target, self._receipts(), cap=self._left(), question=question)
        return Price(question, worst_case, likely)

    def _price_of_fit(
        self, estimator: Any, *, features: Sequence[str], target: str, public_validation: Any = None
    ) -> Price:
        public = public_terms_of(estimator, public_validation)
        quote, source = quoted(estimator, self.dataset, features=features, target=target, **public)
        request = plan_query(quote, source, ledger=self._ledger, accounts=self.accounts)
        question = question_in_part(request.question, self._place)
        return Price(question, request.worst_case, last_bill(request, self._receipts(), question=question))

    def _receipts(self) -> Iterator[Receipt]:
        """The receipts of what was asked from just these accounts: public, so a guess from them is free."""
        entries = (entry for entry in self.history() if set(entry.charges) == set(self.accounts))
        return (entry.receipt for entry in entries if entry.receipt is not None)

    @property
    def _place(self) -> str | None:
        """The part this session is about, in public words."""
        if self._scope is None or self._whole is None:
            return None
        around = self._whole[0]._place
        return self._scope.text if around is None else f"{around}, {self._scope.text}"

    def _left(self) -> Fraction:
        left = min(self._ledger.remaining(account).amounts().get("epsilon", Fraction(1)) for account in self.accounts)
        if left <= 0:
            raise InvalidRequest("Expected something left in the budget", do="Raise the budget")
        return left

    # The books ---------------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """The ledger that is billed."""
        return self._ledger

    @property
    def accounts(self) -> Sequence[str]:
        """The accounts that every question charges."""
        return (*self._about, *self._also)

    def remaining(self) -> Loss:
        """What is left for questions about this dataset or part; of several windows, the least."""
        return _each(min, [self._ledger.remaining(account) for account in self._about])

    def spent(self) -> Loss:
        """What the dataset's or the part's account has paid or holds; of several windows, the most."""
        return _each(max, [self._ledger.spent(account) for account in self._about])

    def history(self) -> list[Entry]:
        """Everything that touched the account of the dataset or part, oldest first."""
        entries = self._ledger.history()
        return [entry for entry in entries if not set(self._about).isdisjoint(entry.accounts)]

    def receipt(self, entry: str) -> Receipt:
        """The receipt kept under an entry's id."""
        return self._ledger.receipt(entry)

    def plot(self, path: str | None = None, **options: Any) -> Any:
        """Draw the budget over time; of several windows, the first."""
        account = self._about[0]
        entries, budget = self._ledger.history(account), self._ledger.budget(account)
        return draw("budget", entries, account=account, budget=budget, path=path, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ledger.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A reference: where the rows and the ledger are; never rows, paths or randomness."""
        if not self._ledger.durable or self.dataset.in_memory or self._simulation:
            raise TypeError("Expected a session on a file with a durable ledger; this one lives in its process only.")
        if self._whole is not None:
            whole, (kind, *words) = self._whole
            return _reopen_part, (whole, kind, tuple(words))
        analyst = self._also[0].removeprefix("analyst:") if self._also else None
        return _reopen, (self.dataset, self._ledger.url, analyst)

    def __repr__(self) -> str:
        about = self._about[0] if len(self._about) == 1 else f"{self._about[0]} .. {self._about[-1]}"
        return f"Session({about!r}, remaining {self.remaining().text(down=True)})"


@dataclass(frozen=True)
class _Charged:
    """An account that a session charges, a budget to open it with, and the argument that would give one."""

    account: str
    budget: Guarantee | None
    argument: str

    @classmethod
    def checked(cls, account: str, budget: Guarantee | None, argument: str) -> _Charged:
        """What was typed, refused before a ledger is opened: a refusal leaves no file behind."""
        return cls(checked_name(account), None if budget is None else checked_budget(budget), argument)

    def without_budget(self) -> InvalidRequest:
        return InvalidRequest(f"Expected a budget for {self.account}", do=f"Pass {self.argument}=expost.epsilon(1.0)")


def _ledger_for(charged: Sequence[_Charged], where: Any) -> Ledger:
    """The ledger named: a new one only if every account can be opened in it, else a refusal would leave a file behind."""
    unopened = next((each for each in charged if each.budget is None), None)
    if unopened is None:
        return open_ledger(where)
    found = existing_ledger(where)
    if found is None:
        raise unopened.without_budget()
    return found


def _each(choose: Callable[[list[Any]], Any], losses: list[Loss]) -> Loss:
    """The least or the most of several losses, number by number."""
    amounts = [loss.amounts() for loss in losses]
    return losses[0]._with({name: choose([one[name] for one in amounts]) for name in amounts[0]})


def _reopen(dataset: Dataset, ledger: str, analyst: str | None) -> Session:
    return Session(dataset, ledger=ledger, analyst=analyst)


def _reopen_part(whole: Session, kind: str, words: tuple[Any, ...]) -> Session:
    part: Session = getattr(whole, kind)(*words)
    return part
