"""Requests and tables that mean harm: refused for nothing, or answered like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from expost import Session, epsilon
from expost.core import BudgetExceeded, InvalidRequest
from expost.data import Dataset
from expost.stats import Count

FAR = 2**62
TABLE = pa.table(
    {
        "text": pa.array(["x", "", None, "1e999", "९", "-", "a\0b"]),
        "other": pa.array(["x", "y", "", "q", "r", "s", "t"]),
        "number": pa.array([2**63 - 1, -(2**63), 0, None, 1, 2, 3]),
        "real": pa.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, None]),
        "flag": pa.array([True, False, None, True, True, True, None]),
        "at": pa.array([0, FAR, -FAR, None, 1, 2, 3], pa.timestamp("us", tz="Europe/Rome")),
    }
)

REFUSED = [
    "1; drop table people",
    "number > 1 --",
    "number > (select max(number) from people)",
    "starts_with(text, other)",
    "contains(text, other)",
    "error(text)",
    "cast(text as uuid) > 1",
    "text like other",
    "number > 1e400",
    "NULL",
    "number",
    "text > 1",
    "missing = 1",
    "(" * 200 + "number > 1" + ")" * 200,
    "'" + "''" * 5000,
]

ANSWERED = [
    "number(text) / 0 > 1",
    "number(text) % 0 = 1",
    "real * real > 1",
    "real / number > 0",
    "number / (number - number) = 1",
    "-number > 3",
    "abs(number) > 1",
    "year(at) = 2020 or month(at) = 1 or weekday(at) = 7",
    "at > TIMESTAMP '2020-01-01T00:00:00+02:00'",
    "length(upper(text)) > 1",
    "coalesce(flag, true) and not (number in (1, 2))",
    "NULL = number or flag",
]


def _session() -> Session:
    return Session(Dataset(TABLE, name="people"), epsilon(1))


@pytest.mark.parametrize("text", REFUSED)
def test_a_filter_outside_the_subset_is_refused_and_costs_nothing(text: str) -> None:
    session = _session()
    with pytest.raises(InvalidRequest):
        session.count(where=text, epsilon=0.1)
    assert session.spent().amounts() == {"epsilon": 0} and not [e for e in session.history() if e.receipt]


@pytest.mark.parametrize("text", ANSWERED)
def test_no_row_can_make_a_filter_fail(text: str) -> None:
    session = _session()
    assert isinstance(session.count(where=text, epsilon=0.1).value, int)


@pytest.mark.parametrize("amount", [0, -1, float("nan"), float("inf"), "1", True, None, 10**30, 1e-40])
def test_a_budget_is_a_positive_finite_number(amount: Any) -> None:
    with pytest.raises(InvalidRequest):
        epsilon(amount)


@pytest.mark.parametrize("name", ["*", "pe\u200bople", "x" * 300, "pe\0ople"])
def test_a_name_that_could_pass_for_another_opens_no_account(name: str) -> None:
    with pytest.raises(InvalidRequest):
        Session(Dataset(TABLE, name=name), epsilon(1)).count(where="flag", epsilon=0.1)


@pytest.mark.parametrize("name", ["people ", "people\n"])
def test_blanks_around_a_name_open_no_second_budget(name: str, tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path}/people.ledger"
    Session(Dataset(TABLE, name="people"), epsilon(1), ledger=ledger).count(where="flag", epsilon=0.9)
    with pytest.raises(BudgetExceeded):
        Session(Dataset(TABLE, name=name), epsilon(1), ledger=ledger).count(where="flag", epsilon=0.2)


def test_a_request_id_pays_for_one_answer_only() -> None:
    session = _session()
    session.ask(Count(epsilon=0.1, where="flag"), request_id="once")
    with pytest.raises(InvalidRequest):
        session.ask(Count(epsilon=0.1, where="flag"), request_id="once")


def test_ids_that_are_missing_belong_to_nobody_and_both_zeros_to_one() -> None:
    table = pa.table({"id": [np.nan, np.inf, -0.0, 0.0, None]})
    session = Session(Dataset(table, name="t", unit="id", max_rows_per_unit=1), epsilon(60))
    assert session.count(epsilon=50).value == 2
