"""What every currency owes every event: upper bounds both ways, or an honest "not mine"."""

import json
import math
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.accounting.strategies import of_kind

from expost.accounting import PrivacyEvent, account
from expost.accounting.privacy_account import CURRENCIES, CurrencyTotal
from expost.accounting.scenario import Scenario, list_scenarios

FAST = {name: price for name, price in CURRENCIES.items() if name != "pld"}
DELTAS = [Fraction(1, 100), Fraction(1, 10**6), Fraction(1, 10**12)]
EPSILONS = [Fraction(0), Fraction(1, 10), Fraction(3), Fraction(100)]
CONTRACT = settings(max_examples=14, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
EVERY_KIND = pytest.mark.parametrize("kind", list(PrivacyEvent.kinds.values()), ids=list(PrivacyEvent.kinds))
EVERY_CURRENCY = pytest.mark.parametrize("name", list(FAST))


def totals(event: PrivacyEvent, name: str) -> list[CurrencyTotal]:
    found = [FAST[name](scenario) for scenario in list_scenarios(event) if scenario != Scenario()]
    return [one for one in found if one is not None]


@EVERY_CURRENCY
@EVERY_KIND
@CONTRACT
@given(data=st.data())
def test_a_total_is_a_privacy_profile(name: str, kind: type[PrivacyEvent], data: st.DataObject) -> None:
    for total in totals(data.draw(of_kind(kind)), name):
        epsilons = [total.epsilon(delta) for delta in DELTAS]
        deltas = [total.delta(epsilon) for epsilon in EPSILONS]

        assert all(epsilon >= 0 for epsilon in epsilons)
        assert all(0 <= delta <= 1 for delta in deltas)
        assert epsilons == sorted(epsilons)
        assert deltas == sorted(deltas, reverse=True)
        for delta, epsilon in zip(DELTAS, epsilons, strict=True):  # both ways agree
            assert math.isinf(epsilon) or total.delta(Fraction(epsilon)) <= float(delta) * (1 + 1e-6)


@EVERY_KIND
@CONTRACT
@given(data=st.data())
def test_every_event_has_a_finite_price_in_some_currency(kind: type[PrivacyEvent], data: st.DataObject) -> None:
    event = data.draw(of_kind(kind))
    adjacency = "replace-one" if "without-replacement" in json.dumps(event.to_json()) else "add-remove"
    if adjacency == "replace-one" and "parallel" in json.dumps(event.to_json()):
        return

    assert any(
        math.isfinite(account(event, adjacency=adjacency, currency=name).epsilon(Fraction(1, 10**4))) for name in FAST
    )


def test_a_currency_that_does_not_know_an_event_says_so() -> None:
    class Unheard(PrivacyEvent):
        kind = ""

    unheard = Scenario(((Unheard(), 1),))

    assert all(price(unheard) is None for price in FAST.values())
