"""One of several models of a table is fitted under one bill: the first that reaches a score, or the best at an epsilon."""

import contextlib
import math
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.model_selection import GridSearchCV

import expost
from expost import Classifier, InvalidRequest, OneOf, Regressor, Session, TargetNotMet, approx, fit_one_of, zcdp
from expost.accounting.concentrated import GaussianTotal
from expost.core import ApproxLoss, Outcome, PlanContext, PureLoss
from expost.models.estimator import _UNCOUNTED
from expost.models.fit_record import RepeatedFitWarning
from expost.models.tabular import table_search
from expost.models.tabular.table_search import SharedTraining, TableLadder, _gaussian_events, _gaussian_share
from expost.noise import SeededBits

RNG = np.random.default_rng(0)
N = 8000
AGE, NOISE = RNG.uniform(0, 100, N), RNG.normal(size=(N, 3))
TABLE = pa.table({"age": AGE, "a": NOISE[:, 0], "b": NOISE[:, 1], "c": NOISE[:, 2], "old": AGE > 50, "pay": AGE / 2})
GOOD: dict[str, Any] = {"age": (0, 100), "a": (-3, 3)}
BAD: dict[str, Any] = {"a": (-3, 3), "b": (-3, 3)}


def classifiers(**more: Any) -> list[Classifier]:
    return [Classifier(**({"columns": columns, "simulation_seed": 1} | more)) for columns in (BAD, GOOD)]


def test_the_model_that_reaches_the_score_is_kept_with_the_receipt_of_the_whole_search() -> None:
    model = fit_one_of(classifiers(), TABLE, target="old", score=("accuracy", 0.9), max_epsilon=4.0)
    receipt = model.receipt_

    assert receipt.terms["setting"] == "model 1" and model.selected_columns_ == ("age", "a")
    assert receipt.outcome is Outcome.TESTED and receipt.achieved == 0.9
    assert model.score(TABLE, np.asarray(AGE > 50)) > 0.9
    assert receipt.bill.within(receipt.promise) and receipt.epsilon <= 4
    assert isinstance(receipt.bill, ApproxLoss) and receipt.bill.delta == Fraction(1, 10**6)


def test_at_a_given_epsilon_every_model_has_a_share_and_the_best_one_is_kept() -> None:
    model = fit_one_of(classifiers(), TABLE, target="old", epsilon=0.5)
    receipt = model.receipt_

    assert receipt.terms["setting"] == "model 1" and receipt.outcome is Outcome.FIXED
    assert 0.499 < receipt.epsilon <= 0.5
    assert receipt.terms["scores of the settings"].count("accuracy") == 2
    assert receipt.achieved is not None and receipt.achieved <= model.score(TABLE, np.asarray(AGE > 50))


def test_a_score_that_is_hidden_by_the_noise_is_the_worst() -> None:
    def read(text: str) -> tuple[str, float]:
        return table_search._read_measured(SimpleNamespace(terms={"way": "newton", "measured accuracy": text}))  # type: ignore[arg-type]

    assert read("hidden by the noise") == ("accuracy hidden by the noise", -math.inf)
    assert read("1 ± 0.4 (noise carried it beyond)")[1] == 1


def test_the_best_regression_has_the_smallest_error() -> None:
    public = {"target_bounds": (0, 50), "simulation_seed": 2}
    models = [Regressor(columns=GOOD, **public), Regressor(columns=BAD, **public)]
    assert fit_one_of(models, TABLE, target="pay", epsilon=0.5).receipt_.terms["setting"] == "model 0"
    assert fit_one_of(models, TABLE, target="pay", score=("rmse", 5.0), max_epsilon=4).receipt_.outcome.met


@pytest.mark.parametrize("parts", [2, 5])
@pytest.mark.parametrize("epsilon", [0.02, 1.0, 8.0])
def test_shares_of_gaussian_noise_add_up_to_the_epsilon_asked_for(epsilon: float, parts: int) -> None:
    share, delta = _gaussian_share(Fraction(epsilon), Fraction(1, 10**6), parts), Fraction(1, 10**6)
    alone = expost.models.tabular.rung_schedule.plan_epsilon(share, delta)
    squares = sum(1 / leaf.noise_multiplier**2 for leaf in _gaussian_events(alone.event(1)))

    assert share > Fraction(epsilon) / parts
    assert 0.99 * epsilon < GaussianTotal(squares * parts).epsilon(delta) <= epsilon


def test_the_bill_of_a_shared_epsilon_is_the_price_of_all_gaussian_events_together() -> None:
    dataset = expost.Dataset(TABLE)
    found: list[Any] = []

    def pay(query: Any, data: Any) -> Any:
        found.append(query.plan(data, PlanContext()))
        raise KeyboardInterrupt

    choice = OneOf(classifiers(select=1, class_weight="balanced"), epsilon=1.0)
    with contextlib.suppress(KeyboardInterrupt):
        choice.fit_with(pay, dataset, target="old")
    (plan,) = found
    assert isinstance(plan, SharedTraining) and plan.event is not None
    leaves = _gaussian_events(plan.event)
    assert len(leaves) == 2 * 3  # of each model: the selection, the class weights, the training
    price = GaussianTotal(sum(1 / leaf.noise_multiplier**2 for leaf in leaves)).epsilon(Fraction(1, 10**6))
    assert price <= float(plan.worst_case.amounts()["epsilon"]) <= 1.0


