"""Asking again: less is free, more costs the difference, and no path is drawn twice."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from expost.core import EngineFailed, PlanContext, ReleaseOvertaken
from expost.data import Dataset
from expost.noise import SeededBits
from expost.stats import Count, Mean, ReleaseCache, StandardDeviation, Sum, Summary
from expost.stats.gradual_release import GradualRelease

TABLE = pa.table({"age": np.random.default_rng(0).integers(0, 100, 50_000), "city": ["a", "b", "b", "b", "b"] * 10_000})
PEOPLE = Dataset(TABLE, bounds={"age": (0, 100)}, categories={"city": ["a", "b"]})


class Box:
    """A vault in memory; ``busy`` makes another session win."""

    def __init__(self) -> None:
        self.secrets: dict[str, bytes] = {}
        self.busy = False

    def keep(self, name: str, secret_value: bytes) -> None:
        assert name not in self.secrets
        self.secrets[name] = secret_value

    def kept(self, name: str) -> bytes | None:
        return self.secrets.get(name)

    def replace(self, name: str, *, old: bytes, new: bytes) -> bool:
        if self.busy or self.secrets[name] != old:
            return False
        self.secrets[name] = new
        return True


def ask(question, cache: ReleaseCache, seed: int = 1):
    plan = question.plan(PEOPLE, PlanContext(cache))
    worst = plan.worst_case
    release = plan.climb(plan.measure(PEOPLE), SeededBits(seed))
    assert release.receipt.bill.within(worst)
    return release


def paid(release) -> Fraction:
    return release.receipt.bill.amounts()["epsilon"]


def test_less_accuracy_is_free_and_gives_the_same_answer() -> None:
    cache = ReleaseCache()
    first = ask(Count(within=100), cache)
    again = ask(Count(within=300), cache, seed=2)

    assert paid(again) == 0 and again.value == first.value
    assert again.receipt.target.tolerance == 300


def test_more_accuracy_costs_only_the_difference() -> None:
    cache = ReleaseCache()
    bills = [paid(ask(Count(within=within), cache)) for within in (1000, 100, 10)]
    alone = paid(ask(Count(within=10), ReleaseCache()))

    assert sum(bills) == alone and all(bill > 0 for bill in bills)


@pytest.mark.parametrize("by", [None, "city"])
def test_a_relative_climb_goes_on_where_it_stopped(by) -> None:
    cache = ReleaseCache()
    rough = ask(Count(within="5%", max_epsilon=4, by=by), cache, seed=3)
    fine = ask(Count(within="1%", max_epsilon=4, by=by), cache, seed=4)
    same = ask(Count(within="2%", max_epsilon=4, by=by), cache, seed=5)

    assert 0 < paid(rough) < paid(fine) and paid(same) == 0
    assert fine.receipt.paid_before == rough.receipt.bill and rough.receipt.paid_before is None
    values = [fine.value] if by is None else list(fine.value.values())
    exact = [50_000] if by is None else [10_000, 40_000]
    assert all(abs(value - truth) <= 0.01 * truth for value, truth in zip(values, exact, strict=True))


def test_a_looked_at_climb_goes_on_too() -> None:
    cache = ReleaseCache()
    rough, fine = (ask(Mean("age", within=within, max_epsilon=4), cache) for within in (2, 0.5))

    assert paid(fine) > 0 and fine.receipt.achieved <= 0.5 < rough.receipt.achieved <= 2


def test_sums_means_and_deviations_are_read_off_one_path() -> None:
    cache = ReleaseCache()
    ask(Summary(["age"], within="1%", max_epsilon=4), cache)

    for question in (
        Mean("age", within="3%", max_epsilon=4),
        Sum("age", within="5%", max_epsilon=4),
        StandardDeviation("age", within="6%", max_epsilon=4),
    ):
        assert paid(ask(question, cache)) == 0


def test_another_filter_or_table_has_a_path_of_its_own() -> None:
    cache = ReleaseCache()
    ask(Count(within=100), cache)

    assert paid(ask(Count(within=100, where="age > 50"), cache)) > 0
    assert len(list(cache.keys())) == 2


def test_a_stored_path_is_continued_by_the_next_session() -> None:
    box = Box()
    first = ask(Count(within=100), ReleaseCache(box))
    again = ask(Count(within=200), ReleaseCache(box), seed=9)
    more = ask(Count(within=10), ReleaseCache(box), seed=9)

    assert paid(again) == 0 and again.value == first.value
    assert paid(first) + paid(more) == paid(ask(Count(within=10), ReleaseCache()))


def test_who_comes_second_releases_nothing() -> None:
    box = Box()
    ask(Count(within=100), ReleaseCache(box))
    late = ReleaseCache(box)
    box.busy = True

    with pytest.raises(ReleaseOvertaken, match="Another session"):
        ask(Count(within=10), late)
    box.busy = False
    assert paid(ask(Count(within=100), late)) == 0  # what was drawn in vain is forgotten


def test_who_comes_second_after_keeping_another_release_is_charged() -> None:
    box = Box()
    ask(Count(within=100), ReleaseCache(box))
    late = ReleaseCache(box)
    ask(Count(within=100, where="age > 50"), late)
    box.busy = True

    # What it kept counts as paid, so the turn must not be free.
    with pytest.raises(EngineFailed, match="Another session") as caught:
        ask(Count(within=10), late)
    assert not isinstance(caught.value, ReleaseOvertaken)


def test_a_kept_path_shows_and_pickles_nothing() -> None:
    import pickle

    kept = GradualRelease()

    assert repr(kept) == "<gradual release>"
    with pytest.raises(TypeError):
        pickle.dumps(kept)


@pytest.mark.parametrize("statistic", [Mean, StandardDeviation])
def test_a_cap_below_what_was_paid_before_looks_again_for_nothing(statistic) -> None:
    cache = ReleaseCache()
    ask(statistic("age", epsilon=1), cache)

    again = ask(statistic("age", within="0.0001%", max_epsilon=0.5), cache)

    assert not again.receipt.outcome.met
    assert paid(again) == 0


def test_a_summary_goes_on_beside_a_dearer_answer_about_its_column() -> None:
    cache = ReleaseCache()
    ask(StandardDeviation("age", epsilon=1), cache)

    assert paid(ask(Summary(["age"], within="0.0001%", max_epsilon=0.5), cache)) == 0
