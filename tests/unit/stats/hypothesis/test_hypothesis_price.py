import numpy as np
import pytest

from expost.core import BudgetExceeded, InvalidRequest, Outcome
from expost.stats.hypothesis.hypothesis_price import (
    SIMULATION_FAILURE,
    PriceTerms,
    bound_critical_value,
    bound_share,
    most_larger_draws,
    smallest_epsilon,
    smallest_rows,
)


def test_the_smallest_epsilon_is_rounded_up():
    found = smallest_epsilon(lambda epsilon: min(epsilon / 3, 1.0), power=0.9)

    assert 2.7 <= float(found) <= 2.702


def test_the_fewest_rows_are_exact():
    assert smallest_rows(lambda rows: min(rows / 1000, 1.0), power=0.777) == 777


def test_an_unreachable_power_is_refused():
    with pytest.raises(InvalidRequest, match="without privacy"):
        smallest_epsilon(lambda _: 0.5, power=0.9)
    with pytest.raises(InvalidRequest, match="reachable"):
        smallest_rows(lambda _: 0.5, power=0.9)


def test_a_cap_is_a_cap_for_both_ways_of_asking():
    with pytest.raises(BudgetExceeded):
        PriceTerms.read(epsilon=2, max_epsilon=1).price_exact(lambda _: 1.0, "exact")
    with pytest.raises(BudgetExceeded):
        PriceTerms.read(power=0.9, max_epsilon=1).price_exact(lambda epsilon: min(epsilon / 3, 1.0), "exact")


def rising(epsilon):
    return min(epsilon / 3, 1.0)


def test_what_is_known_of_the_power_decides_the_outcome():
    ask = PriceTerms.read(power=0.9)

    exact, estimated = ask.price_exact(rising, "exact"), ask.price_estimated(rising, "if normal")
    proved = ask.price_proved(rising, lambda epsilon, failure: rising(epsilon) - 0.05, basis="proved")

    assert (exact.outcome, estimated.outcome, proved.outcome) == (
        Outcome.CERTIFIED,
        Outcome.ESTIMATED,
        Outcome.CERTIFIED,
    )
    assert rising(exact.epsilon) >= 0.9
    assert rising(estimated.epsilon) >= 0.92
    assert rising(proved.epsilon) >= 0.95
    assert (estimated.basis, float(estimated.target.tolerance)) == ("if normal", 0.9)
    assert PriceTerms.read(epsilon=1).price_estimated(rising, "if normal").outcome is Outcome.FIXED


def test_the_tries_to_prove_a_power_share_one_failure_probability():
    asked = []

    def bound_at(epsilon, failure):
        asked.append(failure)
        return 0.0

    with pytest.raises(InvalidRequest, match="proved by simulation"):
        PriceTerms.read(power=0.9).price_proved(rising, bound_at, basis="proved")
    assert sum(asked) <= SIMULATION_FAILURE


def test_a_proved_power_above_the_cap_is_refused():
    with pytest.raises(BudgetExceeded):
        PriceTerms.read(power=0.9, max_epsilon=2.75).price_proved(
            rising, lambda epsilon, _: rising(epsilon) - 0.05, basis="proved"
        )


RNG = np.random.default_rng(13)


def test_a_bound_on_a_share_is_wrong_as_rarely_as_it_says():
    hits = RNG.binomial(200, 0.7, 4000)

    wrong = np.mean([bound_share(int(count), 200, failure_probability=0.05) > 0.7 for count in hits])

    assert 0.01 < wrong <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 4000)
    assert bound_share(0, 10, failure_probability=0.1) == 0


@pytest.mark.parametrize("rounded", [False, True])
def test_a_critical_value_is_too_low_as_rarely_as_it_says(rounded):
    """For continuous laws, and for laws with many ties."""
    wrong = []
    for _ in range(600):
        drawn = RNG.exponential(size=500)
        drawn = np.floor(3 * drawn) / 3 if rounded else drawn
        critical = bound_critical_value(drawn, 0.1, failure_probability=0.05)
        exceeded = np.exp(-(critical + 1 / 3)) if rounded else np.exp(-critical)
        wrong.append(exceeded > 0.1)

    assert np.mean(wrong) <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 600)
    assert bound_critical_value([1.0, 2.0], 0.01, failure_probability=0.05) == np.inf


def test_the_most_larger_draws_still_reject():
    for level in (0.001, 0.01, 0.05, 0.1):
        assert (1 + most_larger_draws(level, 9_999)) / 10_000 <= level
    assert most_larger_draws(1e-6, 9_999) == -1
