"""The algebra of events, over every event class and every currency, so that new ones join by themselves."""

import itertools
import json
import math
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.accounting.strategies import leaves, noisier, of_kind, trees

from expost.accounting import (
    ConcentratedEvent,
    ExPostEvent,
    GaussianEvent,
    Parallel,
    PoissonSampled,
    PrivacyEvent,
    PureEvent,
    Repeat,
    Sequence,
    account,
    privacy_account,
)
from expost.accounting.privacy_account import CURRENCIES

DELTA = Fraction(1, 10**6)
FAST = [name for name in CURRENCIES if name != "pld"]
LAWS = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
FEW = settings(LAWS, max_examples=8)
EVERY_KIND = pytest.mark.parametrize("kind", list(PrivacyEvent.kinds.values()), ids=list(PrivacyEvent.kinds))


@pytest.fixture(autouse=True)
def without_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws are checked currency by currency; loss distributions, which take longer, by their own tests below."""
    monkeypatch.setattr(privacy_account, "_has_convolution", lambda: False)


def costs(event: PrivacyEvent, delta: Fraction = DELTA) -> dict[str, float]:
    """The epsilon in every fast currency, and the best."""
    if "sampled-without-replacement" in json.dumps(event.to_json()):
        whole = account(event, adjacency="replace-one")
    else:
        whole = account(event)
    return {name: max(whole._epsilon_in(name, scenario, delta) for scenario in whole._scenarios) for name in FAST} | {
        "auto": whole.epsilon(delta)
    }


@EVERY_KIND
@LAWS
@given(data=st.data())
def test_json_gives_the_event_back(kind: type[PrivacyEvent], data: st.DataObject) -> None:
    event = data.draw(of_kind(kind))

    assert PrivacyEvent.from_json(json.loads(json.dumps(event.to_json()))) == event


@EVERY_KIND
@FEW
@given(data=st.data(), count=st.integers(0, 4))
def test_repeating_is_listing(kind: type[PrivacyEvent], data: st.DataObject, count: int) -> None:
    event = data.draw(of_kind(kind))
    if isinstance(event, Parallel):
        event = Parallel(event.events)

    assert costs(Repeat(event, count)) == costs(Sequence([event] * count))


@LAWS
@given(events=st.lists(trees(), max_size=3))
def test_order_does_not_matter(events: list[PrivacyEvent]) -> None:
    first = costs(Sequence(events))

    assert all(costs(Sequence(order)) == first for order in itertools.permutations(events))


@LAWS
@given(events=st.lists(trees(), min_size=2, max_size=3))
def test_nesting_does_not_matter(events: list[PrivacyEvent]) -> None:
    head, *tail = events

    assert costs(Sequence([head, Sequence([Repeat(Sequence(tail), 1)])])) == costs(Sequence(events))


@LAWS
@given(event=trees())
def test_nothing_costs_nothing(event: PrivacyEvent) -> None:
    for free in (
        Sequence(),
        Repeat(event, 0),
        Parallel(),
        PoissonSampled(0, event),
        PureEvent(0),
        ConcentratedEvent(0),
    ):
        assert costs(free, Fraction(0))["auto"] == 0.0

    assert costs(Sequence([event, Sequence()])) == costs(event)


@EVERY_KIND
@FEW
@given(data=st.data())
def test_more_noise_never_costs_more(kind: type[PrivacyEvent], data: st.DataObject) -> None:
    event = data.draw(of_kind(kind))
    before, after = costs(event), costs(noisier(event))

    assert all(after[name] <= before[name] * (1 + 1e-9) for name in before)


@LAWS
@given(events=st.lists(trees(parallel=False), min_size=1, max_size=4))
def test_parallel_costs_its_dearest_part(events: list[PrivacyEvent]) -> None:
    together, alone = costs(Parallel(events)), [costs(event) for event in events]

    # A part that is contained in another is left out, so its currencies are too.
    assert together["auto"] == max(each["auto"] for each in alone)
    assert all(together[name] <= max(each[name] for each in alone) for name in FAST)


@LAWS
@given(event=trees(), more=trees())
def test_another_event_never_lowers_the_cost(event: PrivacyEvent, more: PrivacyEvent) -> None:
    alone, both = costs(event), costs(Sequence([event, more]))

    assert all(both[name] >= alone[name] * (1 - 1e-9) for name in FAST if name != "homogeneous")


@LAWS
@given(one=trees(), other=trees(), name=st.sampled_from(["zcdp", "gdp"]))
def test_costs_are_subadditive(one: PrivacyEvent, other: PrivacyEvent, name: str) -> None:
    both = costs(Sequence([one, other]), 2 * DELTA)[name]

    assert both <= (costs(one)[name] + costs(other)[name]) * (1 + 1e-9)


@LAWS
@given(one=trees(parallel=False), other=trees(parallel=False))
def test_pure_costs_add_exactly(one: PrivacyEvent, other: PrivacyEvent) -> None:
    parts = [account(event, currency="pure").epsilon() for event in (one, other, Sequence([one, other]))]

    assert parts[2] == pytest.approx(parts[0] + parts[1], rel=1e-15) or math.isinf(parts[2])


@LAWS
@given(event=trees())
def test_the_tightest_is_never_above_a_looser_one(event: PrivacyEvent) -> None:
    found = costs(event)

    assert found["auto"] <= min(found[name] for name in FAST)
    assert found["approx"] <= found["pure"] * (1 + 1e-12)
    assert found["homogeneous"] <= found["approx"] * (1 + 1e-9) or math.isinf(found["homogeneous"])


@LAWS
@given(multipliers=st.lists(st.integers(5, 500).map(lambda n: Fraction(n, 10)), min_size=1, max_size=4))
def test_for_gaussian_noise_the_exact_profile_is_tightest(multipliers: list[Fraction]) -> None:
    found = costs(Sequence([GaussianEvent(multiplier) for multiplier in multipliers]))

    assert found["auto"] == found["gdp"] <= min(found["zcdp"], found["rdp"])


@LAWS
@given(event=trees(), small=st.integers(2, 12), step=st.integers(1, 6))
def test_a_larger_delta_never_costs_more(event: PrivacyEvent, small: int, step: int) -> None:
    low, high = costs(event, Fraction(1, 10 ** (small + step))), costs(event, Fraction(1, 10**small))

    assert all(high[name] <= low[name] * (1 + 1e-9) for name in low)


@LAWS
@given(event=trees(), digits=st.integers(2, 10))
def test_epsilon_and_delta_agree(event: PrivacyEvent, digits: int) -> None:
    whole, delta = account(event), Fraction(1, 10**digits)
    epsilon = whole.epsilon(delta)

    assert math.isinf(epsilon) or whole.delta(Fraction(epsilon)) <= float(delta) * (1 + 1e-6)


@FEW
@given(events=st.lists(leaves(), min_size=1, max_size=3), rate=st.integers(1, 100))
def test_a_sample_never_costs_more_than_the_whole(events: list[PrivacyEvent], rate: int) -> None:
    whole = Sequence(events)
    before, after = costs(whole), costs(PoissonSampled(Fraction(rate, 100), whole))

    assert all(after[name] <= before[name] * (1 + 1e-9) for name in ("pure", "approx", "zcdp", "gdp", "rdp", "auto"))


def test_a_realised_loss_is_within_its_cap() -> None:
    with pytest.raises(ValueError, match="within its cap"):
        ExPostEvent(2, 1)
