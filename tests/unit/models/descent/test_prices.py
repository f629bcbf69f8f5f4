"""The price of a stop holds however the stop was chosen."""

from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld

from expost.accounting import GaussianEvent, PoissonSampled, PrivacyEvent, Repeat, account
from expost.accounting.scenario import list_scenarios
from expost.core import ApproxLoss, InvalidRequest
from expost.models.descent import stopping_price as module
from expost.models.descent.stopping_price import price_last_stop, price_stops

DELTA = Fraction(1, 20)  # large, so that a simulation sees it
STOPS = 12


def missing_mass(epsilons: np.ndarray, mu: float, runs: int = 200_000, slack: float = 0.0) -> float:
    """E (1 - exp(E_N - L_N))^+ when an adversary stops as soon as the loss is so far above the price."""
    rng = np.random.default_rng(1)
    losses = np.cumsum(mu**2 / 2 + mu * rng.normal(size=(runs, len(epsilons))), axis=1)
    above = losses > epsilons + slack
    stop = np.where(above.any(axis=1), above.argmax(axis=1), len(epsilons) - 1)
    excess = losses[np.arange(runs), stop] - epsilons[stop]
    return float(np.mean(np.maximum(1 - np.exp(-excess), 0)))


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_an_adversarial_stop_costs_no_more_than_its_price(accountant: str) -> None:
    prices = price_stops([GaussianEvent(2)] * STOPS, DELTA, accountant=accountant)

    missed = missing_mass(np.array([float(epsilon) for epsilon in prices.epsilons]), mu=0.5)

    assert missed < float(DELTA)
    assert missed > float(DELTA) / 50  # not absurdly far below it either


def test_prices_without_a_share_for_each_stop_would_be_caught() -> None:
    planned = [account(Repeat(GaussianEvent(2), steps)).epsilon(DELTA) for steps in range(1, STOPS + 1)]

    assert missing_mass(np.array(planned), mu=0.5) > 1.5 * float(DELTA)


def test_the_last_price_makes_the_whole_training_private() -> None:
    prices = price_stops([Repeat(GaussianEvent(5), 4)] * 3, Fraction(1, 10**6))

    whole = account(Repeat(GaussianEvent(5), 12))
    assert whole.delta(prices.cap.epsilon) <= 1e-6
    assert prices.bill_at(1) == ApproxLoss(prices.epsilons[1], Fraction(1, 10**6))


def test_sampled_prices_agree_with_an_independent_accountant() -> None:
    step = Repeat(PoissonSampled(Fraction(1, 50), GaussianEvent(1)), 30)
    prices = price_stops([step] * 3, Fraction(3, 10**5))

    for stop, (price, share) in enumerate(zip(prices.epsilons, prices.shares, strict=True), start=1):
        other = pld.PLDAccountant(value_discretization_interval=1e-3)
        other.compose(dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(1.0)), 30 * stop)
        assert 0.999 < float(price) / other.get_epsilon(float(share)) < 1.01


@pytest.mark.parametrize("step", [GaussianEvent(30), PoissonSampled(Fraction(1, 50), GaussianEvent(1))])
def test_shares_of_delta_overlap(step: PrivacyEvent) -> None:
    prices = price_stops([Repeat(step, 20)] * 8, Fraction(1, 10**5))

    shares = [float(share * 10**5) for share in prices.shares]
    assert 1.4 < sum(shares) < 2.5
    assert shares[0] < shares[1] < shares[2] < shares[3] == shares[4] > shares[5] > shares[6] > shares[0]
    assert shares[-1] == pytest.approx(2 * shares[0]) and max(shares) == shares[-1] < 1


def test_the_overlap_of_shares_is_as_large_as_the_worst_rule_of_stopping_allows() -> None:
    prices = price_stops([GaussianEvent(2)] * STOPS, DELTA)
    epsilons = np.array([float(epsilon) for epsilon in prices.epsilons])

    def told(bills: np.ndarray) -> float:
        return max(missing_mass(bills, mu=0.5, slack=slack) for slack in (0.2, 0.4, 0.6))

    assert 0.93 < told(epsilons) / float(DELTA) < 1
    assert told(epsilons / 1.05) > float(DELTA)


def test_a_single_phase_is_priced_like_a_plain_training() -> None:
    step = Repeat(PoissonSampled(Fraction(1, 50), GaussianEvent(1)), 30)

    price = float(price_stops([step], Fraction(1, 10**5)).cap.epsilon)

    assert 1 <= price / account(step).epsilon(1e-5) < 1.001


