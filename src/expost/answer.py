"""The one function behind every answer and every fit: hold, measure, climb, settle, release."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, cast

from expost.accounting.neighbour_change import replaced_loss
from expost.accounting.privacy_event import PrivacyEvent
from expost.core import (
    BudgetExceeded,
    EngineFailed,
    HoldStages,
    InvalidRequest,
    LedgerBusy,
    Loss,
    Plan,
    PlanContext,
    PureLoss,
    Query,
    Receipt,
    Release,
    ReleaseOvertaken,
    StagedPlan,
    TableChanged,
    TargetNotMet,
)
from expost.ledger import Hold, Ledger, Protected
from expost.noise import BitSource
from expost.noise.bits import resolve_randomness

__all__ = ["answer", "check_unchanged", "details_of", "noted_receipt", "outcome_of", "question_in_part"]

_MOST_ATTEMPTS = 100  # to continue a gradual release that other sessions refine: one of them succeeds each time


def answer(
    query: Query,
    dataset: Any,
    *,
    ledger: Ledger,
    accounts: Sequence[str],
    released: Any = None,
    bits: BitSource | None = None,
    simulation: bool = False,
    request_id: str | None = None,
    place: str | None = None,
    protected: Protected | None = None,
    notes: Mapping[str, str] | None = None,
    keep: Callable[[Hold, Release[Any], PrivacyEvent | None], object] | None = None,
    has_changed: Callable[[], bool] | None = None,
) -> Release[Any]:
    """Answer one query and charge the ledger for it.

    The ledger is charged the worst case before the data is touched, and the realised bill before the answer leaves.
    Giving back the unused part is a theorem (docs/proofs/ex-post-composition.md). A crash in between stays charged at
    the worst case.

    Parameters
    ----------
    query : Query
        What is asked: a statistic, a hypothesis test or a fit.
    dataset : Dataset or RowSource
        The table. Its description is read by ``query.plan``, its rows only after the hold.
    ledger : Ledger
        Where the charge is recorded.
    accounts : sequence of str
        The accounts that pay; each must be able to pay the worst case.
    released : object, optional
        The cache of earlier gradual releases, which a statistic may continue.
    bits : BitSource, optional
        The source of random bits. Default: the system's cryptographic source.
    simulation : bool, default False
        Allow seeded bits. The receipt then says that the answer is not private.
    request_id : str, optional
        A name for this request. A second run under the same name is refused.
    place : str, optional
        The part of the table that ``dataset`` is, in public words for the receipt.
    protected : Protected, optional
        The adjacency and unit of the answer, and the account that it is about. An account about another unit refuses it;
        one that counts replaced units charges an answer about added and removed ones accordingly.
    notes : mapping, optional
        Public lines to add to the terms of the receipt.
    keep : callable, optional
        Called with the hold, the release and what did run, before the ledger settles them. What it stores can be settled
        and delivered after a crash (``Ledger.take_over``): the worst case is charged already.
    has_changed : callable, optional
        Tells whether the source was changed since it was opened, from public facts. Default: that of ``dataset``.

    Returns
    -------
    Release
        The value, its interval and its receipt.

    Raises
    ------
    InvalidRequest, BudgetExceeded
        Before the data is touched; nothing is spent.
    TargetNotMet
        No rung under the cap was accurate enough. The exception carries the private release that was paid for.
    EngineFailed
        The data source failed; the worst case stays charged.
    TableChanged
        The source was changed meanwhile; the worst case stays charged.
    ReleaseOvertaken
        Other sessions refined the same answer first each time; nothing is spent.

    See Also
    --------
    expost.Session : plans, asks and keeps gradual releases.
    """
    source = resolve_randomness(bits, simulation)
    budgets = list(map(ledger.budget, accounts))
    use = partial(ledger.budget_use, accounts, protected=protected)
    context = PlanContext(released, frozenset(budget.definition for budget in budgets), use)
    is_changed: Callable[[], bool] = getattr(dataset, "has_changed", bool) if has_changed is None else has_changed
    check_unchanged(is_changed)
    plan = query.plan(dataset, context)
    question = question_in_part(plan.question, place)
    terms: dict[str, Any] = {"question": question, "protected": protected}
    staged = _StagedHold(ledger, accounts, plan, request_id=request_id, **terms)
    if staged.hold.repeated:
        # Running it again under the first charge would draw fresh noise without paying for it.
        raise InvalidRequest("Expected a new request id", got=request_id, do="This request ran before: use a new id")
    paid = Fraction(0)
    for _ in range(_MOST_ATTEMPTS):
        run = _QuietRun()
        with contextlib.nullcontext() if simulation else run:
            release = staged.plan.climb(staged.plan.measure(dataset), source)
        if not run.was_overtaken:
            break
        # Another session refined the release that this run continued. What this run drew is discarded, so nothing of
        # it was released: it runs again from what the other one wrote, under a hold for that, and one answer leaves.
        paid += staged.settle_unreleased(dataset)
        plan, note = query.plan(dataset, context), staged.hold.note
        staged = _StagedHold(ledger, accounts, plan, **terms)
        staged.hold = staged.hold if note is None else replace(staged.hold, note=note)
    else:
        paid += staged.settle_unreleased(dataset)
        raise ReleaseOvertaken(paid)
    if is_changed():
        raise TableChanged
    run.raise_failure(question, staged.hold.worst_case)
    if simulation:
        release = replace(release, receipt=replace(release.receipt, simulation=True))
    if place is not None:
        renamed = replace(release.receipt, question=question_in_part(release.receipt.question, place))
        release = replace(release, receipt=renamed)
    public = {**release.receipt.terms, **(notes or {}), **staged.notes}
    release = replace(release, receipt=noted_receipt(staged.hold, replace(release.receipt, terms=public)))
    outcome = outcome_of(plan, release.receipt)
    if keep is not None:
        keep(staged.hold, release, outcome)
    release = release.entered(ledger.settle(staged.hold, release.receipt, outcome=outcome))
    if not release.receipt.outcome.met:
        raise TargetNotMet.of(release)
    return release


def check_unchanged(has_changed: Callable[[], bool]) -> None:
    """Refuse a source that was changed since it was opened; nothing is spent."""
    if has_changed():
        raise InvalidRequest(
            "Cannot answer because the source was changed after it was opened",
            do="Open it again: a new Dataset and Session answer about its present rows",
        )


class _StagedHold:
    """The hold of a run, which grows stage by stage if the plan climbs a public ladder.

    Each stage is at least twice the one before, so there are few of them, and what an interrupted run leaves charged is
    at most twice what it has drawn, or the first stage.
    """

    def __init__(
        self,
        ledger: Ledger,
        accounts: Sequence[str],
        plan: Plan,
        *,
        question: str,
        protected: Protected | None,
        request_id: str | None = None,
    ) -> None:
        self._ledger, self._most = ledger, plan.worst_case
        self._refused = False
        self.shown = Fraction(0)  # what the stages so far have shown of the rungs: nothing above the stage before
        self.notes: dict[str, str] = {}
        self.plan = plan
        terms: dict[str, Any] = {"question": question, "protected": protected, "request_id": request_id}
        # Optional members of a plan are looked up by name: a check against a runtime protocol computes every property.
        first = getattr(plan, "first_stage", None)
        if first is not None:
            self.hold = ledger.hold(accounts, PureLoss(first), up_to=self._most, **terms, **details_of(plan))
            self.plan = cast(StagedPlan, plan).in_stages(HoldStages(self._cover))
        else:
            self.hold = ledger.hold(accounts, self._most, **terms, **details_of(plan))

    def _cover(self, amount: Fraction) -> Fraction:
        """Try to hold at least this epsilon, and return what is held."""
        held, most = self.hold.worst_case.amounts()["epsilon"], self._most.amounts()["epsilon"]
        if amount <= held or self._refused:
            return held
        for wanted in (max(2 * held, amount), amount):
            with contextlib.suppress(BudgetExceeded, LedgerBusy):
                self.hold, self.shown = self._ledger.extend(self.hold, PureLoss(min(wanted, most))), held
                return self.hold.worst_case.amounts()["epsilon"]
        # Others were charged since. The climb ends here, with the best answer that could be reserved.
        self._refused = True
        self.notes = {"not reserved": f"other questions left no more than {self.hold.worst_case} for this one"}
        return held

    def settle_unreleased(self, dataset: Any) -> Fraction:
        """Give back the hold of a run that was overtaken and released no answer, and return what stays charged."""
        # The realised loss of an outcome is the logarithm of a ratio of its probabilities. That a faster session was
        # there depends on that session, not on this run's draws: for that the ratio is one and the loss zero
        # (docs/proofs/ex-post-composition.md). But the ledger shows that the climb passed a stage, which depends on the
        # rungs below: that is charged (docs/proofs/staged-holds.md).
        hold = self.hold
        receipt = Receipt(
            question=hold.question,
            method="no answer released: overtaken by another session",
            promise=hold.worst_case.promise(),
            bill=PureLoss(self.shown) if self.shown else hold.worst_case.zero(),
            adjacency=dataset.adjacency,
            unit=dataset.unit,
        )
        self._ledger.settle(hold, receipt)
        return self.shown


def details_of(plan: Plan) -> dict[str, Any]:
    """Return what ``Ledger.hold`` needs to price a plan besides its worst case."""
    return {"event": getattr(plan, "event", None), "before": getattr(plan, "refined_from", Fraction(0))}


def outcome_of(plan: Plan, receipt: Receipt) -> PrivacyEvent | None:
    """Return what did run of a plan, where its steps are priced one by one."""
    read: Callable[[Receipt], PrivacyEvent | None] | None = getattr(plan, "event_of", None)
    return None if read is None else read(receipt)


def noted_receipt(hold: Hold, receipt: Receipt) -> Receipt:
    """Return a receipt with what the account did, if it counts another adjacency than the run."""
    notes = [] if hold.note is None else [hold.note]
    if hold.replaced:
        what = "rows" if receipt.unit.is_row else "units"
        notes.append(f"charged {replaced_loss(receipt.bill)}, because this account counts replaced {what}")
    return replace(receipt, account_note="; ".join(notes)) if notes else receipt


def question_in_part(question: str, place: str | None) -> str:
    """Return a question with the part of the table that it is about.

    >>> question_in_part("count of rows", "site=A")
    'count of rows in site=A'
    """
    return question if place is None else f"{question} in {place}"


class _QuietRun:
    """Suppresses what goes wrong while rows are read. Exceptions and warnings may carry rows, so only the kind is kept.

    The failure is raised after the ``with`` block, where no exception is being handled, so nothing is chained to it.
    """

    def __init__(self) -> None:
        self.failure: type[BaseException] | None = None
        self._warnings = warnings.catch_warnings()

    def __enter__(self) -> None:
        self._warnings.__enter__()
        warnings.simplefilter("ignore")  # a warning may depend on a single row

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        self._warnings.__exit__(None, None, None)
        self.failure = kind
        return kind is not None and issubclass(kind, Exception | KeyboardInterrupt)

    @property
    def was_overtaken(self) -> bool:
        """Whether another session refined the same release first."""
        return self.failure is not None and issubclass(self.failure, ReleaseOvertaken)

    def raise_failure(self, question: str, held: Loss) -> None:
        """Raise an error that carries no data and states what stays charged, if the run failed."""
        if self.failure is None:
            return
        if issubclass(self.failure, KeyboardInterrupt):
            raise KeyboardInterrupt(f"{question!r} was stopped before it had an answer; {held} stays charged.")
        if issubclass(self.failure, TableChanged):
            raise TableChanged
        raise EngineFailed(
            f"Failed while computing {question!r}. Its worst case, {held}, stays charged", do="Check the data source"
        )
