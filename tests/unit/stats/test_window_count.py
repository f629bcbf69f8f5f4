"""Running totals and moving windows: every window is a sum of few runs, within its radius, at a price known before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from expost import Dataset, InvalidRequest, Session, stats
from expost.accuracy.weighted_noise import equal_sum_factors
from expost.core import unseal
from expost.data.sealed_form import RunForm
from expost.data.tally import PowerSums
from expost.noise import SeededBits
from expost.stats.window_count import WindowReader, choose_runs


@pytest.mark.parametrize(("leaves", "branches"), [(2, 2), (7, 2), (12, 4), (100, 3), (64, 8), (24, 24), (25, 5)])
def test_every_interval_is_a_sum_of_disjoint_runs(leaves: int, branches: int) -> None:
    form = RunForm(leaves, branches)
    rows = np.random.default_rng(leaves).integers(0, 9, 2 * leaves)
    empty = np.zeros((0, 2 * leaves), int)
    runs = form.coordinates(PowerSums(rows, empty, empty))
    assert runs.shape == (form.size, 2)
    starts, ends = np.triu_indices(leaves + 1, 1)
    before = np.concatenate([np.zeros((2, 1)), rows.reshape(2, leaves).cumsum(axis=1)], axis=1)
    assert np.array_equal(form.sum_runs(runs, starts, ends), (before[:, ends] - before[:, starts]).T)
    # Two ends per length, each shorter than a longer run; the longest length has no longer one.
    assert form.count_runs(starts, ends).max() <= 2 * (branches - 1) * (form.levels - 1) + branches


def test_a_row_adds_one_to_one_run_of_each_length() -> None:
    form = RunForm(30, 3)
    empty = np.zeros((0, 30), int)
    for leaf in range(30):
        runs = form.coordinates(PowerSums(np.eye(30, dtype=int)[leaf], empty, empty))
        assert runs.sum() == form.levels == form.row_size


@pytest.mark.parametrize("count", [1, 2, 5, 30])
@pytest.mark.parametrize("scale", [0.8, 4.0, 300.0])
def test_sums_of_equal_noises_stay_within_their_radius(count: int, scale: float) -> None:
    level, runs = 0.05, 40_000
    random = np.random.default_rng([count, int(10 * scale)])
    parameter = 1 - np.exp(-1 / scale)
    noise = random.negative_binomial(count, parameter, (2, runs)).astype(float)  # sums of geometric variables
    sizes = np.abs(noise[0] - noise[1])
    exact, chernoff = equal_sum_factors(count, level)
    radius = min(scale * exact + count, scale * chernoff)
    limit = level * runs + 5 * np.sqrt(level * runs)
    assert (sizes > radius).sum() <= limit
    if scale == 300.0:  # where the lattice does not matter the radius is exact: a twentieth less would be noticed
        assert (sizes > 0.95 * radius).sum() > limit


def _visits(rows: int) -> Dataset:
    random = np.random.default_rng(5)
    when = np.datetime64("2024-01-01", "us") + (366 * 86_400 * random.beta(2, 3, rows)).astype("m8[s]")
    table = pa.table({"when": pa.array(when), "city": random.choice(["Oslo", "Rome"], rows), "x": random.random(rows)})
    bounds = {"when": ("2024-01-01", "2024-12-31"), "x": (0, 1)}
    return Dataset(table, name="visits", bounds=bounds, categories={"city": ["Oslo", "Rome"]})


@pytest.mark.parametrize("window", [None, 1, 7, 50])
@pytest.mark.parametrize("by", [None, "city"])
def test_all_windows_are_covered_at_once_and_within_the_error_asked_for(window: int | None, by: str | None) -> None:
    data, terms = _visits(4000), {"every": "week", "within": 60, "confidence": 0.8, "by": by}
    query: Any = stats.Cumulative("when", **terms) if window is None else stats.Moving("when", window, **terms)
    plan = query.plan(data)
    sealed = plan.measure(data)
    form, reader = plan.design.form, plan.design.reader
    exact = form.sum_runs(unseal(sealed).reshape(plan.design.cells, -1).T, *reader.ends).T.ravel()
    missed = 0
    for seed in range(100):
        rows = plan.climb(sealed, SeededBits(seed)).value.rows
        low, high, value = (np.array([getattr(row, name) for row in rows]) for name in ("low", "high", "value"))
        assert np.maximum(high - value, value - low).max() <= 60 + 1e-9
        missed += not ((low <= exact) & (exact <= high)).all()
    assert missed <= 43  # 20 % of 100; more have a probability below 1e-6


def test_a_release_of_running_totals_has_the_moving_windows_too() -> None:
    session = Session(_visits(3000), budget=50)
    paid = session.cumulative("when", every="day", epsilon=2).receipt
    moving = session.moving("when", 7, every="day", within=200)
    assert paid.epsilon == 2 and moving.receipt.epsilon == 0
    finer = session.moving("when", 7, every="day", within=10)  # windows alone need less than totals do
    assert finer.receipt.epsilon > 0
    assert [str(label) for label in list(moving.value)[:2]] == ["2024-01-07", "2024-01-08"]


def test_the_price_of_windows_rises_with_accuracy_and_is_known_before() -> None:
    data = _visits(100)
    for window in (None, 3, 12):
        prices = []
        for within in (10, 30, 100, 300, 1000):
            terms = {"every": "week", "within": within}
            query: Any = stats.Cumulative("when", **terms) if window is None else stats.Moving("when", window, **terms)
            prices.append(query.plan(data).worst_case.epsilon)
        assert prices == sorted(prices, reverse=True)


@pytest.mark.parametrize("leaves", [10, 60, 365, 2000])
def test_the_runs_chosen_have_less_noise_than_leaves_alone_and_than_a_binary_tree(leaves: int) -> None:
    level = 0.05
    chosen = choose_runs(leaves, None)

    def radius(form: RunForm) -> float:
        return float(WindowReader(form, None).find_radii(1000.0 * form.levels, level).max())

    assert radius(chosen) <= min(radius(RunForm(leaves, leaves)), radius(RunForm(leaves, 2))) * (1 + 1e-9)
    if leaves >= 365:
        assert radius(chosen) < 0.8 * radius(RunForm(leaves, leaves))


def test_windows_explain_what_cannot_be() -> None:
    data = _visits(10)
    with pytest.raises(InvalidRequest, match="whole number"):
        stats.Moving("when", 0, epsilon=1)
    with pytest.raises(InvalidRequest, match=r"20 to .* bins or periods, got 12"):
        stats.Moving("when", 20, every="month", epsilon=1).plan(data)
    with pytest.raises(InvalidRequest, match=r"2 to .* bins or periods, got 1"):
        stats.Cumulative("x", bins=1, epsilon=1).plan(data)


def test_a_relative_error_of_all_totals_is_reached_by_climbing() -> None:
    plan = stats.Cumulative("x", bins=8, within="20%", max_epsilon=20).plan(_visits(4000))
    release = plan.climb(plan.measure(_visits(4000)), SeededBits(2))
    assert release.receipt.outcome.met and release.receipt.epsilon < 2
    for label, value in release.value.items():
        assert abs(value - 4000 * label) < 0.25 * 4000 * label
