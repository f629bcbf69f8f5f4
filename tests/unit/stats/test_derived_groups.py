"""Every statistic groups by formulas: date parts, periods, bins and choices, without declared categories."""

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import expost
from expost import stats
from expost.data import Dataset, col, when
from expost.noise import SeededBits
from expost.stats import hypothesis

RANDOM = np.random.default_rng(3)
DAYS = RANDOM.integers(0, 365, 2000)
AMOUNT = RANDOM.uniform(0, 100, 2000)
TABLE = pa.table(
    {
        "when": [
            datetime.datetime(2013, 1, 1) + datetime.timedelta(days=int(day), hours=int(day) % 24) for day in DAYS
        ],
        "amount": AMOUNT,
        "city": np.array(["Oslo", "Rome", "Riga"])[RANDOM.integers(0, 3, 2000)],
    }
)
FACTS: dict[str, Any] = {"bounds": {"amount": (0, 100), "when": ("2013-01-01", "2013-12-31")}}
QUARTERS = np.bincount(np.array(TABLE["when"]).astype("datetime64[M]").astype(int) % 12 // 3)
SOUTH = np.count_nonzero(np.array(TABLE["city"]) != "Oslo")
EXACT: dict[Any, Any] = {
    "quarter(when)": QUARTERS,
    "date_trunc('quarter', when)": QUARTERS,
    "derived": QUARTERS,
    "bin(amount, 4)": np.bincount((AMOUNT // 25).astype(int)),
    "amount > 50": np.bincount(AMOUNT > 50),
    "case when city like 'R%' then 'south' else 'north' end": np.array([SOUTH, 2000 - SOUTH]),
    when(col("amount") <= 50).then("small").otherwise("large"): np.bincount(AMOUNT > 50),
}
STATISTICS: dict[str, Callable[[Any], Any]] = {
    "count": lambda by: stats.Count(by=by, epsilon=50),
    "climb": lambda by: stats.Count(by=by, within="20%", max_epsilon=50),
    "distinct": lambda by: stats.CountDistinct(by=by, epsilon=50),
    "sum": lambda by: stats.Sum("amount", by=by, epsilon=50),
    "mean": lambda by: stats.Mean("amount / 2", bounds=(0, 50), by=by, epsilon=50),
    "variance": lambda by: stats.Variance("hour(when)", by=by, epsilon=50),
    "deviation": lambda by: stats.StandardDeviation("amount", by=by, epsilon=50),
    "histogram": lambda by: stats.Histogram("amount", edges=[0, 50, 100], by=by, epsilon=50),
    "quantile": lambda by: stats.Quantile("amount", 0.5, by=by, epsilon=50),
    "top": lambda by: stats.TopK("month(when)", 2, by=by, epsilon=50),
    "most common": lambda by: stats.MostCommon("month(when)", by=by, epsilon=50),
    "summary": lambda by: stats.Summary(["amount"], by=by, epsilon=50),
    "table": lambda by: stats.ContingencyTable([by, "month(when)"], epsilon=50),
}


def ask(query: Any) -> Any:
    table = Dataset(TABLE, name="sales", **FACTS).derive(derived="quarter(when)")
    return expost.Session(table, expost.epsilon(1000), bits=SeededBits(1), simulation=True).ask(query)


@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic_groups_by_a_formula(name: str) -> None:
    assert len(ask(STATISTICS[name]("quarter(when)")).value) >= 4


@pytest.mark.parametrize("by", EXACT, ids=str)
def test_groups_of_a_formula_have_their_rows(by: Any) -> None:
    found = list(ask(stats.Count(by=by, epsilon=50)).value.values())

    assert found == pytest.approx(EXACT[by].tolist(), abs=2)


def test_tests_take_derived_columns() -> None:
    release = ask(hypothesis.GoodnessOfFitTest("derived", [0.25] * 4, epsilon=10))

    assert 0 <= release.value.p_value <= 1


def test_counts_by_two_formulas_sum_to_the_table() -> None:
    found = ask(stats.Count(by=["date_trunc('month', when)", "bin(amount, 2)"], epsilon=50)).value

    assert len(found) == 24
    assert next(iter(found)) == (datetime.datetime(2013, 1, 1), 0.0)
    assert sum(found.values()) == pytest.approx(2000, abs=10)
