"""The whole way of one answer."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from expost.core import EngineFailed, InvalidRequest, Release, Request, TableChanged, TargetNotMet
from expost.curator.currency import in_currency_of
from expost.ledger import Ledger, Protected
from expost.noise import BitSource
from expost.noise.bits import randomness

__all__ = ["answer", "placed"]


def answer(
    request: Request,
    dataset: Any,
    *,
    ledger: Ledger,
    accounts: Sequence[str],
    bits: BitSource | None = None,
    simulation: bool = False,
    request_id: str | None = None,
    place: str | None = None,
    protected: Protected | None = None,
) -> Release[Any]:
    """Hold, measure, climb, settle, release.

    The ledger is charged the worst case before the data is touched, and the realised bill before the answer leaves;
    giving back the unused part is a theorem (docs/proofs/ex-post-composition.md). A crash in between stays charged at
    the worst case. A missed target raises ``TargetNotMet`` with the private release that was paid for.
    ``place`` names the part of the table that the dataset is, for the record; ``protected`` what one of the accounts
    must have been about before.

    See ``expost.Session`` for the friendly way in.
    """
    source = randomness(bits, simulation)
    request = in_currency_of(request, ledger, accounts)
    request.check(dataset)
    question = placed(request.question, place)
    hold = ledger.hold(accounts, request.worst_case, question=question, request_id=request_id, protected=protected)
    if hold.repeated:
        # Running it again under the first charge would draw fresh noise for nothing.
        raise InvalidRequest("Expected a new request id", got=request_id, do="This request ran before: use a new id")
    release = _run(lambda: request.climb(request.measure(dataset), source), question, simulation)
    if place is not None:
        release = replace(release, receipt=replace(release.receipt, question=placed(release.receipt.question, place)))
    release = release.entered(ledger.settle(hold, release.receipt))
    if not release.receipt.outcome.met:
        raise TargetNotMet.of(release)
    return release


def placed(question: str, place: str | None) -> str:
    """A question with the part of the table that it is about.

    >>> placed("count of rows", "site=A")
    'count of rows in site=A'
    """
    return question if place is None else f"{question} in {place}"


def _run(steps: Callable[[], Release[Any]], question: str, simulation: bool) -> Release[Any]:
    """Measure and climb; what breaks or warns on the way may carry rows, so it does not travel, not even chained."""
    if simulation:
        release = steps()
        return replace(release, receipt=replace(release.receipt, simulation=True))
    stopped = changed = False
    try:
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning may depend on a single row
            try:
                return steps()
            except TableChanged:  # says nothing but that
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
