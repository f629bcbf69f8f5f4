"""Attacks on the statistics: whole queries on tables of a few rows, with one row or one unit added."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from expost.audit.audit_registry import AuditEntry
from expost.audit.climb_simulator import simulated_pairs
from expost.audit.pair_attack import Outcomes, Pair, repeat
from expost.audit.planted_fault import CHOICES, LAPLACE, PATHS, RECORDS, SMOOTH
from expost.audit.privacy_claim import Claim, ExPost
from expost.audit.replay_views import replay_pair
from expost.core import PureGuarantee, Release, Sensitivity
from expost.data import Dataset
from expost.noise.bits import BitSource
from expost.stats import (
    ApproximateBounds,
    ContingencyTable,
    Count,
    CountByPrivateKeys,
    CountDistinct,
    Covariance,
    GroupRelease,
    Histogram,
    Mean,
    MostCommon,
    PrivateKeys,
    Quantile,
    Quantiles,
    StandardDeviation,
    Sum,
    Summary,
    TopK,
    Variance,
)

__all__ = ["EQUAL", "entries", "question_pair", "trials_pair"]

Build = Callable[..., Any]

_NOISE = (*LAPLACE, *PATHS, *CHOICES, *RECORDS, *SMOOTH)  # whatever a query draws
_RUNS = 150  # a query takes milliseconds, however small the table
_TRIAL_RUNS = 3000  # a trial, one group of a query, takes microseconds
_FAR = 60.0  # released numbers are clipped here: beyond it they reveal nothing more on tables of a few rows
_WIDTH = 6  # numbers of one outcome; missing ones are set beyond the clipping range
_KEYS = ("a", "b")
# The added row is extreme in every column; the others sit where one more row moves the most.
_ROWS = [{"who": 1, "key": "a", "x": 0, "y": 1}, {"who": 2, "key": "b", "x": 1, "y": 0}]
_ADDED = {"who": 3, "key": "a", "x": 1, "y": 1}
# For spreads: so many equal rows that their number is clear, and one that differs stands out.
EQUAL = 30 * [{"who": 1, "key": "b", "x": 0, "y": 0}]
_MANY = 60 * _ROWS  # so many rows of each key that no noise hides it
_TOP = 200  # the highest of so many steps is chosen rarely
_SCHEMA = pa.schema({"who": pa.int8(), "key": pa.string(), "x": pa.int8(), "y": pa.int8()})
_TRIAL = pa.field("trial", pa.int32())


def entries() -> Iterable[AuditEntry]:
    """List one entry per statistic."""
    return (
        AuditEntry("expost.stats.Count", _count_pairs, noise=_NOISE),
        AuditEntry("expost.stats.CountDistinct", _statistic_pairs(CountDistinct), noise=_NOISE),
        AuditEntry(
            "expost.stats.Histogram", _statistic_pairs(partial(Histogram, "x", edges=[0, 0.5, 1])), noise=_NOISE
        ),
        AuditEntry("expost.stats.ContingencyTable", _table_pairs, noise=_NOISE),
        AuditEntry("expost.stats.TopK", _statistic_pairs(partial(TopK, "key", 1), noisy=False), noise=_NOISE),
        AuditEntry(
            "expost.stats.Sum",
            _statistic_pairs(partial(Sum, "x"), partial(Sum, "x", within="50%", max_epsilon=2)),
            noise=_NOISE,
        ),
        AuditEntry("expost.stats.Mean", _statistic_pairs(partial(Mean, "x")), noise=_NOISE),
        AuditEntry(
            "expost.stats.Variance",
            _statistic_pairs(partial(Variance, "x"), partial(Variance, "x", within=0.24, max_epsilon=4), rows=EQUAL),
            noise=_NOISE,
        ),
        AuditEntry(
            "expost.stats.StandardDeviation",
            _statistic_pairs(partial(StandardDeviation, "x"), rows=EQUAL),
            noise=_NOISE,
        ),
        AuditEntry(
            "expost.stats.Covariance", _statistic_pairs(partial(Covariance, ["x", "y"]), rows=4 * EQUAL), noise=_NOISE
        ),
        AuditEntry("expost.stats.Summary", _statistic_pairs(partial(Summary, ["x"]), rows=EQUAL), noise=_NOISE),
        AuditEntry("expost.stats.Quantiles", _statistic_pairs(partial(Quantiles, "x", [0.5], levels=1)), noise=_NOISE),
        AuditEntry("expost.stats.Quantile", _quantile_pairs, noise=_NOISE),
        AuditEntry("expost.stats.MostCommon", _statistic_pairs(partial(MostCommon, "key"), noisy=False), noise=_NOISE),
        AuditEntry("expost.stats.ApproximateBounds", _approximate_bounds, noise=_NOISE),
        AuditEntry("expost.stats.PrivatelyBounded", _privately_bounded, noise=_NOISE),
        AuditEntry("expost.stats.PrivateKeys", _private_keys, noise=_NOISE),
        AuditEntry("expost.stats.ByPrivateKeys", _by_private_keys, noise=_NOISE),
        AuditEntry("expost.stats.CountByPrivateKeys", _counts_by_private_keys, noise=_NOISE),
    )


def trials_pair(
    name: str,
    build: Build,
    *,
    epsilon: int = 1,
    billed: int | None = None,
    rows: Sequence[dict[str, Any]] = _ROWS,
) -> Pair:
    """Build a pair of thousands of runs at once: every trial is a group with the same few rows, or with one row more.

    A row is in one group, so each group is answered with the noise that the query alone would have. ``billed`` plants
    a fault: the runs spend ``epsilon``, but claim this.
    """
    claimed = epsilon if billed is None else billed

    def sample_trials(rows: Sequence[dict[str, Any]], runs: int, bits: BitSource) -> Outcomes:
        few = pa.Table.from_pylist(list(rows), _SCHEMA)
        all_rows = few.take(np.tile(np.arange(len(rows)), runs))
        table = all_rows.append_column(_TRIAL, pa.array(np.repeat(np.arange(runs, dtype=np.int32), len(rows))))
        data = Dataset(table, bounds={"x": (0, 1), "y": (0, 1)}, categories={"key": _KEYS, "trial": list(range(runs))})
        cells = np.fromiter(_answer_query(partial(build, epsilon=epsilon, by="trial"), data, bits).value.rows, object)
        seen = [[number for cell in trial for number in _cell_numbers(cell)] for trial in np.array_split(cells, runs)]
        shown = np.clip(np.round(np.array(seen, dtype=np.float64), 3), -_FAR, _FAR)
        return Outcomes.of(shown, np.full(runs, float(claimed)))

    claim = ExPost(PureGuarantee(Fraction(claimed)))
    left, right = partial(sample_trials, [*rows, _ADDED]), partial(sample_trials, rows)
    return Pair(name, claim, left, right, most_runs=_TRIAL_RUNS)


def _answer_query(build: Build, dataset: Dataset, bits: BitSource) -> Release[Any]:
    """Plan, measure and release one query."""
    plan = build().plan(dataset)
    release: Release[Any] = plan.climb(plan.measure(dataset), bits)
    return release


def _cell_numbers(cell: Any) -> list[float]:
    """List what leaves of one cell: its value and interval, and its category where that is chosen."""
    keys = [_KEYS.index(part) for part in (cell.label if isinstance(cell.label, tuple) else ()) if part in _KEYS]
    value = _KEYS.index(cell.value) if isinstance(cell.value, str) else cell.value
    return [float(value), *(float(end) for end in (cell.low, cell.high) if end is not None), *map(float, keys)]


def question_pair(name: str, build: Build, *, unit: str = "row", claim: Claim | None = None) -> Pair:
    """Build a pair of one query on two adjacent tables; an outcome is what leaves, and its bill."""
    more, fewer = _build_dataset([*_ROWS, _ADDED], unit), _build_dataset(_ROWS, unit)
    promise = claim or ExPost(PureGuarantee(build().plan(more).worst_case.amounts()["epsilon"]))

    def run_query(dataset: Dataset, bits: BitSource) -> Outcomes:
        release = _answer_query(build, dataset, bits)
        numbers = np.array(_release_numbers(release), dtype=np.float64).ravel()
        seen = np.full(_WIDTH, -_FAR - 1)
        seen[: len(numbers)] = np.clip(np.round(numbers, 3), -_FAR, _FAR)
        return Outcomes.of(seen[None], [release.receipt.epsilon])

    left, right = (repeat(partial(run_query, dataset)) for dataset in (more, fewer))
    return Pair(name, promise, left, right, slow=True, most_runs=_RUNS)


def released_pair(name: str, build: Build, *, rows: Sequence[dict[str, Any]] = _ROWS) -> Pair:
    """Build a pair of all noisy numbers from which a query computes its answer; the left table has one row more."""
    more, fewer = _build_dataset([*rows, _ADDED], "row"), _build_dataset(rows, "row")
    claim = build().plan(fewer).worst_case.promise()
    return replay_pair(name, claim, partial(_answer_query, build, more), partial(_answer_query, build, fewer))


def _build_dataset(rows: Sequence[dict[str, Any]], unit: str) -> Dataset:
    """Describe a table of these rows."""
    limits: dict[str, Any] = {} if unit == "row" else {"max_rows_per_unit": 2, "max_groups_per_unit": 1}
    return Dataset(
        pa.Table.from_pylist(list(rows), _SCHEMA),
        unit=unit,
        bounds={"x": (0, 1), "y": (0, 1)},
        categories={"key": _KEYS},
        **limits,
    )


def _release_numbers(release: Release[Any]) -> Any:
    """List everything that leaves as numbers: values, and for groups whether each is there and met its target."""
    value = release.value
    if isinstance(release, GroupRelease):
        rows = {str(row.label): row for row in release.value.rows}
        labels = _KEYS if set(rows) <= set(_KEYS) else tuple(rows)
        return [(rows[k].value, rows[k].met) if k in rows else (-1.0, -1.0) for k in labels]
    if value is None:
        return []
    if isinstance(value, tuple) and all(isinstance(key, str) for key in value):
        return [float(key in value) for key in _KEYS]
    return [_KEYS.index(value)] if isinstance(value, str) else value


def _statistic_pairs(
    build: Build, *climbs: Build, rows: Sequence[dict[str, Any]] = _ROWS, noisy: bool = True
) -> Callable[[], Sequence[Pair]]:
    """Combine many trials of one statistic, its noisy numbers where it has some, and a few runs of it and of its climbs."""

    def build_pairs() -> Sequence[Pair]:
        alone = [question_pair(f"one row more, {place + 1}", each) for place, each in enumerate(climbs)]
        released = [released_pair("its noisy numbers", partial(build, epsilon=1), rows=rows)] if noisy else []
        return [
            trials_pair("one row more, many trials", build, rows=rows),
            *released,
            question_pair("one row more", partial(build, epsilon=1)),
            *alone,
        ]

    return build_pairs


def _table_pairs() -> Sequence[Pair]:
    def build(*, epsilon: float, by: str) -> Any:
        return ContingencyTable([by, "key"], epsilon=epsilon)

    return [trials_pair("one row more, many trials", build)]


def _approximate_bounds() -> Sequence[Pair]:
    build = partial(ApproximateBounds, "x", epsilon=1, largest=4)
    return [released_pair("its noisy numbers", build), question_pair("one row more", build)]


def _privately_bounded() -> Sequence[Pair]:
    build = partial(Mean, "x", bounds="private", epsilon=1, largest=4)
    return [
        released_pair("its noisy numbers", build, rows=100 * _ROWS[1:]),
        question_pair("one row more", build),
    ]


def _count_pairs() -> Sequence[Pair]:
    return [
        trials_pair("one row more, many trials", Count),
        question_pair("one row more, climbing", partial(Count, within="50%", max_epsilon=2)),
        question_pair(
            "one row more, groups climbing after a pilot", partial(Count, within="50%", by="key", max_epsilon=2)
        ),
        question_pair("one unit more", partial(Count, epsilon=1, by="key"), unit="who"),
        *simulated_pairs()[:3],  # single relative counts: only many runs reach all of their rungs
    ]


def _quantile_pairs() -> Sequence[Pair]:
    """Attack the choice itself, where one more row at the top makes the top likelier and all else less likely."""
    plan: Any = Quantile("x", 0.5, epsilon=2).plan(
        Dataset(pa.table({"x": pa.array([0], pa.int16())}), bounds={"x": (0, _TOP)})
    )

    def sample_choices(steps: Sequence[int], runs: int, bits: BitSource) -> Outcomes:
        return Outcomes.of(plan.mechanism.simulate(steps, Sensitivity(1), runs=runs, bits=bits))

    left, right = partial(sample_choices, [_TOP - 1, _TOP]), partial(sample_choices, [_TOP - 1])
    trials = [
        trials_pair(f"{method}, many trials", partial(Quantile, "x", 0.5, method=method))
        for method in ("exponential", "smooth")
    ]
    return [Pair("its choice", plan.worst_case.promise(), left, right), *trials]


def _private_keys() -> Sequence[Pair]:
    build = partial(PrivateKeys, "key", epsilon=1, delta=0.01)
    return [released_pair("its noisy counts", build), _approx_pair("a key more", build)]


def _counts_by_private_keys() -> Sequence[Pair]:
    build = partial(CountByPrivateKeys, "key", epsilon=1, delta=0.01)
    return [released_pair("its noisy counts", build, rows=_MANY), _approx_pair("a key more", build)]


def _by_private_keys() -> Sequence[Pair]:
    build = partial(Sum, "x", by=PrivateKeys("key", epsilon=0.5, delta=0.01), epsilon=0.5)
    return [released_pair("its noisy numbers", build, rows=_MANY), _approx_pair("a key more, then sums", build)]


def _approx_pair(name: str, build: Build) -> Pair:
    """Build a pair of one query that claims (epsilon, delta), not its bill."""
    claim = build().plan(_build_dataset(_ROWS, "row")).worst_case.promise()
    return question_pair(name, build, claim=claim)
