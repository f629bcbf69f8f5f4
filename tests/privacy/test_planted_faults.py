"""The audit must catch what has broken other privacy software, and must not cry wolf at the sound twin."""

import math
from fractions import Fraction

import numpy as np
import pytest

from expost.audit import ExPost, Outcomes, Pair, attack
from expost.core import Norm, Sensitivity, approx, epsilon, zcdp
from expost.noise import (
    AboveThreshold,
    ExponentialMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    LatticeBounds,
    SeededBits,
    sample_bernoulli,
    sample_geometric,
    sample_laplace,
)
from expost.noise.smooth_sensitivity import SmoothNoise

RUNS = 60_000
ONE = Fraction(1)


def found(pair, runs=RUNS):
    return attack(pair, runs, bits=SeededBits(2017), failure_probability=1e-6)


def laplace(exact, level):
    return lambda runs, bits: Outcomes.of(LaplaceMechanism(level).simulate(exact, Sensitivity(1), runs=runs, bits=bits))


def test_half_the_laplace_noise_is_caught():
    finding = found(Pair("half", epsilon(1), laplace(0, 2), laplace(1, 2)))

    assert finding.violated
    assert finding.found > 1.8


def test_a_tenth_too_little_laplace_noise_is_caught():
    assert found(Pair("a tenth", epsilon(1), laplace(0, 1.1), laplace(1, 1.1)), 200_000).violated


def test_the_right_laplace_noise_passes_and_nearly_all_of_epsilon_is_found():
    finding = found(Pair("right", epsilon(1), laplace(0, 1), laplace(1, 1)))

    assert not finding.violated
    assert finding.found > 0.9


def gaussian(exact, guarantee):
    mechanism = GaussianMechanism(guarantee)
    sensitivity = Sensitivity(20, Norm.L2)
    return lambda runs, bits: Outcomes.of(mechanism.simulate(exact, sensitivity, runs=runs, bits=bits))


@pytest.mark.parametrize(
    ("claim", "made"),
    [(zcdp(0.5), zcdp(2)), (approx(1, 0.01), approx(2.2, 0.01))],
    ids=["half the deviation, zCDP", "half the deviation, epsilon and delta"],
)
def test_half_the_gaussian_noise_is_caught(claim, made):
    assert found(Pair("half", claim, gaussian(0, made), gaussian(20, made))).violated
    assert not found(Pair("right", claim, gaussian(0, claim), gaussian(20, claim))).violated


def two_answers(first, second, *, reuse):
    def sampler(runs, bits):
        noise = sample_laplace(2, (runs, 2), bits=bits)
        if reuse:
            noise[:, 1] = noise[:, 0]
        return Outcomes.of(noise + np.array([first, second]))

    return sampler


def test_noise_reused_for_two_answers_is_caught():
    reused = Pair("reused", epsilon(1), two_answers(0, 0, reuse=True), two_answers(1, -1, reuse=True))
    fresh = Pair("fresh", epsilon(1), two_answers(0, 0, reuse=False), two_answers(1, -1, reuse=False))

    assert found(reused).found > 5
    assert not found(fresh).violated


def first_rung(exact, low, high, *, shared=False, power=2):
    """The more private of two rungs of a vector; the coin that keeps the noise is a coordinate's own, or one for all."""
    a, b = math.exp(-low), math.exp(-high)
    stay = b / a * ((1 - a) / (1 - b)) ** power

    def sampler(runs, bits):
        fine = sample_laplace(1 / high, (runs, len(exact)), bits=bits)
        coins = sample_bernoulli(stay, (runs, 1 if shared else len(exact)), bits=bits)
        return Outcomes.of(exact + fine + np.where(coins, 0, sample_laplace(1 / low, fine.shape, bits=bits)))

    return sampler


