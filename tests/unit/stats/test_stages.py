"""Climbs reserve their rungs before they draw them, and end where no more can be reserved."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expost import Dataset, Session, stats
from expost.accuracy.interval import relative_ladder, split_cap
from expost.core import HoldStages, PlanContext, PureLoss, Receipt, TargetNotMet, epsilon
from expost.core.hold_stages import FIRST_STAGE
from expost.noise import DiscreteLaplacePath
from expost.noise.bits import SeededBits

ROWS = 4000
TABLE = pa.table(
    {
        "age": np.arange(ROWS) % 90,
        "pay": (np.arange(ROWS) * 7) % 1000,
        "city": np.array(["Oslo", "Rome", "Bern"])[np.arange(ROWS) % 7 % 3],
    }
)
QUERIES = {
    "count": lambda cap: stats.Count(within="5%", max_epsilon=cap),
    "counts": lambda cap: stats.Count(by="city", within="5%", max_epsilon=cap),
    "sum": lambda cap: stats.Sum("age", within="5%", max_epsilon=cap),
    "mean": lambda cap: stats.Mean("age", within=3, max_epsilon=cap),
    "means": lambda cap: stats.Mean("age", by="city", within=3, max_epsilon=cap),
    "deviation": lambda cap: stats.StandardDeviation("pay", within="20%", max_epsilon=cap),
    "summary": lambda cap: stats.Summary(["age", "pay"], within="20%", max_epsilon=cap),
    "bounded": lambda cap: stats.Mean("pay", bounds="private", within="40%", max_epsilon=cap),
}


def people():
    bounds = {"age": (0, 90), "pay": (0, 1000)}
    return Dataset(TABLE, name="people", bounds=bounds, categories={"city": ["Bern", "Oslo", "Rome"]})


class Book:
    """Holds what is asked for up to a limit, twice the last stage at a time, and remembers."""

    def __init__(self, first, limit):
        self.held, self.limit, self.stages = first, limit, 1

    def cover(self, amount):
        if amount > self.held and amount <= self.limit:
            self.held, self.stages = min(max(2 * self.held, amount), self.limit), self.stages + 1
        return self.held


def climb(query, limit=None, seed=1):
    """Climb once, with a book that gives at most ``limit`` of the cap, and return the release and the book."""
    dataset = people()
    plan = query.plan(dataset, PlanContext())
    book = Book(plan.first_stage, plan.worst_case.epsilon if limit is None else limit)
    staged = plan.in_stages(HoldStages(book.cover))
    return staged.climb(staged.measure(dataset), SeededBits(seed)), book


@pytest.mark.parametrize("name", QUERIES)
def test_stages_change_no_answer(name):
    dataset, query = people(), QUERIES[name](2)
    plan = query.plan(dataset, PlanContext())
    whole = plan.climb(plan.measure(dataset), SeededBits(1))
    staged, book = climb(query)

    assert staged.receipt == whole.receipt
    assert str(staged.value) == str(whole.value)
    assert staged.receipt.bill.epsilon <= book.held


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("part", [0, Fraction(1, 8), Fraction(1, 3)])
def test_a_climb_that_may_reserve_no_more_bills_no_more(name, part):
    query = QUERIES[name](Fraction(1, 100))  # out of reach, so it climbs as far as it may
    cap = query.plan(people(), PlanContext()).worst_case.epsilon
    release, book = climb(query, limit=cap * part)

    assert release.receipt.bill.epsilon <= book.held < cap
    assert book.held <= max(cap * part, query.plan(people(), PlanContext()).first_stage)


@pytest.mark.parametrize("name", ["count", "counts", "sum", "mean", "means", "deviation"])
def test_nothing_is_drawn_above_what_is_held(name, monkeypatch):
    """Every rung of every path, the pilot's included, is within the hold when it is read."""
    book, drawn = Book(Fraction(0), Fraction(0)), []
    at, block = DiscreteLaplacePath.at, DiscreteLaplacePath.block

    def watched_at(path, rung):
        drawn.append((path.ladder[rung], book.held))
        return at(path, rung)

    def watched_block(path, start, stop):
        drawn.append((path.ladder[stop - 1], book.held))
        return block(path, start, stop)

    monkeypatch.setattr(DiscreteLaplacePath, "at", watched_at)
    monkeypatch.setattr(DiscreteLaplacePath, "block", watched_block)
    dataset, query = people(), QUERIES[name](Fraction(1, 2))
    plan = query.plan(dataset, PlanContext())
    book.held, book.limit = plan.first_stage, plan.worst_case.epsilon
    staged = plan.in_stages(HoldStages(book.cover))
    staged.climb(staged.measure(dataset), SeededBits(1))

    assert drawn
    assert all(level <= held for level, held in drawn)


@given(
    cap=st.fractions(Fraction(1, 10**6), Fraction(1000)).filter(bool),
    sensitivity=st.fractions(Fraction(1, 100), Fraction(10**6)),
)
def test_the_first_stage_covers_every_pilot(cap, sensitivity):
    pilot, rest = split_cap(cap)

    assert pilot + relative_ladder(sensitivity, rest)[0] <= cap * FIRST_STAGE


def test_a_session_holds_a_stage_and_not_the_cap(monkeypatch):
    session, held = Session(people(), budget=1), []
    extend, settle = type(session.ledger).extend, type(session.ledger).settle

    def watch(ledger, hold, more, *others, **terms):
        held.append(ledger.spent("dataset:people").epsilon)
        return (settle if isinstance(more, Receipt) else extend)(ledger, hold, more, *others, **terms)

    monkeypatch.setattr(type(session.ledger), "extend", watch)
    monkeypatch.setattr(type(session.ledger), "settle", watch)
    release = session.count(within="2%", max_epsilon=0.8)

    assert held[0] == Fraction(8, 10) / 16
    assert held[-1] < max(4 * release.receipt.bill.epsilon, Fraction(1, 10))


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_climb_leaves_its_stage_charged_and_says_so(failure, monkeypatch):
    session = Session(people(), budget=1)

    def stop(*_):
        raise failure

    monkeypatch.setattr(DiscreteLaplacePath, "block", stop)
    with pytest.raises((KeyboardInterrupt, Exception), match=r"epsilon 0\.05.* stays charged"):
        session.count(within="2%", max_epsilon=0.8)
    assert session.spent() == PureLoss(Fraction(8, 10) / 16)


def test_a_climb_ends_where_others_have_taken_the_rest():
    # Seeded: in one of a hundred runs the noise makes the target look out of reach before any stage is asked for.
    session = Session(people(), budget=1, bits=SeededBits(1), simulation=True)
    book = session.ledger
    extend = type(book).extend

    def taken(ledger, hold, worst_case):
        left = ledger.remaining("dataset:people")
        ledger.hold(["dataset:people"], left, question="another")
        return extend(ledger, hold, worst_case)

    book.extend = taken.__get__(book)
    with pytest.raises(TargetNotMet) as caught:
        session.count(within="0.1%", max_epsilon=0.8)
    receipt = caught.value.release.receipt

    assert receipt.bill.epsilon <= Fraction(8, 10) / 16
    assert "no more than epsilon 0.05" in receipt.terms["not reserved"]
    assert "no more than epsilon 0.05" in str(caught.value)
    assert session.spent().within(epsilon(1))
