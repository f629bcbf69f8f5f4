"""One row of a table changes one sealed vector of a private transformer, and nothing else that an observer sees."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
)
from tests.privacy.odd_tables import SOURCES, UNTYPED, draw_pair
from tests.privacy.random_questions import labels
from tests.privacy.replay import assert_one_number_differs
from tests.privacy.test_one_row_changes_one_number import check
from tests.privacy.test_one_row_in_arrays import FRAMES, ODDER, PAIRS, _neighbours, _vector

import expost
from expost.data import Dataset

BOX = [(0.0, 1.0), (-1.0, 2.0)]
MODELS: dict[str, Callable[..., Any]] = {
    "scaler": lambda **terms: expost.StandardScaler(epsilon=1, **terms),
    "scaler, gaussian": lambda **terms: expost.StandardScaler(epsilon=1, delta=1e-6, **terms),
    "components": lambda **terms: expost.PCA(1, epsilon=1, **terms),
    "choice by a number": lambda **terms: expost.SelectKBest(1, epsilon=1, target_bounds=1.0, **terms),
    "choice by classes": lambda **terms: expost.SelectKBest(1, epsilon=1, classes=[0.0, 1.0], **terms),
}


@pytest.mark.parametrize("framed", FRAMES)
@pytest.mark.parametrize("model", MODELS)
def test_one_odd_row_of_a_frame_changes_one_vector_of_a_transformer(model: str, framed: str) -> None:
    frame, odd = FRAMES[framed]
    for number in range(PAIRS):
        random = np.random.default_rng([number, sum(map(ord, model + framed))])
        tables = _neighbours(random, odd, ODDER, (0.0, 1.0), fewer=True)
        built = [(frame(rows), _vector(targets)) for rows, targets in tables]
        first, second = (
            (lambda bits, given=given: MODELS[model](bounds=BOX, simulation_seed=1).fit(*given)) for given in built
        )
        assert_one_number_differs(first, second)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("model", MODELS)
def test_one_row_of_a_dataset_changes_one_vector_of_a_transformer(model: str, adjacency: str, tmp_path: Path) -> None:
    for number, source in enumerate(list(SOURCES) * max(1, PAIRS // 9)):
        random = np.random.default_rng([number, sum(map(ord, model))])
        fixed = {"label": "float64"} if model == "choice by a number" else None
        pair = draw_pair(random, adjacency=adjacency, typed=source not in UNTYPED, fixed=fixed)
        kinds = pair.first.types
        terms = {"classes": labels(kinds["label"])} if model == "choice by classes" else {}
        box = [(0, 1) if kinds["x"] == "bool" else (-7.5, 12.25), (-3, 9)]

        def ask(asking: Any, dataset: Dataset, terms: Any = terms, box: Any = box) -> Any:
            transformer = MODELS[model](bounds=box).set_params(**terms)
            return asking.fit(transformer, features=["x", "n"], target="label")

        check(pair, source, ask, random, tmp_path)


@pytest.mark.parametrize("first", ["scaler", "components"])
def test_one_row_of_a_dataset_changes_one_vector_of_each_step_of_a_pipeline(first: str, tmp_path: Path) -> None:
    for number, source in enumerate(list(SOURCES) * max(1, PAIRS // 9)):
        random = np.random.default_rng([number, len(first)])
        pair = draw_pair(random, adjacency="add-remove", typed=source not in UNTYPED)
        kinds = pair.first.types
        box = [(0, 1) if kinds["x"] == "bool" else (-7.5, 12.25), (-3, 9)]

        def ask(asking: Any, dataset: Dataset, box: Any = box, kinds: Any = kinds) -> Any:
            model = expost.SGDClassifier(epsilon=1, classes=labels(kinds["label"]), rows=20, steps=3, feature_bound=1.0)
            steps = expost.Pipeline([("first", MODELS[first](bounds=box)), ("model", model)])
            return asking.fit(steps, features=["x", "n"], target="label").receipt_

        check(pair, source, ask, random, tmp_path, filters=False)


PUBLIC: dict[str, Callable[[], Any]] = {
    "polynomials": lambda: PolynomialFeatures(2),
    "lengths": Normalizer,
    "binary": lambda: Binarizer(threshold=0.5),
    "logarithms": lambda: FunctionTransformer(np.log),
    "levels": lambda: OneHotEncoder(categories=[[0.0, 1.0], [0.0, 1.0]], sparse_output=False),
    "sparse levels": lambda: OneHotEncoder(categories=[[0.0, 1.0], [0.0, 1.0]], dtype=np.int32),
    "codes": lambda: OrdinalEncoder(categories=[[0.0, 1.0], [0.0, 1.0]]),
    "two parts": lambda: ColumnTransformer(
        [("code", OrdinalEncoder(categories=[[0.0, 1.0]]), [0])], remainder=Normalizer()
    ),
}


@pytest.mark.parametrize("framed", ["numpy", "pandas"])
@pytest.mark.parametrize("step", PUBLIC)
def test_no_row_makes_a_public_step_of_a_pipeline_fail_or_warn(step: str, framed: str) -> None:
    frame, odd = FRAMES[framed]
    for number in range(4 * PAIRS):
        random = np.random.default_rng([number, sum(map(ord, step + framed))])
        tables = _neighbours(random, odd, [0.0, 1.0], (0.0, 1.0), fewer=True)
        built = [(frame(np.round(np.array(rows, float)).tolist()), np.array(targets)) for rows, targets in tables]

        def run(bits: Any, given: Any) -> Any:
            model = expost.SGDClassifier(epsilon=1, classes=[0.0, 1.0], rows=40, steps=3, feature_bound=1.0)
            steps = expost.Pipeline([("public", PUBLIC[step]()), ("model", model)], simulation_seed=1)
            return steps.fit(*given).steps[-1][1], steps.receipt_

        assert_one_number_differs(*((lambda bits, given=given: run(bits, given)) for given in built))


def test_a_public_step_that_accepts_no_row_is_refused_without_repeating_a_cell() -> None:
    levels = OneHotEncoder(categories=[[5.0, 6.0]]).fit([[5.0]])
    model = expost.SGDClassifier(epsilon=1, classes=[0, 1], rows=40, steps=3)

    with pytest.raises(expost.InvalidRequest, match="got 'OneHotEncoder'") as refused:
        expost.Pipeline([("public", levels), ("model", model)], public_steps=["public"]).fit([[777.0], [7.0]], [0, 1])

    assert "777" not in str(refused.value)
