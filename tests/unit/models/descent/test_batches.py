"""Batches depend on public numbers and coins alone, and say what they cost."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from expost.accounting import GaussianEvent, PoissonSampled, Repeat
from expost.core import InvalidRequest
from expost.models.descent.training_schedule import Disjoint, Full, Poisson, choose_batches
from expost.noise import SeededBits


def test_poisson_batches_vary_in_size_and_are_divided_by_the_expected_one() -> None:
    batches = Poisson(Fraction(1, 50), 1000)

    sizes = [len(index) for index in itertools.islice(batches.draw_batch(1000, SeededBits(1)), 2000)]

    assert abs(np.mean(sizes) - 20) < 0.5
    assert abs(np.var(sizes) / (20 * 0.98) - 1) < 0.15
    assert batches.expected_size == 20


@pytest.mark.parametrize("rows", [7, 1000, 300_000])
def test_every_row_has_its_own_coin_at_every_step(rows: int) -> None:
    steps = 400 if rows < 10_000 else 5
    drawn = itertools.islice(Poisson(Fraction(1, 4), rows).draw_batch(rows, SeededBits(3)), steps)
    inside = np.zeros((steps, rows), bool)
    for step, index in enumerate(drawn):
        assert (np.diff(index) > 0).all()
        inside[step, index] = True

    spread = 5 * np.sqrt(3 / 16)
    assert (np.abs(inside.mean(axis=1) - 0.25) < spread / np.sqrt(rows)).all()
    if steps == 400:
        assert (np.abs(inside.mean(axis=0) - 0.25) < spread / np.sqrt(steps)).all()
    both = (inside[1:] & inside[:-1]).mean()
    assert abs(both - 1 / 16) < 5 * np.sqrt(1 / 16 / (inside.size - rows))


def test_the_true_number_of_rows_changes_no_public_number() -> None:
    batches = Poisson(Fraction(1, 50), 1000)

    sizes = [len(index) for index in itertools.islice(batches.draw_batch(3000, SeededBits(1)), 500)]

    assert abs(np.mean(sizes) - 60) < 2
    assert batches.expected_size == 20
    assert batches.build_event(Fraction(2), 5) == Repeat(PoissonSampled(Fraction(1, 50), GaussianEvent(2)), 5)


def test_an_empty_table_still_gives_batches() -> None:
    for batches in (Poisson(Fraction(1, 2), 10), Disjoint(3, 10)):
        first = next(batches.draw_batch(0, SeededBits(1)))
        assert len(first) == 0


def test_a_pass_of_disjoint_batches_holds_every_row_once() -> None:
    batches = Disjoint(7, 100)
    drawn = batches.draw_batch(100, SeededBits(2))

    for _ in range(3):
        one_pass = np.concatenate([next(drawn) for _ in range(7)])
        assert sorted(one_pass.tolist()) == list(range(100))


def test_disjoint_batches_are_dealt_by_independent_dice() -> None:
    drawn = Disjoint(4, 100).draw_batch(100, SeededBits(3))

    sizes = np.array([[len(next(drawn)) for _ in range(4)] for _ in range(1500)])

    assert abs(sizes.mean() - 25) < 0.2
    assert abs(sizes.var() / (100 * 0.25 * 0.75) - 1) < 0.1  # binomial: not parts of equal size, which would need n


@pytest.mark.parametrize(("steps", "passes"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_a_pass_once_begun_is_charged_whole(steps: int, passes: int) -> None:
    assert Disjoint(4, 100).build_event(Fraction(2), steps) == Repeat(GaussianEvent(2), passes)


def test_full_batches_are_not_sampled() -> None:
    assert Full(10).build_event(Fraction(2), 3) == Repeat(GaussianEvent(2), 3)
    assert next(Full(10).draw_batch(12, SeededBits(1))) == slice(None)
    assert Poisson(Fraction(1), 10).build_event(Fraction(2), 3) == Full(10).build_event(Fraction(2), 3)


def test_names_lead_to_batches() -> None:
    assert choose_batches("poisson", rows=100, batch_size=5) == Poisson(Fraction(1, 20), 100)
    assert choose_batches("disjoint", rows=100, batch_size=30) == Disjoint(4, 100)
    assert choose_batches("full", rows=100, batch_size=100) == Full(100)
    with pytest.raises(InvalidRequest, match="batches"):
        choose_batches("shuffled", rows=100, batch_size=5)
    with pytest.raises(InvalidRequest, match="batch_size"):
        choose_batches("poisson", rows=100, batch_size=101)
