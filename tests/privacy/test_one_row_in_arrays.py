"""One row changes one number where rows come as arrays and frames: fits, hypothesis tests, holdouts, leaderboards."""

from __future__ import annotations

import datetime
import math
import os
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
from tests.privacy.odd_tables import draw_pair
from tests.privacy.random_questions import session
from tests.privacy.replay import assert_one_number_differs

import expost
from expost.core import Unit
from expost.data import Dataset
from expost.holdout import PrivateBoard, ReusableHoldout
from expost.stats import hypothesis

LONG = os.environ.get("EXPOST_LONG") == "1"
PAIRS = int(os.environ.get("EXPOST_PAIRS", 100 if LONG else 4))
ROWS = 40
ODD: list[Any] = [math.nan, math.inf, -math.inf, -0.0, 1e308, -1e308, 5e-324, 2.0**53, 2.0**63, 2.0**70, 0.25]
ODDER: list[Any] = [*ODD, None, "text", b"x", 2**70, 10**400, Decimal("1.5"), True, 1j, datetime.date(2020, 1, 1)]

# A table is given by its features and its labels. What holds floats gets odd floats; a list gets anything.
FRAMES: dict[str, tuple[Callable[[list[list[Any]]], Any], list[Any]]] = {
    "numpy": (lambda rows: np.array(rows, float), ODD),
    "numpy float32": (lambda rows: np.array(rows, float).astype(np.float32), ODD[:4]),
    "lists": (lambda rows: [list(row) for row in rows], ODDER),
    "pandas": (lambda rows: pandas.DataFrame(np.array(rows, float), columns=["a", "b"]), ODD),
    "pandas nullable": (
        lambda rows: pandas.DataFrame(
            {name: pandas.array([row[place] for row in rows], "Float64") for place, name in enumerate("ab")}
        ),
        [*ODD, None],
    ),
    "polars": (
        lambda rows: polars.DataFrame({n: polars.Series([r[p] for r in rows], dtype=polars.Float64) for p, n in _AB}),
        [*ODD, None],
    ),
    "arrow": (
        lambda rows: pa.table({n: pa.array([r[p] for r in rows], pa.float64()) for p, n in _AB}),
        [*ODD, None],
    ),
}
_AB = ((0, "a"), (1, "b"))

BIG = 2**53
LABELS: dict[str, tuple[Callable[[list[Any]], Any], tuple[Any, Any], list[Any]]] = {
    "list of integers": (list, (0, 1), [*ODDER, 7]),
    "list of large integers": (list, (BIG, BIG + 1), [*ODDER, 7]),
    "list of texts": (list, ("no", "yes"), [*ODDER, "maybe"]),
    "objects": (lambda labels: _vector(labels), (BIG, BIG + 1), ODDER),
    "arrow large integers": (lambda labels: pa.array(labels, pa.int64()), (BIG, BIG + 1), [None, 7, -(2**63)]),
    "arrow texts": (lambda labels: pa.array(labels, pa.string()), ("no", "yes"), [None, "", "maybe", "x" * 3000]),
    "polars large integers": (
        lambda labels: polars.Series(labels, dtype=polars.Int64),
        (BIG, BIG + 1),
        [None, 7, -(2**63)],
    ),
    "pandas nullable": (
        lambda labels: pandas.Series(pandas.array(labels, "Int64")),
        (BIG, BIG + 1),
        [None, 7, -(2**63)],
    ),
    "floats": (lambda labels: np.array(labels, float), (0.0, 1.0), ODD),
}


def _vector(values: list[Any]) -> Any:
    column = np.empty(len(values), object)
    column[:] = values
    return column


