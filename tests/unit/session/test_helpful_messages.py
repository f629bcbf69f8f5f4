"""What a new user gets wrong is answered with a sentence that names the fix, and costs nothing."""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import expost
from expost import BudgetExceeded, Dataset, InvalidRequest, Session, TargetNotMet
from expost.core.errors import show_value
from expost.data import col
from expost.noise import SeededBits


@pytest.fixture(scope="module")
def session() -> Session:
    random = np.random.default_rng(0)
    table = pa.table({"age": random.integers(0, 100, 2000), "city": random.choice(["Rome", "Oslo"], 2000)})
    table = table.append_column("job", pa.array(["x"] * 2000))
    table = table.append_column("day", pa.array([0] * 2000, pa.timestamp("us")))
    data = Dataset(table, name="diamonds", bounds={"age": (0, 100)}, categories={"city": ["Rome", "Oslo"]})
    return Session(data, budget=50)


WRONG: dict[str, tuple[Any, str]] = {
    "statistic": (lambda s: s.price("maen", "age", within=1), "Did you mean 'mean'"),
    "statistic of another library": (lambda s: s.price("avg", "age", within=1), "Did you mean 'mean'"),
    "misspelt statistic of another library": (lambda s: s.price("averag", "age", within=1), "Did you mean 'mean'"),
    "long name of a statistic": (lambda s: s.price("standard-deviation", "age", within=1), "Did you mean 'std'"),
    "statistic with underscores": (lambda s: s.price("top_k", "city", 1, epsilon=1), "Did you mean 'top-k'"),
    "column": (lambda s: s.mean("agee", within=1), "Did you mean 'age'"),
    "capital": (lambda s: s.mean("Age", within=1), "Did you mean 'age'"),
    "unlike any column": (lambda s: s.mean("zzz", within=1), "Name one of: age, city"),
    "group": (lambda s: s.count(by="citty", within=9), "Did you mean 'city'"),
    "filter": (lambda s: s.count(where="agee > 3", within=9), "Did you mean 'age'"),
    "category": (lambda s: s.part("city", "Romee"), "Did you mean 'Rome'"),
    "option": (lambda s: s.mean("age", wihtin=1), "Did you mean 'within'"),
    "option of another library": (lambda s: s.mean("age", eps=1), "Did you mean 'epsilon'"),
    "groupby": (lambda s: s.mean("age", groupby="city", epsilon=1), "Did you mean 'by'"),
    "method": (lambda s: s.median("age", epsilon=1, method="smoth"), "Did you mean 'smooth'"),
    "private bounds": (lambda s: s.mean("age", epsilon=1, bounds="privat"), "Did you mean 'private'"),
    "per cent": (lambda s: s.mean("age", epsilon=1, confidence=95), "Pass 0.95 for 95 %"),
    "sql": (lambda s: s.ask("select count(*) from t"), "Expected a query, not SQL"),
    "class": (lambda s: s.ask(expost.stats.Count), "Expected a query, not SQL or a class, got 'Count'"),
    "nothing": (lambda s: s.price(), "missing a required argument: 'statistic'"),
    "group key": (lambda s: s.count(by=3, epsilon=1), "by to be a column or a list of columns"),
    "no delta": (lambda s: s.private_keys("city", epsilon=1, delta=1e-6), r"such as budget=\(1, 1e-6\)"),
    "text as number": (
        lambda s: s.count(where="city > 3", epsilon=1),
        r'city is a text, 3 is a number.*types={"city": "real"}',
    ),
    "flag that is a text": (
        lambda s: s.count(where="city AND age > 3", epsilon=1),
        r'types={"city": "boolean"}.*CAST\(city AS boolean\)',
    ),
    "text as a condition": (lambda s: s.count(where="city", epsilon=1), r'types={"city": "boolean"}'),
    "double quotes": (lambda s: s.count(where='city = "Rome"', epsilon=1), "Write a text in single quotes: 'Rome'"),
    "and of Python": (lambda s: s.count(where="age > 3 & age < 9", epsilon=1), "Write AND"),
    "at least": (lambda s: s.count(where="age => 3", epsilon=1), "Write >="),
    "group by a number": (lambda s: s.count(by="age", epsilon=1), r'Group by "bin\(age, 10\)"'),
    "group by a period": (lambda s: s.count(by="month", epsilon=1), r'Write "month\(day\)", or ask count_over_time'),
    "group by a text": (lambda s: s.count(by="job", epsilon=1), r'categories={"job": \[\.\.\.\]}.*PrivateKeys\("job"'),
    "private bounds of bins": (
        lambda s: s.histogram("age", bins=2, bounds="private", epsilon=1),
        "Only sums, means and spreads",
    ),
    "bins of a time": (lambda s: s.histogram("day", bins=2, epsilon=1), r'Pass every="month"'),
    "folder": (lambda s: s.count(epsilon=0.01).to_csv("no such folder/x.csv"), "Create its folder first"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_mistake_is_answered_with_the_fix(wrong: str, session: Session) -> None:
    ask, message = WRONG[wrong]
    with pytest.raises(InvalidRequest, match=message):
        ask(session)


@pytest.mark.parametrize(
    ("where", "note"),
    [
        ("city = 'rome'", r"'rome' is none of the categories of city. Did you mean 'Rome'\?"),
        ("age > 3 AND NOT city IN ('Rome', 'Paris')", "'Paris' is none of the categories of city.$"),
        (col("city") != "Olso", "'Olso'.* Did you mean 'Oslo'"),
        ("decade = 31", "31 is none of the categories of decade.$"),
        ("job = 'y' OR city = 'Rome'", ""),
        ("date_trunc('year', day) = DATE '1970-01-01' AND first = DATE '1970-01-01' AND first <> '1970-01-01'", ""),
    ],
)
def test_a_constant_that_is_no_category_is_told_before_and_on_the_receipt(
    session: Session, where: Any, note: str
) -> None:
    session = Session(session.dataset.derive(decade="age / 10", categories=range(10)), budget=50)
    session = session.view(session.dataset.derive(first="day", categories=[datetime.date(1970, 1, 1)]))
    told = session.price("count", where=where, epsilon=0.1).filter_note
    release = session.count(where=where, epsilon=0.1)

    assert re.search(note, told) if note else told == ""
    assert release.receipt.terms.get("filter", "") == told


def test_a_statement_with_a_constant_that_is_no_category_says_so(session: Session) -> None:
    statement = "SELECT COUNT(*) FROM diamonds WHERE city = 'rome' WITH EPSILON 0.1"

    assert "Did you mean 'Rome'?" in str(session.sql_price(statement))
    assert "Did you mean 'Rome'?" in session.sql(statement).receipt.terms["filter"]


def test_a_name_that_a_session_does_not_have_is_explained(session: Session) -> None:
    for name, meant in (
        ("maen", "mean"),
        ("average", "mean"),
        ("value_count", "value_counts"),
        ("remaning", "remaining"),
    ):
        with pytest.raises(AttributeError, match=f"Did you mean '{meant}'"):
            getattr(session, name)
    assert not hasattr(session, "nothing_like_it") and not hasattr(session, "_nothing")


def test_a_group_that_is_not_there_is_explained(session: Session) -> None:
    counts = session.count(by="city", epsilon=0.1)
    with pytest.raises(KeyError, match="Did you mean 'Rome'"):
        counts.value["Roma"]
    assert counts.value.get("Roma") is None


def test_a_missed_target_states_what_was_paid(session: Session) -> None:
    # With private noise one run in thirty finds an answer by chance.
    session = Session(session.dataset, budget=50, bits=SeededBits(0), simulation=True)
    with pytest.raises(TargetNotMet) as missed:
        session.mean("age", within=0.001, max_epsilon=0.1)
    assert f"Paid {missed.value.receipt.bill}." in str(missed.value)
    with pytest.raises(TargetNotMet) as missed:
        session.bounds("age", epsilon=1e-4)
    assert "None" not in str(missed.value) and "Paid epsilon 0.0001." in str(missed.value)
    with pytest.raises(TargetNotMet, match=r"Found no answer to 'mean of age with private bounds"):
        session.mean("age", bounds="private", epsilon=1e-3)


def test_no_message_shows_a_long_fraction() -> None:
    assert show_value(Fraction(1, 3) ** 30) == "4.85694e-15"
    data = Dataset(pa.table({"x": [1.0] * 50}), name="t", bounds={"x": (0, 1)})
    session = Session(data, budget=(1, 1e-5))
    session.count(epsilon=1 / 3)
    with pytest.raises(BudgetExceeded) as refused:
        session.sum("x", by=expost.stats.PrivateKeys("x", epsilon=1 / 7, delta=1e-6), epsilon=2 / 3)
    assert max(map(len, str(refused.value).split())) < 25


def test_what_rounding_leaves_of_a_budget_is_nothing() -> None:
    session = Session(Dataset(pa.table({"x": [1.0] * 50}), name="t", bounds={"x": (0, 1)}), budget=1)
    session.count(epsilon=Fraction(1) - Fraction(1, 10**15))
    with pytest.raises(InvalidRequest, match="used up"):
        session.mean("x", within=0.1)


def test_types_that_other_libraries_name_are_explained() -> None:
    meant = {
        "int": "integer",
        "float64": "real",
        "str": "text",
        "datetime": "time",
        "bool": "boolean",
        "integr": "integer",
    }
    for given, name in meant.items():
        with pytest.raises(InvalidRequest, match=f"Did you mean '{name}'"):
            Dataset({"age": [1]}, types={"age": given})
    with pytest.raises(InvalidRequest, match='Did you mean "time:%d/%m/%Y"'):
        Dataset({"age": ["1"]}, types={"age": "%d/%m/%Y"})
    with pytest.raises(InvalidRequest, match="Did you mean 'age'"):
        Dataset({"age": [1]}, types={"agee": "integer"})


def test_methods_that_other_libraries_have_are_explained() -> None:
    for given, meant in {
        "isna": "is_missing",
        "fillna": "fill",
        "contain": "contains",
        "sum": "per_unit",
        "dt": "year",
    }.items():
        with pytest.raises(AttributeError, match=meant):
            getattr(expost.col("age"), given)


def test_packages_that_messages_name_are_there_after_one_import() -> None:
    code = "import expost; print(expost.stats.Count.__name__, expost.stats.hypothesis.BinomialTest.__name__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["Count", "BinomialTest"]


def test_a_question_asked_again_in_vain_says_what_was_paid_before() -> None:
    session = Session(Dataset(pa.table({"age": np.arange(1000) % 90}), bounds={"age": (0, 90)}), 10)
    with pytest.raises(TargetNotMet, match="under the cap"):
        session.mean("age", within=0.01, max_epsilon=0.1)

    with pytest.raises(
        TargetNotMet, match=r"was left after earlier questions. Paid epsilon .* Raise max_epsilon to continue"
    ):
        session.mean("age", within=0.01, max_epsilon=0.1)


def test_a_method_of_another_library_is_answered_with_ours(session: Session) -> None:
    for given, hint in (("hist", "'histogram'"), ("describe", "'summary'"), ("groupby", "Pass by=")):
        with pytest.raises(AttributeError, match=hint):
            getattr(session, given)
