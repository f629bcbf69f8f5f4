"""Attacks on the hypothesis tests: on what each releases before it computes a p-value, on tables of a few rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa

from expost.audit.audit_registry import AuditEntry
from expost.audit.pair_attack import Pair
from expost.audit.planted_fault import PATHS
from expost.audit.replay_views import replay_pair
from expost.core import PureGuarantee
from expost.data import Dataset
from expost.noise.bits import BitSource
from expost.stats.hypothesis import (
    AnovaTest,
    BinomialTest,
    CorrelationTest,
    GoodnessOfFitTest,
    IndependenceTest,
    LinearCorrelationTest,
    MeanDifferenceTest,
    SplitTest,
)

__all__ = ["entries"]

_CLAIM = PureGuarantee(Fraction(2))
_PREFIX = "expost.stats.hypothesis."

# Neighbours: one row is replaced, as badly as its bounds and categories allow; z stays, so that x moves the product's
# centred parts alone.
Columns = dict[str, list[Any]]

_LEFT: Columns = {
    "x": [0.0, 0.2, 0.7, 0.9],
    "y": [1.0, 2.0, 3.0, 4.0],
    "z": [0.0, 0.2, 0.3, 0.5],
    "g": ["a", "a", "b", "b"],
    "s": [True, True, False, True],
}
_RIGHT: Columns = {
    "x": [1.0, 0.2, 0.7, 0.9],
    "y": [0.0, 2.0, 3.0, 4.0],
    "z": [0.0, 0.2, 0.3, 0.5],
    "g": ["b", "a", "b", "b"],
    "s": [False, True, False, True],
}


def entries() -> Iterable[AuditEntry]:
    """One entry a test; those that allow a private number of rows are attacked with it too."""
    return (
        _entry("BinomialTest", lambda: BinomialTest("s", equals=True, null=0.5, epsilon=2)),
        _entry("MeanDifferenceTest", lambda: MeanDifferenceTest("x", by="g", groups=("a", "b"), epsilon=2)),
        _entry("AnovaTest", lambda: AnovaTest("x", by="g", epsilon=2)),
        _entry("GoodnessOfFitTest", lambda: GoodnessOfFitTest("g", [0.5, 0.5], epsilon=2)),
        _entry("IndependenceTest", lambda: IndependenceTest("g", "s", epsilon=2)),
        _entry("CorrelationTest", lambda: CorrelationTest("x", "y", epsilon=2), private_size=False),
        _entry("LinearCorrelationTest", lambda: LinearCorrelationTest("x", "z", epsilon=2), private_size=False),
        _entry("SplitTest", lambda: SplitTest("correlation", "x", "y", epsilon=2, parts=1)),
    )


def _entry(name: str, build: Callable[[], Any], *, private_size: bool = True) -> AuditEntry:
    def pairs() -> Sequence[Pair]:
        found = [_pair("one row replaced", build, _LEFT, _RIGHT)]
        if private_size:
            fewer = {column: values[1:] for column, values in _RIGHT.items()}
            found.append(_pair("one row removed", build, _RIGHT, fewer, public=False))
        return found

    return AuditEntry(_PREFIX + name, pairs, noise=PATHS)


def _pair(name: str, build: Callable[[], Any], left: Columns, right: Columns, *, public: bool = True) -> Pair:
    """Return all that a test puts under noise, on two neighbouring tables."""

    def asked(columns: Columns) -> Callable[[BitSource], Any]:
        dataset = Dataset(
            pa.table(columns),
            adjacency="replace-one" if public else "add-remove",
            rows=4 if public else None,
            bounds={"x": (0, 1), "z": (0, 1)},
            categories={"g": ["a", "b"], "s": [True, False]},
        )
        plan = build().plan(dataset)
        return lambda bits: plan.release_numbers(plan.measure(dataset), bits)

    return replay_pair(name, _CLAIM, asked(left), asked(right))
