"""Attacks on models of mixed tables: a canary whose vector is as long as its sum allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.audit.audit_registry import AuditEntry
from expost.audit.pair_attack import Pair
from expost.audit.planted_fault import GAUSSIAN_STREAM
from expost.audit.replay_views import Ask, stream_pair
from expost.models.tabular.lattice_sum import LatticeSum
from expost.models.tabular.rung_schedule import plan_epsilon

__all__ = ["entries"]

_DELTA = Fraction(1, 100)  # large, so that few runs can contradict it
_PLAIN = np.array([[0.1, 0.0], [0.0, -0.1]])
_PACKAGE = "expost.models.tabular."


def entries() -> Iterable[AuditEntry]:
    """List the sum through which profiles and scores are released, at the price of a rung.

    The steps of a training are attacked with those of ``NewtonLearner``, which sums gradients by the same class.
    """
    also = tuple(_PACKAGE + name for name in ("score_sum.ScoreSum", "rung_schedule.RungSchedule"))
    return (
        AuditEntry(
            _PACKAGE + "lattice_sum.LatticeSum",
            _sum_pairs,
            also=(*also, _PACKAGE + "table_training.TableTraining"),
            noise=GAUSSIAN_STREAM,
        ),
    )


def _sum_pairs() -> Sequence[Pair]:
    """Add a row, or a person with several rows, to two others."""
    whole = np.array([[0.6, 0.8]])
    return _sum_pair("a row is added", whole, np.ones(1)), _sum_pair(
        "a person with three rows is added", np.tile(whole, (3, 1)), np.full(3, np.float32((2**24 // 3) / 2**24))
    )


def _sum_pair(name: str, canary: NDArray[np.float64], weights: NDArray[np.float64]) -> Pair:
    schedule = plan_epsilon(Fraction(1), _DELTA)
    lattice, noise = LatticeSum(2, 1.0, len(canary)), schedule.rungs[0].noise

    def released(with_canary: bool) -> Ask:
        total = lattice.start()
        lattice.add(total, _PLAIN, np.ones(len(_PLAIN)))
        if with_canary:
            lattice.add(total, canary, weights)
        return lambda bits: lattice.release(total, noise, bits)

    left, right = released(True), released(False)
    return stream_pair(name, schedule.prices.cap.promise(), left, right)
