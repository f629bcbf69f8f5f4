"""The estimators trained by gradient descent take datasets, by themselves and through a session."""

import numpy as np
import pyarrow as pa
import pytest

import expost
from expost import Dataset, InvalidRequest, SGDClassifier, SGDRegressor

RNG = np.random.default_rng(0)
A, B = RNG.uniform(-1, 1, (2, 3000))
TABLE = pa.table({"a": A, "b": B, "kind": np.where(A > B, "yes", "no"), "sum": A + B})
SEEDED = {"rows": 3000, "epsilon": 4.0, "steps": 20, "feature_bound": 1.5, "simulation_seed": 1}


def described(**changes: object) -> Dataset:
    return Dataset(TABLE, **({"adjacency": "add-remove"} | changes))


def test_a_dataset_gives_the_model_that_its_columns_give() -> None:
    by_name = SGDClassifier(classes=["no", "yes"], **SEEDED).fit(described(), "kind")
    by_hand = SGDClassifier(classes=["no", "yes"], **SEEDED).fit(
        np.column_stack([A, B, A + B]), TABLE.column("kind").to_numpy()
    )

    assert (by_name.coef_ == by_hand.coef_).all()
    assert (by_name.receipt_.bill, by_name.receipt_.terms) == (by_hand.receipt_.bill, by_hand.receipt_.terms)
    assert by_name.predict([[0.9, -0.9, 0.0]]).tolist() == ["yes"]


def test_a_session_pays_for_chosen_columns() -> None:
    session = expost.Session(described(), budget=expost.approx(10, 1e-5))
    terms = SEEDED | {"simulation_seed": None}

    model = session.fit(SGDRegressor(target_bounds=(-2, 2), **terms), features=["a", "b"], target="sum")

    assert abs(model.coef_ - 1).max() < 0.2
    assert model.receipt_.epsilon <= 4
    assert len(session.history()) >= 1


def test_a_dataset_whose_rows_are_replaced_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="added or removed"):
        SGDClassifier(classes=["no", "yes"], **SEEDED).fit(described(adjacency="replace-one", rows=3000), "kind")


def test_public_facts_must_be_declared_for_a_dataset() -> None:
    for changes in ({"rows": "observed"}, {"classes": "observed"}, {"classes": [0, 1]}):
        terms = {"classes": ["no", "yes"], **SEEDED} | changes
        with pytest.raises(InvalidRequest):
            SGDClassifier(**terms).fit(described(), "kind")


def test_a_session_keeps_its_own_books() -> None:
    session = expost.Session(described(), budget=expost.approx(10, 1e-5))
    model = SGDRegressor(target_bounds=(-2, 2), **SEEDED | {"checkpoint": "run.npz"})

    with pytest.raises(InvalidRequest, match="checkpoint"):
        session.fit(model, features=["a"], target="sum")
    with pytest.raises(InvalidRequest, match="feature"):
        session.fit(SGDRegressor(target_bounds=(-2, 2), **SEEDED), features=[], target="sum")
