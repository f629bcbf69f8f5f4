"""One of several models is fitted under one bill."""

import contextlib
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from expost import Dataset, InvalidRequest, Session, TargetNotMet, approx, open_ledger
from expost.models import OneOf, SGDClassifier, SGDRegressor, fit_one_of
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.descent.linear_learner import LinearLearner, LinearTable
from expost.models.model_choice import SharedRows
from expost.noise import SeededBits

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6000, 2))
Y = (X[:, 0] > X[:, 1]).astype(int)


def models(**changes: object) -> list[SGDClassifier]:
    terms = {"classes": [0, 1], "rows": 6000, "feature_bound": 3.0, "steps": 15, "simulation_seed": 4} | changes
    return [SGDClassifier(clip=clip, **terms) for clip in (1.0, 0.5)]


def test_the_winner_predicts_and_keeps_its_receipt() -> None:
    model = fit_one_of(models(), X, Y, score=("accuracy", 0.85), max_epsilon=4.0)

    assert model.score(X, Y) > 0.85
    assert model.receipt_.epsilon <= 4
    assert model.receipt_.terms["setting"] in ("model 0", "model 1")


def test_the_ledger_is_charged_once_for_all_that_was_tried(tmp_path) -> None:
    path = str(tmp_path / "t.ledger")
    with open_ledger(path) as ledger:
        ledger.open_account("dataset:table", approx(4, 1e-6))
    model = fit_one_of(models(ledger=path), X, Y, score=("accuracy", 0.85), max_epsilon=4.0)

    with open_ledger(path) as ledger:
        assert len([entry for entry in ledger.history("dataset:table") if entry.receipt]) == 1
    assert model.receipt_.bill.delta == Fraction(1, 10**6)


def test_a_target_out_of_reach_says_so() -> None:
    with pytest.raises(TargetNotMet):
        fit_one_of(models(), X, Y, score=("accuracy", 0.999), max_epsilon=0.5)


def test_models_that_do_not_fit_together_are_refused() -> None:
    mixed = [
        SGDClassifier(classes=[0, 1], rows=10, feature_bound=1.0),
        SGDRegressor(rows=10, target_bounds=(0, 1), feature_bound=1.0),
    ]
    for wrong in ([], mixed, models(epsilon=1.0)):
        with pytest.raises(InvalidRequest):
            fit_one_of(wrong, X, Y, score=("accuracy", 0.9))
    with pytest.raises(InvalidRequest):
        fit_one_of(models(), X, Y, score=("accuracy", 0.9), levels=0)


TABLE = pa.table({"a": X[:, 0], "b": X[:, 1], "label": np.where(Y, "yes", "no")})


def described(**changes: object) -> Dataset:
    return Dataset(TABLE, **({"adjacency": "add-remove", "name": "people"} | changes))


def named(**changes: object) -> list[SGDClassifier]:
    return models(classes=["no", "yes"], **changes)


def test_a_dataset_gives_the_model_that_its_columns_give() -> None:
    terms = {"score": ("accuracy", 0.85), "max_epsilon": 4.0}
    by_name = fit_one_of(named(), described(), "label", **terms)
    by_hand = fit_one_of(named(), X, TABLE.column("label").to_numpy(), **terms)

    assert (by_name.coef_ == by_hand.coef_).all()
    assert by_name.predict([[1.0, -1.0]]).tolist() == ["yes"]


def test_a_dataset_bills_its_own_account(tmp_path: Path) -> None:
    path = str(tmp_path / "t.ledger")
    with open_ledger(path) as ledger:
        ledger.open_account("dataset:people", approx(4, 1e-6))
    model = fit_one_of(named(ledger=path), described(), "label", score=("accuracy", 0.8), max_epsilon=4.0)

    with open_ledger(path) as ledger:
        assert ledger.spent("dataset:people").amounts()["epsilon"] >= model.receipt_.bill.epsilon


def test_a_session_prices_and_pays_for_the_choice() -> None:
    session = Session(described(), budget=approx(5, 1e-5), bits=SeededBits(2), simulation=True)
    choice = OneOf(named(simulation_seed=None), score=("accuracy", 0.8), max_epsilon=4.0)

    price = session.price(choice, features=["a", "b"], target="label")
    model = session.fit(choice, features=["a", "b"], target="label")

    assert price.worst_case.epsilon <= 4
    assert model.receipt_.bill.within(price.worst_case.promise())
    assert session.spent().amounts()["epsilon"] >= model.receipt_.bill.epsilon
    assert model.receipt_.ledger_entry


def test_a_session_keeps_its_own_books() -> None:
    session = Session(described(), budget=approx(5, 1e-5))

    with pytest.raises(InvalidRequest, match="ledger"):
        session.fit(OneOf(named(ledger="x.ledger"), score=("accuracy", 0.8)), features=["a"], target="label")
    with pytest.raises(InvalidRequest, match="feature"):
        session.fit(OneOf(named(), score=("accuracy", 0.8)), features=[], target="label")
    assert session.spent().amounts()["epsilon"] == 0


def test_a_miss_carries_no_model_and_costs_less_than_the_cap() -> None:
    with pytest.raises(TargetNotMet) as raised:
        fit_one_of(models(), X, Y, score=("accuracy", 0.999), max_epsilon=0.5)

    assert raised.value.release.value is None
    assert raised.value.receipt.bill.epsilon < raised.value.receipt.promise.epsilon


