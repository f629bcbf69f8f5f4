"""The written-out laws are laws; that they are the right ones is tested beside the mechanisms."""

from fractions import Fraction

import pytest

from expost.audit import noise_laws as laws

A, B = Fraction(1, 2), Fraction(2, 3)


@pytest.mark.parametrize(
    "law",
    [
        laws.laplace_law(2, A, (-5, 5)),
        laws.choice_law([0, 3, 1], A),
        laws.permute_and_flip_law([0, 3, 1], A),
        laws.response_law(1, 4, A),
        laws.proposed_law(3, 4, A, {"x": Fraction(1, 3), "y": Fraction(2, 3)}),
    ],
)
def test_finite_laws_sum_to_exactly_one(law):
    assert sum(law.values()) == 1


@pytest.mark.parametrize(
    ("law", "error"),
    [
        (laws.noisy_max_law([1, 0, 2], A, 40), 8 * A**40),
        (laws.above_threshold_law([0, -1, 1], A, B, depth=60, gaps=3), 4 * A**60),
        (laws.above_threshold_law([0, -1, 1], A, B, depth=60, hits=2), 8 * A**60),
        (laws.above_threshold_law([0, -1, 1], A, B, depth=60, two_sided=True), 4 * A**60),
        (laws.reduced_law([0, -1], [B, A], [B, A], depth=60), 8 * B**60),
    ],
)
def test_enumerated_laws_miss_no_more_than_they_say(law, error):
    assert 0 <= 1 - sum(law.values()) <= error


def test_reach_is_the_sum_of_the_masses():
    for mass, reach in ((laws.laplace_mass, laws.laplace_reach), (laws.geometric_mass, laws.geometric_reach)):
        for k in range(-4, 5):
            assert reach(A, k) - reach(A, k + 1) == mass(A, k)


def test_the_coarse_rung_of_a_path_is_discrete_laplace():
    law = laws.laplace_path_law(0, B, A, coarse=range(-2, 3), fine=range(-60, 61))
    for x in range(-2, 3):
        total = sum(p for (coarse, _), p in law.items() if coarse == x)
        assert abs(total - laws.laplace_mass(B, x)) < A**59
