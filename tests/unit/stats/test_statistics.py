"""Questions from the caller's words to the release."""

import json
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from expost.core import BudgetExceeded, InvalidRequest, Outcome, Receipt
from expost.data import Dataset, col
from expost.noise import SeededBits
from expost.stats import (
    ApproximateBounds,
    ContingencyTable,
    Count,
    CountByPrivateKeys,
    CountDistinct,
    Covariance,
    GroupRelease,
    Histogram,
    Mean,
    Median,
    MostCommon,
    PrivateKeys,
    Quantile,
    Quantiles,
    StandardDeviation,
    Sum,
    Summary,
    TopK,
    Variance,
)

RNG = np.random.default_rng(4)
N = 6000
TABLE = pa.table(
    {
        "age": RNG.integers(0, 100, N),
        "pay": RNG.gamma(2.0, 1000.0, N),
        "city": RNG.choice(["a", "b", "c"], N, p=[0.6, 0.35, 0.05]),
        "who": RNG.integers(0, 1500, N),
    }
)
AGE, PAY = TABLE["age"].to_numpy(), np.clip(TABLE["pay"].to_numpy(), 0, 10_000)
PEOPLE = Dataset(TABLE, bounds={"age": (0, 100), "pay": (0, 10_000)}, categories={"city": ["a", "b", "c"]})


def ask(question, dataset: Dataset = PEOPLE, seed: int = 1):
    plan = question.plan(dataset)
    worst = plan.worst_case
    release = plan.climb(plan.measure(dataset), SeededBits(seed))
    assert release.receipt.bill.within(worst) and release.receipt.bill.within(release.receipt.promise)
    assert Receipt.from_json(release.receipt.to_json()) == release.receipt
    return release


@pytest.mark.parametrize(
    ("question", "exact"),
    [
        (Count(within=30), N),
        (Count(within="5%", max_epsilon=2), N),
        (Count(within="5%", max_epsilon=2, where="age >= 50"), int((AGE >= 50).sum())),
        (Sum("age", within=20_000), int(AGE.sum())),
        (Sum("age", within="5%", max_epsilon=2), int(AGE.sum())),
        (Mean("age", within=2, max_epsilon=5), AGE.mean()),
        (Mean("pay", within="10%", max_epsilon=5), PAY.mean()),
        (Mean(col("age") * 2, within=4, max_epsilon=5, bounds=(0, 200)), 2 * AGE.mean()),
        (Variance("age", within="10%", max_epsilon=5), AGE.var()),
        (StandardDeviation("age", within=2, max_epsilon=5), AGE.std()),
    ],
    ids=lambda each: getattr(each, "question", ""),
)
def test_an_accuracy_is_reached_and_certified(question, exact) -> None:
    release = ask(question)

    target = release.receipt.target
    allowed = float(target.tolerance) * (abs(exact) if target.measure.value == "relative error" else 1)
    assert release.receipt.outcome is Outcome.CERTIFIED
    assert abs(release.value - exact) <= allowed
    assert release.interval[0] <= exact <= release.interval[1]


def test_an_epsilon_gives_a_fixed_price_and_the_accuracy_it_buys() -> None:
    release = ask(Count(epsilon=0.5))

    assert release.receipt.outcome is Outcome.FIXED
    assert release.receipt.bill.amounts()["epsilon"] == Fraction(1, 2)
    assert release.receipt.achieved == release.interval[1] - release.value


def test_relative_accuracy_stops_far_below_the_cap() -> None:
    assert float(ask(Count(within="5%", max_epsilon=10)).receipt.bill.amounts()["epsilon"]) < 0.03


def test_an_absolute_accuracy_is_priced_before_and_refused_above_the_cap() -> None:
    with pytest.raises(BudgetExceeded, match="above max_epsilon"):
        Count(within=1, max_epsilon=0.1).plan(PEOPLE)


def test_a_target_out_of_reach_is_flagged_with_a_wide_interval() -> None:
    release = ask(Count(within="1%", max_epsilon=0.001))

    assert release.receipt.outcome is Outcome.NOT_MET
    assert release.interval[0] <= N <= release.interval[1]


@pytest.mark.parametrize("question", [Count, lambda **terms: Mean("age", **terms)], ids=["count", "mean"])
def test_groups_stop_on_their_own_rungs_and_are_billed_the_highest(question) -> None:
    release = ask(question(within="10%", max_epsilon=8, by="city"))
    rows = release.value.rows

    assert [row.label for row in rows] == ["a", "b", "c"]
    assert all(row.met for row in rows)
    assert len({row.epsilon for row in rows}) > 1
    pilot = release.receipt.breakdown["pilot"]
    assert release.receipt.bill.amounts()["epsilon"] == pilot + max(row.epsilon for row in rows)


