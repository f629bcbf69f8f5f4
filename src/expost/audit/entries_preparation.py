"""Attacks on the private preparation of tables: released moments of columns, and chosen columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from expost.audit.audit_registry import AuditEntry
from expost.audit.pair_attack import Outcomes, Pair
from expost.audit.planted_fault import CHOICES, GAUSSIAN, LAPLACE
from expost.core import Adjacency, Norm, approx
from expost.data.row_source import read_rows
from expost.models.preparation.column_moments import BoundedColumns, ColumnLayout
from expost.models.preparation.feature_selection import ColumnChoice
from expost.noise import GaussianMechanism, LaplaceMechanism, TopSelection
from expost.noise.bits import BitSource

__all__ = ["entries"]

_DELTA = Fraction(1, 100)  # large enough for a sample to see
_BOX = BoundedColumns((-1.0, -1.0), (1.0, 1.0))
_REST = [[1.0, 1.0], [-1.0, -1.0], [0.5, -0.5]]


def entries() -> Iterable[AuditEntry]:
    """List one entry per release."""
    names = "expost.models.preparation"
    return (
        AuditEntry(f"{names}.column_moments.ColumnMoments", _moment_pairs, noise=(*LAPLACE, *GAUSSIAN)),
        AuditEntry(f"{names}.feature_selection.ColumnChoice", _choice_pairs, noise=CHOICES),
    )


def _moment_pairs() -> Sequence[Pair]:
    """Add or replace the row that moves the moments most: on the bounds in every column."""
    one = Fraction(1)
    return (
        _moments("a row is added", one, Fraction(0), Adjacency.ADD_REMOVE, [*_REST, [1.0, 1.0]]),
        _moments("a row is added, Gaussian", one, _DELTA, Adjacency.ADD_REMOVE, [*_REST, [1.0, 1.0]]),
        _moments("products, a row is added", one, Fraction(0), Adjacency.ADD_REMOVE, [*_REST, [1.0, 1.0]], True),
    )


def _moments(
    name: str, epsilon: Fraction, delta: Fraction, adjacency: Adjacency, more: list[list[float]], products: bool = False
) -> Pair:
    layout = ColumnLayout(2, products=products, adjacency=adjacency)
    norm = Norm.L2 if delta else Norm.L1
    mechanism: LaplaceMechanism | GaussianMechanism = (
        GaussianMechanism(approx(epsilon, delta)) if delta else LaplaceMechanism(epsilon)
    )
    exact = [layout.sum_rows(read_rows(np.array(rows)), _BOX) for rows in (_REST, more)]
    # The direction in which the added row moves the vector: where the two laws are easiest to tell apart.
    move = np.sign((exact[1] - exact[0]).astype(float)) if not delta else (exact[1] - exact[0]).astype(float)

    def sample(given: Any, runs: int, bits: BitSource) -> Outcomes:
        released = mechanism.simulate(given, layout.sensitivity(norm), runs=runs, bits=bits).astype(float)
        if delta:
            return Outcomes.of((released - exact[0].astype(float)) @ move / (move @ move))
        return Outcomes.of(np.clip(((released - exact[0].astype(float)) / 2.0**20), -1, 2) @ move)

    claim = approx(epsilon, delta) if delta else LaplaceMechanism(epsilon).guarantee
    return Pair.of(name, claim, sample, *exact)


def _choice_pairs() -> Sequence[Pair]:
    """Add a row by which one column begins to vary with the target, and the others stop to."""
    # All targets are -1 but one. The first column is -1 everywhere, the others as often 1 as -1: a new row moves the
    # score of the first by 4, up, and those of the others by 2, down.
    left = np.array([[-1.0] + [1.0] * 20, [-1.0] * 21] * 200 + [[-1.0] * 21])
    right = np.vstack([left, [[1.0] * 21]])
    plan = ColumnChoice(
        columns=BoundedColumns((-1.0,) * 21, (1.0,) * 21),
        target_bounds=(-1.0, 1.0),
        classes=0,
        picks=1,
        epsilon=Fraction(2),
        adjacency=Adjacency.ADD_REMOVE,
        terms={},
    )
    mechanism = TopSelection(plan.epsilon, picks=plan.picks)
    sides = [
        plan.score_columns(read_rows(rows, np.array([-1.0] * 400 + [1.0] * (len(rows) - 400))))
        for rows in (left, right)
    ]

    def sample(given: Any, runs: int, bits: BitSource) -> Outcomes:
        picked = mechanism.simulate(given, plan.sensitivity, runs=runs, bits=bits)[:, 0]
        return Outcomes.of((picked == 0).astype(float))

    return (Pair.of("one column begins to vary with the target, others stop", mechanism.guarantee, sample, *sides),)
