import pytest

from expost.core import BudgetExceeded, InvalidRequest, Outcome
from expost.stats.hypothesis.price import SIMULATION_FAILURE, Ask, smallest_epsilon, smallest_rows


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
        Ask(epsilon=2, max_epsilon=1).exact(lambda _: 1.0, "exact")
    with pytest.raises(BudgetExceeded):
        Ask(power=0.9, max_epsilon=1).exact(lambda epsilon: min(epsilon / 3, 1.0), "exact")


def rising(epsilon):
    return min(epsilon / 3, 1.0)


def test_what_is_known_of_the_power_decides_the_outcome():
    ask = Ask(power=0.9)

    exact, estimated = ask.exact(rising, "exact"), ask.estimated(rising, "if normal")
    proved = ask.proved(rising, lambda epsilon, failure: rising(epsilon) - 0.05, basis="proved")

    assert (exact.outcome, estimated.outcome, proved.outcome) == (
        Outcome.CERTIFIED,
        Outcome.ESTIMATED,
        Outcome.CERTIFIED,
    )
    assert rising(exact.epsilon) >= 0.9
    assert rising(estimated.epsilon) >= 0.92
    assert rising(proved.epsilon) >= 0.95
    assert estimated.terms == {"power": "if normal"}
    assert Ask(epsilon=1).estimated(rising, "if normal").outcome is Outcome.FIXED


def test_the_tries_to_prove_a_power_share_one_failure_probability():
    asked = []

    def bound_at(epsilon, failure):
        asked.append(failure)
        return 0.0

    with pytest.raises(InvalidRequest, match="proved by simulation"):
        Ask(power=0.9).proved(rising, bound_at, basis="proved")
    assert sum(asked) <= SIMULATION_FAILURE


def test_a_proved_power_above_the_cap_is_refused():
    with pytest.raises(BudgetExceeded):
        Ask(power=0.9, max_epsilon=2.75).proved(rising, lambda epsilon, _: rising(epsilon) - 0.05, basis="proved")
