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

# Adjacent tables: one row is replaced, as badly as its bounds and categories allow. z stays, so that x moves only the
# centered parts of the product.
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
    """List one entry per test; tests that allow a private number of rows are also attacked with one."""
    return (
        _test_entry("BinomialTest", lambda: BinomialTest("s", equals=True, null=0.5, epsilon=2)),
        _test_entry("MeanDifferenceTest", lambda: MeanDifferenceTest("x", by="g", groups=("a", "b"), epsilon=2)),
        _test_entry("AnovaTest", lambda: AnovaTest("x", by="g", epsilon=2)),
        _test_entry("GoodnessOfFitTest", lambda: GoodnessOfFitTest("g", [0.5, 0.5], epsilon=2)),
        _test_entry("IndependenceTest", lambda: IndependenceTest("g", "s", epsilon=2)),
        _test_entry("CorrelationTest", lambda: CorrelationTest("x", "y", epsilon=2), private_size=False),
        _test_entry("LinearCorrelationTest", lambda: LinearCorrelationTest("x", "z", epsilon=2), private_size=False),
        _test_entry("SplitTest", lambda: SplitTest("correlation", "x", "y", epsilon=2, parts=1)),
    )


def _test_entry(name: str, build: Callable[[], Any], *, private_size: bool = True) -> AuditEntry:
    """Build the entry of one test."""

    def build_pairs() -> Sequence[Pair]:
        found = [_table_pair("one row replaced", build, _LEFT, _RIGHT)]
        if private_size:
            fewer = {column: values[1:] for column, values in _RIGHT.items()}
            found.append(_table_pair("one row removed", build, _RIGHT, fewer, public=False))
        return found

    return AuditEntry(_PREFIX + name, build_pairs, noise=PATHS)


def _table_pair(name: str, build: Callable[[], Any], left: Columns, right: Columns, *, public: bool = True) -> Pair:
    """Build a pair of everything that a test releases on two adjacent tables."""

    def plan_release(columns: Columns) -> Callable[[BitSource], Any]:
        dataset = Dataset(
            pa.table(columns),
            adjacency="replace-one" if public else "add-remove",
            rows=4 if public else None,
            bounds={"x": (0, 1), "z": (0, 1)},
            categories={"g": ["a", "b"], "s": [True, False]},
        )
        plan = build().plan(dataset)
        return lambda bits: plan.release_numbers(plan.measure(dataset), bits)

    return replay_pair(name, _CLAIM, plan_release(left), plan_release(right))
