"""Tests of a model with Laplace noise: their price, their levels, and when a training is given up."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from expost.accounting.concentrated import GaussianTotal
from expost.core import Measure, Target
from expost.models.tabular.score_confirmation import Confirmation, LaplaceTest, find_threshold
from expost.models.tabular.score_sum import MeasuredScore, ScoreSum
from expost.models.tabular.table_profile import TableProfile
from expost.noise.bits import SeededBits

FAILURE = Fraction(1, 10)
TARGET = Target(Measure.ACCURACY, Fraction(8, 10), FAILURE)


@pytest.mark.parametrize("cheaper", [False, True])
@pytest.mark.parametrize("threshold", [-0.3, 0.1, 0.5, 0.9])
def test_pure_steps_between_gaussian_ones_add_their_own_loss_at_most(threshold: float, cheaper: bool) -> None:
    # A Gaussian step; a pure one only if its loss is large, which is when an adversary would want it; then a stop or
    # another Gaussian step. The missing mass is that of docs/proofs/tabular-models.md, Theorem 3, by quadrature.
    share, first, both, pure = Fraction(1, 200), 0.09, 0.25, 0.2
    bills = [float(GaussianTotal(Fraction(total)).epsilon(share)) for total in (first, both)]
    losses, width = np.linspace(-3, 4, 7001, retstep=True)
    density = norm.pdf(losses, first / 2, math.sqrt(first)) * width
    missing = 0.0
    for sign in (1, -1):
        chance = 1 / (1 + math.exp(-sign * pure))
        stopped = np.maximum(0.0, 1 - np.exp(bills[0] + pure * (not cheaper) - losses - sign * pure))
        missing += float(np.sum(density * chance * stopped * (losses > threshold)))
    left, second = bills[1] - losses, both - first
    root = math.sqrt(second)
    excess = norm.sf((left - second / 2) / root) - np.exp(left) * norm.sf((left + second / 2) / root)
    missing += float(np.sum(density * excess * (losses <= threshold)))

    if not cheaper:
        assert missing <= 2 * float(share)
    elif threshold == 0.5:
        assert missing > 1.5 * float(share)  # tests that are not paid for would be seen


def test_noise_reaches_a_threshold_with_the_failure_probability_at_most() -> None:
    for level, sensitivity in (
        (Fraction(1), Fraction(1)),
        (Fraction(1, 50), Fraction(2**20)),
        (Fraction(3), Fraction(7)),
    ):
        for failure in (0.3, 0.05, 1e-6):
            rate = float(level / sensitivity)
            threshold = find_threshold(level, sensitivity, failure)
            tail = math.exp(-rate * threshold) / (1 + math.exp(-rate))
            assert tail <= failure
            assert tail >= failure * math.exp(-rate) * (1 - 1e-3)  # and not with less than the lattice allows


def test_one_row_moves_the_deciding_sum_by_its_sensitivity_at_most() -> None:
    rng = np.random.default_rng(1)
    sums = ScoreSum(Target(Measure.R2, Fraction(1, 2), FAILURE), None, middle=-0.4, reach=0.7, guided=True)
    outcomes = np.column_stack([rng.uniform(-1.7, 1.7, 4000), rng.uniform(-0.6, 1.4, 4000)])
    outcomes[:, 0] = np.clip(outcomes[:, 1], -0.6, 0.7) * rng.uniform(-1, 1, 4000) - outcomes[:, 1]
    for row in outcomes:
        total = sums.deciding.start()
        sums.deciding.add(total, sums.terms(row[None])[:, None], np.ones(1))
        assert abs(int(total[0])) <= sums.deciding.sensitivity.amount


@pytest.mark.parametrize("measured", ["high", "by chance"])
def test_looks_at_a_model_that_misses_the_target_seldom_pass(measured: str) -> None:
    runs, rungs, wrong, looked = 1500, 8, 0, 0
    sums, profile = ScoreSum(TARGET, 2), TableProfile(20_000.0, np.zeros(1), np.ones(1), 1.0)
    rng, bits = np.random.default_rng(3), SeededBits(3)
    total = np.array([-1], np.int64)  # just below the target
    for _ in range(runs):
        stops = Confirmation(TARGET, FAILURE, Fraction(1))
        for rung in range(rungs):
            deviation = 150.0 / 1.3**rung
            # Measured high: a guide that errs as far as it can may cost epsilon, never the promise.
            surplus = 200.0 if measured == "high" else rng.normal() * deviation
            score = MeasuredScore(surplus, deviation, {"accuracy": (0.8, 0.01)})
            trained = Fraction(round(50 * 1.3**rung), 1000)
            if stops.confirm(score, sums, profile, lambda: LaplaceTest(sums, total, bits), trained, last=rung == 7):
                break
        assert stops.spent + trained <= 1
        wrong, looked = wrong + stops.met, looked + stops.looks

    assert wrong / runs <= float(FAILURE) + 4 * math.sqrt(0.09 / runs)
    assert looked > runs / 2 and wrong > 0  # the promise was tried


def test_a_good_model_is_confirmed_and_a_plateau_ends_the_training_early() -> None:
    sums, profile, bits = ScoreSum(TARGET, 2), TableProfile(20_000.0, np.zeros(1), np.ones(1), 1.0), SeededBits(4)
    good = Confirmation(TARGET, FAILURE, Fraction(1))
    score = MeasuredScore(1000.0, 60.0, {"accuracy": (0.85, 0.003)})
    total = np.array([int(1000 / sums.height * sums.deciding.unit)], np.int64)
    test = LaplaceTest(sums, total, bits)
    assert good.confirm(score, sums, profile, lambda: test, Fraction(1, 10), last=False) == "met"
    assert good.spent < Fraction(1, 20)

    bad = Confirmation(TARGET, FAILURE, Fraction(1))
    reasons = [
        bad.confirm(MeasuredScore(-900.0, 60.0, {}), sums, profile, lambda: test, Fraction(4 + k, 100), last=False)
        for k in range(6)
    ]
    assert "out of reach" in next(each for each in reasons if each) and bad.spent == 0