def test_other_noise_is_added_up_by_epsilon_and_delta() -> None:
    table = TABLE.append_column("city", pa.array(RNG.choice(["Rome", "Oslo"], N)))
    private = [Classifier(columns={**each, "city": "private"}, simulation_seed=1) for each in (GOOD, BAD)]
    bill = fit_one_of(private, table, target="old", epsilon=2.0).receipt_.bill
    pure = fit_one_of(classifiers(), TABLE, target="old", epsilon=2.0, delta=0).receipt_.bill

    assert isinstance(bill, ApproxLoss) and bill.epsilon <= 2 and bill.delta <= Fraction(1, 10**6)
    assert pure == PureLoss(2)


@pytest.mark.parametrize("delta", [0, 1e-6])
def test_every_attempt_costs_its_level_and_the_ladder_is_what_is_paid(delta: float) -> None:
    found: list[TableLadder] = []

    def pay(query: Any, data: Any) -> Any:
        found.append(query.plan(data, PlanContext()))
        raise KeyboardInterrupt

    choice = OneOf(classifiers(), score=("accuracy", 0.9), delta=delta, levels=3)
    with contextlib.suppress(KeyboardInterrupt):
        choice.fit_with(pay, expost.Dataset(TABLE), target="old")
    (plan,) = found
    assert len(plan.attempts) == 6
    for (_, level), training in plan.attempts.items():
        worst = training.worst_case.amounts()
        assert worst["epsilon"] <= level and worst.get("delta", 0) <= plan.ladder.delta
        assert training.failure_probability == Fraction(1, 10) / 3  # type: ignore[union-attr]
        assert getattr(training, "laplace", False) is False  # a test on its own would cost more than the level
    assert plan.worst_case.amounts() == plan.ladder.guarantee.amounts()
    assert plan.worst_case.amounts()["epsilon"] <= 1


def test_a_miss_carries_no_model_and_shows_no_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TargetNotMet) as missed:
        fit_one_of(
            classifiers(progress=True), TABLE, target="old", score=("accuracy", 0.999), max_epsilon=0.2, levels=3
        )

    assert missed.value.release.value is None
    assert missed.value.receipt.bill.epsilon < missed.value.receipt.promise.epsilon
    shown = capsys.readouterr().out
    assert "3/3" in shown and "accuracy" not in shown


def test_the_number_of_attempts_is_not_on_the_receipt_of_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def settings(_: Any, __: Any, bits: Any) -> Any:
        drawn.append(1)
        return np.array([0])

    monkeypatch.setattr(table_search, "sample_uniform", settings)
    texts, numbers = set(), set()
    for seed in range(6):
        drawn.clear()
        with pytest.raises(TargetNotMet) as missed:
            models = classifiers(simulation_seed=seed, columns=BAD)
            fit_one_of(models, TABLE, target="old", score=("accuracy", 0.99), max_epsilon=0.2, levels=2)
        numbers.add(len(drawn))
        texts.add(str(missed.value.receipt.to_dict() | {"ledger_entry": None}))
    assert len(numbers) > 1 and len(texts) == 1


def test_one_account_is_charged_once_for_the_whole_search(tmp_path: Path) -> None:
    path = str(tmp_path / "t.ledger")
    with expost.open_ledger(path) as ledger:
        ledger.open_account("dataset:table", approx(4, 1e-6))
    fit_one_of(classifiers(ledger=path), TABLE, target="old", epsilon=1.0)
    with expost.open_ledger(path) as ledger:
        assert len([entry for entry in ledger.history("dataset:table") if entry.receipt]) == 1


@pytest.mark.parametrize("budget", [approx(5, 1e-5), zcdp(1), 5.0])
def test_a_session_pays_for_the_best_of_several_models(budget: Any) -> None:
    session = Session(expost.Dataset(TABLE), budget=budget, bits=SeededBits(2), simulation=True)
    model = session.fit(OneOf(classifiers(simulation_seed=None), epsilon=1.0), target="old")

    assert model.receipt_.terms["setting"] == "model 1"
    assert model.receipt_.ledger_entry
    assert ("newton" in model.receipt_.terms["way"]) == (budget != 5.0)


def test_models_and_terms_that_do_not_belong_together_are_refused() -> None:
    good = {"score": ("accuracy", 0.9)}
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ([*classifiers(), Regressor(columns=GOOD)], good, "one kind"),
        ([*classifiers(), *classifiers(class_weight={True: 2, False: 1})], good, "class_weight"),
        ([*classifiers(), *classifiers(unit="a")], good, "unit"),
        (classifiers(epsilon=1.0), good, "without epsilon, score"),
        (classifiers(), {}, "one of them"),
        (classifiers(), {**good, "epsilon": 1.0}, "one of them"),
        (classifiers(), {**good, "validation_share": 0.2}, "all rows"),
        (classifiers(), {**good, "fallback": 0}, "all rows"),
        (classifiers(about="population"), good, "population test one model only"),
        ([Classifier(columns=GOOD), Classifier(columns=[(0, 100)])], good, "by name"),
        ([Classifier(columns=GOOD, method="newton")], {**good, "delta": 0}, "positive delta"),
    ]
    for models, terms, match in wrong:
        with pytest.raises(InvalidRequest, match=match):
            fit_one_of(models, TABLE, target="old", **terms)
    with pytest.raises(InvalidRequest, match="no epsilon"):
        fit_one_of([expost.SGDClassifier(classes=[0, 1], rows=9, feature_bound=1.0)], NOISE, AGE > 50, epsilon=1.0)


def test_a_grid_search_without_a_ledger_is_warned_of() -> None:
    frame = TABLE.to_pandas()
    _UNCOUNTED.forget()
    search = GridSearchCV(Classifier(epsilon=1.0, columns=GOOD, classes=[False, True]), {"select": [1, 2]}, cv=2)
    with pytest.warns(RepeatedFitWarning, match="4 fits without a ledger"):
        search.fit(frame[["age", "a"]], frame["old"])
    _UNCOUNTED.forget()
