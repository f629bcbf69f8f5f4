"""Quotients of sums and counts: as one statistic where no other column needs their parts."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from expost import Dataset, Session
from expost.sql import read_statement, statement

ROWS = 6000
NUMBERS = np.random.default_rng(7)
X = np.where(NUMBERS.random(ROWS) < 0.1, np.nan, NUMBERS.uniform(0, 100, ROWS).round(1))
Y = NUMBERS.uniform(0, 40, ROWS).round(1)
Z = NUMBERS.integers(-5, 6, ROWS)
C = NUMBERS.random(ROWS) < 0.8
TABLE = pa.table({"x": pa.array(X, from_pandas=True), "y": Y, "z": Z, "c": C, "g": ["a", "b"] * (ROWS // 2)})
BOUNDS = {"x": (0, 100), "y": (0, 50), "z": (-5, 5)}
KNOWN = float(np.nansum(X))

EXACT = {
    "SUM(x) / SUM(y)": KNOWN / Y.sum(),
    "SUM(y) FILTER (WHERE c) / NULLIF(SUM(x), 0)": Y[C].sum() / KNOWN,
    "SUM(x) FILTER (WHERE c) / SUM(y) FILTER (WHERE c)": float(np.nansum(X[C])) / Y[C].sum(),
    "100.0 * SUM(CASE WHEN c THEN y ELSE 0 END) / SUM(y)": 100 * Y[C].sum() / Y.sum(),
    "SUM(x) / COUNT(*)": KNOWN / ROWS,
    "-2 * SUM(x) / (COUNT(*) * 4)": -KNOWN / ROWS / 2,
    "SUM(x) / COUNT(x)": float(np.nanmean(X)),
    "SUM(z) / NULLIF(COUNT(*), 0)": Z.mean(),
    "COUNT(*) FILTER (WHERE c) / COUNT(*)": C.mean(),
    "COUNT(x) / COUNT(*)": 1 - np.isnan(X).mean(),
    "COUNT_IF(x > 10) / COUNT(*)": (X > 10).mean(),
    "1 - ROUND(SUM(y) / COUNT(*), 2)": 1 - Y.mean().round(2),
}


def described() -> Dataset:
    """The table with its public description."""
    return Dataset(TABLE, name="t", bounds=BOUNDS, categories={"g": ["a", "b", "none"]})


def kinds_of(columns: str, rest: str = "") -> list[tuple[str, tuple[str, ...]]]:
    """The kinds of the parts of a statement, and what each answers."""
    query = read_statement(f"SELECT {columns} FROM t {rest} WITH EPSILON 1", {"t": described()}).query
    return [(part.kind, part.names) for part in query.parts]


def ask(columns: str, clause: str = "WITH EPSILON 0.5") -> tuple[float, tuple[float, float]]:
    """Ask a statement with one column in a new session, and return the value and its interval."""
    release = Session(described(), 1000).sql(f"SELECT {columns} AS v FROM t {clause}")
    ends = release.ends[0][0]
    assert ends is not None
    return release.value[0][0], ends


@pytest.mark.parametrize("text", EXACT)
def test_an_interval_of_a_quotient_holds_the_exact_one(text: str) -> None:
    missed = sum(not low <= EXACT[text] <= high for _, (low, high) in (ask(text) for _ in range(25)))
    assert missed <= 6  # 1.25 are expected at most; 7 have a probability below 0.001
    assert len(kinds_of(text)) == 1


@pytest.mark.parametrize("text", [each for each in EXACT if "ROUND" not in each])
@pytest.mark.parametrize("clause", ["WITH EPSILON 0.5", "WITH EPSILON 0.5 AT CONFIDENCE 99.9%"])
def test_the_interval_is_not_wider_than_that_of_two_statistics(text: str, clause: str) -> None:
    """Means of five runs, whose intervals depend on the noise a little."""

    def width() -> float:
        return float(np.mean([high - low for _, (low, high) in (ask(text, clause) for _ in range(5))]))

    with mock.patch.object(statement, "replace_quotients", lambda plan: plan):
        before = width()
    assert width() <= before


@pytest.mark.parametrize("high", [40, 50, 61, 100, 130, 1000])
@pytest.mark.parametrize("rare", [False, True])
def test_a_ratio_is_chosen_only_where_it_is_narrower(high: float, rare: bool) -> None:
    table = pa.table({"x": X[:2000] * (0.03 if rare else 1), "y": Y[:2000]})
    dataset = Dataset(table, name="t", bounds={"x": (0, high), "y": (0, 50)})
    text = "SELECT SUM(x) / SUM(y) AS v FROM t WITH EPSILON 1"

    def width() -> float:
        found = [Session(dataset, 10).sql(text).ends[0][0] for _ in range(5)]
        return float(np.mean([math.inf if ends is None else ends[1] - ends[0] for ends in found]))

    with mock.patch.object(statement, "replace_quotients", lambda plan: plan):
        before = width()
    kinds = [part.kind for part in read_statement(text, {"t": dataset}).query.parts]
    assert kinds == ["ratio"] if high in (50, 100) else kinds in (["ratio"], ["sum", "sum"])
    if kinds == ["ratio"]:
        assert width() <= before


KEPT = {
    "SUM(x) / COUNT(*), SUM(x)": [("joint", ("rows", "sum"))],
    "SUM(x) / SUM(y), SUM(y)": [("sum", ("sum",)), ("sum", ("sum",))],
    "SUM(x) / SUM(z)": [("sum", ("sum",)), ("sum", ("sum",))],
    "SUM(x) / (SUM(y) + 1)": [("sum", ("sum",)), ("sum", ("sum",))],
    "COALESCE(SUM(x) / COUNT(*), 0)": [("joint", ("rows", "sum"))],
    "SUM(x) / COUNT(*) FILTER (WHERE c)": [("sum", ("sum",)), ("rows", ("rows",))],
    "COUNT(*) / SUM(y)": [("joint", ("rows", "sum"))],
    "COUNT(*) / COUNT(*)": [("rows", ("rows",))],
}


@pytest.mark.parametrize("columns", KEPT)
def test_quotients_whose_parts_are_needed_stay_as_they_are(columns: str) -> None:
    assert kinds_of(columns) == KEPT[columns]


def test_quotients_share_a_release_with_the_count_that_divides_them() -> None:
    assert kinds_of("COUNT(*), SUM(y) / COUNT(*)") == [("joint", ("rows", "mean"))]
    assert kinds_of("g, SUM(y) / COUNT(*) AS v", "GROUP BY g HAVING COUNT(*) > 9 AND v > 2 ORDER BY v") == [
        ("joint", ("rows", "mean"))
    ]
    assert kinds_of("SUM(y) / COUNT(*), 2 * SUM(y) / COUNT(*)") == [("mean", ("mean",))]


def test_a_quotient_takes_an_error_in_its_own_units() -> None:
    for text in ("SUM(x) / SUM(y)", "SUM(x) / COUNT(*)", "COUNT(*) FILTER (WHERE c) / COUNT(*)"):
        _, (low, high) = ask(text, "ERROR WITHIN 0.1 AT MOST EPSILON 100")
        assert high - low <= 0.2 * 1.001


def test_a_ratio_whose_denominator_is_lost_in_the_noise_is_missing() -> None:
    release = Session(described(), 1000).sql("SELECT g, SUM(x) / SUM(y) AS v FROM t GROUP BY g WITH EPSILON 0.5")
    shown = {row[0]: (row[1], ends[1]) for row, ends in zip(release.value, release.ends, strict=True)}
    assert shown["none"] == (None, None)
    assert shown["a"][0] == pytest.approx(KNOWN / Y.sum(), rel=0.3)