MODELS: dict[str, tuple[Callable[[tuple[Any, Any]], Any], bool]] = {
    "logistic": (
        lambda c: expost.LogisticRegression(epsilon=1, regularization=0.1, classes=c, bounds=_BOX, simulation_seed=1),
        False,
    ),
    "huber": (
        lambda c: expost.HuberSVC(epsilon=1, regularization=0.1, classes=c, bounds=_BOX, simulation_seed=1),
        False,
    ),
    "logistic, score": (
        lambda c: expost.LogisticRegression(
            score=("accuracy", 0.6), max_epsilon=50, regularization=0.1, classes=c, bounds=_BOX, simulation_seed=1
        ),
        False,
    ),
    "logistic, added rows": (
        lambda c: expost.LogisticRegression(
            epsilon=1, regularization=0.1, classes=c, bounds=_BOX, rows=ROWS, simulation_seed=1
        ),
        False,
    ),
    "sgd": (
        lambda c: expost.SGDClassifier(epsilon=1, classes=c, rows=ROWS, steps=3, bounds=_BOX, simulation_seed=1),
        True,
    ),
    "sgd, newton": (
        lambda c: expost.SGDClassifier(
            epsilon=1, classes=c, rows=ROWS, steps=2, solver="newton", bounds=_BOX, simulation_seed=1
        ),
        True,
    ),
    "huber, score, added rows": (
        lambda c: expost.HuberSVC(
            score=("accuracy", 0.6),
            max_epsilon=50,
            regularization=0.1,
            classes=c,
            bounds=_BOX,
            rows=ROWS,
            simulation_seed=1,
        ),
        False,
    ),
}
REGRESSIONS: dict[str, tuple[Callable[[], Any], bool]] = {
    "ridge": (
        lambda: expost.Ridge(epsilon=5, regularization=0.5, bounds=_BOX, simulation_seed=1, target_bounds=1.0),
        False,
    ),
    "ridge, certificate": (
        lambda: expost.Ridge(
            method="certificate", epsilon=5, regularization=0.5, bounds=_BOX, simulation_seed=1, target_bounds=1.0
        ),
        True,
    ),
    "ridge, excess risk": (
        lambda: expost.Ridge(
            excess_risk=0.3, max_epsilon=50, regularization=0.5, bounds=_BOX, simulation_seed=1, target_bounds=1.0
        ),
        False,
    ),
    "ridge, added rows": (
        lambda: expost.Ridge(
            excess_risk=0.3,
            max_epsilon=50,
            regularization=0.5,
            bounds=_BOX,
            rows=ROWS,
            simulation_seed=1,
            target_bounds=1.0,
        ),
        False,
    ),
    "ridge, certificate, added rows": (
        lambda: expost.Ridge(
            method="certificate",
            epsilon=5,
            regularization=0.5,
            bounds=_BOX,
            rows=ROWS,
            simulation_seed=1,
            target_bounds=1.0,
        ),
        True,
    ),
    "sgd": (
        lambda: expost.SGDRegressor(epsilon=1, rows=ROWS, steps=3, bounds=_BOX, simulation_seed=1, target_bounds=1.0),
        True,
    ),
    "ridge, r2, added rows": (
        lambda: expost.Ridge(
            score=("r2", 0.1),
            max_epsilon=50,
            regularization=0.5,
            bounds=_BOX,
            rows=ROWS,
            simulation_seed=1,
            target_bounds=1.0,
        ),
        False,
    ),
}
ADDED = tuple(name for name in (*MODELS, *REGRESSIONS) if name.startswith("sgd") or "added rows" in name)
_BOX = [(0.0, 1.0), (-1.0, 2.0)]


def _neighbours(
    random: np.random.Generator, odd: list[Any], odd_labels: list[Any], classes: tuple[Any, Any], *, fewer: bool
) -> list[tuple[list[list[Any]], list[Any]]]:
    """Two tables that differ in one row: it is removed, or another odd one stands in its place."""
    rows = random.uniform(0, 1, (ROWS, 2)).tolist()
    labels = [classes[int(row[0] > 0.5)] for row in rows]
    place = int(random.integers(ROWS))

    def odd_row() -> tuple[list[Any], Any]:
        cells = [odd[random.integers(len(odd))] if random.random() < 0.7 else 0.5 for _ in range(2)]
        return cells, odd_labels[random.integers(len(odd_labels))] if random.random() < 0.7 else classes[0]

    first = list(rows), list(labels)
    first[0][place], first[1][place] = odd_row()
    second = list(rows), list(labels)
    second[0][place], second[1][place] = odd_row()
    if fewer:
        del second[0][place], second[1][place]
    return [first, second]


