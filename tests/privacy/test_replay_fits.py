"""One row, or one person with several rows, changes one number of a fit: scores of all rows, choices, persons; faults are seen."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.privacy.replay import assert_one_number_differs

import expost
from expost.core import Sensitivity
from expost.data.unit_ball import UnitRows
from expost.models.descent import measured_test
from expost.models.descent.stopping_test import MeasureScale

PAIRS = int(os.environ.get("EXPOST_PAIRS", 20 if os.environ.get("EXPOST_LONG") == "1" else 1))
ROWS, BOX = 40, [(0.0, 1.0), (-1.0, 2.0)]
Make = Callable[[], Any]

MEASURED: dict[str, Make] = {
    "accuracy of all rows": lambda: expost.SGDClassifier(
        score=("accuracy", 0.6), max_epsilon=0.3, classes=[0, 1], rows=ROWS, steps=25, bounds=BOX, simulation_seed=1
    ),
    "r2 of all rows": lambda: expost.SGDRegressor(
        score=("r2", 0.1), max_epsilon=0.3, rows=ROWS, steps=25, bounds=BOX, simulation_seed=1, target_bounds=1.0
    ),
    "one of two": lambda: expost.OneOf(
        [
            expost.SGDClassifier(clip=clip, classes=[0, 1], rows=ROWS, steps=2, bounds=BOX, simulation_seed=3)
            for clip in (0.1, 1.0)
        ],
        score=("accuracy", 0.3),
        max_epsilon=50,
        levels=2,
    ),
}
PERSONS: dict[str, Make] = {
    "logistic": lambda: expost.LogisticRegression(
        epsilon=1, regularization=0.1, classes=(0, 1), bounds=BOX, rows=ROWS, simulation_seed=1
    ),
    "ridge": lambda: expost.Ridge(
        excess_risk=0.3,
        max_epsilon=50,
        regularization=0.5,
        bounds=BOX,
        target_bounds=1.0,
        rows=ROWS,
        simulation_seed=1,
    ),
    "descent": lambda: expost.SGDClassifier(
        epsilon=1, classes=[0, 1], rows=ROWS, steps=3, bounds=BOX, simulation_seed=1
    ),
    "descent, score": lambda: expost.SGDClassifier(
        score=("accuracy", 0.6), max_epsilon=0.3, classes=[0, 1], rows=ROWS, steps=25, bounds=BOX, simulation_seed=1
    ),
    "newton, rmse": lambda: expost.SGDRegressor(
        score=("rmse", 0.5),
        max_epsilon=0.3,
        solver="newton",
        rows=ROWS,
        steps=25,
        bounds=BOX,
        target_bounds=1.0,
        simulation_seed=1,
    ),
    "ridge, certificate": lambda: expost.Ridge(
        method="certificate",
        epsilon=5,
        regularization=0.5,
        bounds=BOX,
        target_bounds=1.0,
        rows=ROWS,
        simulation_seed=1,
    ),
}


def neighbours(seed: int, model: Make) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Fits to a table and to the same one without one odd row."""
    random = np.random.default_rng(seed)
    features = random.uniform(0, 1, (ROWS, 2))
    features[-1] = [np.nan, 1e308] if seed % 2 else [-5.0, 5.0]
    labels = (features[:, 0] > 0.5).astype(float)
    labels[-1] = np.nan if seed % 3 else 1.0
    first, second = ((lambda bits, rows=rows: model().fit(features[:rows], labels[:rows])) for rows in (ROWS, ROWS - 1))
    return first, second


@pytest.mark.parametrize("seed", range(PAIRS))
@pytest.mark.parametrize("name", MEASURED)
def test_one_row_less_changes_the_sums_of_a_measured_training_within_their_sensitivity(name: str, seed: int) -> None:
    seen = assert_one_number_differs(*neighbours(seed, MEASURED[name]))

    assert len(seen.sealed) > 2


def understate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A measured score whose sensitivity is a quarter of what one row can do."""
    true = MeasureScale.of

    def quarter(rule: Any) -> MeasureScale:
        scale = true(rule)
        amount = Sensitivity.from_square(scale.sensitivity.square / 16)
        return replace(scale, sensitivity=amount)

    monkeypatch.setattr(measured_test.MeasureScale, "of", quarter)


@pytest.mark.parametrize("name", ["accuracy of all rows", "r2 of all rows"])
def test_an_understated_score_of_all_rows_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    understate(monkeypatch)

    with pytest.raises(AssertionError):
        assert_one_number_differs(*neighbours(0, MEASURED[name]))


def visits(seed: int, *, gone: bool, strong: bool = False) -> expost.Dataset:
    """A table of persons with several rows, with or without the one who has the oddest rows, or the ones that count most."""
    random = np.random.default_rng(seed)
    person = np.repeat(np.arange(ROWS), 3)
    columns = {"a": random.uniform(0, 1, len(person)), "b": random.uniform(-1, 2, len(person)), "person": person}
    columns["y"] = np.round(columns["a"])
    columns["a"][:3], columns["b"][:3], columns["y"][:3] = [np.nan, 1e308, -1e308], [np.inf, 0, 0], [np.nan, 9, -9]
    if strong:
        columns["a"][:3], columns["b"][:3], columns["y"][:3] = 1, 2, -1
    kept = np.arange(len(person)) >= (3 if gone else 0)
    table = pa.table({name: pa.array(each[kept], from_pandas=name != "person") for name, each in columns.items()})
    return expost.Dataset(table, unit="person", max_rows_per_unit=2, name="visits")


@pytest.mark.parametrize("seed", range(PAIRS))
@pytest.mark.parametrize("name", PERSONS)
def test_one_person_less_changes_two_kept_rows_and_one_vector(name: str, seed: int) -> None:
    def fitted(gone: bool) -> Callable[[Any], Any]:
        return lambda bits: PERSONS[name]().fit(visits(seed, gone=gone), "y")

    distances = name not in ("logistic", "ridge")  # those are protected by a density ratio
    assert_one_number_differs(fitted(False), fitted(True), distances=distances, changed_rows=2)


def test_a_person_whose_rows_all_count_in_full_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def fitted(gone: bool) -> Callable[[Any], Any]:
        return lambda bits: PERSONS["ridge, certificate"]().fit(visits(0, gone=gone, strong=True), "y")

    assert_one_number_differs(fitted(False), fitted(True), changed_rows=2)
    monkeypatch.setattr(UnitRows, "scale_to_weights", lambda self: self)

    with pytest.raises(AssertionError):
        assert_one_number_differs(fitted(False), fitted(True), changed_rows=2)
