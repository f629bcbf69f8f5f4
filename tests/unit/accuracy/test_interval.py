"""Radii, levels and relative rules hold, also where a climb stops by its own noise."""

import itertools
import math
import os
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from expost.accuracy.interval import (
    MOST_RUNGS,
    RATIO,
    RelativeRule,
    epsilon_for_radius,
    is_tiny,
    miss_probability,
    noise_radius,
    noise_tail,
    parts_for_rates,
    relative_ladder,
    relative_rule,
)
from expost.core import Sealed, Sensitivity
from expost.noise import DiscreteLaplacePath, SeededBits


def summed_tail(radius: int, scale: float) -> float:
    a = math.exp(-1 / scale)
    far = radius + 1 + int(60 * scale)
    return 2 * math.fsum((1 - a) / (1 + a) * a**k for k in range(radius + 1, far))


@pytest.mark.parametrize("scale", [0.2, 1.0, 7.5, 100.0])
@pytest.mark.parametrize("radius", [0, 1, 5, 40])
def test_the_tail_is_the_sum_of_the_law(scale: float, radius: int) -> None:
    assert noise_tail(radius, scale) == pytest.approx(summed_tail(radius, scale), rel=1e-9)


@pytest.mark.parametrize("scale", [0.2, 1.0, 7.5, 1000.0])
@pytest.mark.parametrize("failure", [0.5, 0.05, 1e-6])
def test_a_radius_is_enough_and_one_less_is_not(scale: float, failure: float) -> None:
    radius = noise_radius(failure, scale)

    assert noise_tail(radius, scale) <= failure
    assert radius == 0 or noise_tail(radius - 1, scale) > failure


@pytest.mark.parametrize("radius", [0, 1, 10, 1000])
@pytest.mark.parametrize("sensitivity", [1, 50])
def test_the_level_for_a_radius_is_enough_and_nearly_the_least(radius: int, sensitivity: int) -> None:
    level = epsilon_for_radius(radius, Fraction(1, 20), sensitivity)

    assert noise_tail(radius, sensitivity / level) <= 0.05
    assert noise_tail(radius, sensitivity / (level * Fraction(99999, 100000))) > 0.05


long_profile = pytest.mark.skipif(os.environ.get("EXPOST_LONG") != "1", reason="long profile: set EXPOST_LONG=1")

LADDER = relative_ladder(Fraction(1), Fraction(50))
RATES = np.array([float(level) for level in LADDER])
COUNTS = (0, 1, 2, 3, 5, 9, 19, 30, 59, 79, 179, 400, 1_000, 1_500, 10_000, 123_456, 1_000_000)
SHARES = ("1/100", "1/20", "1/10", "1/5", "3/10", "2/5", "1/2", "7/10", "9/10", "99/100")


@cache
def noise(runs: int, seed: int = 1) -> np.ndarray:
    """The noise of many climbs over the whole ladder, from 1e-8 on: one row per rung, one column per climb."""
    zeros = Sealed(np.zeros(runs, np.int64), Sensitivity(1))
    return DiscreteLaplacePath(zeros, LADDER, bits=SeededBits(seed)).block(0, len(LADDER))


def stopped_misses(rule: RelativeRule, count: int, *, runs: int = 12_000, seed: int = 1) -> float:
    """The share of climbs that stop at a value off by more than the share, or below zero where none can be."""
    radii = rule.radii(RATES)
    noisy = noise(runs, seed) + count
    accepted = rule.sizes(noisy) >= rule.least(radii)[:, None]
    stop, columns = accepted.argmax(axis=0), np.arange(runs)
    seen = noisy[stop, columns]
    value = np.sign(seen) * rule.value(np.abs(seen), radii[stop])
    stopped = accepted.any(axis=0)
    assert rule.signed or (value[stopped] >= 0).all()
    return float((stopped & (np.abs(value - count) > rule.share * count + 1e-9)).mean())


def highest_allowed(failure: float, runs: int) -> float:
    """What a rate of ``failure`` shows as in this many runs except with probability 1e-7."""
    return failure + 5.2 * math.sqrt(failure * (1 - failure) / runs)


@pytest.mark.parametrize("signed", [False, True], ids=["count", "sum"])
@pytest.mark.parametrize("failure", [Fraction(1, 20), Fraction(1, 5)], ids=str)
@pytest.mark.parametrize("share", SHARES)
def test_a_stopped_answer_misses_at_most_as_often_as_asked(share: str, failure: Fraction, signed: bool) -> None:
    rule = relative_rule(Fraction(share), failure, signed=signed)

    seen = {count: stopped_misses(rule, count) for count in COUNTS[:: 2 if share != "9/10" else 1]}

    assert max(seen.values()) <= highest_allowed(float(failure), 12_000), seen


