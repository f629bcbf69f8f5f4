"""Sessions about added, removed and replaced units that are paid from one account."""

import datetime
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import expost
from expost.core import Adjacency, BudgetExceeded, InvalidRequest, PureLoss, Unit
from expost.holdout import ReusableHoldout

ROWS = 4_000
TABLE = pa.table(
    {
        "site": [["A", "B", "C"][index % 3] for index in range(ROWS)],
        "city": [["Rome", "Oslo"][index % 2] for index in range(ROWS)],
        "age": [index % 100 for index in range(ROWS)],
        "id": [index % 500 for index in range(ROWS)],
        "when": pa.array([datetime.datetime(2013, 1, 1 + index % 28) for index in range(ROWS)], pa.timestamp("us")),
    }
)
REPLACED = {"adjacency": "replace-one", "rows": ROWS}


def both(budget, ledger=None, **terms):
    """A session about added and removed rows and one about replaced ones, on one account."""
    book = expost.open_ledger(ledger)
    terms = {"name": "people", "bounds": {"age": (0, 100)}, "categories": {"site": ["A", "B", "C"]}} | terms
    added = expost.Session(expost.Dataset(TABLE, **terms), budget, ledger=book)
    return added, expost.Session(expost.Dataset(TABLE, **terms | REPLACED), ledger=book)


@pytest.mark.parametrize("place", ["memory", "file"])
def test_statistics_and_models_share_one_budget(place, tmp_path):
    added, replaced = both(expost.epsilon(1), None if place == "memory" else tmp_path / "people.ledger")
    added.count(epsilon=0.125)
    ridge = expost.Ridge(epsilon=0.25, bounds=[(0, 99)], feature_bound=1.0, target_bounds=99.0, regularization=0.1)
    quote = replaced.price(ridge, features=["age"], target="id")
    fitted = replaced.fit(ridge, features=["age"], target="id")

    assert quote.account_note.endswith("epsilon 0.125 spent before counts as epsilon 0.25")
    assert "from now on this account counts replaced rows" in fitted.receipt_.account_note
    assert added.spent() == replaced.spent() == PureLoss(0.5)
    assert added.ledger.accounts() == ["dataset:people"]
    release = added.count(where="age > 50", epsilon=0.125)
    assert release.receipt.bill == PureLoss(0.125)
    assert release.receipt.account_note == "charged epsilon 0.25, because this account counts replaced rows"
    assert added.receipt(release.receipt.ledger_entry) == release.receipt
    first = next(entry.receipt for entry in added.history() if entry.receipt is not None)
    assert "account_note" not in first.to_dict()
    assert added.remaining() == PureLoss(0.25)
    with pytest.raises(BudgetExceeded, match=r"at most epsilon 0\.125 .* epsilon 0\.25 left"):
        added.count(where="age > 60", epsilon=0.25)
    added.ledger.verify()


@pytest.mark.parametrize("budget", [expost.epsilon(1), expost.approx(1, 1e-6)], ids=str)
def test_a_climb_without_a_cap_may_cost_what_fits_in_the_account(budget):
    added, replaced = both(budget)
    replaced.sum("age", epsilon=0.25)
    left = added.remaining().epsilon

    quote = added.price("count", where="age > 50", within="5%")
    assert quote.worst_case.epsilon <= left / 2
    assert f"counted as at most {PureLoss(2 * quote.worst_case.epsilon)}" in str(quote)
    release = added.count(where="age > 50", within="5%")
    assert release.receipt.outcome.met
    assert added.remaining().epsilon <= left - release.receipt.bill.epsilon
    added.ledger.verify()


def test_a_climb_that_makes_the_account_go_over_may_cost_what_is_left_then():
    added, replaced = both(expost.epsilon(1))
    added.count(epsilon=0.25)

    assert 0 < replaced.price("sum", "age", within=1000).worst_case.epsilon <= Fraction(1, 2)
    replaced.sum("age", within="5%")
    assert replaced.spent().epsilon <= 1
    assert replaced.ledger.counts("dataset:people") is Adjacency.REPLACE_ONE


@pytest.mark.parametrize("budget", [expost.epsilon(2), expost.approx(2, 1e-3)], ids=str)
def test_an_answer_that_is_refined_after_the_account_went_over_pays_twice_the_difference(budget):
    added, replaced = both(budget)
    added.count(epsilon=0.125)
    replaced.sum("age", epsilon=0.25)
    added.count(epsilon=0.25)

    assert added.spent().epsilon == Fraction(3, 4)
    added.ledger.verify()


def test_private_keys_are_found_and_charged_for_replaced_rows():
    added, replaced = both(expost.approx(2, 1e-3))
    replaced.sum("age", epsilon=0.125)
    release = added.count_by_private_keys("city", delta=1e-6, epsilon=0.5)

    assert set(release.value) == {"Rome", "Oslo"}
    assert added.spent().epsilon == pytest.approx(0.125 + 2 * 0.5)
    with pytest.raises(BudgetExceeded):
        added.count_by_private_keys("city", delta=4e-4, epsilon=0.1)
    added.ledger.verify()


def test_parts_opened_before_and_after_the_account_went_over_are_the_same():
    added, replaced = both(expost.epsilon(1))
    added.part("site", "A").count(epsilon=0.125)
    replaced.part("site", "B").sum("age", epsilon=0.25)

    assert added.spent() == PureLoss(0.5)  # twice an eighth in one part, and a quarter in another
    added.part("site", "C").count(epsilon=0.0625)
    assert replaced.part("site", "C").spent() == PureLoss(0.125)
    assert added.spent() == PureLoss(0.5)
    added.ledger.verify()


def test_windows_of_time_go_over_too():
    unit = Unit.of("id", per="week", time="when")
    added, replaced = both(expost.epsilon(1), unit=unit, max_rows_per_unit=7)
    added.window("2013-01-09").count(epsilon=0.125)
    release = replaced.window("2013-01-14").count(epsilon=0.25)

    assert "counts replaced units" in release.receipt.account_note
    assert added.spent() == PureLoss(0.5)


@pytest.mark.parametrize("first", [{}, REPLACED])
def test_a_session_about_another_unit_is_refused(first):
    book = expost.open_ledger(None)
    session = expost.Session(expost.Dataset(TABLE, name="people", **first), expost.epsilon(1), ledger=book)
    session.count(where="age > 50", epsilon=0.25)
    for more in ({}, {"adjacency": "replace-one"}):
        with pytest.raises(InvalidRequest, match="as in the account so far"):
            expost.Session(expost.Dataset(TABLE, name="people", unit="id", **more), ledger=book)


def test_a_holdout_tells_on_its_receipt_that_the_account_went_over():
    book = expost.open_ledger(None)
    session = expost.Session(expost.Dataset(TABLE, name="people"), expost.epsilon(4), ledger=book)
    session.count(epsilon=0.125)
    terms = {"max_queries": 100, "tolerance": 0.1, "failure_probability": 0.05, "budget": 2}
    rows = np.zeros((40_000, 1))
    with ReusableHoldout(rows, rows, **terms, ledger=book, account="dataset:people") as holdout:
        pass

    assert "from now on this account counts replaced rows" in holdout.receipt.account_note
