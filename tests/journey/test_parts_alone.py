"""A question about a part reads the part alone: whatever the other rows hold, the answer is that of the part by itself."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.contracts.test_engine import in_duckdb, in_memory, in_parquet, in_postgres
from tests.journey.every_question import QUESTIONS, TESTS, described

import expost
from expost import Dataset, Session, approx
from expost.answer import answer
from expost.core import InvalidRequest, Query, TargetNotMet, Unit
from expost.noise import SeededBits

ROWS = 120
LEVEL = 20


def rows_of(seed: int, *, x: float, c: list[str], d: list[str]) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        "x": random.normal(x, 2, ROWS),
        "y": random.normal(x, 2, ROWS),
        "c": random.choice(c, ROWS).tolist(),
        "d": random.choice(d, ROWS).tolist(),
    }


HERE = pa.table(rows_of(1, x=5, c=["a", "b", "b", "c"], d=["u", "v"]) | {"site": ["here"] * ROWS})
# Rows that would change any answer: other values, other categories, missing and infinite numbers, far more of them.
STRANGE = rows_of(2, x=9, c=["a"], d=["u"]) | {"site": ["there"] * 90 + [None] * 30}
STRANGE["x"][:20], STRANGE["y"][:20], STRANGE["x"][20:30] = np.inf, -np.inf, np.nan
THERE = pa.table(STRANGE)
PUBLIC_ROWS = {"rank correlation", "linear correlation"}  # a part has none
# Split tests and tests of ranks draw random numbers for the rows in their order.
ORDERLESS = {name for name in TESTS if name not in PUBLIC_ROWS and not name.startswith("split") and "rank" not in name}
ASKED = {name: build for name, build in (QUESTIONS | TESTS).items() if name not in PUBLIC_ROWS}


def mixed(*tables: pa.Table) -> pa.Table:
    """All rows of all tables, those of each in their order, shuffled into each other."""
    random = np.random.default_rng(3)
    owners = random.permutation(np.repeat(np.arange(len(tables)), [len(table) for table in tables]))
    starts = np.cumsum([0, *(len(table) for table in tables)])
    places = np.empty(len(owners), np.int64)
    for number in range(len(tables)):
        places[owners == number] = starts[number] + np.arange(len(tables[number]))
    return pa.concat_tables(tables).take(places)


def table_of(source: Any, **terms: Any) -> Dataset:
    known = described()
    known["categories"] = known["categories"] | {"site": ["here", "there", "nowhere"]}
    return Dataset(source, **known | terms)


def part_of(source: Any, value: str = "here", **terms: Any) -> Session:
    session = Session(table_of(source, **terms), approx(10**6, 0.1), bits=SeededBits(7), simulation=True)
    return session.part("site", value)


def asked(session: Session, request: Query, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The value and the interval of an answer whose every random word is fixed."""
    bits = SeededBits(11)
    for place in ("expost.stats.hypothesis.split", "expost.stats.hypothesis.binomial"):
        monkeypatch.setattr(f"{place}.system_bits", lambda: bits)
    try:
        release = answer(
            request,
            session.dataset,
            ledger=session.ledger,
            accounts=session.accounts,
            bits=SeededBits(5),
            simulation=True,
        )
    except TargetNotMet as missed:
        release = missed.release
    return repr(release.value), repr(release.interval)


