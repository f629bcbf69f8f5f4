"""One of several models is fitted under one bill."""

from fractions import Fraction

import numpy as np
import pytest

from expost import InvalidRequest, TargetNotMet, approx, open_ledger
from expost.models import SGDClassifier, SGDRegressor, fit_one_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6000, 2))
Y = (X[:, 0] > X[:, 1]).astype(int)


def models(**changes: object) -> list[SGDClassifier]:
    terms = {"classes": [0, 1], "rows": 6000, "feature_bound": 3.0, "steps": 15, "simulation_seed": 4} | changes
    return [SGDClassifier(clip=clip, **terms) for clip in (1.0, 0.5)]


def test_the_winner_predicts_and_keeps_its_receipt() -> None:
    model = fit_one_of(models(), X, Y, target=("accuracy", 0.85), max_epsilon=4.0)

    assert model.score(X, Y) > 0.85
    assert model.receipt_.epsilon <= 4
    assert model.receipt_.terms["setting"] in ("model 0", "model 1")


def test_the_ledger_is_charged_once_for_all_that_was_tried(tmp_path) -> None:
    path = str(tmp_path / "t.ledger")
    with open_ledger(path) as ledger:
        ledger.open_account("dataset:table", approx(4, 1e-6))
    model = fit_one_of(models(ledger=path), X, Y, target=("accuracy", 0.85), max_epsilon=4.0)

    with open_ledger(path) as ledger:
        assert len([entry for entry in ledger.history("dataset:table") if entry.receipt]) == 1
    assert model.receipt_.bill.delta == Fraction(1, 10**6)


def test_a_target_out_of_reach_says_so() -> None:
    with pytest.raises(TargetNotMet):
        fit_one_of(models(), X, Y, target=("accuracy", 0.999), max_epsilon=0.5)


def test_models_that_do_not_fit_together_are_refused() -> None:
    mixed = [SGDClassifier(classes=[0, 1], rows=10), SGDRegressor(rows=10, target_bounds=(0, 1))]
    for wrong in ([], mixed, models(epsilon=1.0)):
        with pytest.raises(InvalidRequest):
            fit_one_of(wrong, X, Y, target=("accuracy", 0.9))
    with pytest.raises(InvalidRequest):
        fit_one_of(models(), X, Y, target=("accuracy", 0.9), levels=0)
