"""The margin of a model's promise before the training: what tests then demand, and targets that no test can show."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import expost
from expost.core import InvalidRequest
from expost.models.tabular import PromiseMargin
from expost.models.tabular.laplace_test import LaplaceTest
from expost.models.tabular.promise_margin import find_promise_margin
from expost.models.tabular.table_profile import TableProfile
from expost.models.tabular.training_choice import TrainingTerms, plan_blank
from expost.noise import SeededBits
from expost.session.wire_format import decode_price, encode_price

COLUMNS = {"age": (0, 100), "rich": [False, True]}
TABLE = {"age": np.arange(3000) % 100, "rich": np.arange(3000) % 100 > 50}


def classifier(**more: Any) -> expost.Classifier:
    return expost.Classifier(**{"score": ("accuracy", 0.8), "columns": COLUMNS} | more)


def regressor(**more: Any) -> expost.Regressor:
    return expost.Regressor(**{"score": ("r2", 0.8), "target_bounds": (0, 120)} | more)


def blank_plan(model: Any, bounds: tuple[float, float] = (-1.0, 1.0)) -> Any:
    terms: TrainingTerms = model._read_terms()
    return plan_blank(terms, model.method, classifier=isinstance(model, expost.Classifier), target_bounds=bounds)


def at_cap(margin: PromiseMargin) -> float | None:
    return margin.accepted[margin.most_epsilon]


def test_a_test_accepts_the_stated_score_more_often_than_not_and_the_target_itself_seldom() -> None:
    plan, rows, runs = blank_plan(classifier(max_epsilon=0.3)), 20_000, 800
    stated = find_promise_margin(plan, rows).accepted[Fraction(1, 10)]
    sums = plan.score_sum(TableProfile(float(rows), np.zeros(1), np.ones(1), 1.0))
    level, bits, shares = Fraction(1, 30), SeededBits(1), {}  # a third of epsilon 0.1 is for tests
    for score in (0.8 - 1e-4, stated):
        total = np.array([math.floor((score - 0.8) * rows / sums.height * sums.deciding.unit)], np.int64)
        tests = [LaplaceTest(total, sums.deciding, sums.height, bits) for _ in range(runs)]
        shares[score] = np.mean([test.look(level) >= test.margin(level, 0.1 * 0.6 * 0.65) for test in tests])

    low, high = shares.values()
    assert low <= 0.1 * 0.6 * 0.65 + 4 * math.sqrt(0.04 / runs)
    assert 0.4 < high < 0.6  # no more is stated than the test needs


@pytest.mark.parametrize("delta", [1e-6, 0])
def test_the_margin_of_a_run_is_never_below_that_of_its_whole_cap(delta: float) -> None:
    model = classifier(rows=3000, delta=delta, max_epsilon=2, simulation_seed=2).fit(TABLE, target="rich")
    plan = blank_plan(classifier(delta=delta, max_epsilon=2))
    sums = plan.score_sum(TableProfile(3000.0, np.zeros(1), np.ones(1), 1.0))

    least = plan.find_needed_sum(None, sums) / 3000
    assert 0 < least <= model.receipt_.terms["margin of the last test"] * 1.01
    assert least <= at_cap(find_promise_margin(plan, 3000)) - 0.8


@pytest.mark.parametrize("make", [classifier, regressor])
@pytest.mark.parametrize("delta", [1e-6, 0])
def test_more_rows_epsilon_or_failures_never_enlarge_the_margin(make: Any, delta: float) -> None:
    def find(rows: int = 50_000, **more: Any) -> PromiseMargin:
        return make(delta=delta, **more).price(rows=rows)

    accepted = [score for score in find().accepted.values() if score is not None]
    assert len(accepted) >= 2 and accepted == sorted(accepted, reverse=True)
    assert at_cap(find(rows=100_000)) < at_cap(find())
    assert at_cap(find(max_epsilon=2)) < at_cap(find())
    assert at_cap(find(failure_probability=0.2)) < at_cap(find())


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (expost.Classifier(score=("log_loss", 0.4)), 20_000),
        (expost.Regressor(score=("rmse", 8), target_bounds=(0, 120)), 100_000),
        (expost.Regressor(score=("mae", 8), target_bounds=(0, 120)), 100_000),
    ],
)
def test_losses_must_be_below_the_target(model: Any, rows: int) -> None:
    margin = model.price(rows=rows)

    assert at_cap(margin) < float(margin.target.tolerance)
    assert "when the model's own is at most" in str(margin)


def test_the_margin_of_r2_follows_the_spread_of_the_target() -> None:
    narrow, usual, wide = (at_cap(regressor().price(rows=200_000, spread=spread)) for spread in (10, None, 40))

    assert 0.8 < wide < usual < narrow
    assert usual == at_cap(regressor().price(rows=200_000, spread=20))  # a sixth of the range
    assert "standard deviation of 10" in str(regressor().price(rows=200_000, spread=10))


@pytest.mark.parametrize("delta", [1e-6, 0])
def test_an_r2_is_said_to_be_out_of_reach_only_if_no_target_could_show_it(delta: float) -> None:
    rng = np.random.default_rng(3)
    for cap, score in ((0.02, 0.9), (0.1, 0.3), (0.05, 0.05), (1.0, 0.99)):
        plan = blank_plan(regressor(score=("r2", score), delta=delta, max_epsilon=cap))
        rows = 2
        while not find_promise_margin(plan, 2 * rows).reachable:
            rows *= 2
        for middle, part in rng.uniform((-1, 0.2), 1, (50, 2)):
            spread = part * math.sqrt(1 - middle**2)
            profile = TableProfile(float(rows), np.zeros(1), np.ones(1), 1.0, middle, spread)
            sums = plan.score_sum(profile)
            assert plan.find_needed_sum(None, sums) > sums.best_surplus(profile)


@pytest.mark.parametrize("delta", [1e-6, 0])
def test_a_target_that_no_test_can_show_is_refused_before_anything_is_spent(delta: float) -> None:
    session = expost.Session(expost.Dataset(TABLE), budget=(2, 1e-5) if delta else 2)
    model = classifier(score=("accuracy", 0.999), delta=delta, max_epsilon=0.2, rows=3000)

    assert "out of reach" in str(model.price())
    for ask in (session.fit, session.price):
        with pytest.raises(InvalidRequest, match=r"would not accept a model without errors.*Raise max_epsilon"):
            ask(model, target="rich")
    assert session.spent().amounts()["epsilon"] == 0
    assert "is accepted" in str(model.set_params(max_epsilon=100).price())


def test_a_session_shows_the_margin_with_the_price() -> None:
    session = expost.Session(expost.Dataset(TABLE), budget=(2, 1e-5))
    declared = session.price(classifier(rows=3000), target="rich")

    assert "With 3,000 rows, accuracy 0.8 is accepted" in str(declared)
    assert str(session.price(classifier(), target="rich", expect=3000)) == str(declared)
    assert decode_price(encode_price(declared)).margin == declared.margin != ""
    assert session.price(classifier(), target="rich").margin == ""  # the number of rows is private
    assert session.price(classifier(score=None, epsilon=0.1, rows=3000), target="rich").margin == ""
    narrow = session.price(classifier(rows=3000, select=1), target="rich")
    assert "is accepted" in narrow.margin
    with pytest.raises(InvalidRequest, match="takes no expect"):
        session.price(
            expost.SGDClassifier(epsilon=0.1, classes=[False, True], rows=3000, feature_bound=100.0),
            features=["age"],
            target="rich",
            expect=10,
        )


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: classifier().price(), "Expected the number of rows"),
        (lambda: classifier().price(rows=0), "whole number >= 1"),
        (lambda: classifier(score=None, epsilon=1).price(rows=10), "Expected a score whose margin is known"),
        (lambda: classifier(score=("auc", 0.9)).price(rows=10), "accuracy or log_loss"),
        (lambda: regressor(target_bounds=None).price(rows=10, target="pay"), "bounds of the target 'pay'"),
        (lambda: regressor().price(rows=10, spread=-1), "positive spread"),
        (lambda: classifier().price(row=10), "Did you mean 'rows'"),
    ],
)
def test_what_a_margin_needs_is_asked_for_in_a_sentence(ask: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        ask()


def test_bounds_of_the_target_may_be_those_of_the_columns() -> None:
    model = expost.Regressor(score=("mae", 8), columns={"pay": (0, 120), "age": (0, 100)})

    assert at_cap(model.price(rows=10_000, target="pay")) == at_cap(
        expost.Regressor(score=("mae", 8), target_bounds=(0, 120)).price(rows=10_000)
    )
