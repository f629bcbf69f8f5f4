"""Convolved loss distributions against exact answers, against the peer's own and against its published rivals."""

import math
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("dp_accounting")

import dp_accounting
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as peer

from expost.accounting import (
    ApproxEvent,
    ConcentratedEvent,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampled,
    PureEvent,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
    account,
)
from expost.accounting.composition import HomogeneousTotal
from expost.accounting.gaussian import GaussianTotal
from expost.accounting.loss_distribution import LossDistributionTotal, total
from expost.accounting.scenario import scenarios

DELTA = Fraction(1, 10**5)


def convolved(event: Event, interval: float | None = None) -> LossDistributionTotal:
    found = total(scenarios(event)[0], interval)
    assert found is not None
    return found


def test_the_reference_example() -> None:
    """Noise 1.1, rate 0.01, 10,000 steps, delta 1e-5."""
    event = Repeat(PoissonSampled(0.01, GaussianEvent(1.1)), 10_000)
    found = convolved(event).epsilon(DELTA)
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1)), 10_000)

    assert 5.19 <= found <= 5.20
    assert found == pytest.approx(accountant.get_epsilon(1e-5), rel=0.01)
    # Opacus 1.6's PRV accountant reports 5.2029 and prv_accountant at error 0.01 the interval [5.182, 5.203].
    assert found == pytest.approx(5.2029, rel=0.01)
    assert 5.182 <= found <= 5.203
    assert account(event, currency="rdp").epsilon(DELTA) == pytest.approx(5.632, abs=1e-3)
    assert account(event).epsilon(DELTA) == found


@pytest.mark.parametrize(("multiplier", "count"), [(1, 1), (20, 300), (0.7, 2)])
def test_gaussian_steps_are_at_and_above_their_exact_profile(multiplier: float, count: int) -> None:
    found = convolved(Repeat(GaussianEvent(multiplier), count))
    exact = GaussianTotal(count / Fraction(multiplier) ** 2)

    assert exact.epsilon(DELTA) <= found.epsilon(DELTA) <= exact.epsilon(DELTA) * 1.001
    assert exact.delta(Fraction(1)) <= found.delta(Fraction(1)) * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "count"), [(1, 1), (0.1, 200), (2, 5)])
def test_pure_steps_are_at_and_above_the_optimal_composition(epsilon: float, count: int) -> None:
    found = convolved(Repeat(PureEvent(epsilon), count))
    exact = HomogeneousTotal(Fraction(str(epsilon)), Fraction(0), count)

    assert exact.epsilon(DELTA) * (1 - 1e-9) <= found.epsilon(DELTA) <= exact.epsilon(DELTA) * 1.001 + 1e-6


@pytest.mark.parametrize(
    ("event", "theirs"),
    [
        (LaplaceEvent(2), lambda h: peer.from_laplace_mechanism(2, value_discretization_interval=h)),
        (
            PoissonSampled(0.2, LaplaceEvent(1)),
            lambda h: peer.from_laplace_mechanism(1, sampling_prob=0.2, value_discretization_interval=h),
        ),
        (
            DiscreteLaplaceEvent(4, 3),
            lambda h: peer.from_discrete_laplace_mechanism(0.25, sensitivity=3, value_discretization_interval=h),
        ),
        (
            DiscreteGaussianEvent(3, 1),
            lambda h: peer.from_discrete_gaussian_mechanism(3, value_discretization_interval=h),
        ),
        (
            PoissonSampled(0.05, GaussianEvent(0.8)),
            lambda h: peer.from_gaussian_mechanism(0.8, sampling_prob=0.05, value_discretization_interval=h),
        ),
    ],
    ids=["laplace", "sampled laplace", "discrete laplace", "discrete gaussian", "sampled gaussian"],
)
def test_each_leaf_agrees_with_the_peer_where_it_is_right(event: Event, theirs: object) -> None:
    interval = 2.0**-11
    other = theirs(interval).self_compose(10)  # type: ignore[operator]

    # The peer rounds discrete laws up, which is coarser than connecting the dots.
    assert convolved(Repeat(event, 10), interval).epsilon(DELTA) == pytest.approx(
        other.get_epsilon_for_delta(float(DELTA)), rel=3e-3
    )


