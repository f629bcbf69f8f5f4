"""The way of one answer for a training that may be continued: hold once, train in several goes, settle once."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from expost.core import EngineFailed, InvalidRequest, Release, TargetNotMet
from expost.learning.sgd.checkpoint import Checkpoint, Progressed
from expost.learning.sgd.request import TrainingRequest
from expost.ledger import Hold, HoldState, Ledger, Protected
from expost.noise import BitSource

__all__ = ["train_resumably"]

_KEY_BITS = 128


def train_resumably(
    request: TrainingRequest,
    dataset: Any,
    *,
    ledger: Ledger,
    accounts: Sequence[str],
    checkpoint: Checkpoint,
    bits: BitSource,
    simulation: bool = False,
    protected: Protected | None = None,
) -> Release[Any]:
    """Train under one hold that outlives the process; the counterpart of ``expost.curator.answer``.

    A first run takes the hold and writes it into the checkpoint before the data is touched. A run that finds a
    checkpoint goes on under that hold: what was begun stays charged, nothing is charged twice. Two runs that go on
    from one checkpoint cannot both be settled, so only one of them can release anything.
    ``protected`` is what one of the accounts must have been about before.
    """
    request.check(dataset)
    checkpoint.check()
    found = checkpoint.read(request.public_terms())
    start = found or Progressed(request.public_terms(), split_key=bits.integer(_KEY_BITS) | 1)
    take = partial(ledger.hold, accounts, protected=protected)
    # A ledger in memory died with its process: the whole run is charged to the new one.
    kept = start.hold if ledger.durable else None
    hold = _new(request, take, bits) if kept is None else _found(kept, take)
    start = replace(start, hold=hold)
    checkpoint.write(start)
    release = _run(replace(request, start=start, save=checkpoint.write), dataset, bits, simulation)
    release = release.entered(ledger.settle(hold, release.receipt))
    checkpoint.remove()
    if not release.receipt.outcome.met:
        raise TargetNotMet(
            f"Expected {release.receipt.target}, got no phase that reaches it under the cap of "
            f"{release.receipt.promise}. Raise max_epsilon, or ask for less accuracy.",
            release,
        )
    return release


def _new(request: TrainingRequest, take: Callable[..., Hold], bits: BitSource) -> Hold:
    request_id = f"training-{bits.integer(_KEY_BITS):032x}"
    return take(request.worst_case, question=request.question, request_id=request_id)


def _found(kept: Hold, take: Callable[..., Hold]) -> Hold:
    now = take(kept.worst_case, question=kept.question, request_id=kept.request_id)
    if not now.repeated or now.id != kept.id or now.state is not HoldState.OPEN:
        raise InvalidRequest("Expected the ledger that holds this training", do="Start anew without the checkpoint")
    return kept


def _run(request: TrainingRequest, dataset: Any, bits: BitSource, simulation: bool) -> Release[Any]:
    """Train; what breaks or warns on the way may carry rows, so it does not travel (as in ``expost.curator.answer``)."""
    if simulation:
        release = request.climb(request.measure(dataset), bits)
        return replace(release, receipt=replace(release.receipt, simulation=True))
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning may depend on a single row
        return request.climb(request.measure(dataset), bits)
    raise EngineFailed(
        f"Expected to finish {request.question!r}",
        do="Its checkpoint can be continued; the worst case stays charged until it is",
    )
