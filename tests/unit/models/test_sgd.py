"""The two estimators trained by gradient descent keep scikit-learn's habits and their receipts."""

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import check_estimator

from expost import BudgetExceeded, InvalidRequest, TargetNotMet, approx, open_ledger
from expost.core import Outcome
from expost.models.descent.linear_learner import LinearLearner
from expost.models.descent.sgd_estimator import SGDClassifier, SGDRegressor

# What scikit-learn expects and privacy forbids, with the reason.
EXPECTED_FAILURES = {
    "check_supervised_y_no_nan": "a missing target is private: it counts as the middle instead of being reported",
    "check_dtype_object": "whether objects are numbers depends on single cells: they are refused by their type",
}


def two_classes(rows: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3))
    return x, (x @ [1.0, -1.0, 0.5] + 0.2 * rng.normal(size=rows) > 0).astype(int)


def line(rows: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (rows, 3))
    return x, 10 + 5 * (x @ [1.0, -1.0, 0.5])


def classifier(**changes: Any) -> SGDClassifier:
    terms = {"epsilon": 2.0, "classes": [0, 1], "rows": 4000, "feature_bound": 3.0, "steps": 40, "simulation_seed": 1}
    return SGDClassifier(**(terms | changes))


def regressor(**changes: Any) -> SGDRegressor:
    terms = {
        "epsilon": 2.0,
        "rows": 4000,
        "feature_bound": 2.0,
        "target_bounds": (-5.0, 25.0),
        "steps": 60,
        "simulation_seed": 1,
    }
    return SGDRegressor(**(terms | changes))


