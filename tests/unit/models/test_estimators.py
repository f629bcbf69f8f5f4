"""The estimators are scikit-learn's in every respect but those that privacy forces."""

import inspect
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import expost
from expost import Dataset, InvalidRequest, TargetNotMet, open_ledger
from expost.core import PlanContext, PureLoss
from expost.data import col
from expost.models import HuberSVC, LogisticRegression, Ridge
from expost.noise import SeededBits

# What scikit-learn expects and privacy forbids, with the reason.
EXPECTED_FAILURES = {
    "check_supervised_y_no_nan": "a missing target is private: it counts as zero instead of being reported",
    "check_dtype_object": "whether objects are numbers depends on single cells: they are refused by their type",
}


def regression(rows: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.3, 0.3, (rows, 3))
    return x, np.clip(x @ [1.0, -1.0, 0.5] + 0.05 * rng.normal(size=rows), -1, 1)


def classification(rows: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    x, score = regression(rows)
    return x, (score > 0).astype(int)


MODELS = [
    Ridge(epsilon=10_000.0, feature_bound=20.0, target_bounds=5.0, simulation_seed=1),
    Ridge(epsilon=10_000.0, feature_bound=20.0, target_bounds=5.0, method="certificate", simulation_seed=1),
    LogisticRegression(epsilon=50.0, feature_bound=20.0, classes="observed", simulation_seed=1),
    HuberSVC(epsilon=50.0, feature_bound=20.0, classes="observed", simulation_seed=1),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{type(model).__name__}-{model.method}")
def test_scikit_learn_accepts_the_estimator(model: object) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(model, expected_failed_checks=EXPECTED_FAILURES, on_fail=None)

    failed = [(r["check_name"], repr(r["exception"])[:300]) for r in results if r["status"] == "failed"]
    assert failed == []
    assert sum(r["status"] == "passed" for r in results) > 35


def test_the_documented_exceptions_are_real() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(MODELS[0], on_fail=None)

    assert {result["check_name"] for result in results if result["status"] == "failed"} == set(EXPECTED_FAILURES)


def test_score_is_an_argument_and_a_method() -> None:
    x, y = regression()
    model = Ridge(
        score=("rmse", 0.3),
        regularization=1e-4,
        max_epsilon=50,
        method="certificate",
        simulation_seed=1,
        feature_bound=1.0,
        target_bounds=1.0,
    )

    fitted = clone(model).fit(x, y)

    assert fitted.get_params()["score"] == ("rmse", 0.3)
    assert 0 < fitted.score(x, y) <= 1
    assert "score=('rmse', 0.3)" in repr(fitted)
    assert fitted.receipt_.outcome.value == "certified"


@pytest.mark.parametrize(
    "kind",
    [
        lambda x: x,
        lambda x: x.astype(np.float32),
        scipy.sparse.csr_array,
        lambda x: pd.DataFrame(x, columns=list("abc")),
        lambda x: pl.DataFrame(x, schema=list("abc")),
        lambda x: pa.table({name: x[:, i] for i, name in enumerate("abc")}),
    ],
    ids=["numpy", "float32", "sparse", "pandas", "polars", "arrow"],
)
def test_every_kind_of_table_can_be_fitted_and_predicted(kind) -> None:
    x, y = regression()
    x = np.round(x, 2)

    model = Ridge(epsilon=5.0, simulation_seed=3, feature_bound=1.0, target_bounds=1.0).fit(kind(x), y)

    assert np.allclose(
        model.coef_,
        Ridge(epsilon=5.0, simulation_seed=3, feature_bound=1.0, target_bounds=1.0).fit(x, y).coef_,
        atol=1e-3,
    )
    assert model.predict(kind(x)).shape == y.shape


def test_a_dataset_is_streamed_and_billed_under_its_name(tmp_path) -> None:
    x, y = regression()
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "target": y})
    data = Dataset(table, name="people", adjacency="replace-one", rows=len(y))
    path = str(tmp_path / "people.ledger")
    open_ledger(path).open_account("dataset:people", expost.epsilon(10))

    model = Ridge(epsilon=5.0, ledger=path, feature_bound=1.0, target_bounds=1.0).fit(data, "target")

    assert open_ledger(path).spent("dataset:people") == model.receipt_.bill
    assert model.predict(table.select(["a", "b", "c"])).shape == y.shape