@pytest.mark.parametrize("labelled", LABELS)
@pytest.mark.parametrize("model", MODELS)
def test_one_odd_row_of_a_frame_changes_one_row_of_a_classifier(model: str, labelled: str) -> None:
    make, distances = MODELS[model]
    label, classes, odd_labels = LABELS[labelled]
    for number, (frame, odd) in enumerate(list(FRAMES.values()) * max(1, PAIRS // 4)):
        random = np.random.default_rng([number, sum(map(ord, model + labelled))])
        tables = _neighbours(random, odd, odd_labels, classes, fewer=model in ADDED)
        built = [(frame(rows), label(labels)) for rows, labels in tables]
        first, second = ((lambda bits, given=given: make(classes).fit(*given)) for given in built)
        assert_one_number_differs(first, second, distances=distances)


@pytest.mark.parametrize("framed", FRAMES)
@pytest.mark.parametrize("model", REGRESSIONS)
def test_one_odd_row_of_a_frame_changes_one_row_of_a_regression(model: str, framed: str) -> None:
    make, distances = REGRESSIONS[model]
    frame, odd = FRAMES[framed]
    for number in range(PAIRS):
        random = np.random.default_rng([number, sum(map(ord, model + framed))])
        tables = _neighbours(random, odd, ODDER, (0.0, 1.0), fewer=model in ADDED)
        built = [(frame(rows), _vector(labels)) for rows, labels in tables]
        first, second = ((lambda bits, given=given: make().fit(*given)) for given in built)
        assert_one_number_differs(first, second, distances=distances)


COLUMNS: dict[str, Callable[[list[Any]], Any]] = {
    "objects": lambda cells: _vector(cells),
    "list": list,
    "floats": lambda cells: np.array([cell if type(cell) in (int, float) else math.nan for cell in cells], float),
}
SAMPLES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "two means": lambda x, y, bits: hypothesis.mean_difference_test(x, y, bounds=(0, 1), epsilon=1, bits=bits),
    "several means": lambda x, y, bits: hypothesis.anova_test(x, y, bounds=(0, 1), epsilon=1, bits=bits),
    "rank sum": lambda x, y, bits: hypothesis.mann_whitney_test(x, y, epsilon=1, bits=bits),
    "several rank sums": lambda x, y, bits: hypothesis.kruskal_wallis_test(x, y, epsilon=1, bits=bits),
    "signed ranks": lambda x, y, bits: hypothesis.signed_rank_test(x, y, epsilon=1, bits=bits),
    "rank correlation": lambda x, y, bits: hypothesis.correlation_test(x, y, epsilon=1, bits=bits),
    "linear correlation": lambda x, y, bits: hypothesis.linear_correlation_test(
        x, y, bounds=((0, 1), (0, 1)), epsilon=1, bits=bits
    ),
}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("test", SAMPLES)
def test_one_odd_value_changes_the_sealed_statistic_of_a_test(test: str, column: str) -> None:
    for number in range(5 * PAIRS):
        random = np.random.default_rng([number, sum(map(ord, test + column))])
        x, y = random.uniform(0, 1, (2, 30)).tolist()
        place, cells = int(random.integers(30)), [ODDER[each] for each in random.integers(len(ODDER), size=2)]
        samples = [[*x[:place], cell, *x[place + 1 :]] for cell in cells]
        if column == "floats":
            samples = [[*x[:place], float(ODD[each]), *x[place + 1 :]] for each in random.integers(len(ODD), size=2)]
        first, second = (
            (lambda bits, x=sample, y=y: SAMPLES[test](COLUMNS[column](x), COLUMNS[column](y), bits))
            for sample in samples
        )
        assert_one_number_differs(first, second)


@pytest.mark.parametrize("seed", range(3 * PAIRS))
def test_one_holdout_row_changes_the_sealed_totals_of_a_reusable_holdout(seed: int) -> None:
    random = np.random.default_rng(seed)
    train, holdout = random.uniform(0, 1, (2, 700)).tolist()
    cells = [ODDER[each] for each in random.integers(len(ODDER), size=2)]
    place = int(random.integers(700))

    def asked(cell: Any) -> Callable[[Any], Any]:
        rows = _vector([*holdout[:place], cell, *holdout[place + 1 :]])

        def run(bits: Any) -> Any:
            terms = {"tolerance": 0.3, "failure_probability": 0.5, "max_queries": 3, "budget": 1}
            kept = ReusableHoldout(_vector(train), rows, **terms, bits=bits)
            return [
                kept.ask(lambda v: np.array([float(each) for each in v])),
                kept.ask(lambda v: np.array([each > 0.5 for each in v])),
                kept.ask(lambda v: np.array([1 / each for each in v])),
            ]

        return run

    assert_one_number_differs(asked(cells[0]), asked(cells[1]))


@pytest.mark.parametrize("seed", range(2 * PAIRS))
def test_one_label_changes_the_sealed_totals_of_a_private_board(seed: int) -> None:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, 400).tolist()
    place, cells = int(random.integers(400)), [ODDER[each] for each in random.integers(len(ODDER), size=2)]

    def submitted(cell: Any) -> Callable[[Any], Any]:
        truth = _vector([*labels[:place], cell, *labels[place + 1 :]])

        def run(bits: Any) -> Any:
            board = PrivateBoard(truth, max_submissions=5, tolerance=0.4, failure_probability=0.1, budget=2, bits=bits)
            return [board.submit(np.ones(400)), board.submit(np.array(labels))]

        return run

    assert_one_number_differs(submitted(cells[0]), submitted(cells[1]))


