import pytest

from expost.core import BudgetExceeded, InvalidRequest
from expost.stats.hypothesis.price import Ask, smallest_epsilon, smallest_rows


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
        Ask(epsilon=2, max_epsilon=1).price(lambda _: 1.0)
    with pytest.raises(BudgetExceeded):
        Ask(power=0.9, max_epsilon=1).price(lambda epsilon: min(epsilon / 3, 1.0))
