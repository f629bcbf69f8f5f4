"""One row or person of a mixed table changes one sealed sum of ``Classifier`` and ``Regressor``, and nothing else."""

from __future__ import annotations

import csv
import datetime
import math
import os
import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from tests.privacy.odd_tables import SOURCES, UNTYPED, draw_pair
from tests.privacy.random_questions import categories, labels
from tests.privacy.replay import Seen, observe
from tests.privacy.test_one_row_changes_one_number import check

import expost
from expost.data import Dataset

LONG = os.environ.get("EXPOST_LONG") == "1"
PAIRS = int(os.environ.get("EXPOST_PAIRS", 100 if LONG else 6))
WINDOW = (datetime.date(2024, 1, 1), datetime.date(2024, 12, 31))

# Random tables as every kind of source ---------------------------------------------------------------------------------


def _classifier(**terms: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda columns: expost.Classifier(columns=columns, **terms)


def _regressor(**terms: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda columns: expost.Regressor(columns=columns, **terms)


def _one_of(kind: Any, **terms: Any) -> Callable[[dict[str, Any]], Any]:
    def build(columns: dict[str, Any]) -> Any:
        few = {name: columns[name] for name in ("x", "label")}
        return expost.OneOf([kind(columns=columns, select=2), kind(columns=few)], **terms)

    return build


MODELS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "classifier": _classifier(epsilon=0.5),
    "classifier, score": _classifier(score=("accuracy", 0.9), max_epsilon=0.03),
    "classifier, auc": _classifier(score=("auc", 0.7), max_epsilon=0.02),
    "classifier, balanced": _classifier(epsilon=0.5, class_weight="balanced"),
    "classifier, report": _classifier(epsilon=0.5, report=["auc", "coefficients"], calibrate=True),
    "classifier, private levels": _classifier(epsilon=0.5),
    "classifier, select": _classifier(epsilon=0.5, select=2),
    "classifier, select, score": _classifier(score=("accuracy", 0.9), max_epsilon=0.06, select=2),
    "classifier, select, private levels, report": _classifier(epsilon=0.5, select=2, report="coefficients"),
    "classifier, select, pure": _classifier(epsilon=0.5, select=2, delta=0),
    "classifier, objective": _classifier(epsilon=0.5, method="objective"),
    "classifier, one of two": _one_of(expost.Classifier, epsilon=0.5),
    "classifier, one of two, score": _one_of(expost.Classifier, score=("accuracy", 0.9), max_epsilon=0.5, levels=2),
    "regressor": _regressor(epsilon=0.5),
    "regressor, score": _regressor(score=("rmse", 0.3), max_epsilon=0.03),
    "regressor, report": _regressor(epsilon=0.5, report=["coefficients"]),
    "regressor, select": _regressor(epsilon=0.5, select=2),
    "regressor, moments": _regressor(epsilon=0.5, method="moments"),
    "regressor, select, moments": _regressor(epsilon=0.5, delta=0, method="moments", select=2),
    "regressor, objective": _regressor(epsilon=0.5, method="objective"),
}


@pytest.mark.parametrize("unit", ["row", "id"])
@pytest.mark.parametrize("model", MODELS)
def test_one_unit_of_any_source_changes_the_sealed_sums_of_a_model(model: str, unit: str, tmp_path: Path) -> None:
    sources = list(SOURCES) * max(1, PAIRS // 9)
    private = "private levels" in model
    if not LONG and model.count(","):  # options share their ways of reading tables: a third of the sources for each
        start = sum(map(ord, model + unit)) % 3
        sources = sources[start::3]
    for number, source in enumerate(sources):
        random = np.random.default_rng([number, sum(map(ord, model + unit))])
        numeric = model.startswith("regressor")
        fixed = ({"label": "float64"} if numeric else {}) | ({"key": "text"} if private else {})
        pair = draw_pair(random, unit=unit, typed=source not in UNTYPED, fixed=fixed)
        kinds = pair.first.types
        columns = {
            "x": (0, 1) if kinds["x"] == "bool" else (-7.5, 12.25),
            "n": (-3, 9),
            "key": "private" if private else [each for each in categories(kinds["key"]) if each is not None],
            "when": WINDOW,
            "label": (-1, 8) if numeric else labels(kinds["label"]),
        }

        def ask(asking: Any, dataset: Dataset, columns: Any = columns) -> Any:
            fitted = MODELS[model](columns)
            try:
                fitted = asking.fit(fitted, target="label")
            except expost.TargetNotMet as missed:
                kept = everything_about(fitted) if hasattr(fitted, "get_params") else missed.release.value
                return kept, missed.receipt, str(missed), asking.spent()
            return everything_about(fitted), fitted.receipt_, asking.spent()

        # The minimum of a tilted risk is protected by a density ratio, not by a distance.
        distances = not ("objective" in model or "pure" in model)
        changed = 1 if unit == "row" else 6
        check(pair, source, ask, random, tmp_path, filters=unit == "row", distances=distances, changed_rows=changed)


def everything_about(model: Any) -> list[Any]:
    """Return what a holder of the fitted model can read off it."""
    shown = {name: repr(value) for name, value in vars(model).items() if name != "release_"}
    stored = model.__getstate__() | {"release_": None}
    return [model.release_.value.weights, shown, repr(model), repr(pickle.loads(pickle.dumps(stored)))]


# Odd cells through every way to pass a table ---------------------------------------------------------------------------

NAMES = ["id", "age", "job", "flag", "when", "rich", "pay"]
ROWS: list[dict[str, Any]] = [
    {
        "id": k // 2,
        "age": float(18 + k),
        "job": "a" if k % 3 else "b",
        "flag": bool(k % 2),
        "when": datetime.datetime(2024, 1, 1) + datetime.timedelta(days=9 * k),
        "rich": "yes" if k % 4 else "no",
        "pay": float(k % 7),
    }
    for k in range(24)
]
KINDS = dict(zip(NAMES, ["integer", "real", "text", "boolean", "time", "text", "real"], strict=True))
ODD: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    -0.0,
    2**53 + 1,
    2**63,
    2**70,
    10**400,
    b"\xff",
    b"a",
    "text",
    "x" * 3000,
]
ODD += [None, pandas.NA, pandas.NaT, Decimal("1.5"), Decimal("NaN"), Decimal("sNaN"), Decimal("1e400"), True, 1j, [1]]
ODD += [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC), datetime.date(2020, 1, 1)]
ODD += [np.datetime64("NaT", "us"), np.float32(1.5), np.int8(3), object, np.array([1, 2]), datetime.time(3), {"a": 1}]
ODD += [pandas.Timestamp("2024-01-01", tz="America/New_York"), datetime.timedelta(1)]

