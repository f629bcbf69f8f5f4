"""scikit-learn's own checks pass for every setting of every estimator, except where privacy forbids it.

``EXCEPTIONS`` is the one list of exceptions, with reasons. ``docs/scikit-learn.md`` shows it.
"""

import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

import expost

LONG = os.environ.get("EXPOST_LONG") == "1"
PAGE = Path(__file__).parents[3] / "docs" / "scikit-learn.md"

EXCEPTIONS = {
    "check_dtype_object": "Whether objects are numbers depends on single cells, so a table of objects is refused by its type.",
    "check_supervised_y_no_nan": "A missing target is private. It has a public meaning instead of raising an error.",
    "check_class_weight_classifiers": "Weights of `Classifier` may differ by a factor of 10,000 at most; the check passes 10,000,000.",
    "check_estimators_empty_data_messages": "`Classifier` and `Regressor` do not reveal whether a table has rows.",
}
"""Checks that fail by design."""
ONE_COLUMN = {"check_classifiers_train"}
"""Checks whose tables need more columns than ``select=1`` keeps."""
SMALL_TABLES = {
    "check_estimators_overwrite_params",
    "check_estimators_fit_returns_self",
    "check_readonly_memmap_input",
    "check_estimators_dtypes",
    "check_pipeline_consistency",
    "check_estimator_sparse_tag",
    "check_classifiers_train",
    "check_regressors_train",
    "check_n_features_in_after_fitting",
    "check_fit2d_1sample",
    "check_fit2d_1feature",
}
"""Checks that may fail with ``score=`` of gradient descent: their tables are too small for a private test."""

SEED: dict[str, Any] = {"simulation_seed": 1}
RIDGE = {"feature_bound": 20.0, "target_bounds": 5.0, **SEED}
CLASSES = {"feature_bound": 20.0, "classes": "observed", **SEED}
DESCENT = {"rows": "observed", "feature_bound": 20.0, "clip": 50.0, "steps": 60, **SEED}
TARGETS = {"target_bounds": (-5, 5), **DESCENT}
LABELS = {"classes": "observed", **DESCENT}
WIDE = {"bounds": (-100, 100), **SEED}

ROWS = {"epsilon": 1e3, "columns": (-5, 5), **SEED}
TABLE_LABELS, TABLE_NUMBERS = {"classes": "observed", **ROWS}, {"target_bounds": (-5, 5), **ROWS}

QUICK: dict[str, Any] = {
    "Classifier": expost.Classifier(**TABLE_LABELS),
    "Classifier, select": expost.Classifier(select=1, **TABLE_LABELS),
    "Classifier, pure": expost.Classifier(delta=0, **TABLE_LABELS),
    "Classifier, report": expost.Classifier(report=["auc", "coefficients"], calibrate=True, **TABLE_LABELS),
    "Regressor": expost.Regressor(**TABLE_NUMBERS),
    "Regressor, moments": expost.Regressor(delta=0, method="moments", select=1, **TABLE_NUMBERS),
    "SGDClassifier, Newton": expost.SGDClassifier(noise_multiplier=0.3, solver="newton", **LABELS),
    "StandardScaler": expost.StandardScaler(epsilon=1e4, **WIDE),
    "StandardScaler, Gaussian": expost.StandardScaler(epsilon=1e4, delta=1e-6, with_mean=False, **WIDE),
    "PCA": expost.PCA(epsilon=1e6, **WIDE),
    "PCA, one component": expost.PCA(1, epsilon=1e6, delta=1e-6, **WIDE),
    "SelectKBest, number": expost.SelectKBest(1, epsilon=1e3, target_bounds=10.0, **WIDE),
    "SelectKBest, classes": expost.SelectKBest(1, epsilon=1e3, classes=[0, 1, 2], **WIDE),
    "Ridge, output": expost.Ridge(epsilon=1e9, method="output", **RIDGE),
    "LogisticRegression, delta": expost.LogisticRegression(epsilon=1e2, delta=1e-3, feature_norm="l2", **CLASSES),
}
ALL: dict[str, Any] = {
    "Classifier, balanced": expost.Classifier(class_weight="balanced", **TABLE_LABELS),
    "Classifier, objective": expost.Classifier(method="objective", **TABLE_LABELS),
    "Regressor, objective": expost.Regressor(delta=0, **TABLE_NUMBERS),
    "Regressor, report": expost.Regressor(report=["coefficients"], **TABLE_NUMBERS),
    "Regressor, select": expost.Regressor(select=1, **TABLE_NUMBERS),
    **{f"Ridge, {name}": expost.Ridge(epsilon=1e4, method=name, **RIDGE) for name in ("objective", "certificate")},
    "Ridge, l2": expost.Ridge(epsilon=1e4, feature_norm="l2", **RIDGE),
    "Ridge, intercept": expost.Ridge(epsilon=1e4, fit_intercept=True, **RIDGE),
    "Ridge, Gaussian": expost.Ridge(epsilon=1e3, delta=1e-3, method="certificate", **RIDGE),
    "Ridge, chosen penalty": expost.Ridge(epsilon=1e3, delta=1e-3, regularization=None, **RIDGE),
    "Ridge, Gaussian output": expost.Ridge(epsilon=1e9, delta=1e-3, method="output", **RIDGE),
    "Ridge, excess risk": expost.Ridge(excess_risk=5.0, max_epsilon=1e9, **RIDGE),
    "Ridge, rmse": expost.Ridge(score=("rmse", 9.0), max_epsilon=1e9, method="certificate", **RIDGE),
    **{
        f"{kind.__name__}, {name}": kind(**terms, **CLASSES)
        for kind in (expost.LogisticRegression, expost.HuberSVC)
        for name, terms in {
            "objective": {"epsilon": 1e3, "method": "objective"},
            "output": {"epsilon": 1e3, "method": "output"},
            "l2 and intercept": {"epsilon": 1e3, "feature_norm": "l2", "fit_intercept": True},
            "excess risk": {"excess_risk": 1.0, "max_epsilon": 1e9},
            "accuracy": {"score": ("accuracy", 0.01), "max_epsilon": 1e6},
        }.items()
    },
    "HuberSVC, delta": expost.HuberSVC(epsilon=1e2, delta=1e-3, feature_norm="l2", **CLASSES),
    "SGDRegressor, Newton": expost.SGDRegressor(noise_multiplier=0.3, solver="newton", **TARGETS),
    "SGDClassifier, epsilon": expost.SGDClassifier(epsilon=100.0, **LABELS),
    **{
        f"SGDClassifier, {batches}": expost.SGDClassifier(noise_multiplier=0.01, batches=batches, **LABELS)
        for batches in ("full", "poisson", "disjoint")
    },
    **{
        f"SGDRegressor, {batches}": expost.SGDRegressor(noise_multiplier=0.01, batches=batches, **TARGETS)
        for batches in ("full", "poisson", "disjoint")
    },
}
SCORED: dict[str, Any] = {
    "SGDClassifier": expost.SGDClassifier(score=("accuracy", 0.05), max_epsilon=1000.0, **(LABELS | {"steps": None})),
    "SGDRegressor": expost.SGDRegressor(score=("rmse", 9.0), max_epsilon=1000.0, **(TARGETS | {"steps": None})),
}


