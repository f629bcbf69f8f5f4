"""Tests of a model with Laplace noise: their price, their levels, and when a training is given up."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from expost.accounting.concentrated import GaussianTotal
from expost.core import Measure, Target
from expost.models.tabular.laplace_test import LaplaceTest, find_threshold
from expost.models.tabular.lattice_sum import LatticeSum
from expost.models.tabular.rung_schedule import plan_score
from expost.models.tabular.score_confirmation import Confirmation, OpenSums
from expost.models.tabular.score_sum import MeasuredScore, ScoreSum, find_deviations, limit_predictions
from expost.models.tabular.table_profile import TableProfile
from expost.models.tabular.target_mean import TargetMean
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


@pytest.mark.parametrize("failure", [0.1, 1e-3])
@pytest.mark.parametrize("rows", [2, 12, 90])
def test_a_look_costs_what_any_test_costs(rows: int, failure: float) -> None:
    # A table that needs so many rows of the largest effect to miss the target, and a test that accepts it half of the time.
    sensitivity = 2**20
    floor = math.log(1 / (2 * failure)) / rows

    def accepts(level: float) -> float:
        rate = level / sensitivity
        left = find_threshold(Fraction(level), Fraction(sensitivity), failure) - rows * sensitivity
        tail = math.exp(-rate * abs(left)) / (1 + math.exp(-rate))
        return tail if left > 0 else 1 - tail * math.exp(-rate)

    assert accepts(1.01 * floor) > 0.5  # and no test does at a lower price
    assert accepts(0.99 * floor) < 0.5
    assert accepts(0.99 * floor) <= math.exp(0.99 * floor * rows) * failure * (1 + 1e-5)


def source_of(total: int, bits: SeededBits) -> OpenSums:
    """Return tests of a model whose deciding sum is this."""
    sealed = np.array([total], np.int64)
    return OpenSums(
        lambda sums: LaplaceTest(sealed, sums.deciding, sums.height, bits),
        lambda center: pytest.fail("a share of right answers needs no mean"),
    )


@pytest.mark.parametrize(("middle", "shift"), [(-0.4, 0.0), (-0.4, 0.06), (0.3, -0.1), (0.0, 0.0)])
def test_one_row_moves_the_deciding_sum_by_its_sensitivity_at_most(middle: float, shift: float) -> None:
    rng = np.random.default_rng(1)
    target = Target(Measure.R2, Fraction(1, 2), FAILURE)
    sums = ScoreSum(target, None, middle=middle, reach=0.7, shift=shift, guided=True)
    low, high = limit_predictions(middle, 0.7)
    truth = np.concatenate([rng.uniform(-1, 1, 2000), rng.choice([-1.0, 1.0], 200)])
    predicted = middle + np.where(rng.random(2200) < 0.2, rng.choice([low, high], 2200), rng.uniform(low, high, 2200))
    outcomes = np.column_stack([predicted - truth, truth - middle])
    largest = 0
    for row in outcomes:
        total = sums.deciding.start()
        sums.deciding.add(total, sums.terms(row[None])[:, None], np.ones(1))
        largest = max(largest, abs(int(total[0])))
    amount = sums.deciding.sensitivity.amount

    assert 0.95 * amount <= largest <= amount  # no row is left out for being too long


@pytest.mark.parametrize("measured", ["high", "by chance", "unknown"])
def test_looks_at_a_model_that_misses_the_target_seldom_pass(measured: str) -> None:
    runs, rungs, wrong, looked = 1500, 8, 0, 0
    sums, profile = ScoreSum(TARGET, 2), TableProfile(20_000.0, np.zeros(1), np.ones(1), 1.0)
    rng, bits = np.random.default_rng(3), SeededBits(3)
    source = source_of(-1, bits)  # just below the target
    levels = [Fraction(round(50 * 1.3**rung), 1000) for rung in range(rungs)]
    for _ in range(runs):
        stops = Confirmation(TARGET, FAILURE, Fraction(1))
        for rung, trained in enumerate(levels):
            deviation = 1e6 if measured == "unknown" else 150.0 / 1.3**rung
            # Measured high: a guide that errs as far as it can may cost epsilon, never the promise. Unknown: the first look
            # alone decides whether there is a second.
            surplus = rng.normal() * deviation if measured == "by chance" else 200.0
            score = MeasuredScore(surplus, deviation, {"accuracy": (0.8, 0.01)})
            following = levels[rung + 1] if rung + 1 < rungs else None
            if stops.confirm(score, sums, profile, source, trained, following=following):
                break
        assert stops.spent + trained <= 1
        wrong, looked = wrong + stops.met, looked + stops.looks

    assert wrong / runs <= float(FAILURE) + 4 * math.sqrt(0.09 / runs)
    assert looked > runs / 2 and wrong > 0  # the promise was tried


def test_a_good_model_is_confirmed_and_a_plateau_ends_the_training_early() -> None:
    sums, profile, bits = ScoreSum(TARGET, 2), TableProfile(20_000.0, np.zeros(1), np.ones(1), 1.0), SeededBits(4)
    good = Confirmation(TARGET, FAILURE, Fraction(1))
    score = MeasuredScore(1000.0, 60.0, {"accuracy": (0.85, 0.003)})
    source = source_of(int(1000 / sums.height * sums.deciding.unit), bits)
    assert good.confirm(score, sums, profile, source, Fraction(1, 10), following=Fraction(13, 100)) == "met"
    assert good.spent < Fraction(1, 20)

    bad = Confirmation(TARGET, FAILURE, Fraction(1))
    reasons = [
        bad.confirm(
            MeasuredScore(-900.0, 60.0, {}),
            sums,
            profile,
            source,
            Fraction(4 + k, 100),
            following=Fraction(5 + k, 100),
        )
        for k in range(6)
    ]
    assert "out of reach" in next(each for each in reasons if each) and bad.spent == 0


@pytest.mark.parametrize(("rows", "learns"), [(20_000, True), (2_000, False)])
def test_a_model_that_few_rows_have_not_taught_yet_is_no_plateau(rows: int, learns: bool) -> None:
    # The score stands still, far below the target, at prices where models of many rows have learned what they can.
    sums, profile = ScoreSum(TARGET, 2), TableProfile(float(rows), np.zeros(1), np.ones(1), 1.0)
    stops = Confirmation(TARGET, FAILURE, Fraction(3))
    source, prices = source_of(-rows // 5, SeededBits(7)), plan_score(Fraction(3), Fraction(1, 10**6)).prices.epsilons
    ended = [
        stops.confirm(MeasuredScore(-rows / 5, 60.0, {}), sums, profile, source, trained, following=following)
        for trained, following in itertools.pairwise(prices)
        if trained < Fraction(1, 4)
    ]
    assert any(ended) is learns
    # With as much training as the many rows had, the plateau is told.
    reason = [
        stops.confirm(MeasuredScore(-rows / 5, 60.0, {}), sums, profile, source, trained, following=following)
        for trained, following in itertools.pairwise(prices)
        if Fraction(1, 4) < trained < 1
    ]
    assert any("out of reach" in each for each in reason)


@pytest.mark.parametrize(("floor", "ended"), [(0.002, 0.35), (0.015, 0.25)])
def test_an_accuracy_just_below_its_target_ends_the_training_at_a_small_part_of_the_cap(
    floor: float, ended: float
) -> None:
    # The accuracy rises to ``floor`` below the target, however much is spent on it.
    rows, schedule, spent, met = 30_000, plan_score(Fraction(4), Fraction(1, 10**6)), [], 0
    sums, profile = ScoreSum(TARGET, 2), TableProfile(float(rows), np.zeros(1), np.ones(1), 1.0)
    rng, bits, prices = np.random.default_rng(8), SeededBits(8), schedule.prices.epsilons
    for _ in range(40):
        stops = Confirmation(TARGET, FAILURE, Fraction(4))
        for rung, trained, following in zip(schedule.rungs, prices, (*prices[1:], None), strict=True):
            exact = -rows * (floor + 0.0005 / float(trained) * math.exp(0.3 * rng.normal()))
            deviation = sums.deviation(rung.divide(stops.measure_share)[1])
            score = MeasuredScore(exact + deviation * rng.normal(), deviation, {})
            source = source_of(int(exact / sums.height * sums.deciding.unit), bits)
            if stops.confirm(score, sums, profile, source, trained, following=following):
                break
        spent.append(float(trained + stops.spent))
        met += stops.met

    assert np.median(spent) <= ended and max(spent) < 1
    assert met <= 4


def test_a_guide_whose_tails_are_cut_off_is_not_believed_after_a_look() -> None:
    # The guide sees a good model; its exact sum is far below the target, as where few errors are very large.
    target = Target(Measure.R2, Fraction(2, 10), FAILURE)
    sums = ScoreSum(target, None, reach=0.5, guided=True)
    profile = TableProfile(40_000.0, np.zeros(1), np.ones(1), 1.0, target_spread=0.3)
    bits, levels = SeededBits(6), [Fraction(round(10 * 1.6**rung), 1000) for rung in range(9)]
    exact = np.array([int(-400 / sums.height * sums.deciding.unit)], np.int64)
    source = OpenSums(
        lambda sums: LaplaceTest(exact, sums.deciding, sums.height, bits),
        lambda center: LaplaceTest(np.zeros(1, np.int64), LatticeSum(1, 1.0), 1.0, bits),
    )
    stops = Confirmation(target, FAILURE, Fraction(1))
    for trained, following in itertools.pairwise(levels):
        score = MeasuredScore(300.0, 1e5, {}, guide=(300.0, 20.0 / float(trained / levels[0])))
        reason = stops.confirm(score, sums, profile, source, trained, following=following)
        if reason:
            break

    assert "out of reach" in reason
    assert trained + stops.spent < Fraction(3, 10)


@pytest.mark.parametrize("counted", [0.0, 60.0])
def test_the_mean_is_within_the_error_of_its_reading(counted: float) -> None:
    rng, bits, failure, runs, missed, again = np.random.default_rng(8), SeededBits(8), 0.1, 1500, 0, 0
    rows, mean, lattice = 2000, 0.7, LatticeSum(1, 1.0)
    reach = find_deviations(1e-3)

    def open_mean(center: float) -> LaplaceTest:
        total = round(rows * (mean - center) / (1 + abs(center)) * lattice.unit)
        return LaplaceTest(np.array([total], np.int64), lattice, 1 + abs(center), bits)

    for _ in range(runs):
        count = rows + rng.normal() * counted
        noisy = TableProfile(count, np.zeros(1), np.ones(1), 1.0, target_middle=0.5, rows_error=counted)
        reading, wrong = TargetMean(failure), False
        for level in (Fraction(1, 50), Fraction(1, 10)):
            reading.read(level, noisy, reach, open_mean)
            wrong |= abs(reading.value - mean) > reading.error
        missed += wrong
        again += reading.error < 0.1

    assert missed / runs <= failure + 1e-3 + 4 * math.sqrt(failure / runs)
    assert missed > 0 or counted  # the bound is tight where the count is exact
    assert again == runs and reading.spent == Fraction(6, 50)


def test_targets_around_a_number_move_their_sum_by_the_sensitivity_at_most() -> None:
    lattice, center = LatticeSum(1, 1.0), -0.6
    for target in (-1.0, 0.3, 1.0):
        total = lattice.start()
        lattice.add(total, np.array([[(target - center) / (1 + abs(center))]]), np.ones(1))
        assert 0 < abs(int(total[0])) <= lattice.sensitivity.amount