@long_profile
@pytest.mark.parametrize("signed", [False, True], ids=["count", "sum"])
@pytest.mark.parametrize("failure", ["1/1000", "1/100", "1/20", "1/5", "1/2", "9/10"])
@pytest.mark.parametrize("share", [*SHARES, "1/50", "3/5", "4/5", "19/20"])
def test_a_stopped_answer_misses_at_most_as_often_as_asked_in_many_runs(share: str, failure: str, signed: bool) -> None:
    rule = relative_rule(Fraction(share), Fraction(failure), signed=signed)

    seen = {count: stopped_misses(rule, count, runs=40_000, seed=2) for count in COUNTS}

    assert max(seen.values()) <= highest_allowed(float(Fraction(failure)), 40_000), seen


@pytest.mark.parametrize(
    ("share", "level", "signed"),
    [(0.9, 0.0921 * 0.05, True), (0.99, 0.05 * 0.0921, False), (0.5, 0.05, False)],
    ids=str,
)
def test_rules_that_leave_out_low_rungs_or_one_sign_miss_too_often(share: float, level: float, signed: bool) -> None:
    # The levels of 0.1, which called rungs below a rate of 0.001 negligible and took every acceptance for one with the
    # right sign; and the level of a fixed rung.
    careless = RelativeRule(share, level, signed=signed)

    assert max(stopped_misses(careless, count) for count in (0, 9, 15, 40)) > highest_allowed(0.05, 12_000)
    assert miss_probability(careless) > 0.05


@pytest.mark.parametrize("share", ["3/10", "1/3", "1/2", "4/5"])
def test_exact_thresholds_accept_as_soon_as_a_value_is_within_the_share_of_all_answers(share: str) -> None:
    width, radii = Fraction(share), np.arange(1, 200)
    rule = RelativeRule(float(width), 0.05, exact=width)

    least = rule.least(radii)
    values = rule.value(least, radii)

    for radius, first, value in zip(radii.tolist(), least.tolist(), values.tolist(), strict=True):
        assert all(abs(value - exact) <= width * exact for exact in (first - radius, first, first + radius))
        # Lemma 1: one less has neither room around it nor a gap of one.
        assert width * (first - 1) < min(radius * (1 + width), radius + Fraction(1, 2))


def test_no_answer_of_a_count_below_zero_is_accepted() -> None:
    rule = relative_rule(Fraction(9, 10), Fraction(1, 20))
    noisy = -rule.least(rule.radii(RATES)) - 1

    assert (rule.sizes(noisy) < rule.least(rule.radii(RATES))).all()


@pytest.mark.parametrize("share", ["1/100", "1/20", "1/5"])
def test_stopping_costs_little_probability(share: str) -> None:
    rule = relative_rule(Fraction(share), Fraction(1, 20))

    assert rule.level >= 0.05 / 1.4
    assert miss_probability(rule) <= 0.05


@pytest.mark.parametrize("share", ["1/20", "1/5", "9/10"])
def test_the_bound_is_attained_within_a_half(share: str) -> None:
    rule = relative_rule(Fraction(share), Fraction(1, 20))

    seen = max(stopped_misses(rule, count) for count in (0, 3, 40, 60, 100, 200, 400))
    assert seen <= miss_probability(rule) <= 1.7 * seen


@pytest.mark.parametrize("failure", ["1/100", "1/20", "1/5"])
@pytest.mark.parametrize("signed", [False, True], ids=["count", "sum"])
def test_a_looser_share_is_never_accepted_at_a_higher_threshold(failure: str, signed: bool) -> None:
    rules = [relative_rule(Fraction(share), Fraction(failure), signed=signed) for share in SHARES]

    thresholds = [math.log(1 / rule.level) / rule.share for rule in rules]  # in noise scales
    assert all(tight >= loose for tight, loose in itertools.pairwise(thresholds))


def test_less_confidence_is_never_accepted_at_a_higher_threshold() -> None:
    levels = [relative_rule(Fraction(1, 5), Fraction(failure)).level for failure in ("1/1000", "1/100", "1/20", "1/2")]

    assert levels == sorted(levels)