MODELS = [
    SGDClassifier(
        noise_multiplier=0.3,
        classes="observed",
        rows="observed",
        feature_bound=20.0,
        clip=50.0,
        steps=60,
        simulation_seed=1,
    ),
    SGDRegressor(
        noise_multiplier=0.3,
        rows="observed",
        feature_bound=20.0,
        clip=50.0,
        target_bounds=(-5, 5),
        steps=60,
        simulation_seed=1,
    ),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_scikit_learn_accepts_the_estimator(model: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(model, expected_failed_checks=EXPECTED_FAILURES, on_fail=None)

    failed = [
        (result["check_name"], repr(result["exception"])[:300]) for result in results if result["status"] == "failed"
    ]
    assert failed == []
    assert sum(result["status"] == "passed" for result in results) > 35


def test_a_target_is_reached_and_the_training_stops_by_itself() -> None:
    x, y = two_classes(20_000)

    model = classifier(epsilon=None, score=("accuracy", 0.85), rows=20_000, max_epsilon=2.0).fit(x, y)

    assert model.receipt_.outcome is Outcome.TESTED
    assert model.receipt_.epsilon < 1
    assert model.score(x, y) > 0.84
    assert model.receipt_.rung is not None and model.receipt_.rung < 11


def test_a_missed_target_raises_with_the_model_that_was_paid_for() -> None:
    x, y = two_classes()

    with pytest.raises(TargetNotMet) as raised:
        classifier(epsilon=None, score=("accuracy", 0.999), max_epsilon=0.5, phases=3).fit(x, y)

    assert raised.value.receipt.epsilon <= 0.5
    assert raised.value.release.value.coefficients.shape == (1, 3)


def test_the_price_is_known_before_the_data() -> None:
    assert 1.9 < float(classifier().price().cap.epsilon) <= 2
    prices = classifier(epsilon=None, score=("accuracy", 0.9), max_epsilon=1.0).price()
    # Prices rise by about a tenth from phase to phase, up to the cap.
    assert len(prices.epsilons) > 20 and 0.9 < prices.cap.epsilon <= 1
    assert 1.05 < float(prices.epsilons[10] / prices.epsilons[9]) < 1.15


def test_several_classes_are_learned() -> None:
    digits = load_digits()
    model = SGDClassifier(
        epsilon=8.0, classes=range(10), rows=1800, feature_bound=60.0, steps=60, simulation_seed=1
    ).fit(digits.data, digits.target)

    assert model.score(digits.data, digits.target) > 0.8
    assert model.predict_proba(digits.data[:5]).sum(axis=1) == pytest.approx(1)
    assert model.decision_function(digits.data[:5]).shape == (5, 10)


def test_a_regression_is_undone_to_raw_units() -> None:
    x, y = line()

    model = regressor().fit(x, y)

    assert model.coef_ == pytest.approx([5, -5, 2.5], abs=0.8)
    assert model.intercept_ == pytest.approx(10, abs=0.5)
    assert model.score(x, y) > 0.95


def test_a_regression_can_aim_at_an_rmse() -> None:
    x, y = line(20_000)

    model = regressor(epsilon=None, score=("rmse", 1.5), rows=20_000, max_epsilon=2.0).fit(x, y)

    assert model.receipt_.outcome is Outcome.TESTED
    assert np.sqrt(np.mean((model.predict(x) - y) ** 2)) < 1.6


def test_huber_and_unknown_losses() -> None:
    x, y = line()

    assert regressor(loss="huber").fit(x, y).score(x, y) > 0.9
    with pytest.raises(InvalidRequest, match="loss"):
        regressor(loss="hinge").fit(x, y)


@pytest.mark.parametrize("batches", ["full", "poisson", "disjoint"])
def test_every_kind_of_batch_learns(batches: str) -> None:
    x, y = two_classes()
    terms = {"batch_size": 400, "accountant": "rdp"} if batches == "poisson" else {"batch_size": 400}

    model = classifier(batches=batches, epsilon=None, noise_multiplier=2.0, **terms).fit(x, y)

    assert model.score(x, y) > 0.85
    assert model.receipt_.terms["batches"] == batches


def test_one_pass_of_disjoint_batches_costs_one_step() -> None:
    one_pass = classifier(batches="disjoint", batch_size=400, steps=10, epsilon=None, noise_multiplier=2.0)
    one_step = classifier(batches="full", steps=1, epsilon=None, noise_multiplier=2.0)

    assert one_pass.price().cap == one_step.price().cap


@pytest.mark.parametrize("kind", ["pandas", "arrow", "sparse", "lists"])
def test_any_table_gives_the_same_model(kind: str) -> None:
    x, y = two_classes(500)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    table = {
        "pandas": lambda: frame,
        "arrow": lambda: pa.Table.from_pandas(frame),
        "sparse": lambda: scipy.sparse.csr_matrix(x),
        "lists": lambda: x.tolist(),
    }[kind]()

    assert np.array_equal(classifier(steps=5).fit(table, y).coef_, classifier(steps=5).fit(x, y).coef_)


def test_column_bounds_scale_and_unscale() -> None:
    x, y = two_classes()
    scaled = x * [1, 100, 0.01] + [0, 50, 3]
    bounds = [(-4, 4), (-350, 450), (2.96, 3.04)]

    plain = classifier(bounds=[(-4, 4)] * 3, feature_bound=None).fit(x, y)
    model = classifier(bounds=bounds, feature_bound=None).fit(scaled, y)

    assert np.mean(model.predict(scaled) == plain.predict(x)) > 0.97


def test_bounds_by_name_need_every_column() -> None:
    x, y = two_classes(200)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])

    classifier(bounds={"a": (-4, 4), "b": (-4, 4), "c": (-4, 4)}, steps=2).fit(frame, y)
    with pytest.raises(InvalidRequest, match="bounds"):
        classifier(bounds={"a": (-4, 4)}).fit(frame, y)
    with pytest.raises(InvalidRequest, match="low"):
        classifier(bounds=[(4, -4)] * 3).fit(frame, y)


def test_private_numbers_must_be_declared() -> None:
    x, y = two_classes(200)

    with pytest.raises(InvalidRequest, match="rows"):
        classifier(rows=None).fit(x, y)
    with pytest.raises(InvalidRequest, match="classes"):
        classifier(classes=None).fit(x, y)


def test_the_true_number_of_rows_is_never_used() -> None:
    x, y = two_classes()
    half, whole = (classifier().fit(x[:rows], y[:rows]).receipt_.to_dict() for rows in (2000, 4000))

    assert half | {"ledger_entry": None} == whole | {"ledger_entry": None}
    assert classifier(rows=100).price() == classifier(rows=100_000).price()


def test_strange_rows_raise_nothing() -> None:
    x, y = two_classes(300)
    x[0], x[1], x[2] = np.nan, np.inf, 1e300
    labels = y.astype(object)
    labels[3] = 7

    model = classifier(steps=3).fit(x, labels.astype(int))

    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("bounds", [None, [(1, 5), (-4, 0), (-3, 3)]], ids=["no bounds", "bounds"])
def test_a_missing_value_is_the_same_in_training_and_in_prediction(kind: Any, bounds: Any) -> None:
    x, y = two_classes(300)
    x[::7, 0] = x[1::7, 1] = np.nan
    filled = np.where(np.isnan(x), 0.0 if bounds is None else [3.0, -2.0, 0.0], x)

    gappy, whole = (classifier(steps=3, bounds=bounds).fit(kind(rows), y) for rows in (x, filled))

    np.testing.assert_array_equal(gappy.coef_, whole.coef_)
    np.testing.assert_allclose(gappy.decision_function(kind(x)), whole.decision_function(filled), rtol=1e-9)


