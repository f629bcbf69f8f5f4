"""The way of one answer for a training that may be continued: hold once, train in several goes, settle once."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from expost.core import EngineFailed, InvalidRequest, Release, TableChanged, TargetNotMet
from expost.data.row_identity import KEY_BITS
from expost.ledger import Hold, Ledger, Protected
from expost.ledger.account import checked_name
from expost.models.descent.checkpoint import Checkpoint, Progressed
from expost.models.descent.request import TrainingRequest
from expost.noise import BitSource
from expost.noise.bits import randomness

__all__ = ["train_resumably"]


def train_resumably(
    request: TrainingRequest,
    dataset: Any,
    *,
    ledger: Ledger,
    accounts: Sequence[str],
    checkpoint: Checkpoint,
    bits: BitSource | None = None,
    simulation: bool = False,
    protected: Protected | None = None,
) -> Release[Any]:
    """Train under one hold that outlives the process; the counterpart of ``expost.answer.answer``.

    A first run takes the hold and writes it into the checkpoint before the data is touched. A run that finds a
    checkpoint takes that hold over and goes on: what was begun stays charged, nothing is charged twice. Of several
    runs that have a copy of one checkpoint the ledger lets one take over, so only one of them can release anything;
    a checkpoint that another run works with is refused, for free.
    ``protected`` is what one of the accounts must have been about before.
    """
    source = randomness(bits, simulation)
    request.check(dataset)
    checkpoint.check()
    # What was drawn from a seed must not go on as if it were private.
    terms = {**request.public_terms(), "simulation": simulation}
    with checkpoint.alone():
        start = checkpoint.read(terms) or Progressed(terms, split_key=source.integer(KEY_BITS) | 1)
        # A ledger in memory died with its process: the whole run is charged to the new one.
        if start.hold is None or not ledger.durable:
            hold = ledger.hold(accounts, request.worst_case, question=request.question, protected=protected)
        else:
            hold = _taken_over(start, ledger, accounts, checkpoint)
        start = replace(start, hold=hold)
        checkpoint.write(start)
        release = _run(replace(request, start=start, save=checkpoint.write), dataset, source, simulation)
        release = release.entered(ledger.settle(hold, release.receipt))
        checkpoint.remove()
    if not release.receipt.outcome.met:
        raise TargetNotMet.of(release)
    return release


def _taken_over(start: Progressed, ledger: Ledger, accounts: Sequence[str], checkpoint: Checkpoint) -> Hold:
    """The hold of a checkpoint, for this process alone; written down before the ledger knows, so no crash loses it."""
    assert start.hold is not None
    if start.hold.accounts != tuple(sorted(checked_name(account) for account in accounts)):
        raise InvalidRequest("Expected the account that holds this training", do="Name it as before")
    return ledger.take_over(start.hold, keep=lambda mine: checkpoint.write(replace(start, hold=mine)))


def _run(request: TrainingRequest, dataset: Any, bits: BitSource, simulation: bool) -> Release[Any]:
    """Train; what breaks or warns on the way may carry rows, so it does not travel (as in ``expost.answer.answer``)."""
    if simulation:
        release = request.climb(request.measure(dataset), bits)
        return replace(release, receipt=replace(release.receipt, simulation=True))
    stopped = changed = False
    try:
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning may depend on a single row
            try:
                return request.climb(request.measure(dataset), bits)
            except TableChanged:  # says nothing but that
                changed = True
    except KeyboardInterrupt:
        stopped = True
    if changed:
        raise TableChanged
    if stopped:
        raise KeyboardInterrupt(
            f"{request.question!r} was stopped outside its steps; it stays charged, and its checkpoint can be continued."
        )
    raise EngineFailed(
        f"Expected to finish {request.question!r}",
        do="Its checkpoint can be continued; the worst case stays charged until it is",
    )
