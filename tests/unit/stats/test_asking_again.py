"""A question after a climb on the same path: what it promises does not rest on where the climb happened to stop."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from expost.accuracy.interval import FINE_STEPS, RATIO, noise_radius, relative_ladder, rung_level
from expost.core import ApproxLoss, PlanContext, PureLoss, Release, approx
from expost.data import Dataset
from expost.noise import SeededBits
from expost.session import Session
from expost.stats import Count, Mean, ReleaseCache, Summary
from expost.stats.gradual_plan import Design
from expost.stats.gradual_release import GradualRelease
from expost.stats.query_terms import statistic
from expost.stats.reader import CellReading, ClippedReader, MeanReader

ROWS = 100
PEOPLE = Dataset(pa.table({"x": np.arange(ROWS) % 7}), bounds={"x": (0, 10)})
ROUGH = {"within": "50%", "confidence": 0.5, "max_epsilon": 10}


def ask(question: Any, cache: ReleaseCache, bits: SeededBits) -> Release[Any]:
    plan = question.plan(PEOPLE, PlanContext(cache))
    release: Release[Any] = plan.climb(plan.measure(PEOPLE), bits)
    return release


def paid(release: Release[Any]) -> Fraction:
    return release.receipt.bill.amounts()["epsilon"]


def after_a_climb(seed: int, second: Callable[[Fraction], Count]) -> tuple[Release[Any], GradualRelease]:
    """A second answer, and the path that the first one climbed."""
    cache, bits = ReleaseCache(), SeededBits(seed)
    level = paid(ask(Count(**ROUGH), cache, bits))
    climbed = next(iter(cache.keys()))
    release = ask(second(level), cache, bits)
    kept = cache.find_release(climbed)
    assert kept is not None
    return release, kept


@pytest.mark.parametrize(
    "second",
    [
        lambda level: Count(epsilon=Fraction(1, 10_000), confidence=0.95),
        lambda level: Count(epsilon=level / 2, confidence=0.95),
        lambda level: Count(epsilon=level * Fraction(21, 20), confidence=0.95),
        lambda level: Count(within=math.ceil(math.log(20) / level) + 1, confidence=0.95),
    ],
    ids=["any level", "half of it", "a little more", "absolute"],
)
def test_a_fixed_level_after_a_climb_covers_as_promised(second: Callable[[Fraction], Count]) -> None:
    missed = naive = 0
    for seed in range(300):
        release, kept = after_a_climb(seed, second)
        low, high = release.interval
        missed += not low <= ROWS <= high
        assert kept.path is not None
        naive += abs(int(kept.path.at(kept.read)[0]) - ROWS) > noise_radius(0.05, 1 / kept.paid)

    assert missed <= 24  # 5 % of 300 is 15; above 24 has a probability of 1 % at the stated level
    assert naive >= 30  # the rung that the climb chose, read as if it had been given beforehand


def test_what_a_climb_has_paid_for_is_free_at_a_higher_confidence_and_a_wider_interval() -> None:
    release, kept = after_a_climb(1, lambda level: Count(epsilon=level, confidence=0.95))

    assert paid(release) == 0 and kept.path is not None
    assert release.value == kept.path.at(kept.read)[0]
    plain = 2 * noise_radius(0.05, 1 / kept.paid)
    assert plain < release.interval[1] - release.interval[0] < 5 * plain


def test_a_fixed_level_after_a_climb_has_a_path_of_its_own_that_is_kept_too() -> None:
    cache, bits = ReleaseCache(), SeededBits(1)
    ask(Count(**ROUGH), cache, bits)
    bills = [paid(ask(Count(epsilon=level, confidence=0.95), cache, bits)) for level in (1, 1, 2, 2)]

    assert bills == [1, 0, 1, 0]
    assert len(list(cache.keys())) == 2


def test_first_questions_and_refined_levels_are_as_narrow_as_ever() -> None:
    cache, bits = ReleaseCache(), SeededBits(1)
    for level in (Fraction(1, 10), Fraction(1, 5)):
        low, high = ask(Count(epsilon=level, confidence=0.95), cache, bits).interval
        assert high - low == 2 * noise_radius(0.05, 1 / level)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("share", ["40%", "20%", "5%"])
def test_a_climb_stops_where_it_would_have_stopped_as_the_first(seed: int, share: str) -> None:
    terms = {"within": share, "confidence": 0.9, "max_epsilon": 10}
    cache, bits = ReleaseCache(), SeededBits(seed)
    rough = ask(Count(**ROUGH), cache, bits)
    again = ask(Count(**terms), cache, bits)
    alone = ask(Count(**terms), ReleaseCache(), SeededBits(seed))

    assert again.value == alone.value and again.interval == alone.interval
    assert paid(rough) + paid(again) == max(paid(rough), paid(alone))


def test_looks_of_a_second_climb_are_chosen_by_the_pilot_alone() -> None:
    cache, bits = ReleaseCache(), SeededBits(3)
    ask(Mean("x", within=2, max_epsilon=20), cache, bits)
    (key,) = cache.keys()
    kept = cache.find_release(key)
    assert kept is not None and kept.pilot is not None
    shown, read = kept.pilot, kept.read
    stored = GradualRelease.from_bytes(kept.to_bytes())
    assert stored.pilot is not None and stored.climb_start == kept.climb_start == 0
    assert stored.pilot.noisy.tolist() == shown.noisy.tolist() and stored.pilot.scale == shown.scale

    kept.read = 0  # as if the first climb had stopped elsewhere
    low = Mean("x", within=1, max_epsilon=20).plan(PEOPLE, PlanContext(cache)).climb(kept, bits)
    kept.read, kept.answers = read, []
    late = Mean("x", within=1, max_epsilon=20).plan(PEOPLE, PlanContext(cache))
    assert late.climb(kept, bits).value == low.value


def test_a_second_climb_by_looks_covers_as_promised() -> None:
    truth, missed = float(np.mean(np.arange(ROWS) % 7)), 0
    for seed in range(40):
        cache, bits = ReleaseCache(), SeededBits(seed)
        ask(Mean("x", within=2, confidence=0.05, max_epsilon=20), cache, bits)
        low, high = ask(Mean("x", within=1.5, confidence=0.9, max_epsilon=20), cache, bits).interval
        missed += not low <= truth <= high

    assert missed <= 9  # 10 % of 40 is 4; above 9 has a probability below 1 %


def test_the_parts_of_all_rungs_add_up_to_the_failure_probability() -> None:
    exponents = [k / FINE_STEPS for k in range(-420 * FINE_STEPS, 80 * FINE_STEPS)]
    for sensitivity in (1.0, 3.7, 2.0**20):
        levels = [sensitivity * RATIO**k for k in exponents if 2.0**-56 <= RATIO**k <= 1000]
        assert sum(rung_level(0.05, level) for level in levels) <= 0.05
    usual = [float(level) for level in relative_ladder(Fraction(1), Fraction(1), above=Fraction(1, 10**6))]
    assert min(rung_level(0.05, level) for level in usual) > 0.05 / 300 / FINE_STEPS


def test_the_receipt_of_a_free_answer_is_about_what_it_rests_on() -> None:
    cache, bits = ReleaseCache(), SeededBits(1)
    first, again, more = (ask(Count(epsilon=level), cache, bits).receipt for level in (5, 5, 6))

    assert first.paid_before is None and first.in_all == first.bill == PureLoss(5)
    assert (again.bill, again.paid_before, again.in_all) == (PureLoss(0), PureLoss(5), PureLoss(5))
    assert again.meaning == first.meaning and "99.4 % sure" in first.meaning
    assert (more.bill, more.in_all) == (PureLoss(1), PureLoss(6))


def test_the_pilot_of_an_earlier_climb_is_part_of_what_an_answer_rests_on() -> None:
    cache, bits = ReleaseCache(), SeededBits(1)
    first = ask(Mean("x", within=2, max_epsilon=20), cache, bits).receipt
    again = ask(Mean("x", within=2, max_epsilon=20), cache, bits).receipt

    assert first.breakdown["pilot"] > 0
    assert again.bill == PureLoss(0) and again.in_all == first.bill


def test_a_path_that_was_looked_at_in_vain_counts_too() -> None:
    cache, bits = ReleaseCache(), SeededBits(1)
    climbed = ask(Count(**ROUGH), cache, bits).receipt
    fixed = ask(Count(epsilon=3, confidence=0.95), cache, bits).receipt

    assert fixed.bill == PureLoss(3) and fixed.paid_before == climbed.bill


def test_a_summary_rests_on_all_its_columns() -> None:
    cache, bits = ReleaseCache(), SeededBits(1)
    first, again = (ask(Summary(["x"], epsilon=2), cache, bits).receipt for _ in range(2))

    assert (again.bill, again.in_all) == (PureLoss(0), first.bill)


def test_an_answer_by_private_keys_rests_on_the_keys() -> None:
    table = Dataset(pa.table({"v": ["a"] * 3000 + ["b"] * 10}), name="p")
    session = Session(table, approx(50, 0.01))
    first, again = (session.count_by_private_keys("v", epsilon=1, delta=1e-6).receipt for _ in range(2))

    assert (first.bill, first.in_all) == (PureLoss(0.75), ApproxLoss(1, 1e-6))
    assert (again.bill, again.in_all) == (PureLoss(0), ApproxLoss(1, 1e-6))
    assert first.meaning == again.meaning and "73.4 % sure" in first.meaning
    assert session.spent() == ApproxLoss(1.25, 2e-6)


@dataclass(frozen=True)
class ScaledReader(ClippedReader):
    """Reads a multiple of the mean."""

    factor: float

    def read(self, noisy: Any, scale: float, level: float) -> CellReading:
        mean = MeanReader(self.clamp).read(noisy, scale, level)
        return CellReading(*(self.factor * end for end in (mean.value, mean.low, mean.high)))


@statistic
class ScaledMean(Mean):
    """A mean whose subject does not name its factor."""

    factor: float = 1.0

    def design(self, dataset: Dataset) -> Design:
        found = super().design(dataset)
        return replace(found, reader=ScaledReader(found.form.clamp, self.factor))  # type: ignore[attr-defined]


@pytest.mark.parametrize("terms", [{"epsilon": 5}, {"within": 1e3, "max_epsilon": 5}], ids=["level", "accuracy"])
def test_an_argument_that_only_the_reader_knows_is_not_served_by_an_earlier_answer(terms: dict[str, Any]) -> None:
    cache, bits = ReleaseCache(), SeededBits(1)
    first, other, again = (ask(ScaledMean("x", factor, **terms), cache, bits) for factor in (1.0, 100.0, 100.0))

    assert other.value == pytest.approx(100 * first.value) and again.value == other.value
    assert (paid(other), paid(again)) == (0, 0)


@pytest.mark.parametrize("wider", [6, 12, 40])
def test_a_wider_error_of_a_quantile_is_free_although_its_tree_would_be_smaller(wider: int) -> None:
    data = Dataset(pa.table({"x": np.arange(4000) % 100}), bounds={"x": (0, 100)})
    session = Session(data, 20, bits=SeededBits(1), simulation=True)
    first = session.median("x", within=3, max_epsilon=5)

    again = session.median("x", within=wider, max_epsilon=5)

    assert paid(again) == 0
    assert (again.value, again.interval) == (first.value, first.interval)
