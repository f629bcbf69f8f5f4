"""Classifier and Regressor without a delta: what they pay, what they reach, and when they are taken by themselves."""

from typing import Any

import numpy as np
import pandas
import pytest

import expost
from expost.core import InvalidRequest, Outcome, PureLoss, TargetNotMet
from expost.models.tabular.tabular_rows import TabularRows
from expost.models.tabular.tilted_table import TiltedTable
from expost.noise.bits import SeededBits

RNG = np.random.default_rng(0)
N = 6000
AGE, JOB = RNG.uniform(18, 80, N), RNG.choice(["a", "b"], N)
FRAME = pandas.DataFrame(
    {"age": AGE, "job": JOB, "rich": AGE > 45, "pay": AGE + 20 * (JOB == "b"), "third": np.arange(N) % 3}
)
FRAME["id"] = np.arange(N) // 2
COLUMNS = {"age": (18, 80), "job": ["a", "b"]}


def classifier(**more: Any) -> expost.Classifier:
    return expost.Classifier(**{"columns": COLUMNS, "delta": 0, "epsilon": 1, "simulation_seed": 1} | more)


def regressor(**more: Any) -> expost.Regressor:
    given = {"columns": COLUMNS, "delta": 0, "epsilon": 1, "simulation_seed": 1, "target_bounds": (0, 120)}
    return expost.Regressor(**given | more)


@pytest.mark.parametrize("persons", [{}, {"unit": "id", "max_rows_per_unit": 2}])
def test_a_given_epsilon_is_the_pure_bill(persons: dict[str, Any]) -> None:
    sorter = classifier(**persons).fit(FRAME, target="rich")
    ruler = regressor(**persons).fit(FRAME, target="pay")
    sums = regressor(method="moments", **persons).fit(FRAME, target="pay")

    for model in (sorter, ruler, sums):
        assert model.receipt_.bill == PureLoss(1) and model.receipt_.outcome is Outcome.FIXED
        assert sum(model.receipt_.breakdown.values()) == 1
    assert sorter.score(FRAME, FRAME["rich"]) > 0.9
    assert ruler.score(FRAME, FRAME["pay"]) > 0.95
    assert sums.score(FRAME, FRAME["pay"]) > 0.85


@pytest.mark.parametrize("method", ["auto", "moments"])
def test_a_score_is_tested_and_costs_less_than_the_cap(method: str) -> None:
    model = regressor(epsilon=None, score=("r2", 0.5), max_epsilon=20, method=method).fit(FRAME, target="pay")
    receipt = model.receipt_

    assert receipt.outcome is Outcome.TESTED and receipt.achieved == 0.5
    assert isinstance(receipt.bill, PureLoss) and receipt.epsilon < 6
    assert sum(receipt.breakdown.values()) == receipt.bill.epsilon
    assert model.score(FRAME, FRAME["pay"]) >= 0.5


@pytest.mark.parametrize("measure", [("accuracy", 0.8), ("log_loss", 0.6)])
def test_a_classifier_stops_at_its_measure(measure: tuple[str, float]) -> None:
    model = classifier(epsilon=None, score=measure, max_epsilon=20).fit(FRAME, target="rich")

    assert model.receipt_.outcome is Outcome.TESTED and model.receipt_.epsilon < 6
    assert model.score(FRAME, FRAME["rich"]) > 0.7


def test_an_easier_score_costs_no_more() -> None:
    prices = []
    for wanted in (0.6, 0.75, 0.9):
        model = classifier(epsilon=None, score=("accuracy", wanted), max_epsilon=50).fit(FRAME, target="rich")
        prices.append(model.receipt_.epsilon)
    assert prices == sorted(prices)


def test_a_score_out_of_reach_ends_before_the_cap() -> None:
    with pytest.raises(TargetNotMet) as missed:
        classifier(epsilon=None, score=("accuracy", 0.9), max_epsilon=100, columns={"job": ["a", "b"]}).fit(
            FRAME, target="rich"
        )

    assert "out of reach" in missed.value.receipt.terms["ended"]
    assert missed.value.receipt.epsilon < 10 and missed.value.receipt.achieved < 0.6


