"""What a mask hides is never taken for real: masked arrays are refused by their type where rows come in, or filled."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from expost import HuberSVC, LogisticRegression, Ridge, SGDClassifier, SGDRegressor, certify, individual_fairness
from expost.core import InvalidRequest
from expost.core.argument import check_unmasked, fill_masked
from expost.data.data_source import as_table
from expost.holdout import LadderBoard, PrivateBoard, ReusableHoldout
from expost.holdout.holdout_sample import lattice_total
from expost.noise import Grid, SeededBits
from expost.stats import hypothesis

ROWS = 40
NUMBERS = np.arange(ROWS, dtype=float) % 7
LABELS = np.arange(ROWS) % 2
TABLE = np.stack([NUMBERS, NUMBERS[::-1]], axis=1) / 10
FREE = np.ma.masked_array  # nothing is hidden: the type alone decides


def board(labels: Any, kind: Any, **terms: Any) -> Any:
    return kind(labels, max_submissions=5, failure_probability=0.1, **terms)


def network(x: Any, y: Any, **terms: Any) -> Any:
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    train = importlib.import_module("expost.torch").train
    model = torch.nn.Linear(2, 2)
    terms = terms or {"epsilon": 1}
    return train(model, (x, y), rows=ROWS, delta=1e-5, batches="full", simulation_seed=1, **terms)


def half_plane(x: Any) -> Any:
    return np.stack([x[:, 0] > 0, x[:, 0] <= 0], axis=1)


def holdout(data: Any) -> Any:
    return ReusableHoldout(data, data, tolerance=0.5, failure_probability=0.5, max_queries=1)


ENTRANCES: dict[str, Callable[[Any], Any]] = {
    "binomial": lambda cover: hypothesis.binomial_test(cover(LABELS), 0.5, epsilon=1),
    "means": lambda cover: hypothesis.mean_difference_test(cover(NUMBERS), NUMBERS, bounds=(0, 9), epsilon=1),
    "several means": lambda cover: hypothesis.anova_test(NUMBERS, cover(NUMBERS), bounds=(0, 9), epsilon=1),
    "Mann-Whitney": lambda cover: hypothesis.mann_whitney_test(NUMBERS, cover(NUMBERS), epsilon=1),
    "Kruskal-Wallis": lambda cover: hypothesis.kruskal_wallis_test(NUMBERS, cover(NUMBERS), epsilon=1),
    "signed ranks": lambda cover: hypothesis.signed_rank_test(NUMBERS, cover(NUMBERS), epsilon=1),
    "ranks": lambda cover: hypothesis.correlation_test(NUMBERS, cover(NUMBERS), epsilon=1),
    "correlation": lambda cover: hypothesis.linear_correlation_test(
        cover(NUMBERS), NUMBERS, bounds=((0, 9), (0, 9)), epsilon=1
    ),
    "split": lambda cover: hypothesis.split_test("means", NUMBERS, cover(LABELS), epsilon=1),
    "fit": lambda cover: hypothesis.fit_test(cover(np.array([20, 20])), [0.5, 0.5], epsilon=1),
    "table": lambda cover: hypothesis.independence_test(cover(np.array([[20, 10], [10, 20]])), epsilon=1),
    "ridge rows": lambda cover: Ridge(epsilon=1, regularization=1, feature_bound=1.0, target_bounds=1.0).fit(
        cover(TABLE), NUMBERS
    ),
    "ridge targets": lambda cover: Ridge(epsilon=1, regularization=1, feature_bound=1.0, target_bounds=1.0).fit(
        TABLE, cover(NUMBERS)
    ),
    "listed rows": lambda cover: Ridge(epsilon=1, regularization=1, feature_bound=1.0, target_bounds=1.0).fit(
        [cover(row) for row in TABLE], NUMBERS
    ),
    "logistic": lambda cover: LogisticRegression(epsilon=1, classes=[0, 1], feature_bound=1.0).fit(
        TABLE, cover(LABELS)
    ),
    "huber": lambda cover: HuberSVC(epsilon=1, classes=[0, 1], feature_bound=1.0).fit(cover(TABLE), LABELS),
    "sgd": lambda cover: SGDClassifier(epsilon=1, delta=1e-5, rows=ROWS, classes=[0, 1], feature_bound=1.0).fit(
        cover(TABLE), LABELS
    ),
    "sgd, public rows": lambda cover: SGDRegressor(
        score=("rmse", 5.0), delta=1e-5, rows=ROWS, target_bounds=(0, 9), max_epsilon=100, feature_bound=1.0
    ).fit(TABLE, NUMBERS, public_validation=(cover(TABLE), NUMBERS)),
    "network": lambda cover: network(cover(TABLE.astype(np.float32)), LABELS),
    "network, public rows": lambda cover: network(
        TABLE.astype(np.float32),
        LABELS,
        score=("accuracy", 0.1),
        max_epsilon=100,
        public_validation=(TABLE.astype(np.float32), cover(LABELS)),
    ),
    "holdout": lambda cover: holdout((TABLE, cover(LABELS))),
    "ladder": lambda cover: board(cover(LABELS), LadderBoard),
    "private board": lambda cover: board(cover(LABELS), PrivateBoard, tolerance=0.5),
    "predictions": lambda cover: board(LABELS, LadderBoard).submit(cover(LABELS)),
    "certificates": lambda cover: certify(half_plane, cover(TABLE), sigma=0.5, samples=10),
    "fairness": lambda cover: individual_fairness(
        half_plane, cover(TABLE), metric=lambda a, b: np.abs(a[:, :1] - b[:, :1].T), leniency=4
    ),
    "grid": lambda cover: Grid(0, 9).to_lattice(cover(NUMBERS)),
}


@pytest.mark.parametrize("name", ENTRANCES)
def test_a_masked_array_is_refused_by_its_type(name: str) -> None:
    with pytest.raises(InvalidRequest, match="without a mask"):
        ENTRANCES[name](FREE)


def test_what_knows_masks_keeps_them_as_missing() -> None:
    covered = np.ma.masked_array([1.0, 2.0], mask=[False, True])

    assert as_table({"x": covered})["x"].to_pylist() == [1.0, None]
    assert pa.table(pd.DataFrame({"x": covered}))["x"].to_pylist() == [1.0, None]
    check_unmasked(pd.DataFrame({"x": covered}), [1.0, None], None)


def test_a_masked_answer_about_a_row_counts_as_missing() -> None:
    covered = np.ma.masked_array([0.5, 1.0, 1.0], mask=[False, True, False])

    assert lattice_total(covered, 3, "training") == lattice_total([0.5, np.nan, 1.0], 3, "training")
    assert lattice_total(covered > 0, 3, "training") == lattice_total([1, 0, 1], 3, "training")
    assert fill_masked(covered, 0).tolist() == [0.5, 0.0, 1.0]


def test_a_masked_loss_is_the_worst() -> None:
    def loss(labels: Any, predictions: Any) -> Any:
        return np.ma.masked_array(np.zeros(len(labels)), mask=np.arange(len(labels)) % 2 == 0)

    shown = LadderBoard(LABELS, max_submissions=2, failure_probability=0.1, loss=loss)
    hidden = PrivateBoard(
        np.arange(100_000) % 2,
        max_submissions=2,
        tolerance=0.2,
        failure_probability=0.1,
        loss=loss,
        bits=SeededBits(1),
    )

    assert shown._mean_loss(LABELS) == 0.5
    assert hidden._measure_gain(np.zeros(100_000)) == 50_000 << 20