@pytest.mark.parametrize("name", ASKED)
def test_a_part_is_answered_as_if_it_were_the_table(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_itself = Session(table_of(HERE), approx(10**6, 0.1), bits=SeededBits(7), simulation=True)
    expected = asked(by_itself, ASKED[name](LEVEL), monkeypatch)

    assert asked(part_of(mixed(HERE, THERE)), ASKED[name](LEVEL), monkeypatch) == expected
    assert asked(part_of(mixed(THERE, HERE, THERE)), ASKED[name](LEVEL), monkeypatch) == expected


@pytest.mark.parametrize("name", ASKED)
def test_a_part_without_rows_is_answered_like_an_empty_table(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Session(table_of(HERE.slice(0, 0)), approx(10**6, 0.1), bits=SeededBits(7), simulation=True)
    expected = asked(nothing, ASKED[name](LEVEL), monkeypatch)

    assert asked(part_of(mixed(HERE, THERE), "nowhere"), ASKED[name](LEVEL), monkeypatch) == expected


def test_the_other_rows_would_have_been_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the filter every answer but a few coarse ones is another: the comparison above has power."""
    whole = Session(table_of(mixed(HERE, THERE)), approx(10**6, 0.1), bits=SeededBits(7), simulation=True)
    same = {
        name
        for name, build in ASKED.items()
        if asked(whole, build(LEVEL), monkeypatch) == asked(part_of(HERE), build(LEVEL), monkeypatch)
    }
    assert len(same) <= 5, same


@pytest.mark.parametrize("name", ["count where", "sum", "quantile", "private keys", *sorted(ORDERLESS)])
@pytest.mark.parametrize("engine", [in_memory, in_parquet, in_duckdb, in_postgres], ids=lambda make: make.__name__)
def test_every_engine_reads_the_part_alone(
    engine: Any, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = engine(mixed(HERE, THERE), tmp_path)
    assert asked(part_of(source), ASKED[name](LEVEL), monkeypatch) == asked(
        part_of(HERE), ASKED[name](LEVEL), monkeypatch
    )


@pytest.mark.parametrize("name", [name for name in QUESTIONS if "count of units" not in name])
def test_a_window_is_answered_as_if_it_were_the_table(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = Unit.of("id", per="week", time="when")
    days = [datetime.datetime(2013, 1, 8), datetime.datetime(2013, 2, 1)]
    weeks = [
        table.append_column("when", pa.array([day] * ROWS, pa.timestamp("us"))).append_column(
            "id", pa.array(range(ROWS), pa.int64())
        )
        for table, day in zip((HERE, THERE), days, strict=True)
    ]
    answers = []
    for source in (weeks[0], mixed(*weeks)):
        data = table_of(source, unit=unit, max_rows_per_unit=5)
        session = Session(data, approx(10**6, 0.1), bits=SeededBits(7), simulation=True)
        answers.append(asked(session.window("2013-01-09"), QUESTIONS[name](LEVEL), monkeypatch))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "model",
    [
        expost.Ridge(excess_risk=0.1, regularization=0.1, bounds={"x": (0, 10), "y": (0, 10)}, target_bounds=1.0),
        expost.LogisticRegression(excess_risk=0.1, classes=[0, 1], feature_bound=10),
        expost.LogisticRegression(excess_risk=0.1, classes=[0, 1], feature_bound=10, rows=100, method="absolute_loss"),
        expost.HuberSVC(excess_risk=0.1, classes=[0, 1], feature_bound=10),
        expost.SGDClassifier(epsilon=1, delta=1e-6, rows=100, classes=[0, 1], feature_bound=1.0),
        expost.SGDRegressor(epsilon=1, delta=1e-6, rows=100, feature_bound=1.0, target_bounds=1.0),
    ],
    ids=["ridge", "logistic", "absolute loss", "huber", "descent of classes", "descent of numbers"],
)
@pytest.mark.parametrize("neighbours", [{}, {"adjacency": "replace-one", "rows": 2 * ROWS}], ids=["add", "replace"])
def test_models_are_not_fitted_to_parts(model: Any, neighbours: dict[str, Any]) -> None:
    """The size of a part is private, and they need a public one: refused before anything is held."""
    part = Session(table_of(mixed(HERE, THERE), **neighbours), approx(10**6, 0.1)).part("site", "here")
    with pytest.raises(InvalidRequest, match=r"whose number is public|Expected a whole dataset"):
        part.fit(model, features=["x"], target="y")
    assert part.spent().amounts()["epsilon"] == 0
