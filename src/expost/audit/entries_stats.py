"""Attacks on the statistics: whole questions on tables of a few rows, one row or one unit added."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from expost.audit.audit_registry import AuditEntry
from expost.audit.climb_simulator import simulated_pairs
from expost.audit.pair_attack import Outcomes, Pair, Sampler, repeat
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

_NOISE = (*LAPLACE, *PATHS, *CHOICES, *RECORDS, *SMOOTH)  # whatever a question draws
_RUNS = 150  # a question takes milliseconds, however small the table
_TRIAL_RUNS = 3000  # a trial takes microseconds: groups of one question
_FAR = 60.0  # released numbers beyond this tell nothing more on tables of a few rows
_WIDTH = 6  # numbers of one outcome; what is not there is beyond all that is
_KEYS = ("a", "b")
# The added row is extreme in every column; the others sit where one more row moves the most.
_ROWS = [{"who": 1, "key": "a", "x": 0, "y": 1}, {"who": 2, "key": "b", "x": 1, "y": 0}]
_ADDED = {"who": 3, "key": "a", "x": 1, "y": 1}
# Where a spread is asked for, so many equal rows that their number is known, and one that differs stands out.
EQUAL = 30 * [{"who": 1, "key": "b", "x": 0, "y": 0}]
_MANY = 60 * _ROWS  # so many rows of each key that no noise hides it
_TOP = 200  # the highest of so many steps is chosen rarely
_SCHEMA = pa.schema({"who": pa.int8(), "key": pa.string(), "x": pa.int8(), "y": pa.int8()})
_TRIAL = pa.field("trial", pa.int32())


def entries() -> Iterable[AuditEntry]:
    """One entry a statistic."""
    return (
        AuditEntry("expost.stats.Count", _counts, noise=_NOISE),
        AuditEntry("expost.stats.CountDistinct", _pairs(CountDistinct), noise=_NOISE),
        AuditEntry("expost.stats.Histogram", _pairs(partial(Histogram, "x", edges=[0, 0.5, 1])), noise=_NOISE),
        AuditEntry("expost.stats.ContingencyTable", _tables, noise=_NOISE),
        AuditEntry("expost.stats.TopK", _pairs(partial(TopK, "key", 1), noisy=False), noise=_NOISE),
        AuditEntry("expost.stats.Sum", _pairs(partial(Sum, "x"), _climb(Sum, "x")), noise=_NOISE),
        AuditEntry("expost.stats.Mean", _pairs(partial(Mean, "x")), noise=_NOISE),
        AuditEntry("expost.stats.Variance", _pairs(partial(Variance, "x"), _looks, rows=EQUAL), noise=_NOISE),
        AuditEntry("expost.stats.StandardDeviation", _pairs(partial(StandardDeviation, "x"), rows=EQUAL), noise=_NOISE),
        AuditEntry("expost.stats.Covariance", _pairs(partial(Covariance, ["x", "y"]), rows=4 * EQUAL), noise=_NOISE),
        AuditEntry("expost.stats.Summary", _pairs(partial(Summary, ["x"]), rows=EQUAL), noise=_NOISE),
        AuditEntry("expost.stats.Quantiles", _pairs(partial(Quantiles, "x", [0.5], levels=1)), noise=_NOISE),
        AuditEntry("expost.stats.Quantile", _quantiles, noise=_NOISE),
        AuditEntry("expost.stats.MostCommon", _pairs(partial(MostCommon, "key"), noisy=False), noise=_NOISE),
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
    """Thousands of independent runs at once: every trial is a group with the same few rows, or with one row more.

    A row is in one group, so a group is answered with the noise that the question alone would have. ``billed`` plants a
    fault: the runs spend ``epsilon``, but claim this.
    """

    def sampler(rows: Sequence[dict[str, Any]]) -> Sampler:
        def run(runs: int, bits: BitSource) -> Outcomes:
            few = pa.Table.from_pylist(list(rows), _SCHEMA)
            all_rows = few.take(np.tile(np.arange(len(rows)), runs))
            table = all_rows.append_column(_TRIAL, pa.array(np.repeat(np.arange(runs, dtype=np.int32), len(rows))))
            data = Dataset(
                table,
                bounds={"x": (0, 1), "y": (0, 1)},
                categories={"key": _KEYS, "trial": list(range(runs))},
            )
            question = build(epsilon=epsilon, by="trial")
            plan = question.plan(data)
            release = plan.climb(plan.measure(data), bits)
            return Outcomes.of(_by_trial(release, runs), np.full(runs, float(claimed)))

        return run

    claimed = epsilon if billed is None else billed
    claim = ExPost(PureGuarantee(Fraction(claimed)))
    return Pair(name, claim, sampler([*rows, _ADDED]), sampler(rows), most_runs=_TRIAL_RUNS)


def _by_trial(release: Release[Any], runs: int) -> Any:
    """Return what leaves of each trial: values and intervals, and which category they belong to where that is chosen."""
    seen = [
        [number for row in rows for number in _shown(row)]
        for rows in np.array_split(_objects(release.value.rows), runs)
    ]
    return np.clip(np.round(np.array(seen, dtype=np.float64), 3), -_FAR, _FAR)


def _objects(rows: Sequence[Any]) -> Any:
    """Return an array whose elements are the rows themselves."""
    held = np.empty(len(rows), dtype=object)
    held[:] = rows
    return held


def _shown(row: Any) -> list[float]:
    keys = [_KEYS.index(part) for part in (row.label if isinstance(row.label, tuple) else ()) if part in _KEYS]
    value = _KEYS.index(row.value) if isinstance(row.value, str) else row.value
    return [float(value), *(float(end) for end in (row.low, row.high) if end is not None), *map(float, keys)]


def question_pair(name: str, build: Build, *, unit: str = "row", claim: Claim | None = None) -> Pair:
    """Return a question on two neighbouring tables; an outcome is what leaves, and its bill."""
    more, fewer = _dataset([*_ROWS, _ADDED], unit), _dataset(_ROWS, unit)
    question = build()
    plan = question.plan(more)
    promise = claim or ExPost(PureGuarantee(plan.worst_case.amounts()["epsilon"]))
    return Pair(name, promise, _runs(build, more), _runs(build, fewer), slow=True, most_runs=_RUNS)


def released_pair(name: str, build: Build, *, rows: Sequence[dict[str, Any]] = _ROWS, added: Any = None) -> Pair:
    """Return all noisy numbers that a question makes its answer of, before it does; a row more on the left."""
    question = build()
    more, fewer = ([*rows, _ADDED if added is None else added], rows)

    def asked(table: Sequence[dict[str, Any]]) -> Callable[[BitSource], Any]:
        def ask(bits: BitSource) -> Any:
            question = build()
            dataset = _dataset(table, "row")
            plan = question.plan(dataset)
            return plan.climb(plan.measure(dataset), bits)

        return ask

    plan = question.plan(_dataset(rows, "row"))
    return replay_pair(name, plan.worst_case.promise(), asked(more), asked(fewer))


def _dataset(rows: Sequence[dict[str, Any]], unit: str) -> Dataset:
    limits: dict[str, Any] = {} if unit == "row" else {"max_rows_per_unit": 2, "max_groups_per_unit": 1}
    return Dataset(
        pa.Table.from_pylist(list(rows), _SCHEMA),
        unit=unit,
        bounds={"x": (0, 1), "y": (0, 1)},
        categories={"key": _KEYS},
        **limits,
    )


def _runs(build: Build, dataset: Dataset) -> Sampler:
    def run(bits: BitSource) -> Outcomes:
        question = build()
        plan = question.plan(dataset)
        release = plan.climb(plan.measure(dataset), bits)
        return Outcomes.of(_seen(release)[None], [release.receipt.epsilon])

    return repeat(run)


def _seen(release: Release[Any]) -> Any:
    """Return everything that leaves, as so many numbers: values, and for groups whether each is there and met its target."""
    seen = np.full(_WIDTH, -_FAR - 1)
    numbers = np.clip(np.round(np.array(_numbers(release), dtype=np.float64).ravel(), 3), -_FAR, _FAR)
    seen[: len(numbers)] = numbers
    return seen


def _numbers(release: Release[Any]) -> Any:
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


def _pairs(
    build: Build, *climbs: Build, rows: Sequence[dict[str, Any]] = _ROWS, noisy: bool = True
) -> Callable[[], Sequence[Pair]]:
    """Many trials of one statistic, its noisy numbers where it has some, a few runs of it alone, and of its climbs."""

    def pairs() -> Sequence[Pair]:
        alone = [question_pair(f"one row more, {place + 1}", each) for place, each in enumerate(climbs)]
        released = [released_pair("its noisy numbers", partial(build, epsilon=1), rows=rows)] if noisy else []
        return [
            trials_pair("one row more, many trials", build, rows=rows),
            *released,
            question_pair("one row more", partial(build, epsilon=1)),
            *alone,
        ]

    return pairs


def _tables() -> Sequence[Pair]:
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


def _climb(kind: Callable[..., Any], *subject: Any) -> Build:
    """Return the same statistic, climbing to a relative accuracy that it sometimes reaches."""
    return partial(kind, *subject, within="50%", max_epsilon=2)


def _looks() -> Any:
    """Return a variance that climbs by looks, to an accuracy that it sometimes reaches."""
    return Variance("x", within=0.24, max_epsilon=4)


def _counts() -> Sequence[Pair]:
    return [
        trials_pair("one row more, many trials", Count),
        question_pair("one row more, climbing", partial(Count, within="50%", max_epsilon=2)),
        question_pair(
            "one row more, groups climbing after a pilot", partial(Count, within="50%", by="key", max_epsilon=2)
        ),
        question_pair("one unit more", partial(Count, epsilon=1, by="key"), unit="who"),
        *simulated_pairs()[:3],  # single relative counts, whose rungs many runs must reach before they say anything
    ]


def _quantiles() -> Sequence[Pair]:
    """Return a row just below the top of the bounds: one more at the top makes the top likelier and all else less likely."""
    trials = [
        trials_pair(f"{method}, many trials", partial(Quantile, "x", 0.5, method=method))
        for method in ("exponential", "smooth")
    ]
    return [_choice_pair("its choice", partial(Quantile, "x", 0.5, epsilon=2)), *trials]


def _choice_pair(name: str, build: Build) -> Pair:
    """Return the choice that a quantile makes, many runs at once, on the steps that it ranks."""
    question = build()
    plan = question.plan(Dataset(pa.table({"x": pa.array([0], pa.int16())}), bounds={"x": (0, _TOP)}))
    mechanism = plan.mechanism

    def chosen(steps: Sequence[int]) -> Sampler:
        return lambda runs, bits: Outcomes.of(mechanism.simulate(steps, Sensitivity(1), runs=runs, bits=bits))

    return Pair(name, plan.worst_case.promise(), chosen([_TOP - 1, _TOP]), chosen([_TOP - 1]))


def _private_keys() -> Sequence[Pair]:
    build = partial(PrivateKeys, "key", epsilon=1, delta=0.01)
    return [released_pair("its noisy counts", build), _approx_pair("a key more", build)]


def _counts_by_private_keys() -> Sequence[Pair]:
    build = partial(CountByPrivateKeys, "key", epsilon=1, delta=0.01)
    return [released_pair("its noisy counts", build, rows=_MANY), _approx_pair("a key more", build)]


def _by_private_keys() -> Sequence[Pair]:
    def sums() -> Any:
        return Sum("x", by=PrivateKeys("key", epsilon=0.5, delta=0.01), epsilon=0.5)

    return [released_pair("its noisy numbers", sums, rows=_MANY), _approx_pair("a key more, then sums", sums)]


def _approx_pair(name: str, build: Build) -> Pair:
    question = build()
    plan = question.plan(_dataset(_ROWS, "row"))
    return question_pair(name, build, claim=plan.worst_case.promise())
