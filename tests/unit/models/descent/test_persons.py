"""Gradient descent with an id as the unit: the rows of a person share one weight, in gradients and in measured scores."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import expost
from expost.core import InvalidRequest, Measure, Target
from expost.core.sealed import unseal
from expost.data.unit_share import share_weights
from expost.models.descent.descent_rule import DescentRule
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.descent.linear_learner import LinearLearner, LinearProblem
from expost.models.descent.score_head import Head, Logistic, Softmax, Squared
from expost.models.descent.stopping_test import MeasureScale, ScoreRule
from expost.models.descent.training_schedule import Phase

PERSONS, ROWS = 4000, 3
BOUNDS = {"a": (-3, 3), "b": (-3, 3), "number": (-6, 6)}


def visits(seed: int = 0) -> expost.Dataset:
    random = np.random.default_rng(seed)
    person = np.repeat(np.arange(PERSONS), ROWS)
    features = random.normal(size=(len(person), 2))
    number = features @ [1.0, -1.0] + 0.3 * random.normal(size=len(person))
    columns = {"person": person, "a": features[:, 0], "b": features[:, 1], "number": number}
    columns |= {"label": number > 0, "third": np.digitize(number, [-0.5, 0.5])}
    return expost.Dataset(
        pa.table(columns),
        name="visits",
        unit="person",
        max_rows_per_unit=2,
        bounds=BOUNDS,
        categories={"third": [0, 1, 2]},
    )


def fitted(model: Any, target: str) -> Any:
    return expost.Session(visits(), expost.approx(20, 1e-4)).fit(model, features=["a", "b"], target=target)


@pytest.mark.parametrize("solver", ["gradient", "newton"])
@pytest.mark.parametrize("head", [Logistic(), Softmax(3), Squared()], ids=["logistic", "softmax", "squared"])
@pytest.mark.parametrize("rows", [2, 7, 50])
def test_one_person_moves_gradients_and_scores_by_the_sensitivity_at_most(head: Head, rows: int, solver: str) -> None:
    random = np.random.default_rng(rows)
    numeric = isinstance(head, Squared)
    problem = LinearProblem(FeatureGrid(2, bound=3.0), head, 1.0, DescentRule(), solver, rows)
    measure = Measure.RMSE if numeric else Measure.ACCURACY
    target = Target(measure, Fraction(1, 2), Fraction(1, 10))

    rule = replace(ScoreRule.of(target, measured=True), rows_per_unit=rows)
    scale = MeasureScale.of(rule)
    shares = np.full(rows, share_weights(rows)[rows], np.float64)
    weights = 100 * random.normal(size=(head.outputs, 3))
    moves, scores = [], []
    for _ in range(30):
        # Rows of one person that all push alike move the sums the farthest.
        features = np.repeat(100 * random.normal(size=(1, 2)), rows, axis=0) * random.choice([1, 1e6, 1e-3])
        targets = np.full(rows, random.uniform(-1, 1)) if numeric else np.full(rows, random.integers(head.outputs))
        learner = problem.table(features, targets, shares).learner(slice(None), None)
        assert isinstance(learner, LinearLearner)
        learner._descent.weights[:] = learner._descent._average[:] = weights
        sensitivity = learner.open(Phase(1, Fraction(20)), 1000.0)
        moves.append(np.linalg.norm(unseal(learner.measure(slice(None))).astype(float)) / float(sensitivity.amount))
        moved = unseal(learner.measured_score(rule, scale)).astype(float)
        scores.append(np.linalg.norm(moved) / float(scale.sensitivity.amount))

    assert 0.5 < max(moves) <= 1 and 0.5 < max(scores) <= 1


def test_models_of_persons_learn_and_their_receipts_name_the_person() -> None:
    models = {
        "label": expost.SGDClassifier(epsilon=1, rows=PERSONS),
        "third": expost.SGDClassifier(epsilon=1, rows=PERSONS, solver="newton"),
        "number": expost.SGDRegressor(epsilon=1, rows=PERSONS),
    }
    table = visits()
    batch = pa.Table.from_batches(list(table.batches(["a", "b", *models])))
    for target, model in models.items():
        fit = fitted(model, target)

        assert str(fit.receipt_.unit) == "all rows of one person"
        assert fit.receipt_.terms["rows per unit, at most"] == 2
        truth = batch.column(target).to_numpy(zero_copy_only=False)
        assert fit.score(batch.select(["a", "b"]), truth) > 0.75


def test_the_score_of_persons_is_tested_and_a_false_one_is_not_met() -> None:
    model = fitted(expost.SGDClassifier(score=("accuracy", 0.85), rows=PERSONS), "label")

    assert model.receipt_.outcome.value == "tested" and model.receipt_.epsilon < 1
    with pytest.raises(expost.TargetNotMet):
        fitted(expost.SGDClassifier(score=("accuracy", 0.99), rows=PERSONS), "label")


@pytest.mark.parametrize(
    "terms",
    [
        {"epsilon": 1, "batches": "poisson"},
        {"epsilon": 1, "batch_size": 100},
        {"score": ("accuracy", 0.8), "validation_share": 0.2},
        {"score": ("accuracy", 0.8), "phases": 3},
    ],
)
def test_what_would_need_parts_of_persons_is_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"expost\.Classifier"):
        fitted(expost.SGDClassifier(rows=PERSONS, **terms), "label")


def test_an_r2_and_a_choice_among_models_are_refused_for_persons() -> None:
    with pytest.raises(InvalidRequest, match=r"expost\.Classifier"):
        fitted(expost.SGDRegressor(rows=PERSONS, score=("r2", 0.5)), "number")
    models = [expost.SGDClassifier(rows=PERSONS, clip=clip) for clip in (0.1, 1)]
    with pytest.raises(InvalidRequest, match="single rows to choose"):
        fitted(expost.OneOf(models, score=("accuracy", 0.8)), "label")


@pytest.mark.parametrize("model", [expost.LogisticRegression, expost.HuberSVC])
def test_a_described_dataset_supplies_the_classes(model: Any) -> None:
    assert fitted(model(epsilon=1), "label").classes_.tolist() == [False, True]
