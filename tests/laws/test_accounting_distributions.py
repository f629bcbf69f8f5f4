"""The laws again for convolved loss distributions: the optional package drops repeat counts of some of its own events."""

from fractions import Fraction

import pytest

from expost.accounting import GaussianEvent, PoissonSampled, PrivacyEvent, PureEvent, Repeat, account

pytest.importorskip("dp_accounting")

from expost.accounting import loss_distribution

DELTA = Fraction(1, 10**6)
EXAMPLES = (
    PureEvent(0.5),
    GaussianEvent(2),
    PoissonSampled(0.1, GaussianEvent(1)),
    PoissonSampled(0.25, PureEvent(1)),
)
EVERY_EXAMPLE = pytest.mark.parametrize("event", EXAMPLES, ids=["pure", "gaussian", "sampled gaussian", "sampled pure"])


@EVERY_EXAMPLE
def test_repeating_is_listing_and_dearer_than_once(event: PrivacyEvent) -> None:
    once, five = (account(Repeat(event, count), currency="pld").epsilon(DELTA) for count in (1, 5))
    listed = account([event] * 5, currency="pld").epsilon(DELTA)

    assert five == listed > 1.2 * once


@EVERY_EXAMPLE
def test_repeating_is_composing_one_by_one(event: PrivacyEvent) -> None:
    scenario = account(event)._scenarios[0]
    once = loss_distribution.sum_loss_distribution(scenario, 2**-10).distribution
    one_by_one = once.compose(once).compose(once)
    at_once = loss_distribution.sum_loss_distribution(scenario.times(3), 2**-10)

    assert at_once.epsilon(DELTA) == pytest.approx(one_by_one.get_epsilon_for_delta(float(DELTA)), rel=1e-6)


@pytest.mark.parametrize("count", [1, 20])
@EVERY_EXAMPLE
def test_the_convolution_is_not_above_renyi(event: PrivacyEvent, count: int) -> None:
    repeated = Repeat(event, count)

    assert account(repeated, currency="pld").epsilon(DELTA) <= account(repeated, currency="rdp").epsilon(DELTA)


def test_more_noise_never_costs_more() -> None:
    found = [
        account(Repeat(PoissonSampled(0.05, GaussianEvent(1 + step / 50)), 50), currency="pld").epsilon(DELTA)
        for step in range(4)
    ]

    assert found == sorted(found, reverse=True)
