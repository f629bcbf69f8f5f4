"""The attacks on the statistics have teeth: twice the epsilon that is billed is noticed, for every kind.

That the bill itself is not noticed in the same number of trials is in ``test_audit_table.py``.
"""

from functools import partial

import pytest

from expost.audit.entries_stats import EQUAL, gaussian_pair, trials_pair
from expost.audit.pair_attack import attack
from expost.noise import SeededBits
from expost.stats import (
    ContingencyTable,
    Count,
    CountDistinct,
    CountOverTime,
    Covariance,
    Cumulative,
    Histogram,
    Mean,
    MostCommon,
    Moving,
    Quantile,
    Ratio,
    StandardDeviation,
    Sum,
    Summary,
    TopK,
    ValueCounts,
    Variance,
)


def table(*, epsilon: float, by: str):
    return ContingencyTable([by, "key"], epsilon=epsilon)


# What must be noticed: twice the bill, or more where a statistic uses only a part of what it is billed (a covariance
# spreads its epsilon over many sums, an exponential mechanism is billed for a case that two grid points do not reach).
KINDS = {
    "count": (Count, {}, 2),
    "distinct units": (CountDistinct, {}, 2),
    "histogram": (partial(Histogram, "x", edges=[0, 0.5, 1]), {}, 2),
    "contingency table": (table, {}, 2),
    "count over time": (partial(CountOverTime, "at", bounds=("2024-01-01", "2024-02-29")), {}, 2),
    "running totals": (partial(Cumulative, "x", bins=2), {}, 2),
    "moving window": (partial(Moving, "x", 1, bins=2), {}, 2),
    "value counts": (partial(ValueCounts, "key"), {}, 2),
    "top k": (partial(TopK, "key", 1), {}, 2),
    "sum": (partial(Sum, "x"), {}, 2),
    "mean": (partial(Mean, "x"), {}, 2),
    "weighted mean": (partial(Mean, "x", weight="y"), {}, 2),
    "ratio": (partial(Ratio, "x", "y"), {}, 4),
    "variance": (partial(Variance, "x"), {"rows": EQUAL}, 2),
    "standard deviation": (partial(StandardDeviation, "x"), {"rows": EQUAL}, 2),
    "summary": (partial(Summary, ["x"]), {"rows": EQUAL}, 2),
    "most common": (partial(MostCommon, "key"), {}, 2),
    "covariance": (partial(Covariance, ["x", "y"]), {"rows": 4 * EQUAL}, 4),
    "quantile": (partial(Quantile, "x", 0.5), {}, 6),
}


@pytest.mark.parametrize("kind", KINDS)
def test_more_than_the_bill_is_noticed(kind: str) -> None:
    build, terms, times = KINDS[kind]
    planted = trials_pair(kind, build, epsilon=times, billed=1, **terms)

    assert attack(planted, 3_000, bits=SeededBits(1), failure_probability=1e-5).violated


def test_more_than_the_bill_of_gaussian_noise_is_noticed() -> None:
    build = partial(CountDistinct, within=1, by="key", noise="gaussian")

    assert attack(gaussian_pair("g", build, billed=8), 3_000, bits=SeededBits(1), failure_probability=1e-5).violated
    assert not attack(gaussian_pair("g", build), 3_000, bits=SeededBits(1), failure_probability=1e-5).violated
