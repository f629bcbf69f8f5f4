"""Whatever epsilon is asked for: the question is answered, or refused before anything is held."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.journey.every_question import QUESTIONS, TESTS, described

from expost import Dataset, HuberSVC, LogisticRegression, Ridge, Session, approx
from expost.core import BudgetExceeded, InvalidRequest, TargetNotMet
from expost.core.errors import EngineFailed
from expost.ledger import EntryKind
from expost.noise.parameter import check_level
from expost.stats import hypothesis
from expost.stats.hypothesis.hypothesis_input import read_test_epsilon

LEVELS = [1e-300, 1e-30, 1e-18, 1e-12, 1e-9, 1e-6, 1e3, 1e4, 1e6, 1e12, 1e18, 1e300]
ROWS = 60
RANDOM = np.random.default_rng(1)
TABLE = pa.table(
    {
        "x": RANDOM.normal(5, 2, ROWS),
        "y": RANDOM.normal(5, 2, ROWS),
        "c": [["a", "b", "c"][k % 3] for k in range(ROWS)],
        "d": [["u", "v"][k % 2] for k in range(ROWS)],
    }
)
KEYS = {name for name in QUESTIONS if "keys" in name}
SIZED = {"adjacency": "replace-one", "rows": ROWS}
CASES = [
    *((f"{name}, add-remove", build, {}) for name, build in (QUESTIONS | TESTS).items()),
    *((f"{name}, replace-one", build, SIZED) for name, build in (QUESTIONS | TESTS).items() if name not in KEYS),
]


@pytest.mark.parametrize(("build", "neighbours"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_every_epsilon_is_answered_or_refused_before_anything_is_held(build: Any, neighbours: dict[str, Any]) -> None:
    for level in LEVELS:
        session = Session(Dataset(TABLE, **described(), **neighbours), approx(10**18, 0.1))
        with contextlib.suppress(TargetNotMet):
            try:
                session.ask(build(level))
            except (InvalidRequest, BudgetExceeded) as refusal:
                held = [entry for entry in session.history() if entry.kind is EntryKind.HOLD]
                assert not held and str(refusal), level


FITTED = {
    "ridge": ("y", lambda e: Ridge(epsilon=e, max_epsilon=e, feature_bound=1.0, target_bounds=1.0)),
    "ridge, moments": (
        "y",
        lambda e: Ridge(excess_risk=0.1, max_epsilon=e, method="certificate", feature_bound=1.0, target_bounds=1.0),
    ),
    "ridge, Gaussian moments": (
        "y",
        lambda e: Ridge(epsilon=e, max_epsilon=e, delta=1e-6, feature_bound=1.0, target_bounds=1.0),
    ),
    "ridge, chosen penalty": (
        "y",
        lambda e: Ridge(
            epsilon=e, max_epsilon=e, delta=1e-6, regularization=None, feature_bound=1.0, target_bounds=1.0
        ),
    ),
    "ridge, output": (
        "y",
        lambda e: Ridge(epsilon=e, max_epsilon=e, method="output", feature_bound=1.0, target_bounds=1.0),
    ),
    "ridge, gradient test": (
        "y",
        lambda e: Ridge(excess_risk=0.1, max_epsilon=e, method="gradient", feature_bound=1.0, target_bounds=1.0),
    ),
    "ridge, score": ("y", lambda e: Ridge(score=("rmse", 0.5), max_epsilon=e, feature_bound=1.0, target_bounds=1.0)),
    "logistic": ("c", lambda e: LogisticRegression(epsilon=e, max_epsilon=e, classes=[0, 1], feature_bound=1.0)),
    "logistic, output": (
        "c",
        lambda e: LogisticRegression(epsilon=e, max_epsilon=e, classes=[0, 1], method="output", feature_bound=1.0),
    ),
    "logistic, score": (
        "c",
        lambda e: LogisticRegression(score=("accuracy", 0.6), max_epsilon=e, classes=[0, 1], feature_bound=1.0),
    ),
    "logistic, one feature": (
        "c",
        lambda e: LogisticRegression(epsilon=e, classes=[0, 1], fit_intercept=False, feature_bound=1.0),
    ),
    "ridge, output, one feature": (
        "y",
        lambda e: Ridge(epsilon=e, method="output", fit_intercept=False, feature_bound=1.0, target_bounds=1.0),
    ),
    "ridge, output, tiny delta": (
        "y",
        lambda e: Ridge(epsilon=e, method="output", delta=1e-28, feature_bound=1.0, target_bounds=1.0),
    ),
    "huber": ("c", lambda e: HuberSVC(epsilon=e, max_epsilon=e, classes=[0, 1], feature_bound=1.0)),
}
COUNTED = ("ridge", "ridge, moments", "logistic", "logistic, score", "huber")
POINTS = RANDOM.uniform(-0.5, 0.5, (500, 2))
PEOPLE = Dataset(
    pa.table({"a": POINTS[:, 0], "b": POINTS[:, 1], "y": POINTS @ [0.5, -0.3], "c": (POINTS[:, 0] > 0).astype(int)}),
    name="people",
    adjacency="replace-one",
    rows=500,
)


@pytest.mark.parametrize("name", FITTED)
def test_every_epsilon_of_a_fit_is_spent_or_refused_before_anything_is_held(name: str) -> None:
    target, build = FITTED[name]
    features = ["a"] if "one feature" in name else ["a", "b"]
    for level in (1e-300, 1e-24, 1e-14, 1e-9, 1e-6, 1e3, 1e6, 1e12, 1e300):
        session = Session(PEOPLE, approx(10**18, 0.1))
        with contextlib.suppress(TargetNotMet):
            try:
                session.fit(build(level), features=features, target=target)
            except (InvalidRequest, BudgetExceeded) as refusal:
                held = [entry for entry in session.history() if entry.kind is EntryKind.HOLD]
                assert not held and str(refusal), level


@pytest.mark.parametrize("unit", ["row", "person"])
@pytest.mark.parametrize("name", COUNTED)
def test_every_epsilon_of_a_fit_to_a_private_number_of_rows_is_spent_or_refused(name: str, unit: str) -> None:
    target, build = FITTED[name]
    if unit != "row" and "score" in name:
        pytest.skip("scores are tested on single rows")
    limit = {} if unit == "row" else {"max_rows_per_unit": 2}
    table = pa.table({"a": POINTS[:, 0], "b": POINTS[:, 1], "person": np.arange(500) // 2})
    table = table.append_column("y", pa.array(POINTS @ [0.5, -0.3]))
    people = Dataset(table.append_column("c", pa.array((POINTS[:, 0] > 0).astype(int))), name="all", unit=unit, **limit)
    for level in (1e-300, 1e-14, 1e-9, 1e-3, 1e6, 1e12, 1e300):
        session = Session(people, approx(10**18, 0.1))
        with contextlib.suppress(TargetNotMet):
            try:
                session.fit(build(level), features=["a", "b"], target=target)
            except (InvalidRequest, BudgetExceeded) as refusal:
                held = [entry for entry in session.history() if entry.kind is EntryKind.HOLD]
                assert not held and str(refusal), level


@pytest.mark.parametrize("name", ["count", "most common", "quantile", "private keys", "sum, private bounds"])
def test_a_sensible_epsilon_is_answered(name: str) -> None:
    session = Session(Dataset(TABLE, **described()), approx(1000, 0.1))
    with contextlib.suppress(TargetNotMet):
        session.ask(QUESTIONS[name](10))
    assert 9 < session.spent().amounts()["epsilon"] <= 10  # the orders of the account may prove a little less


def test_a_fault_in_the_mechanism_itself_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("expost.stats.private_bounds.check_level", lambda *_: None)
    session = Session(Dataset(TABLE, **described()), approx(10**18, 0.1))
    with pytest.raises(EngineFailed):
        session.ask(QUESTIONS["bounds"](1e6))


def test_the_widest_noise_of_any_test_fits_its_integers() -> None:
    lowest, highest = read_test_epsilon(1e-9), read_test_epsilon(1000)

    check_level(lowest / 8, 2 * (1 << 26))  # an eighth of epsilon on the score of 2^26 rows
    check_level(highest, 1)
    for outside in (Fraction(9, 10**10), 1001):
        with pytest.raises(InvalidRequest, match="between"):
            read_test_epsilon(outside)


def test_a_series_of_tests_refuses_an_epsilon_before_it_is_held() -> None:
    described_rows = {"adjacency": "replace-one", "rows": len(TABLE)}
    session = Session(Dataset(TABLE, **described(), **described_rows), approx(10**18, 0.1))
    tester = hypothesis.AdaptiveTester(session.dataset, max_tests=5, ledger=session.ledger, accounts=session.accounts)
    with pytest.raises(InvalidRequest, match="between"):
        tester.run("binomial", "c", equals="a", null=0.5, epsilon=1e6)
    assert session.spent().amounts()["epsilon"] == 0


def test_the_number_of_parts_of_a_split_test_is_bounded() -> None:
    with pytest.raises(InvalidRequest, match="parts"):
        Session(Dataset(TABLE, **described()), approx(1, 0.1)).ask(
            hypothesis.SplitTest("means", "x", "c", epsilon=1, parts=10**12)
        )
