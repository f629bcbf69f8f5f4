"""Questions by keys nobody has listed: sums, means and counts, relative targets, intervals that hold all at once."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import expost
from expost.core import ApproxLoss, BudgetExceeded, InvalidRequest, Outcome, PureLoss, TargetNotMet
from expost.data import Dataset
from expost.noise import SeededBits
from expost.stats import (
    Count,
    CountByPrivateKeys,
    Covariance,
    GroupRelease,
    Mean,
    Median,
    MostCommon,
    PrivateKeys,
    Quantiles,
    Sum,
)
from expost.stats.private_keys import key_threshold

RNG = np.random.default_rng(1)
CITIES = np.concatenate([np.repeat(["rome", "oslo", "bern"], [6000, 3000, 900]), [f"rare {k}" for k in range(100)]])
PAY = RNG.integers(0, 100, len(CITIES))
TABLE = pa.table(
    {"city": CITIES, "pay": PAY, "job": RNG.choice(["x", "y"], len(CITIES)), "who": RNG.integers(0, 4000, len(CITIES))}
)
PEOPLE = Dataset(TABLE, bounds={"pay": (0, 100)}, categories={"job": ["x", "y"]})
PEOPLE_NAMED = Dataset(TABLE, name="people", bounds={"pay": (0, 100)})
KEYS = {"epsilon": 0.5, "delta": 1e-6}


def ask(question, dataset: Dataset = PEOPLE, seed: int = 1):
    plan = question.plan(dataset)
    release = plan.climb(plan.measure(dataset), SeededBits(seed))
    assert release.receipt.bill.within(plan.worst_case)
    return release


def test_keys_alone_are_those_that_enough_rows_have() -> None:
    release = ask(PrivateKeys("city", **KEYS))

    assert release.value == ("bern", "oslo", "rome")
    assert release.receipt.bill == ApproxLoss(Fraction(1, 2), Fraction(1, 10**6))
    assert release.receipt.terms["keys shown"] == 3 and "rare" not in release.receipt.to_json()


@pytest.mark.parametrize(
    ("build", "exact"),
    [
        (lambda by: Count(within="5%", max_epsilon=1, by=by), lambda pay: len(pay)),
        (lambda by: Count(within=60, max_epsilon=1, by=by), lambda pay: len(pay)),
        (lambda by: Sum("pay", within="5%", max_epsilon=1, by=by), np.sum),
        (lambda by: Mean("pay", within="5%", max_epsilon=2, by=by), np.mean),
    ],
    ids=["counts, relative", "counts, absolute", "sums", "means"],
)
def test_targets_are_reached_for_the_groups_shown(build, exact) -> None:
    release = ask(build(PrivateKeys("city", **KEYS)), seed=2)

    assert isinstance(release, GroupRelease) and release.receipt.outcome is Outcome.CERTIFIED
    assert set(release.receipt.breakdown) == {"keys", "question"}
    assert release.receipt.bill.amounts()["delta"] == Fraction(1, 10**6)
    assert release.receipt.terms["keys of city"]["paid"].startswith("epsilon 0.5, delta")
    target = release.receipt.target
    for row in release.value.rows:
        truth = float(exact(PAY[row.label == CITIES]))
        allowed = float(target.tolerance) * (truth if target.measure.value == "relative error" else 1)
        assert row.met and abs(row.value - truth) <= allowed and row.low <= truth <= row.high


@pytest.mark.parametrize(
    "build",
    [
        lambda by: Median("pay", epsilon=1, by=by),
        lambda by: MostCommon("job", epsilon=1, by=by),
        lambda by: Quantiles("pay", [0.5], epsilon=1, levels=1, by=by),
        lambda by: Covariance(["pay", "who"], bounds=[None, (0, 4000)], epsilon=1, by=by),
    ],
    ids=["median", "most common", "quantiles", "covariance"],
)
def test_every_grouped_question_takes_private_keys_beside_public_ones(build) -> None:
    release = ask(build([PrivateKeys("city", **KEYS), "job"]))

    assert {label[:2] for label in release.value} == {(c, j) for c in ("rome", "oslo", "bern") for j in ("x", "y")}


def test_intervals_of_the_groups_shown_hold_all_at_once_although_noise_chose_the_groups() -> None:
    # Two hundred keys sit right at the threshold: those shown were lifted by their noise.
    names = np.repeat([f"k{k}" for k in range(200)], 9)
    data = Dataset(pa.table({"name": names}))
    missed = shown = 0
    for seed in range(150):
        question = CountByPrivateKeys("name", delta=0.01, epsilon=2, keys_share=0.5, confidence=0.8)
        release = ask(question, data, seed)
        shown += bool(release.value)
        missed += any(not row.low <= 9 <= row.high for row in release.value.rows)

    assert shown > 100
    assert missed / 150 <= 0.2 + 3 * (0.16 / 150) ** 0.5


def test_units_are_counted_where_a_unit_may_be_in_few_groups() -> None:
    data = Dataset(TABLE, unit="who", max_rows_per_unit=20, max_groups_per_unit=2)
    release = ask(PrivateKeys("city", **KEYS), data)

    assert release.receipt.terms["counted"] == "units"
    by_rows = key_threshold(Fraction(1, 10**6), 40.0, rows=20, groups=20)
    assert release.receipt.terms["threshold"] < by_rows / 5


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("scale", [0.5, 4.0])
def test_a_unit_alone_in_its_groups_shows_with_at_most_delta(groups: int, scale: float) -> None:
    a, delta = np.exp(-1 / scale), 1e-3
    threshold = key_threshold(Fraction(1, 1000), scale, rows=groups, groups=groups, once=True)

    showing = 1 - (1 - a ** (threshold - 1) / (1 + a)) ** groups
    below = 1 - (1 - a ** (threshold - 2) / (1 + a)) ** groups
    assert showing <= delta < below * 1.02


def test_nothing_common_enough_is_an_empty_answer_that_was_paid_for() -> None:
    data = Dataset(pa.table({"name": [f"rare {k}" for k in range(50)]}))
    release = ask(CountByPrivateKeys("name", epsilon=1, delta=1e-6), data)

    assert len(release.value) == 0 and release.receipt.bill.amounts()["epsilon"] == Fraction(1, 4)


def test_a_price_that_grows_with_the_keys_beyond_the_cap_is_a_missed_target() -> None:
    names = np.repeat([f"k{k}" for k in range(50)], 200)
    question = Count(within=10, by=PrivateKeys("name", **KEYS), max_epsilon=0.5)
    release = ask(question, Dataset(pa.table({"name": names})))

    assert release.receipt.outcome is Outcome.NOT_MET
    assert set(release.value) == set(names)  # what was paid for is not thrown away


def test_keys_need_an_account_with_a_delta_and_add_remove_neighbours() -> None:
    keys = PrivateKeys("city", **KEYS)
    with pytest.raises(InvalidRequest, match="account"):
        expost.Session(PEOPLE, expost.epsilon(5)).count(by=keys, epsilon=1)
    with pytest.raises(InvalidRequest, match="add-remove"):
        keys.plan(Dataset(TABLE, adjacency="replace-one", rows=len(CITIES)))


@pytest.mark.parametrize("way", ["by name", "by request"])
def test_a_session_gives_back_what_the_question_has_not_used(way: str) -> None:
    session, keys = expost.Session(PEOPLE, expost.epsilon(10, 1e-5)), PrivateKeys("city", **KEYS)
    if way == "by name":
        release = session.sum("pay", within="5%", by=keys)
    else:
        release = session.ask(Sum("pay", within="5%", by=keys, max_epsilon=9), request_id="mine")

    paid = session.spent().amounts()
    assert isinstance(release.receipt.bill, PureLoss)
    assert paid["epsilon"] == Fraction(1, 2) + release.receipt.bill.epsilon and paid["epsilon"] < 1.5
    assert paid["delta"] == Fraction(1, 10**6)
    assert release.receipt.terms["keys of city"]["keys shown"] == 3


def test_keys_that_were_shown_are_public_afterwards() -> None:
    session = expost.Session(PEOPLE, expost.epsilon(10, 1e-5))
    shown = session.private_keys("city", **KEYS).value
    listed = Dataset(TABLE, bounds={"pay": (0, 100)}, categories={"city": shown})

    assert set(expost.Session(listed, expost.epsilon(1)).count(by="city", epsilon=1).value) == set(shown)


MANY = Dataset(pa.table({"city": np.repeat([f"c{k}" for k in range(40)], 200)}), name="many")


def test_a_refusal_after_the_keys_were_paid_says_so_and_hands_them_over() -> None:
    session = expost.Session(MANY, expost.epsilon(10, 1e-3))
    by = PrivateKeys("city", epsilon=1, delta=1e-6)

    with pytest.raises(TargetNotMet, match="cost epsilon 1, delta 1e-06") as missed:
        session.count(by=by, within=10, max_epsilon=0.35)

    error = missed.value
    assert error.cost == "spent: see .receipt"
    assert error.receipt.bill == ApproxLoss(1, Fraction(1, 10**6)) == session.spent()
    assert error.receipt.outcome is Outcome.NOT_MET
    assert set(error.release.value) <= {f"c{k}" for k in range(40)} and len(error.release.value) > 30
    # What was paid for is of use.
    listed = Dataset(MANY._engine, name="many", categories={"city": error.release.value})
    assert len(expost.Session(listed, expost.epsilon(10)).count(by="city", within=10, max_epsilon=2).value) > 30


@pytest.mark.parametrize(("budget", "fits"), [(1.34, False), (1.35, True)])
def test_keys_and_answers_must_fit_the_budget_together_before_a_key_is_paid(budget: float, fits: bool) -> None:
    session = expost.Session(MANY, expost.epsilon(budget, 1e-6))
    by = PrivateKeys("city", epsilon=1, delta=1e-6)
    if fits:
        assert session.count(by=by, within=20, max_epsilon=0.35).receipt.outcome.met
        return
    with pytest.raises(BudgetExceeded, match=r"at most epsilon 1\.34"):
        session.count(by=by, within=20, max_epsilon=0.35)
    assert session.spent() == ApproxLoss(0, 0)


@pytest.mark.parametrize("after", [1, 2])
def test_a_budget_that_others_spend_between_two_stages_loses_no_key(after: int) -> None:
    session = expost.Session(PEOPLE_NAMED, expost.epsilon(4, 1e-5))
    question = Count(by=[PrivateKeys("city", **KEYS), PrivateKeys("job", **KEYS)], epsilon=2)
    calls = []

    def interrupted(request, *, request_id=None):
        calls.append(request)
        if len(calls) > after:
            session.count(epsilon=1)
            session.count(where="pay > 3", epsilon=session.remaining().epsilon)
        return session.ask(request, request_id=request_id)

    with pytest.raises(TargetNotMet) as missed:
        question.keys_first.ask_in_stages(interrupted, PEOPLE_NAMED)

    lists = [("bern", "oslo", "rome"), ("x", "y")][:after]
    assert missed.value.release.value == tuple(lists)
    assert missed.value.receipt.bill == ApproxLoss(Fraction(after, 2), Fraction(after, 10**6))


def test_two_lists_of_which_one_is_empty_are_both_on_the_receipt() -> None:
    rare = Dataset(pa.table({"city": ["a", "b"] * 500, "id": [str(k) for k in range(1000)]}), name="rare")
    session = expost.Session(rare, expost.epsilon(4, 1e-5))

    release = session.count(by=[PrivateKeys("city", **KEYS), PrivateKeys("id", **KEYS)], epsilon=1)

    assert not release.value
    assert release.receipt.bill == ApproxLoss(1, Fraction(2, 10**6)) == session.spent()