def test_a_group_out_of_reach_is_flagged_and_does_not_drag_the_others_up() -> None:
    small = Dataset(TABLE, categories={"city": ["a", "b", "nowhere"]})
    release = ask(Count(within="5%", max_epsilon=1, by="city"), small)

    assert [row.met for row in release.value.rows] == [True, True, False]
    assert release.receipt.terms["groups not met"] == ["nowhere"]
    assert release.value.rows[2].low <= 0 <= release.value.rows[2].high
    assert release.receipt.epsilon < 0.5


def test_tables_leave_in_three_forms() -> None:
    release = ask(ContingencyTable(["city", col("age") >= 50], epsilon=1))

    assert release.to_arrow().column_names == ["city", "(age >= 50)", "value", "low", "high", "epsilon", "met"]
    assert len(release.to_pandas()) == release.to_polars().height == 6
    assert isinstance(release, GroupRelease)
    assert abs(release.value["a", True] - int(((TABLE["city"].to_numpy() == "a") & (AGE >= 50)).sum())) < 30


def test_histograms_agree_with_numpy_up_to_the_error_asked_for() -> None:
    edges = [0, 18, 40, 65, 100]
    release = ask(Histogram("age", edges=edges, within=40))

    expected = np.histogram(AGE, edges)[0]
    assert np.abs(np.array(list(release.value.values())) - expected).max() <= 40


def test_quantiles_and_the_median() -> None:
    assert abs(ask(Median("age", rank_within=300)).value - np.median(AGE)) <= 10
    assert abs(ask(Quantile("age", 0.9, epsilon=1)).value - np.quantile(AGE, 0.9)) <= 5
    assert abs(ask(Median("age", epsilon=5, method="smooth")).value - np.median(AGE)) <= 30
    several = ask(Quantiles("age", [0.25, 0.5, 0.75], within=8, max_epsilon=8, levels=2))
    for share, value in several.value.items():
        assert abs(value - np.quantile(AGE, share)) <= 8
    grouped = ask(Quantiles("age", [0.5], epsilon=5, by="city", levels=2))
    assert {label[0] for label in grouped.value} == {"a", "b", "c"}


def test_selection_finds_the_common_ones() -> None:
    assert ask(MostCommon("city", epsilon=1)).value == "a"
    assert ask(MostCommon("city", within=500, method="exponential")).value == "a"
    assert list(ask(TopK("city", 2, within=100)).value) == ["a", "b"]


def test_units_are_counted_once() -> None:
    by_person = Dataset(TABLE, unit="who", categories={"city": ["a", "b", "c"]}, max_groups_per_unit=2)
    release = ask(CountDistinct(within=40), by_person)

    assert abs(release.value - len(np.unique(TABLE["who"].to_numpy()))) <= 40
    assert str(release.receipt.unit) == "all rows of one who"


def test_bounds_can_be_found_privately() -> None:
    low, high = ask(ApproximateBounds("pay", epsilon=1)).value

    assert low <= 300 and 2000 <= high <= 32_768
    release = ask(Mean("pay", bounds="private", epsilon=2))
    assert set(release.receipt.breakdown) == {"bounds", "question"}
    assert abs(release.value - PAY.mean()) < 300
    assert release.receipt.breakdown["bounds"] == Fraction(1, 5)
    chosen = Mean("pay", bounds="private", bounds_share=0.3, within=300, max_epsilon=2)
    assert "(for 30 % of epsilon)" in chosen.question
    assert ask(chosen).receipt.breakdown["bounds"] == Fraction(3, 5)
    with pytest.raises(BudgetExceeded):  # not even bounds of (0, 1) would do
        ask(Sum("pay", bounds="private", within=1, max_epsilon=0.01))
    failed = ask(Sum("pay", bounds="private", within=50, max_epsilon=0.1))
    assert failed.value is None and failed.receipt.outcome is Outcome.NOT_MET


def test_private_keys_show_only_common_groups() -> None:
    names = ["common"] * 500 + [f"rare {k}" for k in range(50)]
    release = ask(CountByPrivateKeys("name", epsilon=1, delta=1e-6), Dataset(pa.table({"name": names})))

    assert list(release.value) == ["common"]
    assert release.receipt.bill.amounts()["delta"] == Fraction(1, 10**6)
    assert "rare" not in release.receipt.to_json()


def test_a_summary_pays_each_column_once() -> None:
    release = ask(Summary(["age", "pay"], within="10%", max_epsilon=5))

    assert release.value["age", "mean"] == pytest.approx(AGE.mean(), rel=0.1)
    assert release.value["pay", "standard deviation"] == pytest.approx(PAY.std(), rel=0.1)
    assert sum(release.receipt.breakdown.values()) == release.receipt.bill.amounts()["epsilon"]