def failures(model: Any, least: int = 30) -> dict[str, str]:
    """The checks that fail, with what they raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(model, on_fail=None)
    assert sum(result["status"] == "passed" for result in results) > least
    return {each["check_name"]: repr(each["exception"])[:300] for each in results if each["status"] == "failed"}


@pytest.mark.parametrize("setting", QUICK)
def test_scikit_learn_accepts_the_setting(setting: str) -> None:
    found = failures(QUICK[setting])

    allowed = set(EXCEPTIONS) | (ONE_COLUMN if "select" in setting else set())
    assert {name: text for name, text in found.items() if name not in allowed} == {}


@pytest.mark.skipif(not LONG, reason="long profile: set EXPOST_LONG=1")
@pytest.mark.parametrize("setting", ALL)
def test_scikit_learn_accepts_every_setting(setting: str) -> None:
    found = failures(ALL[setting])

    assert {name: text for name, text in found.items() if name not in EXCEPTIONS} == {}


@pytest.mark.skipif(not LONG, reason="long profile: set EXPOST_LONG=1")
@pytest.mark.parametrize("setting", SCORED)
def test_a_score_of_gradient_descent_fails_on_small_tables_only(setting: str) -> None:
    assert set(failures(SCORED[setting])) <= set(EXCEPTIONS) | SMALL_TABLES


@pytest.mark.skipif(not LONG, reason="long profile: set EXPOST_LONG=1")
@pytest.mark.parametrize("kind", [expost.Classifier, expost.Regressor])
def test_a_score_of_a_table_is_missed_on_small_tables_and_nothing_else_fails(kind: Any) -> None:
    terms: dict[str, Any] = {"max_epsilon": 30.0, **(TABLE_LABELS if kind is expost.Classifier else TABLE_NUMBERS)}
    score = ("accuracy", 0.05) if kind is expost.Classifier else ("rmse", 9.0)
    found = failures(kind(**terms | {"score": score, "epsilon": None}), least=15)

    others = {name for name, text in found.items() if "TargetNotMet" not in text}
    assert others <= set(EXCEPTIONS) | SMALL_TABLES | {"check_estimator_sparse_array", "check_estimator_sparse_matrix"}


@pytest.mark.parametrize("solver", ["newton", "gradient"])
def test_a_solver_promises_several_classes_exactly_if_it_learns_them(solver: str) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    model = expost.SGDClassifier(
        solver=solver, epsilon=1.0, classes=[0, 1, 2], rows=300, steps=3, feature_bound=1.0, **SEED
    )

    promised = model.__sklearn_tags__().classifier_tags.multi_class
    try:
        model.fit(x, np.arange(300) % 3)
    except expost.InvalidRequest as error:
        assert not promised, error
    else:
        assert promised


def test_the_page_lists_exactly_these_exceptions() -> None:
    rows = re.findall(r"^\| `(check_\w+)` \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.M)

    assert dict(rows) == EXCEPTIONS
    assert all(f"`{name}`" in PAGE.read_text(encoding="utf-8") for name in SMALL_TABLES | ONE_COLUMN)