def test_clones_folds_and_processes_bill_the_ledger_they_were_given(tmp_path) -> None:
    x, y = regression(600)
    path = str(tmp_path / "table.ledger")
    ledger = open_ledger(path)
    ledger.open_account("dataset:table", expost.epsilon(100))
    model = LogisticRegression(epsilon=2.0, classes=(0, 1), ledger=path, feature_bound=1.0)
    labels = (y > 0).astype(int)

    cross_val_score(model, x, labels, cv=3)
    GridSearchCV(model, {"regularization": [0.01, 0.1]}, cv=2, refit=True).fit(x, labels)
    Parallel(n_jobs=2, backend="multiprocessing")(delayed(clone(model).fit)(x, labels) for _ in range(2))
    make_pipeline(FunctionTransformer(), clone(model)).fit(x, labels)

    assert ledger.spent("dataset:table").epsilon == 2 * (3 + (2 * 2 + 1) + 2 + 1)
    assert ledger.verify()


def test_an_exhausted_budget_refuses_the_next_fit(tmp_path) -> None:
    x, y = classification()
    path = str(tmp_path / "table.ledger")
    open_ledger(path).open_account("dataset:table", expost.epsilon(3))
    model = LogisticRegression(epsilon=2.0, classes=(0, 1), ledger=path, feature_bound=1.0).fit(x, y)

    with pytest.raises(expost.BudgetExceeded):
        clone(model).fit(x, y)


def test_a_ledger_without_the_account_is_refused(tmp_path) -> None:
    x, y = classification()

    with pytest.raises(InvalidRequest, match="open_account"):
        LogisticRegression(epsilon=2.0, classes=(0, 1), ledger=str(tmp_path / "new.ledger"), feature_bound=1.0).fit(
            x, y
        )


def test_a_ledger_in_memory_is_refused_because_clones_would_copy_it() -> None:
    x, y = classification()

    with pytest.raises(InvalidRequest, match="path or a URL"):
        LogisticRegression(epsilon=2.0, classes=(0, 1), ledger=open_ledger(None), feature_bound=1.0).fit(x, y)


def test_a_fitted_model_survives_pickling() -> None:
    x, y = regression()
    model = Ridge(excess_risk=0.05, regularization=0.05, max_epsilon=10, feature_bound=1.0, target_bounds=1.0).fit(x, y)

    again = pickle.loads(pickle.dumps(model))

    assert np.array_equal(again.predict(x), model.predict(x))
    assert again.receipt_ == model.receipt_


def test_one_number_bounds_the_target_on_both_sides() -> None:
    x, y = regression()
    one, pair = (
        Ridge(epsilon=5.0, target_bounds=bounds, simulation_seed=1, feature_bound=1.0).fit(x, y)
        for bounds in (2, (-2.0, 2.0))
    )

    assert np.array_equal(one.coef_, pair.coef_)
    assert one.receipt_.terms["targets clipped to"] == 2.0


@pytest.mark.parametrize("method", ["objective", "certificate", "output"])
def test_targets_are_centered_on_the_middle_of_their_bounds(method: str) -> None:
    x, y = regression()
    terms = {"epsilon": 1000.0, "method": method, "simulation_seed": 1}

    near, far = (
        Ridge(target_bounds=1, feature_bound=1.0, **terms).fit(x, y),
        Ridge(target_bounds=(99, 101), feature_bound=1.0, **terms).fit(x, y + 100),
    )

    assert np.allclose(near.coef_, far.coef_, atol=1e-6) and far.intercept_ == near.intercept_ + 100
    assert np.allclose(far.predict(x), near.predict(x) + 100, atol=1e-6)
    assert far.score(x, y + 100) == pytest.approx(near.score(x, y), abs=1e-6)
    assert far.receipt_.terms["targets clipped to"] == [99.0, 101.0]


