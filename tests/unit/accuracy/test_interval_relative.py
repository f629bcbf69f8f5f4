"""The stopped climb of a count: its failure stays within what was asked, and the bound is not idle."""

from fractions import Fraction

import numpy as np
import pytest

from expost.accuracy.interval_relative import (
    RATIO,
    RelativeRule,
    relative_ladder,
    relative_rule,
    stopped_failure,
)
from expost.core import Sealed, Sensitivity
from expost.noise import DiscreteLaplacePath, SeededBits


def stopped_misses(rule: RelativeRule, count: int, *, runs: int = 20_000, cap: float = 8.0, seed: int = 1) -> float:
    """The share of climbs that stop at a value off by more than the share; coordinates of one path are the runs."""
    top = Fraction(str(cap))
    ladder = relative_ladder(Fraction(1), top, above=top / 2000)
    path = DiscreteLaplacePath(Sealed(np.full(runs, count), Sensitivity(1)), ladder, bits=SeededBits(seed))
    rates = np.array([float(level) for level in ladder])
    radii = rule.radii(rates)
    noisy = path.block(0, len(ladder))
    accepted = noisy >= rule.least(radii)[:, None]
    stop = accepted.argmax(axis=0)
    value = rule.value(noisy[stop, np.arange(runs)], radii[stop])
    return float((accepted.any(axis=0) & (np.abs(value - count) > rule.share * count + 1e-9)).mean())


@pytest.mark.parametrize("share", ["1/20", "1/5", "1/2"])
@pytest.mark.parametrize("count", [0, 1, 19, 30, 59, 79, 179, 400, 1500])
def test_a_stopped_count_misses_at_most_as_often_as_asked(share: str, count: int) -> None:
    rule = relative_rule(Fraction(share), Fraction(1, 20))

    # 20,000 runs: a true rate of 5 % shows as more than 5.8 % once in ten million.
    assert stopped_misses(rule, count) <= 0.058


def test_the_quantile_of_a_fixed_rung_would_miss_too_often() -> None:
    careless = RelativeRule(0.5, 0.05)

    assert max(stopped_misses(careless, count) for count in (9, 15, 40)) > 0.058


@pytest.mark.parametrize("share", ["1/100", "1/20", "1/5"])
def test_stopping_costs_little_probability(share: str) -> None:
    rule = relative_rule(Fraction(share), Fraction(1, 20))

    assert rule.level >= 0.05 / 1.4
    assert stopped_failure(rule) <= 0.05


def test_the_bound_is_attained_within_a_third() -> None:
    rule = RelativeRule(0.2, 0.05)

    seen = max(stopped_misses(rule, count) for count in (40, 60, 100, 200, 400))
    assert seen <= stopped_failure(rule) <= 1.5 * seen


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
