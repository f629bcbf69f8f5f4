"""Sums of losses in whole arrays against exact laws and against the peer's loops."""

import math
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("dp_accounting")

from dp_accounting.pld.pld_pmf import DensePLDPmf
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from expost.accounting.loss_masses import LossMasses


def coin(chance: float, lost: float = 0.0, width: float = 0.5) -> LossMasses:
    return LossMasses(width, -1, np.array([1 - chance, 0.0, chance]) * (1 - lost), lost, True)


@pytest.mark.parametrize("count", [1, 2, 7, 60])
@pytest.mark.parametrize("lost", [0.0, 0.001])
def test_many_coins_have_the_law_of_binomials(count: int, lost: float) -> None:
    chance = Fraction(5, 8)
    exact = {
        count - 2 * tails: math.comb(count, tails) * chance ** (count - tails) * (1 - chance) ** tails
        for tails in range(count + 1)
    }
    missing = 1 - (1 - Fraction(lost)) ** count

    found = coin(float(chance), lost).self_compose(count)

    for epsilon in (0.0, 0.25, 1.0, 3.0):
        kept = sum(float(mass) * -math.expm1(epsilon - loss / 2) for loss, mass in exact.items() if loss / 2 > epsilon)
        delta = float(missing) + float(1 - missing) * kept
        assert found.get_delta_for_epsilon(epsilon) == pytest.approx(delta, rel=1e-9, abs=2e-15)
        if kept:
            assert found.get_epsilon_for_delta(delta) == pytest.approx(epsilon, abs=1e-9)


masses = st.lists(st.integers(0, 1000), min_size=2, max_size=40).filter(any)


@settings(max_examples=50, derandomize=True)
@example(masses=[0, 1], lost=0.0, first=8, count=10, width=8.0)
@given(
    masses=masses,
    lost=st.sampled_from([0.0, 1e-6, 0.2]),
    first=st.integers(-40, 10),
    count=st.integers(2, 300),
    width=st.sampled_from([2.0**-10, 0.25, 8.0, 64.0]),
)
def test_sums_and_their_epsilons_are_those_of_the_peer(masses, lost, first, count, width) -> None:
    assume((1 - lost) ** count > 1e-9)  # else next to nothing is left beside what is cut off
    probabilities = np.array(masses) * (1 - lost) / sum(masses)
    ours, theirs = (
        kind(width, first, probabilities, lost, True).self_compose(count) for kind in (LossMasses, DensePLDPmf)
    )

    assert abs(ours._lower_loss - theirs._lower_loss) <= 1 and abs(ours.size - theirs.size) <= 2
    assert ours._infinity_mass == theirs._infinity_mass
    shift = ours._lower_loss - theirs._lower_loss
    here, there = ours._probs[max(0, -shift) :], theirs._probs[max(0, shift) :]
    np.testing.assert_allclose(here[: len(there)], there[: len(here)], atol=1e-13 * count)
    same = DensePLDPmf(width, ours._lower_loss, ours._probs, ours._infinity_mass, True)
    for delta in (0.0, 1e-9, 1e-4, 0.1, 0.5, 0.999):
        assert ours.get_epsilon_for_delta(delta) == pytest.approx(_their_epsilon(same, delta), rel=1e-12, abs=1e-12)


def _their_epsilon(masses: DensePLDPmf, delta: float) -> float:
    """Losses far below zero overflow in the peer's loop, and say nothing about an epsilon >= 0."""
    kept = max(0, -masses._lower_loss)
    if kept >= masses.size:
        return math.inf if masses._infinity_mass > delta else 0.0
    cut = DensePLDPmf(
        masses._discretization, masses._lower_loss + kept, masses._probs[kept:], masses._infinity_mass, True
    )
    with np.errstate(over="ignore"):  # losses above 700: both say infinity, which is safe
        return cut.get_epsilon_for_delta(delta)


def test_two_different_losses_are_added_as_by_the_peer() -> None:
    one, other = coin(0.7), coin(0.6, 0.01).self_compose(3)
    theirs = DensePLDPmf(0.5, one._lower_loss, one._probs, 0.0, True).compose(
        DensePLDPmf(0.5, other._lower_loss, other._probs, other._infinity_mass, True)
    )

    ours = one.compose(other)

    assert isinstance(ours, LossMasses)
    assert ours.get_epsilon_for_delta(0.1) == theirs.get_epsilon_for_delta(0.1)


@pytest.mark.parametrize(
    ("masses", "first", "lost", "delta", "epsilon"),
    [
        ([0.5, 0.4], -1, 0.1, 0.05, math.inf),  # more is lost than delta allows
        ([0.5, 0.5], -9, 0.0, 0.01, 0.0),  # no positive loss
        ([0.0, 0.0], 3, 0.0, 0.5, 0.0),  # nothing at all
        ([0.5, 0.5], 2000, 0.0, 0.1, 2001.0),  # e^-loss is no float
        ([1.0], 0, 0.0, 0.0, 0.0),  # no loss
        ([1.0], 1, 0.0, 1.0, 0.0),  # everything is allowed
    ],
)
def test_the_ends_of_the_scale(masses, first, lost, delta, epsilon) -> None:
    assert LossMasses(1.0, first, np.array(masses), lost, True).get_epsilon_for_delta(delta) == epsilon


def test_a_loss_that_is_certain_or_empty_stays_so() -> None:
    for lost in (1.0, 0.5):
        found = LossMasses(1.0, 0, np.zeros(3), lost, True).self_compose(10)
        assert found._infinity_mass >= 1 - (1 - lost) ** 10
        assert found.get_epsilon_for_delta(0.5) == math.inf


def test_what_is_cut_off_counts_as_lost() -> None:
    found = coin(0.5).self_compose(10**6)

    assert found.size < 400_000  # of 2 million
    assert found._infinity_mass == 1e-15
    assert float(found._probs.sum()) == pytest.approx(1, abs=1e-9)