def test_predictions_stay_within_the_bounds_of_a_score_that_was_tested() -> None:
    x, y = regression()
    terms = {"max_epsilon": 100.0, "regularization": 1e-4, "simulation_seed": 2}

    model = Ridge(score=("r2", 0.1), target_bounds=(99, 101), feature_bound=1.0, **terms).fit(x, y + 100)

    wild = model.predict(np.vstack([x, 1e6 * np.eye(x.shape[1])]))
    assert wild.min() >= 99 and wild.max() <= 101


@pytest.mark.parametrize("bounds", [0, -1, (1, 1), (2, 1), (0, np.inf), "ab", True, (1, 2, 3)], ids=repr)
def test_targets_without_an_interval_are_refused(bounds: object) -> None:
    x, y = regression()

    with pytest.raises(InvalidRequest, match="target_bounds"):
        Ridge(epsilon=1.0, target_bounds=bounds, feature_bound=1.0).fit(x, y)


@pytest.mark.parametrize("kind", [Ridge, LogisticRegression, HuberSVC])
def test_a_misspelt_argument_gets_a_suggestion_and_clones_still_work(kind) -> None:
    with pytest.raises(TypeError, match="Did you mean 'max_epsilon'"):
        kind(max_epsilom=1)

    assert clone(kind(max_epsilon=3.0)).get_params()["max_epsilon"] == 3.0
    assert set(kind().get_params()) == set(inspect.signature(kind).parameters)


def test_weights_are_refused_with_a_reason() -> None:
    x, y = regression()

    with pytest.raises(InvalidRequest, match="sample_weight"):
        Ridge(epsilon=1.0, feature_bound=1.0, target_bounds=1.0).fit(x, y, sample_weight=np.ones(len(y)))


def test_a_missed_target_brings_the_best_private_model() -> None:
    x, y = regression()

    with pytest.raises(TargetNotMet) as missed:
        Ridge(score=("r2", 0.999), max_epsilon=2.0, failure_probability=1e-9, feature_bound=1.0, target_bounds=1.0).fit(
            x, y
        )

    assert missed.value.release.value.coefficients.shape == (3,)
    assert missed.value.receipt.outcome.value == "not met"
    assert missed.value.receipt.epsilon <= 2.0
    assert pickle.loads(pickle.dumps(missed.value)).receipt == missed.value.receipt


def test_other_penalties_are_free_after_one_release(tmp_path) -> None:
    x, y = regression()
    path = str(tmp_path / "table.ledger")
    ledger = open_ledger(path)
    ledger.open_account("dataset:table", expost.epsilon(50))
    model = Ridge(
        epsilon=40.0, method="certificate", regularization=0.01, ledger=path, feature_bound=1.0, target_bounds=1.0
    ).fit(x, y)
    before = ledger.spent("dataset:table")

    others = [model.repenalised(penalty) for penalty in (0.001, 0.1, 10.0)]

    assert ledger.spent("dataset:table") == before
    lengths = [np.linalg.norm(other.coef_) for other in others]
    assert lengths == sorted(lengths, reverse=True)
    exact = np.linalg.solve(x.T @ x / len(y) + 0.1 * np.eye(3), x.T @ y / len(y))
    assert np.allclose(others[1].coef_, exact, atol=0.05)


def test_bounds_by_column_are_undone_in_the_coefficients() -> None:
    rng = np.random.default_rng(4)
    age, income = rng.uniform(18, 90, 20_000), rng.uniform(0, 2e5, 20_000)
    y = 0.01 * age - 2e-6 * income + 0.3
    frame = pd.DataFrame({"age": age, "income": income})

    model = Ridge(
        epsilon=50.0,
        bounds={"age": (18, 90), "income": (0, 2e5)},
        fit_intercept=True,
        regularization=1e-5,
        target_bounds=2.0,
    ).fit(frame, y)

    assert model.score(frame, y) > 0.98
    assert model.coef_[0] == pytest.approx(0.01, rel=0.2)
    assert model.coef_[1] == pytest.approx(-2e-6, rel=0.2)


def test_the_classes_must_be_public() -> None:
    x, y = classification()

    with pytest.raises(InvalidRequest, match="public"):
        LogisticRegression(epsilon=1.0, feature_bound=1.0).fit(x, y)


