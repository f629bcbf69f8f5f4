"""What is not said is chosen from public facts: the way, the penalty, the bounds of a described dataset."""

import numpy as np
import pyarrow as pa
import pytest

import expost
from expost import Dataset, InvalidRequest


def table(rows: int = 6000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 100, (rows, 4))
    return x, x @ [1.0, 2.0, -1.0, 0.5] * 10 + 20 * rng.normal(size=rows)


BOX, ENDS = [(0, 100)] * 4, (-1200.0, 3800.0)


def test_ridge_at_a_given_epsilon_takes_moments_where_a_tilt_has_no_room() -> None:
    x, y = table()
    terms = {"bounds": BOX, "target_bounds": ENDS, "fit_intercept": True, "simulation_seed": 1}
    loose = expost.Ridge(epsilon=1, regularization=1e-4, **terms).fit(x, y)
    roomy = expost.Ridge(epsilon=1, regularization=0.05, **terms).fit(x, y)

    assert "moments" in loose.receipt_.method
    assert "objective perturbation" in roomy.receipt_.method
    assert loose.score(x, y) > 0.6
    assert loose.receipt_.epsilon == 1
    with pytest.raises(InvalidRequest, match=r"objective perturbation .* got 1\.0"):
        expost.Ridge(epsilon=1, regularization=1e-4, method="objective", **terms).fit(x, y)


def test_the_bound_of_shrunk_coefficients_holds() -> None:
    x, y = table()
    terms = {"bounds": BOX, "target_bounds": ENDS, "regularization": 0.05, "method": "certificate"}
    best = expost.Ridge(epsilon=10**6, simulation_seed=0, **terms).fit(x, y)

    def risk(model: expost.Ridge) -> float:
        return float(((y - model.predict(x)) ** 2).mean() / 2 + 0.05 / 2 * ((model.coef_ * 100) ** 2).sum())

    for seed in range(10):
        model = expost.Ridge(epsilon=3, simulation_seed=seed, failure_probability=0.2, **terms).fit(x, y)
        if model.receipt_.achieved is not None:
            # The middle of the targets is predicted for coefficients of zero; the penalty is on scaled columns.
            assert risk(model) - risk(best) <= model.receipt_.achieved * (1 + 1e-6)


def test_the_default_penalty_of_classifiers_learns_at_every_epsilon() -> None:
    rng = np.random.default_rng(2)
    x = (rng.uniform(size=(20_000, 20)) < 0.5) / 20.0  # rows of 1-norm about a half: short for a fixed penalty
    label = (x[:, 0] + x[:, 1] + 0.5 * x[:, 2] > 0.06).astype(int)
    majority = max(label.mean(), 1 - label.mean())
    for make in (expost.LogisticRegression, expost.HuberSVC):
        for epsilon in (1.0, 3.0):
            model = make(epsilon=epsilon, classes=(0, 1), simulation_seed=1).fit(x, label)
            assert (model.predict(x) == label).mean() > majority + 0.05
    assert model.receipt_.terms["regularization"] < 1e-3


def test_the_default_penalty_falls_with_epsilon_and_rows_and_is_fixed_for_an_excess_risk() -> None:
    x, label = np.full((4000, 2), 0.3), np.tile([0, 1], 2000)

    def penalty(rows: int, **terms) -> float:
        made = expost.LogisticRegression(classes=(0, 1), max_epsilon=50 if "epsilon" not in terms else None, **terms)
        return made.fit(x[:rows], label[:rows]).receipt_.terms["regularization"]

    assert penalty(4000, epsilon=1) < penalty(4000, epsilon=0.5) < penalty(2000, epsilon=0.5)
    assert penalty(4000, excess_risk=0.1) == 0.005
    assert penalty(4000, epsilon=1, regularization=0.25) == 0.25


def test_a_described_dataset_supplies_its_bounds_once() -> None:
    x, y = table()
    columns = {name: x[:, place] for place, name in enumerate("abcd")} | {"y": y}
    bounds = {name: (0, 100) for name in "abcd"} | {"y": ENDS}
    described = Dataset(pa.table(columns), bounds=bounds, adjacency="replace-one", rows=len(y))
    terms = {"epsilon": 3, "regularization": 0.01, "simulation_seed": 3}
    own = expost.Ridge(**terms).fit(described, "y")
    told = expost.Ridge(bounds=BOX, target_bounds=ENDS, **terms).fit(x, y)

    assert np.array_equal(own.coef_, told.coef_)
    assert "not declared" not in own.receipt_.terms


def test_bounds_that_nobody_declared_are_on_the_receipt() -> None:
    x, y = table()
    receipt = expost.Ridge(epsilon=1).fit(x, y).receipt_

    assert "feature_bound" in receipt.terms["not declared"] and "target_bounds" in receipt.terms["not declared"]
    assert "clipped" in receipt.to_json()
    half = expost.Ridge(epsilon=1, feature_bound=400.0).fit(x, y).receipt_.terms["not declared"]
    assert "feature_bound" not in half and "target_bounds" in half
    label = (y > 0).astype(int)
    classified = expost.LogisticRegression(epsilon=1, classes=(0, 1)).fit(x, label).receipt_
    assert "target_bounds" not in classified.terms["not declared"]


def test_a_dataset_described_in_part_names_what_is_missing() -> None:
    x, y = table(100)
    columns = {name: x[:, place] for place, name in enumerate("abcd")} | {"y": y}
    described = Dataset(pa.table(columns), bounds={"a": (0, 100)})

    with pytest.raises(InvalidRequest, match=r"none for b, c, d\. Describe the dataset with bounds=\{\"b\": \(LOW"):
        expost.Ridge(epsilon=1).fit(described, "y")
