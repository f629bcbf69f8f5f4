"""What leaves a session, an error or a fitted model holds nothing exact: no row, no count, no chained error."""

from __future__ import annotations

import pickle
import struct
import traceback
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from expost import Session, epsilon
from expost.core import EngineFailed, SealBroken, TargetNotMet
from expost.data import Dataset
from expost.models import LogisticRegression, Ridge
from expost.noise import SeededBits
from expost.stats import Count, Mean
from expost.stats.gradual_plan import GradualPlan

EXACT = 123_457  # a count that does not turn up by chance
SECRET = 0.123456789012345
EXTREMES = [np.nan, np.inf, -np.inf, 1e308, -1.7e308, 1e200, 5e-324]


def _table(rows: int = EXACT) -> Dataset:
    return Dataset(
        pa.table({"x": np.arange(rows, dtype=float), "s": np.repeat("marked", rows)}),
        name="people",
        bounds={"x": (0, 10)},
    )


def _texts(value: Any) -> str:
    shown = [repr(value), str(value), f"{value}"]
    return " ".join([*shown, value._repr_html_()] if hasattr(value, "_repr_html_") else shown)


def test_a_missed_target_carries_the_private_release_and_no_other_number() -> None:
    session = Session(_table(), epsilon(1), bits=SeededBits(5), simulation=True)
    with pytest.raises(TargetNotMet) as caught:
        session.count(within="1%", max_epsilon=1e-6, where="x >= 0")
    error = caught.value
    assert error.__context__ is None and error.__cause__ is None
    assert str(EXACT) not in _texts(error) + _texts(error.release) + str(error.receipt.to_dict())
    again = pickle.loads(pickle.dumps(error))
    assert vars(again).keys() == {"release"} and again.release == error.release


def test_the_error_of_a_source_travels_neither_as_text_nor_as_cause() -> None:
    class BrokenPlan(GradualPlan):
        def measure(self, dataset: Any) -> Any:
            raise ValueError("row 17 is marked")

    class Broken(Count):
        def plan(self, dataset: Any, context: Any = None) -> Any:
            return BrokenPlan(**vars(super().plan(dataset, context)))

    with pytest.raises(EngineFailed) as caught:
        Session(_table(10), epsilon(1)).ask(Broken(epsilon=0.1, where="x >= 0"))
    assert "marked" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None and caught.value.__cause__ is None


@pytest.mark.parametrize("question", [Count(epsilon=1, where="x >= 0"), Mean("x", epsilon=1)])
def test_a_measured_answer_cannot_be_shown_pickled_or_compared(question: Any) -> None:
    plan = question.plan(_table(100))
    sealed = plan.measure(_table(100))
    assert repr(sealed) == str(sealed) == "<sealed exact answer>"
    for attempt in (pickle.dumps, float, list, bool, lambda value: value == 100, lambda value: value + 1):
        with pytest.raises(SealBroken):
            attempt(sealed)
    with pytest.raises((SealBroken, ValueError)):  # NumPy reports the refusal in its own words
        np.asarray(sealed)


@pytest.mark.parametrize(
    "model",
    [
        Ridge(epsilon=5, regularization=0.5, simulation_seed=1, feature_bound=1.0, target_bounds=1.0),
        Ridge(
            epsilon=5, regularization=0.5, simulation_seed=1, method="certificate", feature_bound=1.0, target_bounds=1.0
        ),
        Ridge(epsilon=5, regularization=0.5, simulation_seed=1, method="output", feature_bound=1.0, target_bounds=1.0),
        LogisticRegression(epsilon=5, regularization=0.5, simulation_seed=1, classes=(0, 1), feature_bound=1.0),
    ],
    ids=["tilted", "certificate", "output", "logistic"],
)
def test_a_fitted_model_keeps_no_row(model: Any) -> None:
    rows = np.random.default_rng(0).uniform(-0.4, 0.4, (400, 2))
    rows[7, 1] = SECRET
    model.fit(rows, (rows[:, 0] > 0).astype(int))
    stored = pickle.dumps(model)
    assert struct.pack("<d", SECRET) not in stored and struct.pack(">d", SECRET) not in stored
    assert len(stored) < rows.nbytes


@pytest.mark.parametrize("value", EXTREMES)
def test_one_extreme_cell_changes_neither_warnings_nor_the_course_of_a_fit(value: float) -> None:
    rows = np.random.default_rng(0).uniform(-0.4, 0.4, (200, 2))
    rows[3, 1] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Ridge(epsilon=5, regularization=0.5, simulation_seed=1, feature_bound=1.0, target_bounds=1.0).fit(
            rows, np.zeros(200)
        )
    assert np.isfinite(model.coef_).all()