def test_one_coin_shared_by_all_coordinates_of_a_path_is_caught():
    low, high, still, moved = Fraction(1, 4), Fraction(2), [0] * 10, [1] + [0] * 9

    def pair(shared):
        sides = (first_rung(exact, low, high, shared=shared) for exact in (still, moved))
        return Pair("coins", epsilon(low), *sides)

    assert found(pair(shared=True), 200_000).violated
    assert not found(pair(shared=False), 200_000).violated


def test_a_wrong_keep_probability_of_a_path_is_caught_on_the_prefix():
    def pair(power):
        sides = (first_rung([exact], Fraction(1, 2), Fraction(2), power=power) for exact in (0, 1))
        return Pair("keep", epsilon(0.5), *sides)

    assert found(pair(power=1)).violated
    assert not found(pair(power=2)).violated


LEVELS = np.array([0.5, 0.75, 1.0])


def independent_levels(exact):
    def sampler(runs, bits):
        rows = [sample_laplace(1 / level, runs, bits=bits) + exact for level in (0.5, 0.75, 1.0)]
        return Outcomes.of(np.stack(rows, axis=1), np.full(runs, LEVELS[-1]))

    return sampler


def test_independent_levels_billed_as_the_maximum_are_caught():
    pair = Pair("independent", ExPost(epsilon(1)), independent_levels(0), independent_levels(1))

    assert found(pair).found > 1.5


QUERIES = ([0] * 12 + [1], [1] * 12 + [0])


def threshold_test(queries, *, threshold_noise=True, refresh=True, query_refresh=True, limit=1, billed=None):
    """Above-threshold with one-sided noise, both shares 1, and the faults asked for; one bill for all answers."""

    def sampler(runs, bits):
        barrier = sample_geometric(1, runs, bits=bits) * threshold_noise + 1
        noise = sample_geometric(2, runs, bits=bits)
        hits, answers = np.zeros(runs, int), []
        for query in queries:
            if query_refresh:
                noise = sample_geometric(2, runs, bits=bits)
            above = (hits < limit) & (query + noise >= barrier)
            answers.append(np.where(hits < limit, above, -1))
            hits += above
            if refresh:
                barrier = np.where(above, sample_geometric(1, runs, bits=bits) * threshold_noise + 1, barrier)
        return Outcomes.of(np.stack(answers, axis=1), np.full(runs, float(2 * limit if billed is None else billed)))

    return sampler


def threshold_pair(queries=QUERIES, **faults):
    return Pair("threshold", ExPost(epsilon(30)), *(threshold_test(side, **faults) for side in queries))


def test_above_threshold_without_threshold_noise_is_caught():
    assert found(threshold_pair(threshold_noise=False)).violated
    assert not found(threshold_pair()).violated


def test_above_threshold_whose_noise_is_not_refreshed_after_a_hit_is_caught():
    alternating = ([1, 0, 1, 0], [0, 1, 0, 1])

    assert found(threshold_pair(alternating, refresh=False, query_refresh=False, limit=2)).found > 5
    assert not found(threshold_pair(alternating, limit=2)).violated


def test_a_threshold_kept_after_a_hit_is_caught_when_every_hit_is_billed_as_the_first():
    alternating = ([1] * 6, [0] * 6)

    assert found(threshold_pair(alternating, refresh=False, limit=6, billed=2)).violated


def test_above_threshold_with_unlimited_answers_is_caught():
    many = ([1] * 10, [0] * 10)

    assert found(threshold_pair(many, limit=10, billed=2)).violated
    assert not found(threshold_pair(many, limit=10)).violated


def test_above_threshold_without_query_noise_is_caught():
    def sampler(queries):
        def runs_of(runs, bits):
            barrier = sample_geometric(1, runs, bits=bits) + 1
            return Outcomes.of(np.stack([query >= barrier for query in queries], axis=1))

        return runs_of

    assert found(Pair("no query noise", epsilon(2), sampler([2, 3]), sampler([3, 2]))).violated


