"""Picks in groups: what all of them cost together, by exact laws, and how good each is."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest

from expost.core import Outcome
from expost.data import Dataset
from expost.noise import SeededBits
from expost.stats import Covariance, GroupRelease, Median, MostCommon, Quantile, Quantiles

EPSILON = 1.0
ROWS = 2


def people(adjacency: str, unit: str = "who") -> Dataset:
    table = pa.table({"who": [1, 2], "group": ["g", "h"], "job": ["a", "b"], "age": [1, 2]})
    limits = {"max_rows_per_unit": ROWS} if unit == "who" else {"rows": 2 if adjacency == "replace-one" else None}
    return Dataset(
        table,
        unit=unit,
        adjacency=adjacency,
        bounds={"age": (0, 3)},
        categories={"group": ["g", "h"], "job": ["a", "b"]},
        **limits,
    )


def softmax(rate: float, scores: np.ndarray) -> np.ndarray:
    weights = np.exp(rate * (scores - scores.max()))
    return weights / weights.sum()


def flips(rate: float, scores: np.ndarray) -> np.ndarray:
    """The law of permute-and-flip on two candidates: the best shows heads surely, the other may, then even odds."""
    head = np.exp(-rate * (scores.max() - scores))
    both = head.prod()
    return head * (1 - both / 2) if head.min() == 1 else np.where(head == 1, 1 - head.min() / 2, head.min() / 2)


def contributions(rows: int) -> list[tuple[tuple[int, int], ...]]:
    """All ways for a unit to have at most ``rows`` rows: counts over (group, category)."""
    spread = [each for each in itertools.product(range(rows + 1), repeat=4) if sum(each) <= rows]
    return [((a, b), (c, d)) for a, b, c, d in spread]


def worst_loss(law, adjacency: str, bases) -> float:
    """The largest loss over both groups together, over all units that may come, go or be replaced."""
    units = contributions(ROWS)
    before = units if adjacency == "replace-one" else [((0, 0), (0, 0))]
    worst = 0.0
    for base, old, new in itertools.product(bases, before, units):
        total = 0.0
        for group in range(2):
            left, right = (law(np.array(base[group]) + np.array(unit[group])) for unit in (old, new))
            total += float(np.abs(np.log(left / right)).max())
        worst = max(worst, total)
    return worst


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("method", "law"), [("exponential", softmax), ("permute-and-flip", flips)])
def test_the_most_common_of_all_groups_costs_what_is_billed(adjacency: str, method: str, law) -> None:
    question = MostCommon("job", by="group", epsilon=EPSILON, method=method)
    plan = question.plan(people(adjacency))
    rate = float(plan.mechanism.rate(plan.sensitivity, candidates=2))
    bases = [((0, 0), (0, 0)), ((1, 0), (0, 3)), ((5, 5), (2, 1))]

    worst = worst_loss(lambda scores: law(rate, scores), adjacency, bases)

    assert 0.5 * EPSILON < worst <= EPSILON + 1e-9
    assert worst_loss(lambda scores: law(2 * rate, scores), adjacency, bases) > EPSILON  # half the noise is noticed


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_quantile_of_all_groups_costs_what_is_billed(adjacency: str, share: float) -> None:
    question = Quantile("age", share, by="group", epsilon=EPSILON)
    plan = question.plan(people(adjacency))
    mechanism = plan.mechanism
    rate = float(mechanism.rate(plan.sensitivity))

    def law(counts: np.ndarray) -> np.ndarray:
        records = np.repeat([0, 3], counts)
        points = np.arange(mechanism.bounds.low, mechanism.bounds.high + 1)[:, None]
        a, b = mechanism.probability.numerator, mechanism.probability.denominator
        below, reached = (records < points).sum(axis=1), (records <= points).sum(axis=1)
        distances = np.maximum(np.maximum(b * below - a * len(records), a * len(records) - b * reached), 0)
        return softmax(rate, -distances.astype(float))

    bases = [((0, 0), (0, 0)), ((3, 0), (0, 3)), ((2, 2), (9, 1))]

    assert 0.25 * EPSILON < worst_loss(law, adjacency, bases) <= EPSILON + 1e-9


@pytest.mark.parametrize(("unit", "adjacency", "parts"), [("row", "add-remove", 1), ("row", "replace-one", 2)])
def test_smooth_noise_is_cut_by_the_moves_of_a_unit(unit: str, adjacency: str, parts: int) -> None:
    question = Median("age", by="group", method="smooth", epsilon=1)
    plan = question.plan(people(adjacency, unit))

    assert float(plan.mechanism.epsilon) == 1 / parts


def test_smooth_noise_counts_every_group_of_a_unit() -> None:
    question = Median("age", by="group", method="smooth", epsilon=1)
    plan = question.plan(people("add-remove"))

    assert float(plan.mechanism.epsilon) == 1 / ROWS


# How good the answers are -----------------------------------------------------------------------------------------

RNG = np.random.default_rng(8)
N = 9_000
TABLE = pa.table(
    {
        "age": RNG.integers(0, 100, N),
        "city": RNG.choice(["a", "b", "c"], N, p=[0.6, 0.35, 0.05]),
        "job": RNG.choice(["x", "y"], N, p=[0.7, 0.3]),
        "pay": np.clip(RNG.normal(50, 20, N), 0, 100),
    }
)
TOWN = Dataset(
    TABLE, bounds={"age": (0, 100), "pay": (0, 100)}, categories={"city": ["a", "b", "c", "none"], "job": ["x", "y"]}
)


def ask(question, seed: int = 1):
    plan = question.plan(TOWN)
    release = plan.climb(plan.measure(TOWN), SeededBits(seed))
    assert release.receipt.bill.within(plan.worst_case)
    return release


def test_medians_of_groups_are_within_their_rank_error() -> None:
    release = ask(Median("age", by="city", rank_within=150))

    assert release.receipt.outcome is Outcome.CERTIFIED and release.receipt.achieved <= 150
    frame = TABLE.to_pandas()
    for city in ("a", "b", "c"):
        ages = np.sort(frame.age[frame.city == city].to_numpy())
        rank = np.searchsorted(ages, release.value[city]), np.searchsorted(ages, release.value[city], side="right")
        assert rank[0] - 150 <= len(ages) / 2 <= rank[1] + 150
    assert 0 <= release.value["none"] <= 100  # an empty group has an answer too


def test_groups_cost_a_little_more_than_one_answer_for_holding_all_at_once() -> None:
    alone, groups = Median("age", rank_within=150), Median("age", by=["city", "job"], rank_within=150)
    whole, parts = (question.plan(TOWN).worst_case.amounts()["epsilon"] for question in (alone, groups))

    ratio = parts / whole
    assert 1 < ratio < 1.3


def test_the_most_common_by_several_columns() -> None:
    release = ask(MostCommon("job", by=["city"], within=60))

    assert isinstance(release, GroupRelease)
    assert [release.value[city] for city in ("a", "b", "c")] == ["x", "x", "x"]
    assert release.to_arrow().column_names == ["city", "value", "low", "high", "epsilon", "met"]
    assert release.to_pandas()["low"].isna().all()


def test_covariances_of_groups_stop_on_their_own_rungs_and_the_empty_one_is_flagged() -> None:
    release = ask(Covariance(["age", "pay"], by="city", within=250, max_epsilon=200))

    table = release.to_pandas()
    assert list(table.columns) == ["city", "first", "second", "value", "low", "high", "epsilon", "met"]
    assert len(table) == 4 * 3 and release.receipt.terms["groups not met"] == ["none"]
    assert table[table.city == "a"].epsilon.max() < table[table.city == "c"].epsilon.max()
    for city in ("a", "b", "c"):
        frame = TABLE.to_pandas()
        exact = np.cov(frame[frame.city == city][["age", "pay"]].to_numpy().T, bias=True)
        for (first, second), value in zip([(0, 0), (0, 1), (1, 1)], table[table.city == city].value, strict=True):
            assert abs(value - exact[first, second]) <= 250


def test_quantiles_of_groups_stop_on_their_own_rungs_and_the_empty_one_is_flagged() -> None:
    release = ask(Quantiles("age", [0.25, 0.5], by="city", levels=2, within=12, max_epsilon=100))

    table = release.to_pandas()
    assert set(table[~table.met].city) == {"none"}
    assert table[table.city == "a"].epsilon.max() < table[table.city == "c"].epsilon.max()


def test_error_bounds_of_groups_hold_all_at_once() -> None:
    tie = pa.table({"group": ["g", "h", "i", "j"] * 20, "job": ["a"] * 60 + ["b"] * 20})
    data = Dataset(tie, categories={"group": ["g", "h", "i", "j"], "job": ["a", "b"]})
    missed, runs = 0, 600
    for seed in range(runs):
        question = MostCommon("job", by="group", within=9, confidence=0.8)
        plan = question.plan(data)
        release = plan.climb(plan.measure(data), SeededBits(seed))
        missed += any(value == "b" for value in release.value.values())  # 10 rows short: too many

    assert missed / runs <= 0.2
    assert math.isclose(float(plan.failure_probability), 1 - 0.8**0.25, rel_tol=1e-6)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])  # in the middle of the ties
def test_the_rank_error_of_decimals_with_ties_is_that_among_the_values_themselves(share: float) -> None:
    ages = np.random.default_rng(1).integers(18, 29, 20_000) / 10
    dataset = Dataset(pa.table({"x": ages}), bounds={"x": (0, 12)})
    for seed in range(20):
        question = Quantile("x", share, rank_within=60)
        plan = question.plan(dataset)
        release = plan.climb(plan.measure(dataset), SeededBits(seed))
        below, upto = (ages < release.value).sum(), (ages <= release.value).sum()

        assert max(below - share * len(ages), share * len(ages) - upto) <= 60


def test_the_receipt_of_a_quantile_tells_the_steps_that_values_are_rounded_to() -> None:
    table = pa.table({"x": [1.0, 2.0], "k": [1, 2]})
    terms = {}
    for column in ("x", "k"):
        question = Quantile(column, bounds=(0, 1024), epsilon=1)
        terms[column] = question.plan(Dataset(table)).terms

    assert terms["x"]["values rounded to steps of"] == 1024 / 2**20
    assert "values rounded to steps of" not in terms["k"]