def test_a_budget_without_a_delta_takes_the_pure_way_by_itself() -> None:
    def fit(budget: Any, **more: Any) -> Any:
        session = expost.Session(expost.Dataset(FRAME), budget, bits=SeededBits(3), simulation=True)
        given = {"epsilon": 0.5, "columns": COLUMNS, "target_bounds": (0, 120)} | more
        model = session.fit(expost.Regressor(**given), target="pay")
        return model.receipt_, session

    pure, session = fit(2)
    approx, _ = fit(expost.epsilon(2, 1e-5))
    assert pure.bill == PureLoss(0.5) and pure.terms["way"] == "objective: the budget has no delta"
    assert float(session.remaining().epsilon) == 1.5
    assert "delta" in approx.bill.amounts() and approx.terms["way"].startswith("newton: delta is above 0")
    assert fit(2, method="moments")[0].terms["way"] == "moments: asked for"
    assert session.price(expost.Regressor(epsilon=0.5, columns=COLUMNS, target_bounds=(0, 120)), target="pay")


def test_what_is_not_possible_without_a_delta_is_refused_in_a_sentence_unpaid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(self: TabularRows) -> Any:
        raise AssertionError("rows were read")

    monkeypatch.setattr(TabularRows, "__iter__", read)
    session = expost.Session(expost.Dataset(FRAME), 2)
    for model, target in (
        (classifier(method="newton", simulation_seed=None), "rich"),
        (classifier(method="moments", simulation_seed=None), "rich"),
        (classifier(epsilon=1e-9, simulation_seed=None), "rich"),
        (classifier(epsilon=None, score=("accuracy", 0.9), max_epsilon=1e-8, simulation_seed=None), "rich"),
    ):
        with pytest.raises(InvalidRequest, match=r"Expected .+\. \w+ "):
            model.fit(FRAME, target=target)
    assert float(session.remaining().epsilon) == 2


def test_fits_of_several_classes_share_the_level_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[Any] = []
    release = TiltedTable.release

    def noted(self: TiltedTable, blocks: Any, epsilon: Any, *rest: Any, positive: int) -> Any:
        levels.append((positive, epsilon))
        return release(self, blocks, epsilon, *rest, positive=positive)

    monkeypatch.setattr(TiltedTable, "release", noted)
    rows = FRAME.assign(group=np.digitize(AGE, [35, 60]))
    model = classifier(classes=[0, 1, 2], epsilon=3).fit(rows, target="group")

    assert [place for place, _ in levels] == [0, 1, 2] and len({level for _, level in levels}) == 1
    assert sum(level for _, level in levels) == model.receipt_.breakdown["generation"]
    assert model.receipt_.bill == PureLoss(3) and model.score(rows, rows["group"]) > 0.6
    tested = classifier(classes=[0, 1, 2], epsilon=None, score=("accuracy", 0.55), max_epsilon=20)
    assert tested.fit(rows, target="group").receipt_.outcome is Outcome.TESTED


def test_empty_and_odd_tables_train_without_an_error() -> None:
    empty = FRAME.iloc[:0]
    odd = FRAME.iloc[:50].assign(age=np.nan, pay=np.inf, job="z")
    wrong = FRAME.iloc[:50].assign(rich="perhaps")

    assert classifier(classes=[False, True]).fit(empty, target="rich").receipt_.epsilon == 1
    assert regressor().fit(empty, target="pay").receipt_.epsilon == 1
    assert regressor(method="moments").fit(odd, target="pay").receipt_.epsilon == 1
    assert regressor().fit(odd, target="pay").receipt_.epsilon == 1
    assert classifier(classes=["no", "yes"]).fit(wrong, target="rich").receipt_.epsilon == 1


def test_declared_rows_are_not_trusted_by_the_solver() -> None:
    model = classifier(rows=10).fit(FRAME, target="rich")

    assert model.score(FRAME, FRAME["rich"]) > 0.9
    assert model.receipt_.terms["rows, about"] == 10


def test_pure_models_are_saved_and_predict_the_same(tmp_path: Any) -> None:
    import pickle

    model = regressor().fit(FRAME, target="pay")
    again = pickle.loads(pickle.dumps(model))
    assert again.predict(FRAME).tolist() == model.predict(FRAME).tolist()
    assert regressor().fit(FRAME, target="pay").coef_.tolist() == model.coef_.tolist()


def test_an_interrupted_training_keeps_the_model_that_was_measured_and_pays_for_what_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest, calls = TiltedTable.release, []

    def interrupted(self: TiltedTable, *given: Any, **more: Any) -> Any:
        calls.append(given[1])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return honest(self, *given, **more)

    monkeypatch.setattr(TiltedTable, "release", interrupted)
    with pytest.raises(TargetNotMet) as missed:
        classifier(epsilon=None, score=("accuracy", 0.999), max_epsilon=20).fit(FRAME, target="rich")

    receipt = missed.value.receipt
    assert receipt.terms["ended"] == "stopped by the caller"
    assert receipt.breakdown["generation"] == sum(calls)  # the fit that was interrupted is paid for
