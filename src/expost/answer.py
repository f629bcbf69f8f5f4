"""The one function behind every answer and every fit: hold, measure, climb, settle, release."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from expost.core import (
    EngineFailed,
    InvalidRequest,
    Plan,
    PlanContext,
    Query,
    Release,
    Request,
    TableChanged,
    TargetNotMet,
)
from expost.ledger import Ledger, Protected
from expost.noise import BitSource
from expost.noise.bits import randomness

__all__ = ["answer", "plan_query", "question_in_part"]


def answer(
    query: Query | Request,
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
        The accounts that pay; each must have room for the worst case.
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
        The adjacency and unit that one of the accounts must have had in all its charges.

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

    See Also
    --------
    expost.Session : plans, asks and keeps gradual releases.
    """
    source = randomness(bits, simulation)
    plan = plan_query(query, dataset, ledger=ledger, accounts=accounts, released=released)
    question = question_in_part(plan.question, place)
    hold = ledger.hold(accounts, plan.worst_case, question=question, request_id=request_id, protected=protected)
    if hold.repeated:
        # Running it again under the first charge would draw fresh noise without paying for it.
        raise InvalidRequest("Expected a new request id", got=request_id, do="This request ran before: use a new id")
    release = _run_quietly(lambda: plan.climb(plan.measure(dataset), source), question, simulation)
    if place is not None:
        renamed = replace(release.receipt, question=question_in_part(release.receipt.question, place))
        release = replace(release, receipt=renamed)
    release = release.entered(ledger.settle(hold, release.receipt))
    if not release.receipt.outcome.met:
        raise TargetNotMet.of(release)
    return release


def plan_query(
    query: Query | Request, dataset: Any, *, ledger: Ledger, accounts: Sequence[str], released: Any = None
) -> Plan:
    """Plan a query for the accounts that will pay; reads public facts only and spends nothing."""
    definitions = frozenset(ledger.budget(account).definition for account in accounts)
    if hasattr(query, "plan"):
        return query.plan(dataset, PlanContext(released, definitions))
    priced_in = getattr(query, "priced_in", None)
    request: Request = query if priced_in is None else priced_in(set(definitions))
    request.check(dataset)
    return request


def question_in_part(question: str, place: str | None) -> str:
    """Return a question with the part of the table that it is about.

    >>> question_in_part("count of rows", "site=A")
    'count of rows in site=A'
    """
    return question if place is None else f"{question} in {place}"


def _run_quietly(steps: Callable[[], Release[Any]], question: str, simulation: bool) -> Release[Any]:
    """Measure and climb. Exceptions and warnings may carry rows, so none of them travels, not even chained."""
    if simulation:
        release = steps()
        return replace(release, receipt=replace(release.receipt, simulation=True))
    stopped = changed = False
    try:
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning may depend on a single row
            try:
                return steps()
            except TableChanged:  # carries no data
                changed = True
    except KeyboardInterrupt:
        stopped = True
    if stopped:
        raise KeyboardInterrupt(f"{question!r} was stopped before it had an answer; its worst case stays charged.")
    if changed:
        raise TableChanged
    raise EngineFailed(
        f"Expected to finish {question!r}", do="Check the source; the worst case of this request stays charged"
    )