def stopping_by_the_truth(exact, *, peek):
    """Stops at the first level whose answer is within 1: of the truth (a fault), or of a public guess."""

    def sampler(runs, bits):
        coarse = sample_laplace(2, runs, bits=bits) + exact
        fine = sample_laplace(1, runs, bits=bits) + exact
        early = np.abs(coarse - (exact if peek else 7)) <= 1
        rows = np.stack([early, coarse, np.where(early, -99, fine)], axis=1)
        return Outcomes.of(rows, np.where(early, 0.5, 1.5))

    return sampler


def test_stopping_by_the_data_billed_as_certified_is_caught():
    def pair(peek):
        sides = (stopping_by_the_truth(exact, peek=peek) for exact in (5, 6))
        return Pair("stop", ExPost(epsilon(1.5)), *sides)

    assert found(pair(peek=True)).found > 5
    assert not found(pair(peek=False)).violated


def float_laplace(exact, *, grid=None):
    """Textbook noise: the inverse of the distribution function, in floats."""

    def sampler(runs, bits):
        uniform = ((bits.words(runs) >> np.uint64(11)).astype(float) + 0.5) * 2.0**-53 - 0.5
        value = exact - np.sign(uniform) * np.log1p(-2 * np.abs(uniform))
        return Outcomes.of(value if grid is None else np.round(value / grid) * grid)

    return sampler


def test_low_bits_of_textbook_float_noise_are_caught():
    leaky = Pair("floats", epsilon(1), float_laplace(0.0), float_laplace(1.0))
    rounded = Pair("rounded", epsilon(1), float_laplace(0.0, grid=0.25), float_laplace(1.0, grid=0.25))

    assert found(leaky).found > 5
    assert not found(rounded).violated


def test_the_exponential_mechanism_without_its_factor_two_is_caught():
    def runs_of(scores, level):
        mechanism = ExponentialMechanism(level)
        return lambda runs, bits: Outcomes.of(
            mechanism.simulate(scores, Sensitivity(1, Norm.LINF), runs=runs, bits=bits)
        )

    first, others = [1] + [0] * 30, [0] + [1] * 30

    assert found(Pair("no two", epsilon(1), runs_of(first, 2), runs_of(others, 2))).violated
    assert not found(Pair("two", epsilon(1), runs_of(first, 1), runs_of(others, 1))).violated


def test_noise_scaled_to_the_local_sensitivity_without_smoothing_is_caught():
    def runs_of(exact, bound):
        noise = SmoothNoise(1)
        return lambda runs, bits: Outcomes.of(
            noise.add(exact, bound, LatticeBounds(-(10**6), 10**6), runs=runs, bits=bits)
        )

    assert found(Pair("local", epsilon(1), runs_of(0, 1.0), runs_of(0, 100.0))).violated


def test_a_propose_test_release_whose_noise_scale_is_inverted_is_caught():
    level, delta = Fraction(1, 4), 0.01
    line = math.log(1 / delta) / float(level)

    def runs_of(distance, scale):
        return lambda runs, bits: Outcomes.of(distance + sample_laplace(scale, runs, bits=bits) > line)

    inverted = Pair("inverted", approx(level, delta), runs_of(18, level), runs_of(19, level))
    right = Pair("right", approx(level, delta), runs_of(18, 1 / level), runs_of(19, 1 / level))

    assert found(inverted).violated
    assert not found(right).violated


def test_a_session_that_forgets_to_bill_its_hits_is_caught():
    rule = AboveThreshold(threshold=1, sensitivity=Sensitivity(1), epsilon_threshold=ONE, epsilon_query=ONE, hits=3)

    def runs_of(queries, bill):
        def sampler(runs, bits):
            answers, _ = rule.simulate(queries, runs=runs, bits=bits)
            return Outcomes.of(answers, np.full(runs, bill))

        return sampler

    assert found(Pair("unbilled", ExPost(epsilon(6)), runs_of([1] * 6, 2.0), runs_of([0] * 6, 2.0))).violated
    assert not found(Pair("billed", ExPost(epsilon(6)), runs_of([1] * 6, 6.0), runs_of([0] * 6, 6.0))).violated
