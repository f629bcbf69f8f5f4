"""From a table to a receipt, and what bad input gets."""

import logging
import math
import pickle

import pyarrow as pa
import pytest

import expost
from expost.core import PureLoss
from expost.noise import SeededBits

ROWS = 20_000


def people(**options) -> expost.Dataset:
    return expost.Dataset(pa.table({"age": [index % 90 for index in range(ROWS)]}), name="people", **options)


@pytest.fixture
def session():
    return expost.Session(people(), expost.epsilon(1))


def test_a_count_within_a_share_is_certified_and_cheaper_than_its_cap(session) -> None:
    release = session.count(within="5%", max_epsilon=0.5)

    low, high = release.interval
    assert low <= release.value <= high
    assert release.receipt.outcome.value == "certified"
    assert release.receipt.bill.epsilon < release.receipt.promise.epsilon == expost.epsilon(0.5).epsilon
    assert session.spent() == release.receipt.bill


def test_a_count_within_a_number_is_priced_before_the_run(session) -> None:
    release = session.count(within=100)

    assert release.receipt.bill.epsilon == release.receipt.promise.epsilon


def test_a_fixed_epsilon_reports_the_accuracy_that_follows(session) -> None:
    release = session.count(epsilon=0.1)

    assert release.receipt.outcome.value == "fixed epsilon"
    assert release.receipt.bill == PureLoss(0.1)
    assert release.receipt.achieved > 0


def test_the_interval_covers_at_its_confidence() -> None:
    session = expost.Session(people(), expost.epsilon(1000), bits=SeededBits(5), simulation=True)

    covered = sum(
        low <= ROWS <= high for low, high in (session.count(within="5%", max_epsilon=1).interval for _ in range(200))
    )

    assert covered >= 182  # 95 % of 200 is 190; below 182 has probability 0.001 for an honest interval


def test_no_level_reaches_an_impossible_target(session) -> None:
    with pytest.raises(expost.TargetNotMet) as caught:
        session.count(within="1%", max_epsilon=0.001)

    assert caught.value.receipt.outcome.value == "not met"
    assert session.spent() == caught.value.receipt.bill
    assert str(ROWS) not in str(caught.value)


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"within": 0},
        {"within": -1},
        {"within": math.nan},
        {"within": math.inf},
        {"within": "5"},
        {"within": "5%", "epsilon": 1},
        {"epsilon": -1},
        {"epsilon": 0},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"epsilon": "0.1"},
        {"epsilon": 1e300},
        {"within": 10, "confidence": 1},
        {"within": 10, "confidence": 0},
        {"within": "5%", "max_epsilon": 0},
        {"within": "5%", "max_epsilon": -1},
    ],
)
def test_bad_input_is_a_typed_error_and_costs_nothing(session, terms) -> None:
    with pytest.raises(expost.InvalidRequest, match=r"^Expected .*\.$"):
        session.count(**terms)

    assert session.spent() == PureLoss(0)


def test_more_than_the_budget_is_refused_and_costs_nothing(session) -> None:
    with pytest.raises(expost.BudgetExceeded):
        session.count(epsilon=2)
    with pytest.raises(expost.BudgetExceeded):
        session.count(within=1, max_epsilon=0.5)

    assert session.spent() == PureLoss(0)


@pytest.mark.parametrize(
    "description",
    [
        {"bounds": {"age": (120, 0)}},
        {"bounds": {"age": (0, math.inf)}},
        {"bounds": {"age": (0, 0)}},
        {"bounds": {"height": (0, 1)}},
        {"categories": {"city": ["A"]}},
        {"unit": "id"},
        {"adjacency": "swap"},
        {"adjacency": "replace-one"},
    ],
)
def test_a_senseless_description_is_refused(description) -> None:
    with pytest.raises(expost.InvalidRequest, match=r"^Expected .*\.$"):
        people(**description)


def test_an_empty_table_is_counted_like_any_other() -> None:
    empty = expost.Dataset(pa.table({"age": pa.array([], pa.int64())}), name="empty")

    release = expost.Session(empty, expost.epsilon(1)).count(within=1000)

    assert 0 <= release.value <= 12_000


def test_nothing_exact_is_logged_shown_or_pickled(session, caplog) -> None:
    with caplog.at_level(logging.DEBUG):
        release = session.count(epsilon=0.001)

    assert str(ROWS) not in caplog.text
    assert str(ROWS) not in repr(session) + repr(session.dataset)
    assert str(ROWS).encode() not in pickle.dumps(release)


def test_a_durable_session_bills_the_file(tmp_path) -> None:
    where = tmp_path / "people.ledger"
    with expost.Session(people(), expost.epsilon(1), ledger=where) as session:
        bill = session.count(epsilon=0.25).receipt.bill

    again = expost.open_ledger(where)

    assert again.spent("dataset:people") == bill
    again.verify()


def test_a_nameless_table_cannot_use_a_durable_ledger(tmp_path) -> None:
    nameless = expost.Dataset(pa.table({"age": [1]}))

    with pytest.raises(expost.InvalidRequest, match="name"):
        expost.Session(nameless, expost.epsilon(1), ledger=tmp_path / "l")