def test_a_ledger_is_billed_and_a_spent_one_refuses(tmp_path: Path) -> None:
    x, y = two_classes(500)
    url = f"sqlite:///{tmp_path}/book.ledger"
    with pytest.raises(InvalidRequest, match="account"):
        classifier(ledger=url, simulation_seed=None).fit(x, y)
    open_ledger(url).open_account("dataset:table", approx(3, 1e-5))

    model = classifier(ledger=url, steps=3, simulation_seed=None).fit(x, y)

    assert model.receipt_.ledger_entry
    bill = float(model.receipt_.bill.amounts()["epsilon"])
    assert bill <= float(open_ledger(url).spent("dataset:table").amounts()["epsilon"]) <= 1.3 * bill
    with pytest.raises(BudgetExceeded):  # trainings compose better than they add, but not for ever
        for _ in range(3):
            classifier(ledger=url, steps=3, simulation_seed=None).fit(x, y)
    with pytest.raises(InvalidRequest, match="path"):
        classifier(ledger=open_ledger(None)).fit(x, y)


def test_a_checkpoint_is_used_and_removed(tmp_path: Path) -> None:
    x, y = two_classes(500)
    path = tmp_path / "run.npz"

    model = classifier(checkpoint=str(path), steps=5).fit(x, y)

    assert model.receipt_.simulation
    assert not path.exists()


def stop_at_step(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, original = [], LinearLearner.take_step

    def descend(self: Any, noisy: Any) -> None:
        steps.append(1)
        if len(steps) == number:
            raise KeyboardInterrupt
        original(self, noisy)

    monkeypatch.setattr(LinearLearner, "take_step", descend)


@pytest.mark.parametrize("resumable", [False, True])
def test_a_fit_to_a_target_that_is_stopped_says_so_and_keeps_its_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, resumable: bool
) -> None:
    x, y = two_classes(500)
    stop_at_step(7, monkeypatch)
    files = {"checkpoint": str(tmp_path / "run.npz")} if resumable else {}
    model = classifier(steps=20, phases=5, epsilon=None, score=("accuracy", 0.999), **files)

    with pytest.raises(TargetNotMet, match="stopped by hand") as missed:
        model.fit(x, y)

    assert "max_epsilon" not in str(missed.value)
    assert model.release_ is missed.value.release and model.predict(x).shape == y.shape
    assert model.receipt_.bill.epsilon == model.price().epsilons[1]  # the second phase, of five, was begun


def test_a_fit_that_misses_its_target_by_itself_keeps_no_model() -> None:
    x, y = two_classes(500)
    model = classifier(steps=5, phases=2, epsilon=None, score=("accuracy", 0.999), max_epsilon=0.1)

    with pytest.raises(TargetNotMet, match="Raise max_epsilon"):
        model.fit(x, y)

    assert not hasattr(model, "release_")


def test_an_interrupted_fit_keeps_what_was_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = two_classes(500)
    stop_at_step(7, monkeypatch)

    model = classifier(steps=20).fit(x, y)

    assert model.receipt_.terms["stopped"] == "by the caller"
    assert model.receipt_.terms["steps run"] == 6
    assert model.receipt_.bill == classifier(steps=20).price().cap


def test_progress_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = two_classes(200)

    classifier(progress=True, steps=3).fit(x, y)

    assert "epsilon" in capsys.readouterr().out


def test_models_can_be_cloned_and_pickled() -> None:
    x, y = two_classes(300)
    model = classifier(steps=3).fit(x, y)

    assert clone(model).get_params() == model.get_params()
    assert (pickle.loads(pickle.dumps(model)).predict(x) == model.predict(x)).all()


def test_a_receipt_survives_json() -> None:
    x, y = two_classes(300)
    receipt = classifier(steps=3).fit(x, y).receipt_

    assert type(receipt).from_json(receipt.to_json()) == receipt
    assert json.loads(receipt.terms["events"])["kind"] == "repeat"


def test_weights_are_refused() -> None:
    x, y = two_classes(300)

    with pytest.raises(InvalidRequest, match="sample_weight"):
        classifier().fit(x, y, sample_weight=np.ones(300))


def test_no_exact_number_is_kept_on_the_model() -> None:
    x, y = two_classes(300)
    model = classifier(steps=3).fit(x, y)

    kept = {name for name in vars(model) if name.endswith("_")}
    assert kept <= {"n_features_in_", "classes_", "release_", "prices_", "coef_", "intercept_", "feature_names_in_"}