@pytest.mark.parametrize("count", [10**6, 10**9])
def test_answers_beyond_the_enumeration_are_bounded_by_it(count: int) -> None:
    # One answer at a time, over all rungs: what the range of real thresholds must bound.
    from expost.accuracy import stopped_failure as module

    rule = relative_rule(Fraction(1, 2), Fraction(1, 20))
    rates = RATIO ** np.arange(-350.0, 40.0)
    radii = rule.radii(rates)
    least = rule.least(radii).astype(float)
    rungs = module._EnumeratedRungs(rates, radii.astype(float), least, least, rule.share, 25.0, signed=False)
    answers = np.unique(np.floor(np.geomspace(count, count * RATIO, 200)))
    band = np.arange(1, len(rates))[None, :]

    assert rungs.worst(answers, answers, band, module._Low(0.0, 0.0), MOST_RUNGS) <= 0.05


def test_a_climb_never_has_more_rungs_than_its_rule_allows_for() -> None:
    for sensitivity in (1, 7, 2**20, 2**40):
        for cap in ("0.00001", "0.1", "50", "1000"):
            assert len(relative_ladder(Fraction(sensitivity), Fraction(cap))) <= MOST_RUNGS
    assert not is_tiny(Fraction(7), Fraction(1, 1000))


def test_a_ladder_has_no_rung_between_powers_of_its_ratio() -> None:
    # Caps that rise a little each time would otherwise add rungs that no bound counts.
    whole = set(relative_ladder(Fraction(1), Fraction(1000)).rungs)

    assert all(
        set(relative_ladder(Fraction(1), Fraction(cap), above=Fraction(1, 2)).rungs) <= whole
        for cap in ("0.501", "0.51", "0.52", "3")
    )


@pytest.mark.parametrize("share", [Fraction(1, 20), Fraction(1, 3)])
@pytest.mark.parametrize("radius", [0, 1, 2, 7, 40])
def test_an_accepted_count_is_within_the_share_of_every_count_in_its_interval(share: Fraction, radius: int) -> None:
    rule = RelativeRule(float(share), 0.05)
    least = int(rule.least(np.array([radius]))[0])

    for noisy in range(least, least + 60):
        value = int(rule.value(np.array([noisy]), np.array([radius]))[0])
        for exact in range(max(noisy - radius, 0), noisy + radius + 1):
            assert abs(value - exact) <= share * exact


def test_rungs_keep_their_ratio_and_stay_below_the_cap() -> None:
    ladder = relative_ladder(Fraction(7), Fraction(3))
    ratios = [float(high / low) for low, high in zip(ladder.rungs, ladder.rungs[1:], strict=False)]

    assert ladder.cap <= 3 and 3 / float(ladder.cap) < RATIO
    assert max(abs(ratio - RATIO) for ratio in ratios) < 1e-6


def test_a_tiny_share_is_served_by_a_union_over_rungs() -> None:
    rule = relative_rule(Fraction(1, 10**6), Fraction(1, 20))

    looked_at = [level for level in relative_ladder(Fraction(1), Fraction(1000)) if level >= rule.lowest]
    assert len(looked_at) * rule.level <= 0.05 * (1 + 1e-12) and len(looked_at) > 200
    assert relative_rule(Fraction(1, 20), Fraction(1, 20)).lowest == 0


@pytest.mark.parametrize("sensitivity", [1, 7, 2**20])
def test_where_a_climb_begins_does_not_depend_on_the_cap(sensitivity: int) -> None:
    ladders = [relative_ladder(Fraction(sensitivity), Fraction(str(cap))) for cap in (0.1, 1, 10, 1000)]
    longest = ladders[-1].rungs

    assert all(ladder.rungs == longest[: len(ladder)] for ladder in ladders)
    assert longest[0] < Fraction(11, 10**9)
    assert float(relative_ladder(Fraction(1), Fraction(1, 10**7))[0]) < 1.1e-11  # a tiny cap has rungs below it too
    assert relative_ladder(Fraction(2**45), Fraction(1))[0] > Fraction(2**45, 2**57)  # noise that fits in 64 bits


@pytest.mark.parametrize("cells", [2, 5, 300])
def test_parts_by_rates_add_up_to_at_most_one_and_lower_the_common_rate(cells: int) -> None:
    rates, failure = np.random.default_rng(cells).exponential(size=cells) + 0.01, 0.05

    parts = parts_for_rates(rates, failure).parts

    assert parts.sum() <= 1 + 1e-12 and (parts > 0).all()
    assert (np.diff(parts[np.argsort(rates)]) >= 0).all()
    # A cell needs a rate about proportional to log(2 / level): the highest need falls.
    needs = rates * np.log(2 / (failure * parts)) / np.log(2 * cells / failure)
    assert needs.max() < rates.max()