def test_the_peers_lost_repeats_are_not_ours() -> None:
    """Five randomised responses: the peer's accountant answers for one."""
    keep = 1 - 0.5 * 3 / 4
    once = math.log(keep / (0.5 / 4))
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp_accounting.RandomizedResponseDpEvent(0.5, 4), 5)

    assert accountant.get_epsilon(1e-6) < 2 * once
    assert convolved(Repeat(PureEvent(Fraction(once)), 5)).epsilon(Fraction(1, 10**6)) > 4 * once


def test_different_leaves_convolve() -> None:
    event = Sequence([LaplaceEvent(3), Repeat(GaussianEvent(4), 3), ExponentialEvent(0.2), ApproxEvent(0.1, 1e-7)])

    assert convolved(event).epsilon(DELTA) < account(event, currency="rdp").epsilon(DELTA)
    assert convolved(event).epsilon(Fraction(1, 10**8)) == math.inf


def test_sampling_without_replacement_convolves_under_its_own_adjacency() -> None:
    event = Repeat(SampledWithoutReplacement(10, 1000, GaussianEvent(2)), 500)
    by_distribution, by_order = (
        account(event, adjacency="replace-one", currency=name).epsilon(DELTA) for name in ("pld", "rdp")
    )

    assert by_distribution < by_order


def test_a_delta_within_the_error_of_the_floats_proves_nothing() -> None:
    found = convolved(Repeat(PoissonSampled(0.01, GaussianEvent(1.1)), 10_000), 1e-3)

    assert found.epsilon(Fraction(1, 10**11)) == math.inf
    assert found.delta(Fraction(1000)) >= found.error > 0


@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.01, 1.1, 10_000), (0.2, 4.0, 1000)])
def test_the_error_reserved_covers_that_of_the_transform(rate: float, noise: float, steps: int) -> None:
    """The same power of the same masses in 80-bit arithmetic."""
    fft = pytest.importorskip("scipy.fft")
    interval = 2.0**-9
    one = convolved(PoissonSampled(Fraction(rate), GaussianEvent(Fraction(noise))), interval).distribution._pmf_remove
    many = convolved(Repeat(PoissonSampled(Fraction(rate), GaussianEvent(Fraction(noise))), steps), interval)
    composed = many.distribution._pmf_remove
    size = fft.next_fast_len(max(len(composed._probs), len(one._probs)))
    spectrum, power, left = fft.fft(one._probs.astype(np.longdouble), size), 1, steps
    exact = np.ones_like(spectrum)
    while left:
        exact = exact * spectrum if left & power else exact
        left &= ~power
        spectrum, power = spectrum * spectrum, power << 1
    exact = np.roll(np.real(fft.ifft(exact)), one._lower_loss * steps - composed._lower_loss)[: len(composed._probs)]
    losses = (np.arange(len(composed._probs)) + composed._lower_loss) * interval
    error = composed._probs - exact
    worst = max(
        abs(float(np.dot(-np.expm1(epsilon - losses[losses > epsilon]), error[losses > epsilon])))
        for epsilon in np.linspace(losses[0], losses[-1], 100)
    )

    assert worst * 4 < many.error


def test_unknown_leaves_and_endless_steps_are_left_to_other_currencies() -> None:
    assert total(scenarios(ConcentratedEvent(1))[0]) is None
    assert total(scenarios(Repeat(PureEvent(0.1), 10**9))[0]) is None


@pytest.mark.parametrize("event", [GaussianEvent(0.01), PureEvent(200), PureEvent(Fraction(1, 10**6))], ids=repr)
def test_the_width_of_a_bin_follows_the_size_of_the_cost(event: Event) -> None:
    found, exact = convolved(event).epsilon(DELTA), account(event, currency="auto").epsilon(DELTA)

    assert exact * (1 - 1e-9) <= found <= exact * 1.01 + 1e-9


@pytest.mark.parametrize("steps", [1, 2, 100])
@pytest.mark.parametrize("noise", [3.4, 100])
def test_sampled_discrete_gaussian_steps_convolve_and_cost_about_what_gaussian_ones_do(
    noise: float, steps: int
) -> None:
    discrete, continuous = (
        account(Repeat(PoissonSampled(0.01, event(noise)), steps)) for event in (DiscreteGaussianEvent, GaussianEvent)
    )

    assert discrete.currencies(1e-6)["pld"] == pytest.approx(continuous.currencies(1e-6)["pld"], rel=0.05)
    assert discrete.delta(0.001) == pytest.approx(continuous.delta(0.001), rel=0.05, abs=1e-12)
    assert "at most" in discrete.explain(1e-6)