def test_a_covariance_is_symmetric_and_near() -> None:
    release = ask(Covariance(["age", "pay"], epsilon=5))

    np.testing.assert_allclose(release.value, release.value.T)
    assert release.value[0, 0] == pytest.approx(AGE.var(), rel=0.2)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Count(),
        lambda: Count(within=1, epsilon=1),
        lambda: Count(within="5%"),
        lambda: Count(within="500%", max_epsilon=1),
        lambda: Count(epsilon=-1),
        lambda: Count(epsilon=1, confidence=1),
        lambda: Covariance(["age"], epsilon=1),
        lambda: TopK("city", 0, epsilon=1),
        lambda: Quantile("age", 1.5, epsilon=1),
        lambda: Quantile("age", method="magic", epsilon=1),
        lambda: Quantile("age", rank_within="5%", max_epsilon=1),
        lambda: Quantile("age", rank_within=5, within=3),
        lambda: Quantile("age", rank_within=5, epsilon=1),
        lambda: Quantile("age", within=5, method="smooth", max_epsilon=1),
        lambda: Summary("age", epsilon=1),
        lambda: MostCommon("city", within="5%", max_epsilon=1),
        lambda: CountByPrivateKeys("city", within="5%", delta=1e-6),
        lambda: Sum("age", by=PrivateKeys("city", epsilon=1, delta=1e-6), within=1),
        lambda: Mean("age", by=PrivateKeys("city", epsilon=1, delta=1e-6), bounds="private", epsilon=1),
        lambda: Mean("age", bounds="private", within=1),
    ],
)
def test_words_that_make_no_sense_are_refused_at_once(build) -> None:
    with pytest.raises(InvalidRequest):
        build()


@pytest.mark.parametrize(
    "question",
    [
        Count(epsilon=1, where="nowhere > 1"),
        Count(epsilon=1, where="age + 1"),
        Count(epsilon=1, by="age"),
        Mean("city", epsilon=1),
        Mean("who", epsilon=1),
        Mean("age", within=1),
        Histogram("city", edges=[0, 1], epsilon=1),
    ],
    ids=lambda question: question.question,
)
def test_what_the_description_cannot_answer_is_refused_before_rows_are_read(question) -> None:
    with pytest.raises(InvalidRequest):
        question.plan(PEOPLE)


def test_a_public_number_of_rows_is_no_question() -> None:
    public = Dataset(TABLE, adjacency="replace-one", rows=N)

    with pytest.raises(InvalidRequest, match="is public"):
        Count(epsilon=1).plan(public)
    assert ask(Count(epsilon=1, where="age > 50"), public).receipt.adjacency.public_size


def test_a_receipt_holds_public_facts_only() -> None:
    release = ask(Count(within="5%", max_epsilon=1))

    assert str(N) not in json.dumps({k: v for k, v in release.receipt.to_dict().items() if k != "achieved"})


@pytest.mark.parametrize(
    "terms",
    [
        {"epsilon": float("nan")},
        {"epsilon": "abc"},
        {"epsilon": 1, "confidence": "much"},
        {"epsilon": 1, "confidence": float("inf")},
        {"within": "5%", "max_epsilon": []},
        {"epsilon": 1, "bounds": (0, 1)},
    ],
)
def test_a_summary_refuses_terms_of_the_wrong_kind(terms):
    with pytest.raises(InvalidRequest):
        Summary(["pay", "age"], **terms)


def test_bounds_may_be_an_array():
    assert Mean("pay", bounds=np.array([0, 1]), epsilon=1).question == "mean of pay"


@pytest.mark.parametrize("question", [Count(epsilon=10_000), Count(epsilon=1e14), Mean("age", epsilon=1e14)])
def test_a_level_that_leaves_no_noise_is_refused_before_it_is_paid(question):
    people = Dataset(pa.table({"age": [1.0, 2.0]}), bounds={"age": (0, 10)})

    with pytest.raises(InvalidRequest, match="any noise"):
        question.plan(people)


@pytest.mark.parametrize(
    "question", [Count(within="1%", max_epsilon=10**6), Mean("age", within="1%", max_epsilon=10**6)]
)
def test_a_cap_beyond_all_need_does_not_break_a_climb(question):
    people = Dataset(pa.table({"age": [1, 2] * 500}), bounds={"age": (0, 10)})
    plan = question.plan(people)

    release = plan.climb(plan.measure(people), SeededBits(1))

    assert release.receipt.outcome.met
    assert release.receipt.bill.epsilon < 1_000


def test_a_summary_refuses_private_bounds() -> None:
    with pytest.raises(InvalidRequest, match="cannot find bounds privately"):
        Summary(["age"], bounds={"age": "private"}, epsilon=1)