def test_a_label_that_is_neither_class_counts_as_the_first() -> None:
    x, y = classification()
    strange = np.where(y == 0, 7, 1)

    plain = LogisticRegression(epsilon=1.0, classes=(0, 1), simulation_seed=2, feature_bound=1.0).fit(x, y)
    other = LogisticRegression(epsilon=1.0, classes=(0, 1), simulation_seed=2, feature_bound=1.0).fit(x, strange)

    assert np.array_equal(plain.coef_, other.coef_)


class Odd:
    """Cannot be compared with anything."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("a private value")


@pytest.mark.parametrize("label", [None, pd.NA, pd.NaT, [1, 2], np.array([1, 2]), 10**400, {}, Odd()])
def test_a_label_of_whatever_kind_is_read_without_a_word(label: object) -> None:
    x, y = classification()
    strange = y.astype(object)
    strange[3] = label

    model = LogisticRegression(epsilon=1.0, classes=(0, 1), simulation_seed=2, feature_bound=1.0).fit(x, strange)
    plain = LogisticRegression(epsilon=1.0, classes=(0, 1), simulation_seed=2, feature_bound=1.0).fit(
        x, np.where(np.arange(len(y)) == 3, 7, y)
    )

    assert np.array_equal(model.coef_, plain.coef_)


def test_probabilities_and_decisions_agree() -> None:
    x, y = classification()
    model = LogisticRegression(epsilon=20.0, classes=("no", "yes"), feature_bound=1.0).fit(
        x, np.where(y == 1, "yes", "no")
    )

    probability = model.predict_proba(x)

    assert np.allclose(probability.sum(axis=1), 1)
    assert np.array_equal(probability[:, 1] > 0.5, model.predict(x) == "yes")
    assert np.allclose(np.exp(model.predict_log_proba(x)), probability)
    assert model.score(x, np.where(y == 1, "yes", "no")) > 0.8


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.full((50, 2), 0.3), np.ones(50)),
        (np.zeros((50, 2)), np.zeros(50)),
        (np.ones((1, 2)), np.ones(1)),
        (np.eye(20)[:5], np.arange(5.0)),
        (np.column_stack([np.arange(30.0)] * 3), np.arange(30.0)),
        (np.full((10, 2), np.nan), np.full(10, np.nan)),
        (np.array([[np.inf, -np.inf], [1e308, 0.0]]), np.array([1e300, -np.inf])),
    ],
    ids=["one value", "zeros", "one row", "wide", "repeated columns", "missing", "huge"],
)
def test_degenerate_data_is_fitted_like_any_other(x: np.ndarray, y: np.ndarray, seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in (
            Ridge(epsilon=900.0, regularization=1.0, simulation_seed=seed, feature_bound=1.0, target_bounds=1.0),
            Ridge(
                epsilon=900.0,
                regularization=1.0,
                method="certificate",
                simulation_seed=seed,
                feature_bound=1.0,
                target_bounds=1.0,
            ),
            LogisticRegression(
                epsilon=900.0, regularization=1.0, classes=(0.0, 1.0), simulation_seed=seed, feature_bound=1.0
            ),
            HuberSVC(epsilon=900.0, regularization=1.0, classes=(0.0, 1.0), simulation_seed=seed, feature_bound=1.0),
        ):
            model.fit(x, y)

            assert np.isfinite(model.coef_).all()


def test_nothing_exact_is_shown(caplog) -> None:
    x, y = regression()
    exact = np.linalg.solve(x.T @ x / len(y) + 0.005 * np.eye(3), x.T @ y / len(y))

    with caplog.at_level("DEBUG"):
        model = Ridge(epsilon=1.0, feature_bound=1.0, target_bounds=1.0).fit(x, y)

    shown = repr(model) + str(model.receipt_) + caplog.text + repr(model.release_)
    assert not any(f"{value:.6f}"[:7] in shown for value in exact)
    assert not np.allclose(model.coef_, exact, atol=1e-6)


def test_a_text_value_of_the_table_is_not_repeated_in_the_error() -> None:
    table = np.array([["1.5", "0.1"], ["diagnosis-7", "0.2"]], dtype=object)

    with pytest.raises(InvalidRequest) as refused:
        Ridge(epsilon=1.0, feature_bound=1.0, target_bounds=1.0).fit(table, np.zeros(2))

    assert "diagnosis" not in str(refused.value) + repr(refused.value.__cause__) + repr(refused.value.__context__)


def test_only_methods_that_climb_can_draw_their_climb() -> None:
    x, y = regression()

    with pytest.raises(InvalidRequest, match="climbed"):
        Ridge(epsilon=1.0, feature_bound=1.0, target_bounds=1.0).fit(x, y).plot_climb()


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"epsilon": 1.0, "excess_risk": 0.1},
        {"epsilon": -1.0},
        {"excess_risk": 0.0},
        {"score": ("accuracy", 0.5)},
        {"score": "r2"},
        {"score": ("r2", 1.5)},
        {"epsilon": 1.0, "method": "magic"},
        {"epsilon": 1.0, "feature_norm": "l3"},
        {"epsilon": 1.0, "feature_bound": 0.0},
        {"epsilon": 1.0, "regularization": 0.0},
        {"epsilon": 1.0, "bounds": [(0, 1)]},
        {"epsilon": 1.0, "bounds": [(0, 1), (2, 1), (0, 1)]},
        {"epsilon": 1.0, "failure_probability": 1.0},
        {"epsilon": 1.0, "delta": 1e-6, "method": "objective"},
        {"epsilon": 1.0, "delta": 2.0},
        {"score": ("r2", 0.5), "delta": 1e-6},
        {"score": ("r2", 0.5), "method": "objective"},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(terms: dict) -> None:
    x, y = regression(50)

    with pytest.raises(InvalidRequest):
        Ridge(**{"feature_bound": 1.0, "target_bounds": 1.0} | terms).fit(x, y)


def test_derived_columns_are_fitted_and_paid_through_a_session() -> None:
    x, y = regression()
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "target": y})
    view = Dataset(table, name="people", adjacency="replace-one", rows=len(y)).derive(
        twice=2 * col("a"), late=col("target") > 0, one=1 + 0 * col("b")
    )
    by_hand = np.column_stack([2 * x[:, 0], x[:, 1], np.ones(len(y))])
    session = expost.Session(view, budget=expost.epsilon(20))

    session.fit(
        Ridge(epsilon=5.0, feature_bound=1.0, target_bounds=1.0), features=["twice", "b", "one"], target="target"
    )
    session.fit(
        LogisticRegression(epsilon=5.0, classes=(False, True), feature_bound=1.0),
        features=["twice", "b"],
        target="late",
    )
    seeded = Ridge(epsilon=5.0, simulation_seed=1, feature_bound=1.0, target_bounds=1.0)
    from_view = clone(seeded).fit_with(request_release, view, features=["twice", "b", "one"], target="target")

    assert session.spent() == PureLoss(10)
    np.testing.assert_array_equal(from_view.coef_, clone(seeded).fit(by_hand, y).coef_)


def request_release(query, source):
    plan = query.plan(source, PlanContext())
    return plan.climb(plan.measure(source), SeededBits(1))


@pytest.mark.parametrize(
    "features, target", [(["text"], "y"), (["x"], "nothing"), (["x", "y"], "y"), ([], "y"), ("x", "y")]
)
def test_columns_that_cannot_be_fitted_are_refused_before_anything_is_paid(features, target) -> None:
    table = pa.table({"x": [1.0, 2.0], "y": [0.0, 1.0], "text": ["a", "b"]})
    session = expost.Session(Dataset(table, adjacency="replace-one", rows=2), budget=expost.epsilon(1))

    with pytest.raises(InvalidRequest):
        session.fit(Ridge(epsilon=0.5, feature_bound=1.0, target_bounds=1.0), features=features, target=target)

    assert session.spent() == PureLoss(0)


@pytest.mark.parametrize("delta", [-1e-6, 1, 1.5, float("nan"), float("inf"), "1e-6", True])
@pytest.mark.parametrize("kind", [LogisticRegression, HuberSVC])
def test_a_delta_that_makes_no_sense_is_refused_and_costs_nothing(tmp_path, kind, delta) -> None:
    x, y = classification(100)
    path = str(tmp_path / "table.ledger")
    open_ledger(path).open_account("dataset:table", expost.epsilon(100, delta=0.5))

    with pytest.raises(InvalidRequest, match="delta"):
        kind(epsilon=5.0, classes=(0, 1), feature_bound=1.0, delta=delta, ledger=path).fit(x, y)

    assert open_ledger(path).spent("dataset:table").amounts()["epsilon"] == 0


@pytest.mark.parametrize("terms", [{"score": ("accuracy", 0.6)}, {"excess_risk": 0.1, "method": "theory"}])
def test_a_delta_beside_a_pure_way_is_refused(terms) -> None:
    x, y = classification(100)

    with pytest.raises(InvalidRequest, match="delta"):
        LogisticRegression(classes=(0, 1), delta=1e-6, feature_bound=1.0, **terms).fit(x, y)


def test_a_pure_account_refuses_a_gaussian_fit_before_anything_is_spent(tmp_path) -> None:
    x, y = classification()
    path = str(tmp_path / "table.ledger")
    open_ledger(path).open_account("dataset:table", expost.epsilon(100))
    model = LogisticRegression(
        epsilon=2.0, classes=(0, 1), delta=0.1, feature_norm="l2", ledger=path, feature_bound=1.0
    )

    with pytest.raises(InvalidRequest, match="pure"):
        model.fit(x, y)

    assert open_ledger(path).spent("dataset:table") == PureLoss(0)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("kind", [LogisticRegression, HuberSVC])
def test_the_default_is_the_cheapest_of_all_ways_with_and_without_delta(kind, norm: str) -> None:
    x, y = classification()

    def paid(method: str, delta: float) -> float:
        terms = {"excess_risk": 0.05, "classes": (0, 1), "feature_norm": norm, "regularization": 0.02}
        terms |= {"feature_bound": 1.0}
        return kind(**terms, method=method, delta=delta, max_epsilon=50, simulation_seed=1).fit(x, y).receipt_.epsilon

    pure = {method: paid(method, 0.0) for method in ("auto", "objective", "output")}
    loose = {method: paid(method, 0.05) for method in ("auto", "objective", "output")}

    assert pure["auto"] == min(pure.values()) and loose["auto"] == min(loose.values())
    assert all(loose[method] <= pure[method] for method in pure)
    assert loose["output"] < pure["output"]


def test_ridge_takes_a_delta_for_output_perturbation() -> None:
    x, y = regression()

    model = Ridge(epsilon=2.0, method="output", delta=0.1, simulation_seed=1, feature_bound=1.0, target_bounds=1.0).fit(
        x, y
    )

    assert model.receipt_.bill.amounts()["delta"] == Fraction(1, 10)
    assert "Gaussian" in model.receipt_.method


def test_few_rows_are_fitted_by_output_perturbation_where_the_objective_cannot_be_tilted() -> None:
    x, y = classification(50)

    model = LogisticRegression(
        epsilon=0.1, regularization=0.01, classes=(0, 1), simulation_seed=1, feature_bound=1.0
    ).fit(x, y)

    assert model.receipt_.method.startswith("output")  # the Jacobian alone would cost ln(1 + 0.25 / 0.5)


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(epsilon=1.0, classes=1, feature_bound=1.0),
        LogisticRegression(epsilon=1.0, classes=(0, 1), bounds=1),
        LogisticRegression(epsilon=1.0, classes=(0, 1), bounds=[1, 2, 3]),
        LogisticRegression(epsilon=1.0, classes=(0, 1), method=[], feature_bound=1.0),
        Ridge(epsilon=1.0, feature_norm=[], feature_bound=1.0, target_bounds=1.0),
        Ridge(epsilon=1.0, method=[], feature_bound=1.0, target_bounds=1.0),
        HuberSVC(epsilon=1.0, classes=(0, 1), corner=float("inf"), feature_bound=1.0),
        HuberSVC(epsilon=1.0, classes=(0, 1), corner="wide", feature_bound=1.0),
        HuberSVC(epsilon=1.0, classes=(0, 1), corner=1e-9, feature_bound=1.0),
    ],
    ids=str,
)
def test_settings_of_the_wrong_kind_are_refused_with_a_sentence(model) -> None:
    x = np.full((50, 2), 0.1)
    with pytest.raises(InvalidRequest, match="Expected"):
        model.fit(x, np.arange(50) % 2)