def test_prices_always_rise() -> None:
    prices = price_stops([Repeat(GaussianEvent(1000), 1)] * 5, Fraction(1, 10), accountant="rdp")

    assert all(low < high for low, high in zip(prices.epsilons[:-1], prices.epsilons[1:], strict=True))


def test_without_the_extra_sampled_prices_fall_back_to_renyi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_has_convolution", lambda: False)
    phases = [Repeat(PoissonSampled(Fraction(1, 50), GaussianEvent(1)), 30)] * 2

    assert price_stops(phases, Fraction(1, 10**5)).accountant == "rdp"
    assert price_stops([GaussianEvent(3)] * 2, Fraction(1, 10**5)).accountant == "gdp"


def test_coarser_bins_are_never_cheaper() -> None:
    phases = [Repeat(PoissonSampled(Fraction(1, 50), GaussianEvent(1)), 30)] * 2

    coarse, fine = (price_stops(phases, Fraction(1, 10**5), bins=bins).epsilons for bins in (256, 4096))

    assert all(one >= two for one, two in zip(coarse, fine, strict=True))


def test_an_unknown_accountant_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="accountant"):
        price_stops([GaussianEvent(1)], DELTA, accountant="advanced")


SAMPLED = Repeat(PoissonSampled(Fraction(1, 50), GaussianEvent(4)), 1000)


@pytest.mark.parametrize("step", [Repeat(GaussianEvent(20), 10), SAMPLED], ids=["whole", "sampled"])
@pytest.mark.parametrize(("accountant", "overlap"), [("auto", 0.03), ("rdp", 0.0)])
def test_the_last_price_alone_is_that_of_the_list_or_a_little_above(
    step: Repeat, accountant: str, overlap: float
) -> None:
    prices = price_stops([step] * 3, Fraction(1, 10**6), accountant=accountant)

    alone = price_last_stop([step] * 3, Fraction(1, 10**6), accountant=accountant)

    assert -1e-3 < alone / float(prices.cap.epsilon) - 1 < overlap + 1e-3


@pytest.mark.parametrize("phases", [1, 2])
def test_a_delta_within_the_rounding_of_convolutions_is_priced_by_orders(phases: int) -> None:
    delta = Fraction(1, 10**12)

    prices = price_stops([SAMPLED] * phases, delta)

    assert prices.accountant == "rdp"
    assert prices.epsilons == price_stops([SAMPLED] * phases, delta, accountant="rdp").epsilons
    with pytest.raises(InvalidRequest, match='accountant="auto"'):
        price_stops([SAMPLED] * phases, delta, accountant="pld")


def test_an_early_stop_whose_share_is_within_rounding_is_priced_too() -> None:
    """The last stop has twice the share of the first, and here hardly more rounding: it alone has a price by convolution."""
    last = PoissonSampled(Fraction(1, 50), GaussianEvent(4))

    prices = price_stops([SAMPLED, last], Fraction(1, 10**11))

    assert prices.accountant == "rdp"
    with pytest.raises(InvalidRequest, match="can price"):
        price_stops([SAMPLED, last], Fraction(1, 10**11), accountant="pld")


def test_losses_too_large_for_convolutions_are_priced_without_sampling() -> None:
    step, delta = PoissonSampled(Fraction(1, 2), GaussianEvent(Fraction(1, 1000))), Fraction(1, 10**6)

    prices = price_stops([Repeat(step, 10)], delta)

    assert prices.accountant == "gdp"
    assert float(prices.cap.epsilon) == pytest.approx(account(Repeat(step.event, 10)).epsilon(delta))
    with pytest.raises(InvalidRequest, match="can price"):
        price_stops([Repeat(step, 10)], delta, accountant="pld")


def test_prices_too_large_to_follow_their_losses_are_those_of_certain_shares() -> None:
    large = price_stops([Repeat(GaussianEvent(Fraction(1, 5)), 10)] * 3, Fraction(1, 10**6))
    coarse = price_stops([SAMPLED] * 3, Fraction(1, 10**6), expected=1e5)

    assert float(large.epsilons[0]) > 100
    assert sum(large.shares) == large.delta and sum(coarse.shares) == coarse.delta


def test_each_phase_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    monkeypatch.setattr(module, "list_scenarios", lambda event: [looked.append(event), list_scenarios(event)][1])

    price_stops([Repeat(GaussianEvent(1000 + k), 1) for k in range(50)], Fraction(1, 10**6))

    assert len(looked) == 50  # not once more for every later stop
