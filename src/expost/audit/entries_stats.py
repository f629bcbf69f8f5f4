"""Attacks on the statistics and the hypothesis tests: whole queries on tables of a few rows that differ in one row."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from expost import stats
from expost.audit.audit_registry import AuditEntry
from expost.audit.climb_simulator import simulated_pairs
from expost.audit.pair_attack import Outcomes, Pair
from expost.audit.planted_fault import CHOICES, GAUSSIAN_PATH, LAPLACE, PATHS, RECORDS, SMOOTH
from expost.audit.privacy_claim import Claim, ExPost
from expost.audit.replay_views import replay_pair
from expost.core import Adjacency, Ladder, PureGuarantee, Release, Sealed, Sensitivity, ZeroConcentratedGuarantee
from expost.data import Dataset
from expost.noise import GaussianPath
from expost.noise.bits import BitSource
from expost.noise.lattice import sealed_copies
from expost.stats import hypothesis
from expost.stats.hypothesis.rank_rows import RankedRows, RankPlan, TableProtection
from expost.stats.joint_statistics import JointStatistics

__all__ = ["EQUAL", "entries", "gaussian_pair", "released_pair", "trials_pair"]

Build = Callable[..., Any]
Rows = Sequence[dict[str, Any]]

_NOISE = (*LAPLACE, *PATHS, *CHOICES, *RECORDS, *SMOOTH)  # whatever a query draws
_RUNS = 150  # a query takes milliseconds, however small the table
_TRIAL_RUNS = 3000  # a trial, one group of a query, takes microseconds
_FAR = 60.0  # released numbers are clipped here: beyond it they reveal nothing more on tables of a few rows
_WIDTH = 6  # numbers of one outcome; missing ones are set beyond the clipping range
_KEYS = ("a", "b")
# The added row is extreme in every column; the others sit where one more row moves the most.
_DAY = datetime.date(2024, 1, 31)
_ROWS = [{"who": 1, "key": "a", "x": 0, "y": 1, "at": _DAY}, {"who": 2, "key": "b", "x": 1, "y": 0}]
_ADDED = {"who": 3, "key": "a", "x": 1, "y": 1, "at": _DAY}
# For spreads: so many equal rows that their number is clear, and one that differs stands out.
EQUAL = 30 * [{"who": 1, "key": "b", "x": 0, "y": 0}]
_MANY = 60 * _ROWS  # so many rows of each key that no noise hides it
_TOP = 200  # the highest of so many steps is chosen rarely
_SCHEMA = pa.schema({"who": pa.int8(), "key": pa.string(), "x": pa.int8(), "y": pa.int8(), "at": pa.date32()})
_BOUNDS = {"x": (0, 1), "y": (0, 1)}


def entries() -> Iterable[AuditEntry]:
    """List one entry per statistic and one per test."""
    variance = partial(stats.Variance, "x", within=0.24, max_epsilon=4)
    statistics = {
        "Count": _count_pairs,
        "CountDistinct": _statistic_pairs(stats.CountDistinct),
        "Histogram": _statistic_pairs(partial(stats.Histogram, "x", edges=[0, 0.5, 1])),
        "CountOverTime": _statistic_pairs(partial(stats.CountOverTime, "at", bounds=("2024-01-01", "2024-02-29"))),
        "Cumulative": _statistic_pairs(partial(stats.Cumulative, "x", bins=2)),
        "Moving": _statistic_pairs(partial(stats.Moving, "x", 1, bins=2)),
        "ContingencyTable": _table_pairs,
        "ValueCounts": _statistic_pairs(partial(stats.ValueCounts, "key"), noisy=False),
        "TopK": _statistic_pairs(partial(stats.TopK, "key", 1), noisy=False),
        "Sum": _statistic_pairs(partial(stats.Sum, "x"), partial(stats.Sum, "x", within="50%", max_epsilon=2)),
        "Ratio": _statistic_pairs(partial(stats.Ratio, "x", "y")),
        "Mean": _statistic_pairs(partial(stats.Mean, "x"), partial(stats.Mean, "x", weight="y", epsilon=1)),
        "Variance": _statistic_pairs(partial(stats.Variance, "x"), variance, rows=EQUAL),
        "StandardDeviation": _statistic_pairs(partial(stats.StandardDeviation, "x"), rows=EQUAL),
        "Covariance": _statistic_pairs(partial(stats.Covariance, ["x", "y"]), rows=4 * EQUAL),
        "Correlation": _statistic_pairs(partial(stats.Correlation, "x", "y"), rows=4 * EQUAL),
        "joint_statistics.JointStatistics": _statistic_pairs(partial(JointStatistics, "x", ["rows", "mean"])),
        "Summary": _statistic_pairs(partial(stats.Summary, ["x"]), rows=EQUAL),
        "Quantiles": _statistic_pairs(partial(stats.Quantiles, "x", [0.5], levels=1)),
        "Quantile": _quantile_pairs,
        "MostCommon": _statistic_pairs(partial(stats.MostCommon, "key"), noisy=False),
        "ApproximateBounds": _approximate_bounds,
        "PrivatelyBounded": _privately_bounded,
        "PrivateKeys": _private_keys,
        "ByPrivateKeys": _by_private_keys,
        "CountByPrivateKeys": _counts_by_private_keys,
    }
    # Tests that allow a private number of rows are also attacked with one.
    tests: dict[str, Build] = {
        "BinomialTest": _test_pairs(partial(hypothesis.BinomialTest, "s", equals=True, null=0.5)),
        "MeanDifferenceTest": _test_pairs(partial(hypothesis.MeanDifferenceTest, "x", by="g", groups=("a", "b"))),
        "AnovaTest": _test_pairs(partial(hypothesis.AnovaTest, "x", by="g")),
        "GoodnessOfFitTest": _test_pairs(partial(hypothesis.GoodnessOfFitTest, "g", [0.5, 0.5])),
        "IndependenceTest": _test_pairs(partial(hypothesis.IndependenceTest, "g", "s")),
        "CorrelationTest": _test_pairs(partial(hypothesis.CorrelationTest, "x", "y"), private_size=False),
        "LinearCorrelationTest": _test_pairs(partial(hypothesis.LinearCorrelationTest, "x", "z"), private_size=False),
        "MannWhitneyTest": partial(_rank_pairs, _two_groups(), [[0.0], _MIDDLE], [[1.0], _MIDDLE]),
        "KruskalWallisTest": partial(
            _rank_pairs, _several_groups(), [[0.0, 1.0], _MIDDLE[:2]], [[1.0, 1.0], _MIDDLE[:2]]
        ),
        "SignedRankTest": partial(_rank_pairs, _pairs_of_rows(), [[9.0, 1.0]], [[-9.0, 1.0]]),
        "SplitTest": _test_pairs(partial(hypothesis.SplitTest, "correlation", "x", "y", parts=1)),
    }
    return (
        *(AuditEntry(f"expost.stats.{name}", pairs, noise=_NOISE) for name, pairs in statistics.items()),
        AuditEntry("expost.stats.gaussian_plan.GaussianPlan", _gaussian_pairs, noise=GAUSSIAN_PATH),
        *(AuditEntry(f"expost.stats.hypothesis.{name}", pairs, noise=PATHS) for name, pairs in tests.items()),
    )


def trials_pair(name: str, build: Build, *, epsilon: int = 1, billed: int | None = None, rows: Rows = _ROWS) -> Pair:
    """Build a pair of thousands of runs at once: every trial is a group with the same few rows, or with one row more.

    A row is in one group, so each group is answered with the noise that the query alone would have. ``billed`` plants
    a fault: the runs spend ``epsilon``, but claim this.
    """
    claimed = epsilon if billed is None else billed

    def sample_trials(rows: Rows, runs: int, bits: BitSource) -> Outcomes:
        few = pa.Table.from_pylist(list(rows), _SCHEMA)
        trials = pa.array(np.repeat(np.arange(runs, dtype=np.int32), len(rows)))
        table = few.take(np.tile(np.arange(len(rows)), runs)).append_column("trial", trials)
        data = Dataset(table, bounds=_BOUNDS, categories={"key": _KEYS, "trial": list(range(runs))})
        cells = np.fromiter(_answer_query(partial(build, epsilon=epsilon, by="trial"), data, bits).value.rows, object)
        seen = [[number for cell in trial for number in _cell_numbers(cell)] for trial in np.array_split(cells, runs)]
        shown = np.clip(np.round(np.array(seen, dtype=np.float64), 3), -_FAR, _FAR)
        return Outcomes.of(shown, np.full(runs, float(claimed)))

    claim = ExPost(PureGuarantee(Fraction(claimed)))
    return Pair.of(name, claim, sample_trials, [*rows, _ADDED], rows, most_runs=_TRIAL_RUNS)


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

    return Pair.repeated(name, promise, run_query, more, fewer, most_runs=_RUNS)


def released_pair(name: str, build: Build, *, rows: Rows = _ROWS) -> Pair:
    """Build a pair of all noisy numbers from which a query computes its answer; the left table has one row more."""
    more, fewer = _build_dataset([*rows, _ADDED]), _build_dataset(rows)
    claim = build().plan(fewer).worst_case.promise()
    return replay_pair(name, claim, partial(_answer_query, build, more), partial(_answer_query, build, fewer))


def gaussian_pair(name: str, build: Build, *, billed: int = 1) -> Pair:
    """Build a pair of what a query releases under Gaussian noise; ``billed`` plants a fault: its rho is divided by it."""
    sides = [_build_dataset(rows, "who", groups=2) for rows in ([*_ROWS, _ADDED, _ADDED | {"key": "b"}], _ROWS)]
    plan = build().plan(sides[1])
    rho = plan.worst_case.amounts()["rho"]

    def sample_vectors(sealed: Sealed, runs: int, bits: BitSource) -> Outcomes:
        return Outcomes.of(GaussianPath(sealed_copies(sealed, runs), Ladder((rho,)), bits=bits).at(0).reshape(runs, -1))

    return Pair.of(name, ZeroConcentratedGuarantee(rho / billed), sample_vectors, *map(plan.measure, sides))


def _build_dataset(rows: Rows, unit: str = "row", groups: int = 1) -> Dataset:
    """Describe a table of these rows."""
    limits: dict[str, Any] = {} if unit == "row" else {"max_rows_per_unit": 2, "max_groups_per_unit": groups}
    table = pa.Table.from_pylist(list(rows), _SCHEMA)
    return Dataset(table, unit=unit, bounds=_BOUNDS, categories={"key": _KEYS}, **limits)


def _release_numbers(release: Release[Any]) -> Any:
    """List everything that leaves as numbers: values, and for groups whether each is there and met its target."""
    value = release.value
    if isinstance(release, stats.GroupRelease):
        rows = {str(row.label): row for row in release.value.rows}
        labels = _KEYS if set(rows) <= set(_KEYS) else tuple(rows)
        return [(rows[k].value, rows[k].met) if k in rows else (-1.0, -1.0) for k in labels]
    if value is None:
        return []
    if isinstance(value, tuple) and all(isinstance(key, str) for key in value):
        return [float(key in value) for key in _KEYS]
    return [_KEYS.index(value)] if isinstance(value, str) else value


def _statistic_pairs(build: Build, *climbs: Build, rows: Rows = _ROWS, noisy: bool = True) -> Build:
    """Combine many trials of one statistic, its noisy numbers where it has some, and a few runs of it and of its climbs."""

    def build_pairs() -> Sequence[Pair]:
        alone = [question_pair(f"one row more, {place + 1}", each) for place, each in enumerate(climbs)]
        released = [released_pair("its noisy numbers", partial(build, epsilon=1), rows=rows)] if noisy else []
        trials = trials_pair("one row more, many trials", build, rows=rows)
        return [trials, *released, question_pair("one row more", partial(build, epsilon=1)), *alone]

    return build_pairs


def _table_pairs() -> Sequence[Pair]:
    def build(*, epsilon: float, by: str) -> Any:
        return stats.ContingencyTable([by, "key"], epsilon=epsilon)

    return [trials_pair("one row more, many trials", build)]


def _approximate_bounds() -> Sequence[Pair]:
    build = partial(stats.ApproximateBounds, "x", epsilon=1, largest=4)
    return [released_pair("its noisy numbers", build), question_pair("one row more", build)]


def _privately_bounded() -> Sequence[Pair]:
    build = partial(stats.Mean, "x", bounds="private", epsilon=1, largest=4)
    return [released_pair("its noisy numbers", build, rows=100 * _ROWS[1:]), question_pair("one row more", build)]


def _count_pairs() -> Sequence[Pair]:
    climb = partial(stats.Count, within="50%", max_epsilon=2)
    return [
        trials_pair("one row more, many trials", stats.Count),
        question_pair("one row more, climbing", climb),
        question_pair("one row more, groups climbing after a pilot", partial(climb, by="key")),
        question_pair("one unit more", partial(stats.Count, epsilon=1, by="key"), unit="who"),
        *simulated_pairs(),  # single relative counts: only many runs reach all of their rungs
    ]


def _gaussian_pairs() -> Sequence[Pair]:
    return [gaussian_pair("one unit more", partial(stats.CountDistinct, within=2, by="key", noise="gaussian"))]


def _quantile_pairs() -> Sequence[Pair]:
    """Attack the choice itself, where one more row at the top makes the top likelier and all else less likely."""
    steps = Dataset(pa.table({"x": pa.array([0], pa.int16())}), bounds={"x": (0, _TOP)})
    plan: Any = stats.Quantile("x", 0.5, epsilon=2).plan(steps)

    def sample_choices(steps: Sequence[int], runs: int, bits: BitSource) -> Outcomes:
        return Outcomes.of(plan.mechanism.simulate(steps, Sensitivity(1), runs=runs, bits=bits))

    trials = [
        trials_pair(f"{method}, many trials", partial(stats.Quantile, "x", 0.5, method=method))
        for method in ("exponential", "smooth")
    ]
    choice = Pair.of("its choice", plan.worst_case.promise(), sample_choices, [_TOP - 1, _TOP], [_TOP - 1])
    return [choice, *trials]


def _private_keys() -> Sequence[Pair]:
    build = partial(stats.PrivateKeys, "key", epsilon=1, delta=0.01)
    return [released_pair("its noisy counts", build), _approx_pair("a key more", build)]


def _counts_by_private_keys() -> Sequence[Pair]:
    build = partial(stats.CountByPrivateKeys, "key", epsilon=1, delta=0.01)
    return [released_pair("its noisy counts", build, rows=_MANY), _approx_pair("a key more", build)]


def _by_private_keys() -> Sequence[Pair]:
    build = partial(stats.Sum, "x", by=stats.PrivateKeys("key", epsilon=0.5, delta=0.01), epsilon=0.5)
    return [released_pair("its noisy numbers", build, rows=_MANY), _approx_pair("a key more, then sums", build)]


def _approx_pair(name: str, build: Build) -> Pair:
    """Build a pair of one query that claims (epsilon, delta), not its bill."""
    return question_pair(name, build, claim=build().plan(_build_dataset(_ROWS)).worst_case.promise())


# ------------------------------------------------------------------------------------------------ hypothesis tests

# Adjacent tables: one row is replaced, as badly as its bounds and categories allow. z stays, so that x moves only the
# centered parts of the product.
_LEFT = pa.table({"x": [0.0], "y": [1.0], "z": [0.0], "g": ["a"], "s": [True]})
_RIGHT = pa.table({"x": [1.0], "y": [0.0], "z": [0.0], "g": ["b"], "s": [False]})
_SHARED = pa.Table.from_pylist(
    [
        {"x": 0.2, "y": 2.0, "z": 0.2, "g": "a", "s": True},
        {"x": 0.7, "y": 3.0, "z": 0.3, "g": "b", "s": False},
        {"x": 0.9, "y": 4.0, "z": 0.5, "g": "b", "s": True},
    ]
)


def _test_pairs(build: Build, *, private_size: bool = True) -> Build:
    """Attack everything that a test releases before it computes a p-value."""

    def release_numbers(table: pa.Table, terms: dict[str, Any]) -> Callable[[BitSource], Any]:
        categories: dict[str, Any] = {"g": ["a", "b"], "s": [True, False]}
        dataset = Dataset(table, bounds={"x": (0, 1), "z": (0, 1)}, categories=categories, **terms)
        plan = build(epsilon=2).plan(dataset)
        return lambda bits: plan.release_numbers(plan.measure(dataset), bits)

    def table_pair(name: str, left: pa.Table, right: pa.Table, **terms: Any) -> Pair:
        sides = release_numbers(left, terms), release_numbers(right, terms)
        return replay_pair(name, PureGuarantee(Fraction(2)), *sides)

    def build_pairs() -> Sequence[Pair]:
        left, right = (pa.concat_tables([row, _SHARED]) for row in (_LEFT, _RIGHT))
        found = [table_pair("one row replaced", left, right, adjacency="replace-one", rows=4)]
        if private_size:
            found.append(table_pair("one row removed", right, _SHARED, adjacency="add-remove"))
        return found

    return build_pairs


# Ranks move farthest where one value passes all others, in samples of public sizes.
_MIDDLE = [0.4, 0.5, 0.6]
_REPLACED = TableProtection(Adjacency.REPLACE_ONE)


def _two_groups() -> RankPlan:
    query = hypothesis.MannWhitneyTest("x", by="g", groups=("a", "b"), epsilon=2)
    return query._plan_for_places(_REPLACED, (1, 3), "ranks", fixed=True)


def _several_groups() -> RankPlan:
    query = hypothesis.KruskalWallisTest("x", by="g", epsilon=2)
    return query._plan_for_places(_REPLACED, ("a", "b"), (2, 2), "ranks", fixed=True)


def _pairs_of_rows() -> RankPlan:
    return hypothesis.SignedRankTest("x", "y", epsilon=2)._plan_for_rows(_REPLACED, 2, "ranks")


def _rank_pairs(plan: RankPlan, left: list[list[float]], right: list[list[float]]) -> Sequence[Pair]:
    """Attack the score of a test of ranks."""

    def release_score(samples: list[list[float]]) -> Callable[[BitSource], Any]:
        rows = RankedRows.of_samples([np.array(sample) for sample in samples])
        return lambda bits: plan.release_numbers(rows, bits)

    return [replay_pair("one row replaced", PureGuarantee(Fraction(2)), release_score(left), release_score(right))]