def test_a_regression_bears_columns_that_all_point_one_way() -> None:
    """Steps as long as bounded slopes allow would throw squared errors from one side to the other."""
    rng = np.random.default_rng(0)
    rows = 0.45 + 0.05 * rng.normal(size=(5000, 5))
    line = 3 * (rows[:, 0] - rows[:, 1])
    model = SGDRegressor(epsilon=20.0, target_bounds=(-1, 1), rows=5000, feature_bound=1.2, simulation_seed=1)
    error = model.fit(rows, line).predict(rows) - line

    assert np.sqrt(np.mean(error**2)) < 0.3 * line.std()


def test_a_penalty_shortens_the_steps() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (3000, 2))
    model = SGDRegressor(
        epsilon=20.0, target_bounds=(-1, 1), rows=3000, feature_bound=1.5, regularization=5.0, simulation_seed=1
    ).fit(rows, rows[:, 0])

    assert 0 < model.coef_[0] < 0.2  # the plain penalised answer is 1/3 / (5 + 1/3) = 0.06


def test_public_rows_stop_a_training_for_free() -> None:
    x, y = two_classes(8000)
    model = classifier(epsilon=None, score=("accuracy", 0.9)).fit(
        x[:4000], y[:4000], public_validation=(x[4000:], y[4000:])
    )

    assert model.receipt_.outcome is Outcome.CERTIFIED
    assert model.score(x[4000:], y[4000:]) == pytest.approx(model.receipt_.achieved)
    assert model.receipt_.achieved >= 0.9
    assert model.receipt_.terms["validation share"] == "0"
    assert model.receipt_.breakdown["validation (public rows)"] == 0


def test_a_regression_stops_on_public_rows_too() -> None:
    x, y = line(8000)
    model = regressor(epsilon=None, score=("rmse", 2.0)).fit(x[:4000], y[:4000], public_validation=(x[4000:], y[4000:]))

    assert model.receipt_.outcome is Outcome.CERTIFIED
    assert np.sqrt(np.mean((model.predict(x[4000:]) - y[4000:]) ** 2)) <= 2.0


def test_public_rows_do_not_say_which_classes_there_are() -> None:
    x, y = two_classes()
    terms = {"epsilon": None, "score": ("accuracy", 0.6), "classes": "observed"}

    assert classifier(**terms).fit(x, y, public_validation=(x[y == 1], y[y == 1])).classes_.tolist() == [0, 1]
    with pytest.raises(InvalidRequest, match="Expected public labels among the classes"):
        classifier(**terms).fit(x, y, public_validation=(x, y + 1))


@pytest.mark.parametrize(
    ("changes", "public", "said"),
    [
        ({}, lambda x, y: (x, y), "Expected a score and no validation_share"),
        ({"score": ("accuracy", 0.9)}, lambda x, y: x, "Expected public_validation to be a pair"),
        ({"score": ("accuracy", 0.9)}, lambda x, y: (x[:, :2], y), "Expected the columns of the fit"),
        ({"score": ("accuracy", 0.9)}, lambda x, y: (x[:9], y), "Expected one public target for each public row"),
        ({"score": ("accuracy", 0.9)}, lambda x, y: (x[:0], y[:0]), "Expected at least one row"),
        ({"score": ("accuracy", 0.9), "validation_share": 0.1}, lambda x, y: (x, y), "no validation_share"),
    ],
)
def test_public_rows_that_do_not_fit_are_refused_and_cost_nothing(
    tmp_path: Path, changes: dict[str, Any], public: Any, said: str
) -> None:
    x, y = two_classes(200)
    path = str(tmp_path / "people.ledger")
    with open_ledger(path) as ledger:
        ledger.open_account("dataset:table", approx(2, 1e-5))
    terms = {"epsilon": 1.0 if "score" not in changes else None, "ledger": path, "simulation_seed": None}

    with pytest.raises(InvalidRequest, match=said):
        classifier(**terms | changes).fit(x, y, public_validation=public(x, y))

    with open_ledger(path) as ledger:
        assert ledger.spent("dataset:table").amounts()["epsilon"] == 0


def test_bounds_that_are_set_after_a_fit_change_no_prediction() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 2))
    model = SGDRegressor(epsilon=1.0, rows=2000, target_bounds=(0, 10), feature_bound=1.5, simulation_seed=1)
    model.fit(X, 5 + 3 * X[:, 0])
    before = model.predict(X[:5])

    model.set_params(target_bounds=(-100, 100))

    assert model.predict(X[:5]).tolist() == before.tolist()
