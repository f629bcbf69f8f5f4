"""Sums of real columns: intervals include the rounding, and the rounding is a small part of them."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from expost.core import InvalidRequest, Outcome, PlanContext, unseal
from expost.data import Clamp, Dataset
from expost.noise import SeededBits
from expost.stats import Mean, ReleaseCache, Sum
from expost.stats.column_statistic import refine_clamp, rounding_of_rows
from expost.stats.reader import CombinationReader


def worst_rows(clamp: Clamp, count: int) -> np.ndarray:
    """Values just below the middle of two steps, all rounded in one direction."""
    return np.full(count, float(clamp.low + clamp.step * Fraction(1499, 1000)))


@pytest.mark.parametrize("bounds", [(0, 1), (-0.1, 0.7), (1e6, 1e6 + 3), (-1e9, 1e-3)])
@pytest.mark.parametrize("unit", ["row", "who"])
def test_rounding_stays_within_its_bound(bounds, unit: str) -> None:
    rng = np.random.default_rng(0)
    count = 5_000
    limits = {} if unit == "row" else {"unit": "who", "max_rows_per_unit": 1}
    clamp = Clamp.of(bounds)
    for values in (rng.uniform(*bounds, count), worst_rows(clamp, count), rng.normal(0, 1, count) * 1e9):
        table = pa.table({"x": values, "who": np.arange(count)})
        data = Dataset(table, bounds={"x": bounds}, adjacency="replace-one", rows=count, **limits)
        question = Sum("x", epsilon=1)
        plan = question.plan(data)
        design = question.design(data)
        exact = int(unseal(plan.measure(data))[0]) * design.form.unit
        low, high = clamp.low, clamp.high
        truth = sum((min(max(Fraction(value), low), high) for value in values.tolist()), Fraction(0))

        assert abs(exact - truth) <= design.reader.slack
        assert design.reader.slack <= count * (high - low) / 2**30


def test_without_a_public_number_of_rows_the_bound_is_a_small_part_of_the_range() -> None:
    rows = Dataset(pa.table({"x": [0.5]}), bounds={"x": (0, 1)})
    units = Dataset(pa.table({"x": [0.5], "who": [1]}), unit="who", max_rows_per_unit=3, bounds={"x": (0, 1)})

    for bounds in [(0, 1), (-0.1, 0.7), (0, 0.999999999)]:
        unit, width = Clamp.of(bounds), Fraction(str(bounds[1])) - Fraction(str(bounds[0]))
        assert rounding_of_rows(unit, refine_clamp(unit, rows), rows) < width / 250
        assert rounding_of_rows(unit, refine_clamp(unit, units), units) < width / 3
        assert refine_clamp(unit, rows).steps < 2**38 and refine_clamp(unit, units).steps < 2**32
    whole = Clamp.of((0, 9), whole=True)
    assert rounding_of_rows(whole, refine_clamp(whole, rows), rows) == 0


def test_totals_on_the_fine_grid_do_not_depend_on_chunks() -> None:
    values = np.random.default_rng(1).uniform(0, 1, 300_000)
    whole = pa.table({"x": values, "g": ["a", "b"] * 150_000})
    parts = pa.concat_tables([whole.slice(start, 10_007) for start in range(0, 300_000, 10_007)])
    question = Sum("x", epsilon=1, by="g")
    found = []
    for table in (whole, parts, whole.take(np.random.default_rng(2).permutation(300_000))):
        data = Dataset(table, bounds={"x": (0, 1)}, categories={"g": ["a", "b"]})
        plan = question.plan(data)
        found.append([int(each) for each in unseal(plan.measure(data))])

    assert found[0] == found[1] == found[2]


def ask(question, data, cache=None, seed: int = 1):
    plan = question.plan(data, PlanContext(cache))
    return plan.climb(plan.measure(data), SeededBits(seed))


@pytest.mark.parametrize("within", ["1%", "20%", 30])
def test_a_target_is_certified_for_the_sum_itself(within) -> None:
    values = np.random.default_rng(3).uniform(0, 1, 40_000)
    data = Dataset(pa.table({"x": values}), bounds={"x": (0, 1)})
    release = ask(Sum("x", within=within, max_epsilon=5), data)

    assert release.receipt.outcome is Outcome.CERTIFIED
    allowed = 30 if within == 30 else float(within.strip("%")) / 100 * values.sum()
    assert abs(release.value - values.sum()) <= allowed
    assert release.interval[0] <= values.sum() <= release.interval[1]
    assert release.receipt.achieved <= (30 if within == 30 else float(within.strip("%")) / 100) * (1 + 1e-9)


def test_an_error_below_the_rounding_is_refused() -> None:
    data = Dataset(pa.table({"x": [0.5]}), bounds={"x": (0, 1)})

    with pytest.raises(InvalidRequest, match="rounding"):
        Sum("x", within=1e-3).plan(data)


def test_a_sum_read_off_the_path_of_a_mean_includes_the_rounding_of_its_rows() -> None:
    clamp = Clamp.of((0, 1))
    values = worst_rows(clamp, 200_000)  # 0.499 of a step each, always downwards
    data = Dataset(pa.table({"x": values}), bounds={"x": (0, 1)})
    cache = ReleaseCache()
    ask(Mean("x", epsilon=20), data, cache)
    release = ask(Sum("x", within=2, max_epsilon=20), data, cache)

    assert release.receipt.epsilon == 0 and release.interval[0] <= values.sum() <= release.interval[1]


def test_a_combination_counts_the_rows_it_widens_for() -> None:
    reader = CombinationReader((Fraction(1), Fraction(0)), rows=(Fraction(1), Fraction(1)), rounding=0.5)
    noisy = np.array([[500, -500], [500, -500]])

    wide, narrow = (each.read(noisy, 1.0, 0.05) for each in (reader, CombinationReader(reader.weights)))
    assert 500 < (wide.high - narrow.high)[0] < 510 and (wide.high - narrow.high)[1] < 2
