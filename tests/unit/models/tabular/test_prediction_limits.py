"""Narrow limits of predictions: cheaper tests of the same model, with the sensitivity that they claim."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import expost
from expost.core import Measure, Target
from expost.models import load_model, save_model
from expost.models.tabular.prediction_limits import PREDICTION_BINS, count_predictions, narrow_limits
from expost.models.tabular.score_sum import MeasuredScore, ScoreSum
from expost.models.tabular.table_profile import TableProfile

MEASURES = {Measure.R2: Fraction(1, 4), Measure.RMSE: Fraction(1, 5), Measure.MAE: Fraction(1, 5)}
TARGETS = [Target(measure, level, Fraction(1, 10)) for measure, level in MEASURES.items()]
SPREAD = 0.15


@pytest.mark.parametrize("limits", [(-0.05, 0.3), (-0.4, 0.02), (0.0, 0.0)])
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.measure.value)
def test_one_row_moves_a_test_with_narrow_limits_by_its_sensitivity_at_most(
    target: Target, limits: tuple[float, float]
) -> None:
    rng, middle, largest = np.random.default_rng(1), -0.4, 0
    sums = ScoreSum(target, None, middle=middle, guided=True, limits=limits, shift=0.03)
    truth = np.concatenate([rng.uniform(-1, 1, 500), rng.choice([-1.0, 1.0], 100)])
    predicted = middle + np.clip(rng.normal(0, 1, 600), *limits)
    for row in np.column_stack([predicted - truth, truth - middle]):
        total = sums.deciding.start()
        sums.deciding.add(total, sums.terms(row[None])[:, None], np.ones(1))
        largest = max(largest, abs(int(total[0])))

    assert 0.95 * sums.deciding.sensitivity.amount <= largest <= sums.deciding.sensitivity.amount
    assert sums.height < ScoreSum(target, None, middle=middle, guided=True, shift=0.03).height


def test_one_row_moves_a_guide_with_its_counts_by_the_sensitivity_at_most() -> None:
    rng, largest = np.random.default_rng(2), 0.0
    sums = ScoreSum(TARGETS[0], None, middle=-0.4, reach=0.6, guided=True)
    truth, predicted = rng.choice([-1.0, 1.0], 300), -0.4 + rng.uniform(-0.375, 0.6, 300)
    for vector in sums.vectors(np.column_stack([predicted - truth, truth + 0.4]), 0.1):
        total = sums.lattice.start()
        sums.lattice.add(total, vector[None], np.ones(1))
        largest = max(largest, float(np.linalg.norm(total)))

    assert 0.9 * sums.lattice.sensitivity.amount <= largest <= sums.lattice.sensitivity.amount


def narrowed(predicted: np.ndarray, noise: float, surplus: float) -> tuple[tuple[float, float], float]:
    sums = ScoreSum(TARGETS[0], None, middle=-0.6, reach=0.3, guided=True)
    counts = count_predictions(predicted, SPREAD).sum(axis=0)
    score = MeasuredScore(surplus, 1.0, {}, guide=(surplus, 1.0), predictions=(counts, noise))
    profile = TableProfile(len(predicted), np.zeros(1), np.ones(1), 1.0, target_middle=-0.6, target_spread=SPREAD)
    found, lost = sums.narrow(score, surplus, profile)
    return found.ends, lost


def test_limits_follow_the_predictions_unless_noise_hides_them() -> None:
    rng = np.random.default_rng(3)
    predicted = np.clip(rng.normal(0, 0.4 * SPREAD, 20_000), -0.1875, 0.3)
    surplus = 0.05 * len(predicted) * SPREAD**2

    ends, lost = narrowed(predicted, 1.0, surplus)
    assert -0.16 < ends[0] < 0 < ends[1] <= 0.3
    # What is lost is about the square of what is cut off.
    cut = predicted - np.clip(predicted, *ends)
    assert lost == pytest.approx(float(cut @ cut), abs=0.05 * surplus)
    assert narrowed(predicted, 1e6, surplus) == ((-0.1875, 0.3), 0.0)
    assert narrowed(predicted, 1.0, -surplus)[0] == (-0.1875, 0.3)


def test_each_prediction_is_in_one_bin_at_most() -> None:
    bins = count_predictions(np.linspace(-9, 9, 1001), 1.0)

    assert bins.shape == (1001, PREDICTION_BINS) and set(bins.sum(axis=1)) == {0.0, 1.0}
    assert (
        narrow_limits((-2.0, 2.0), (np.zeros(PREDICTION_BINS), 0.0), 1.0, 1.0, lambda ends: 1.0, squared=True)[1] == 0
    )


def test_a_model_predicts_within_the_limits_that_were_tested_also_after_it_was_saved(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    place = rng.uniform(0, 1, 20_000)
    table = {"place": place, "pay": np.clip(10 + 8 * place + rng.exponential(4, len(place)), 0, 60)}
    columns = {"place": (0, 1), "pay": (0, 60)}
    model = expost.Regressor(score=("r2", 0.15), columns=columns, simulation_seed=2).fit(table, target="pay")
    save_model(model, tmp_path / "model.json")
    found = model.predict(table)

    assert "predictions limited to" in model.receipt_.terms
    low, high = map(float, model.receipt_.terms["predictions limited to"].split(":")[0].split(" to "))
    assert low - 1e-3 <= found.min() and found.max() <= high + 1e-3
    assert load_model(tmp_path / "model.json").predict(table).tolist() == found.tolist()