Rows = list[dict[str, Any]]


def vector(values: list[Any]) -> Any:
    column = np.empty(len(values), object)
    for place, value in enumerate(values):
        column[place] = value
    return column


def listed(rows: Rows) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in NAMES}


def written(rows: Rows, folder: Path) -> str:
    """Write a CSV file, with bytes that may not be UTF-8."""
    with open(folder / "table.csv", "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        writer = csv.writer(file)
        writer.writerow(NAMES)
        for row in rows:
            cells = (b"" if row[name] is None else row[name] for name in NAMES)
            writer.writerow([c.decode("utf-8", "surrogateescape") if isinstance(c, bytes) else str(c) for c in cells])
    return str(folder / "table.csv")


# The tables that hold any cell in any column, and those with the column of ids.
TABLES: dict[str, Callable[[Rows, Path], Any]] = {
    "pandas": lambda rows, folder: pandas.DataFrame(listed(rows)),
    "pandas objects": lambda rows, folder: pandas.DataFrame({n: vector(c) for n, c in listed(rows).items()}),
    "mapping of lists": lambda rows, folder: {n: c for n, c in listed(rows).items() if n != "id"},
    "mapping of series": lambda rows, folder: {n: pandas.Series(c) for n, c in listed(rows).items()},
    "mapping of arrays": lambda rows, folder: {n: vector(c) for n, c in listed(rows).items()},
    "list of rows": lambda rows, folder: [dict(row) for row in rows],
    "csv": written,
    "dataset": lambda rows, folder: Dataset(listed(rows), types=KINDS, name="t"),
    "dataset of a frame": lambda rows, folder: Dataset(pandas.DataFrame(listed(rows)), types=KINDS),
}
COLUMNS: dict[str, Any] = {"age": (18, 80), "job": ["a", "b"], "flag": "boolean", "when": WINDOW}
FITS: dict[str, Callable[..., Any]] = {
    "rich": lambda **more: expost.Classifier(epsilon=0.5, simulation_seed=7, **more),
    "pay": lambda **more: expost.Regressor(epsilon=0.5, simulation_seed=7, **more),
    "job": lambda **more: expost.Classifier(epsilon=0.5, calibrate=True, simulation_seed=7, **more),
}
TARGETS: dict[str, Any] = {"rich": ["no", "yes"], "pay": (0, 6), "job": ["a", "b", "c"]}


def assert_odd_cells_change_one_number(fit: Callable[[Rows], Any], columns: list[str], seed: int) -> None:
    """Append one row with an odd cell; everything that can be read off the fitted model must stay the same."""

    def seen(rows: Rows, recorded: Seen | None = None) -> Seen:
        def action(bits: Any) -> Any:
            model = fit(rows)
            return everything_about(model), model.receipt_

        return observe(action, recorded)

    random = np.random.default_rng(seed)
    first = seen(ROWS)
    assert first.error is None and first.warned == [], (first.error, first.warned)
    cells = [(column, cell) for column in columns for cell in ODD]
    for place in random.permutation(len(cells))[: len(cells) if LONG else PAIRS]:
        column, cell = cells[place]
        second = seen([*ROWS, {**ROWS[3], "id": 99, column: cell}], first)
        assert second.too_far == [], (column, cell, second.too_far)
        assert second.visible == first.visible, (column, cell, second.error, second.warned)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("target", FITS)
def test_one_odd_cell_of_any_kind_of_table_changes_one_number(target: str, table: str, tmp_path: Path) -> None:
    def fit(rows: Rows) -> Any:
        columns = {**COLUMNS, target: TARGETS[target]}
        return FITS[target](columns=columns).fit(TABLES[table](rows, tmp_path), target=target)

    assert_odd_cells_change_one_number(fit, list(dict.fromkeys([*COLUMNS, target])), sum(map(ord, target + table)))


# An odd id can change the dtype of its column, and so the keyed hash of every id. All rows are kept here, so that none of
# them is chosen by that hash.
@pytest.mark.parametrize("table", [name for name in TABLES if name != "mapping of lists"])
@pytest.mark.parametrize("target", FITS)
def test_one_odd_id_changes_one_persons_part_of_one_number(target: str, table: str, tmp_path: Path) -> None:
    def fit(rows: Rows) -> Any:
        columns = {**COLUMNS, target: TARGETS[target]}
        model = FITS[target](columns=columns, unit="id", max_rows_per_unit=3)
        return model.fit(TABLES[table](rows, tmp_path), target=target)

    assert_odd_cells_change_one_number(fit, ["id", target], sum(map(ord, target + table)))


def test_ids_of_every_kind_keep_their_persons_apart_also_in_a_column_of_objects() -> None:
    ids = [
        1,
        1.0,
        np.int64(1),
        2**53,
        2**53 + 1,
        "1",
        "a",
        "a",
        -0.0,
        0,
        True,
        None,
        pandas.NA,
        datetime.date(2020, 1, 1),
    ]
    persons = [0, 0, 0, 1, 1, 2, 3, 3, 4, 4, 0, None, None, 5]
    frame = pandas.DataFrame({"id": vector(ids), "x": np.arange(len(ids), dtype=float)})

    for table in (frame, {"id": ids, "x": frame["x"].to_numpy()}, {name: frame[name] for name in frame}):
        dataset = Dataset(table, unit="id", max_rows_per_unit=9)
        found = next(dataset.batches(["id"])).column(0).to_pylist()
        known = {person: cell for person, cell in zip(persons, found, strict=True) if person is not None}
        assert [known.get(person) for person in persons] == found
        assert len(set(known.values())) == 6


DESCRIPTION = """
source = "table.csv"
[bounds]
age = [18, 80]
pay = [0, 6]
when = ["2024-01-01", "2024-12-31"]
[categories]
job = ["a", "b"]
rich = ["no", "yes"]
[types]
id = "integer"
flag = "boolean"
[derive]
old = "age > 40"
"""


@pytest.mark.parametrize("table", ["pandas", "pandas objects", "mapping of lists", "mapping of arrays", "csv"])
@pytest.mark.parametrize("target", ["rich", "pay", "old"])
def test_one_odd_cell_of_a_described_table_changes_one_number(target: str, table: str, tmp_path: Path) -> None:
    text = DESCRIPTION if table != "mapping of lists" else DESCRIPTION.replace('id = "integer"\n', "")
    (tmp_path / "described.toml").write_text(text)

    def fit(rows: Rows) -> Any:
        model = FITS["pay" if target == "pay" else "rich"](columns=str(tmp_path / "described.toml"))
        return model.fit(TABLES[table](rows, tmp_path), target=target)

    assert_odd_cells_change_one_number(
        fit, ["age", "job", "flag", "when", "rich", "pay"], sum(map(ord, target + table))
    )


@pytest.mark.parametrize("target", ["rich", "pay"])
def test_one_odd_cell_of_a_named_column_of_targets_changes_one_number(target: str) -> None:
    def fit(rows: Rows) -> Any:
        frame = pandas.DataFrame({name: vector(cells) for name, cells in listed(rows).items()})
        return FITS[target](columns={**COLUMNS, target: TARGETS[target]}).fit(frame.drop(columns=target), frame[target])

    assert_odd_cells_change_one_number(fit, [*COLUMNS, target], sum(map(ord, target)))