@pytest.mark.parametrize("seed", range(3 * PAIRS))
def test_one_row_changes_the_sealed_answer_of_a_part_and_nothing_else(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    pair = draw_pair(random, fixed={"key": ["float64", "int64", "text", "decimal"][seed % 4], "x": "float64"})
    values = {"float64": 0, "int64": 2**53, "text": "a", "decimal": 1}
    value = values[pair.first.types["key"]]

    def asked(table: Any) -> Callable[[Any], Any]:
        def run(bits: Any) -> Any:
            dataset = Dataset(table.arrow(), name="t", bounds={"x": (-7.5, 12.25)}, categories={"key": [value]})
            part = session(dataset, bits).part("key", value)
            return part.count(epsilon=1), part.sum("x", epsilon=1), part.median("x", epsilon=1), part.spent()

        return run

    assert_one_number_differs(asked(pair.first), asked(pair.second))


@pytest.mark.parametrize("seed", range(3 * PAIRS))
def test_one_row_changes_the_sealed_answer_of_a_window_and_nothing_else(seed: int) -> None:
    random = np.random.default_rng(seed)
    when = ["time", "time with zone", "nanoseconds", "date"][seed % 4]
    pair = draw_pair(random, unit="id", fixed={"when": when, "x": "float64", "id": "text"})

    def asked(table: Any) -> Callable[[Any], Any]:
        def run(bits: Any) -> Any:
            unit = Unit.of("id", per="week", time="when")
            dataset = Dataset(table.arrow(), name="t", bounds={"x": (-7.5, 12.25)}, unit=unit, max_rows_per_unit=2)
            window = session(dataset, bits).window("2024-03-01")
            return window.count(epsilon=1), window.sum("x", epsilon=1), window.spent()

        return run

    assert_one_number_differs(asked(pair.first), asked(pair.second))


@pytest.mark.parametrize("column", ["id", "key", "note"])
@pytest.mark.parametrize("letters", [100_000])
def test_one_long_text_takes_no_more_than_its_share_of_the_time(column: str, letters: int) -> None:
    """A text of 100,000 letters among 20,000 short ones is a third of the bytes, so it may take twice the time."""
    count = 20_000
    short = [f"p{place}" for place in range(count)]

    def seconds(text: str) -> float:
        columns: dict[str, Any] = {"id": short, "key": short, "note": short, "x": np.ones(count)}
        columns[column] = [*short[:-1], text]
        dataset = Dataset(
            pa.table(columns), unit="id", max_rows_per_unit=1, bounds={"x": (0, 1)}, categories={"key": short[:50]}
        )
        asking = expost.Session(dataset, expost.approx(100, 0.1))
        start = time.process_time()
        asking.sum("x", epsilon=1, where="length(note) > 1", by="key")
        asking.count_distinct(epsilon=1, where="starts_with(note, 'p')")
        asking.private_keys("key", epsilon=1, delta=0.01)
        return time.process_time() - start

    seconds("warm")
    usual = min(seconds("p") for _ in range(3))
    assert min(seconds("x" * letters) for _ in range(3)) < 6 * usual + 0.2
