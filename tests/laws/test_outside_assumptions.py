"""Theorems of docs/proofs used outside their assumptions: each time the claim is false, so the assumption is needed."""

import itertools
import math
from fractions import Fraction

import numpy as np
from scipy.special import ndtr

from expost.accounting import ApproxEvent, ExponentialEvent, LaplaceEvent
from expost.accounting.concentrated import gaussian_cost_of, pure_to_gdp
from expost.accounting.privacy_profile import profile_of
from expost.accounting.rounding import Floats
from expost.audit.noise_laws import geometric_mass, permute_and_flip_law


def divergence(p: Floats, q: Floats, order: float) -> float:
    return math.log(float((p**order * q ** (1 - order)).sum())) / (order - 1)


def test_digits_of_a_law_that_is_not_geometric_depend_on_each_other() -> None:
    """docs/proofs/bitwise-geometric.md: only weights r^g factor over the digits of g."""
    r = Fraction(1, 2)

    def covariance(weights: dict[int, Fraction]) -> Fraction:
        total = sum(weights.values())
        low, high, both = (
            sum(weight for g, weight in weights.items() if keep(g)) / total
            for keep in (lambda g: g & 1, lambda g: g & 2, lambda g: g & 3 == 3)
        )
        return both - low * high

    assert covariance({g: r**g for g in range(4)}) == 0
    assert covariance({g: r ** (g * g) for g in range(4)}) != 0  # half of a Gaussian


def test_a_pure_mechanism_of_another_kind_exceeds_the_profile_of_the_exponential_mechanism() -> None:
    """docs/proofs/bounded-range.md: losses in [-e, e] are not losses in an interval of length e."""
    profile = profile_of(ExponentialEvent(1))
    assert profile is not None
    response = math.tanh(0.5)  # the delta of randomised response at epsilon 0

    assert response > 1.5 * float(profile.forward(np.array([0.0]))[0])


def test_a_one_sided_path_does_not_protect_a_move_down() -> None:
    """docs/proofs/geometric-path.md, Theorem 2: a noise of 0 has no place below it."""
    a = Fraction(1, 2)
    noise = {n: geometric_mass(a, n) for n in range(60)}
    moved = {n - 1: mass for n, mass in noise.items()}

    assert all(noise[n] <= noise[n + 1] / a for n in range(59))
    assert moved[-1] == Fraction(1, 2) and -1 not in noise  # seen half of the time, and never without the move


def test_two_coordinates_at_a_euclidean_distance_lose_more_than_one() -> None:
    """docs/proofs/laplace-domination.md: the distance is the l1 distance."""
    shift, steps = 1.0, 400
    edges = np.concatenate([[-np.inf], np.linspace(0, shift, steps), [np.inf]])
    below = np.where(edges < 0, np.exp(np.minimum(edges, 0)) / 2, 1 - np.exp(-np.maximum(edges, 0)) / 2)
    q, p = np.diff(below), np.diff(below)[::-1]
    both = np.outer(p, p) - np.exp(1.2) * np.outer(q, q)
    scalar = profile_of(LaplaceEvent(1 / Fraction(math.sqrt(2) * shift)))
    sum_of_moves = profile_of(LaplaceEvent(1 / Fraction(2 * shift)))
    assert scalar is not None and sum_of_moves is not None
    real = float(np.maximum(both, 0).sum())

    assert real > float(scalar.forward(np.array([1.2]))[0]) * 1.2
    assert real <= float(sum_of_moves.forward(np.array([1.2]))[0])


def test_scores_that_move_further_than_declared_break_permute_and_flip() -> None:
    """docs/proofs/permute-and-flip.md: each score moves by at most the declared distance."""
    a = Fraction(1, 2)  # for scores that move by one
    law = {
        scores: permute_and_flip_law([max(scores) - score for score in scores], a)
        for scores in itertools.product(range(5), repeat=2)
    }

    assert law[0, 2][0] > 0
    assert law[2, 0][0] <= law[1, 1][0] * a**-2  # each moved by one
    assert law[4, 0][1] * a**-2 < law[0, 4][1]  # by four


def test_a_mechanism_that_may_fail_has_no_gaussian_terms() -> None:
    """docs/proofs/pure-to-gdp.md: the curve of (epsilon, delta) lies below every Gaussian one where alarms are rare."""
    epsilon, delta, alarm = 1.0, 1e-3, 1e-9
    mu = math.sqrt(pure_to_gdp(Fraction(1)))
    missed = 1 - delta - math.exp(epsilon) * alarm

    assert gaussian_cost_of(ApproxEvent(1, Fraction(1, 1000))) is None
    assert missed < float(ndtr(6.0 - mu))  # the Gaussian curve at an alarm of 1e-9, whose quantile is -5.998


def test_a_pair_that_nothing_swaps_can_have_the_other_direction_larger() -> None:
    """docs/proofs/sampling.md: the formula for one direction is for pairs that some map swaps."""
    rate, order = 0.8, 8.0
    without, with_unit = np.array([0.01, 0.99]), np.array([1e-6, 1 - 1e-6])
    mixed = (1 - rate) * without + rate * with_unit

    assert divergence(without, mixed, order) > 2 * divergence(mixed, without, order)
    swapped = np.array([0.2, 0.8]), np.array([0.8, 0.2])
    mixed = (1 - rate) * swapped[0] + rate * swapped[1]

    assert divergence(swapped[0], mixed, order) <= divergence(mixed, swapped[0], order)