def test_a_fallback_is_trained_at_the_highest_level_and_billed_at_the_cap() -> None:
    with pytest.raises(TargetNotMet) as raised:
        fit_one_of(models(), X, Y, score=("accuracy", 0.9999), max_epsilon=4.0, fallback=1)

    receipt, kept = raised.value.receipt, raised.value.release.value
    assert receipt.terms["setting"] == "model 1"
    assert np.mean((kept.compute_scores(X)[:, 0] > 0) == Y) > 0.85
    assert receipt.bill.epsilon == receipt.promise.epsilon <= 4
    assert receipt.bill.delta == receipt.promise.delta == Fraction(1, 10**6)


def test_levels_can_be_watched_and_attempts_cannot(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TargetNotMet):
        fit_one_of(models(progress=True), X, Y, score=("accuracy", 0.999), max_epsilon=0.5, levels=3)

    assert "3/3" in capsys.readouterr().out


def test_models_that_do_not_share_what_is_theirs_together_are_refused() -> None:
    for change in ({"rows": 5000}, {"classes": [1, 0]}, {"ledger": "other"}, {"simulation_seed": 5}):
        with pytest.raises(InvalidRequest, match="the same"):
            fit_one_of([*models(), *models(**change)], X, Y, score=("accuracy", 0.9))


def test_newton_and_gradient_steps_can_be_weighed_against_each_other() -> None:
    tried = [*models(), *models(solver="newton")]

    assert fit_one_of(tried, X, Y, score=("accuracy", 0.85), max_epsilon=4.0).score(X, Y) > 0.85


def test_an_attempt_takes_the_steps_of_a_training_without_a_target() -> None:
    for solver, steps in (("gradient", 100), ("newton", 40)):
        (tried,) = OneOf(models(steps=None, solver=solver)[:1], score=("accuracy", 0.9))._copy_models()
        assert tried.steps == steps


def test_an_interrupted_choice_stays_charged_at_its_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "t.ledger")
    with open_ledger(path) as ledger:
        ledger.open_account("dataset:table", approx(4, 1e-6))
    monkeypatch.setattr(LinearLearner, "take_step", interrupt)
    choice = OneOf(models(ledger=path), score=("accuracy", 0.999), max_epsilon=4.0)
    with pytest.raises(KeyboardInterrupt):
        choice.fit(X, Y)

    with open_ledger(path) as ledger:
        spent = ledger.spent("dataset:table").amounts()
        assert len(ledger.open_holds()) == 1
    assert Fraction(399, 100) < spent["epsilon"] <= 4 and spent["delta"] == Fraction(1, 10**6)


def interrupt(learner: Any, noisy: Any) -> None:
    raise KeyboardInterrupt


def test_equal_values_are_the_same_whatever_holds_them() -> None:
    alike = [models(classes=classes)[0] for classes in ([0, 1], (0, 1), np.array([0, 1]), [np.int64(0), 1])]
    alike += models(rows=np.int64(6000))

    model = fit_one_of(alike, X, Y, score=("accuracy", 0.85), max_epsilon=4.0)

    assert model.classes_.tolist() == [0, 1]
    for other in ([1, 0], np.array([1, 0]), ["0", "1"], np.array([0, 1, 2])):
        with pytest.raises(InvalidRequest, match="the same"):
            fit_one_of([*models(), *models(classes=other)], X, Y, score=("accuracy", 0.9))


BOUNDED = [(-3, 3), (-3, 3)]


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_encoded_once_a_grid_and_whatever_is_tried(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[FeatureGrid] = []
    encode, attempts = FeatureGrid.encode_rows, []
    learner = LinearTable.learner

    def counted(grid: FeatureGrid, features: Any) -> Any:
        if len(features):  # checks are made with empty tables
            encoded.append(grid)
            assert not attempts  # so that time tells of the settings alone, not of those that were tried
        return encode(grid, features)

    def tried(table: Any, training: Any, validation: Any) -> Any:
        attempts.extend([training] * (validation is not None))
        return learner(table, training, validation)

    monkeypatch.setattr(FeatureGrid, "encode_rows", counted)
    monkeypatch.setattr(LinearTable, "learner", tried)
    settings = [*models(simulation_seed=seed), *models(simulation_seed=seed, bounds=BOUNDED, feature_bound=None)]
    with contextlib.suppress(TargetNotMet):
        fit_one_of(settings * 3, X, Y, score=("accuracy", 0.99), max_epsilon=1.0)

    assert len(encoded) == len(set(encoded)) == 2


def test_shared_rows_are_those_of_each_problem_alone() -> None:
    shared = SharedRows(X, Y)
    given = models()[0]._read_given(X, Y)
    for model in (*models(), *models(bounds=BOUNDED), *models(fit_intercept=False)):
        model._read_given(X, Y)
        problem = model._build_problem(given, ladder=False)
        ours, alone = shared.table(problem), problem.table(X, Y)
        assert ours.problem is problem
        np.testing.assert_array_equal(ours.kept.rows.integers(), alone.kept.rows.integers())
    assert len(shared._encoded) == 3


def test_shared_rows_do_not_leave() -> None:
    assert "rows shared" in repr(SharedRows(X, Y))
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(SharedRows(X, Y))


def test_every_model_knows_the_columns_that_the_first_has_read() -> None:
    table = pd.DataFrame(X, columns=["a", "b"])
    for fallback in (0, 1):
        model = fit_one_of(
            models(simulation_seed=fallback), table, Y, score=("accuracy", 0.85), max_epsilon=4.0, fallback=fallback
        )
        assert model.feature_names_in_.tolist() == ["a", "b"]
        with pytest.raises(ValueError, match="feature names"):
            model.predict(table[["b", "a"]])
