"""The private scaler, components and selection keep scikit-learn's habits, pay for what they release, and say what is missing."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn.decomposition
from sklearn.base import clone

import expost
from expost import PCA, Dataset, InvalidRequest, SelectKBest, Session, StandardScaler, open_ledger
from expost.core import Adjacency

NAMES = ["age", "income", "flat"]
BOUNDS = {"age": (0, 100), "income": (0, 1e5), "flat": (-1, 1)}


def people(rows: int = 5000) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.column_stack([rng.normal(40, 10, rows), rng.normal(3e4, 5e3, rows), np.full(rows, 0.25)])


def scaler(**changes: Any) -> StandardScaler:
    return StandardScaler(**({"epsilon": 5.0, "bounds": list(BOUNDS.values()), "simulation_seed": 1} | changes))


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_scaled_columns_have_mean_zero_and_unit_spread(delta: float) -> None:
    x = people(20_000)

    scaled = scaler(delta=delta).fit_transform(x)

    assert np.abs(scaled[:, :2].mean(axis=0)).max() < 0.1
    assert np.abs(scaled[:, :2].std(axis=0) - 1).max() < 0.1
    assert np.abs(scaled[:, 2]).max() < 1  # a column that does not vary is not blown up


def test_missing_values_are_left_out_of_the_mean_and_become_zero() -> None:
    x = people(20_000)
    x[::2, 0] = np.nan

    model = scaler().fit(x)

    assert abs(model.mean_[0] - 40) < 1
    assert (model.transform(x)[::2, 0] == 0).all()


def test_the_inverse_undoes_the_scaling_of_values_within_the_bounds() -> None:
    x = people(100)
    model = scaler().fit(x)

    assert np.allclose(model.inverse_transform(model.transform(x)), x)


@pytest.mark.parametrize(
    "kind",
    [
        lambda x: x,
        lambda x: pd.DataFrame(x, columns=NAMES),
        lambda x: pl.DataFrame(x, schema=NAMES),
        lambda x: pa.table({name: x[:, j] for j, name in enumerate(NAMES)}),
    ],
    ids=["numpy", "pandas", "polars", "arrow"],
)
def test_every_kind_of_table_gives_the_same_numbers(kind: Any) -> None:
    x = people()
    expected = scaler().fit(x)

    model = scaler().fit(kind(x))

    assert model.mean_.tolist() == expected.mean_.tolist()
    assert model.transform(kind(x)).tolist() == expected.transform(x).tolist()


def test_a_dataset_supplies_its_bounds_and_its_adjacency() -> None:
    table = pa.table({name: people()[:, j] for j, name in enumerate(NAMES)})
    added = Dataset(table, name="people", bounds=BOUNDS)
    replaced = Dataset(table, name="people", bounds=BOUNDS, adjacency="replace-one", rows=5000)

    assert scaler(bounds=None).fit(added).receipt_.adjacency is Adjacency.ADD_REMOVE
    model = scaler(bounds=None).fit(replaced)
    assert model.receipt_.adjacency is Adjacency.REPLACE_ONE
    assert model.n_samples_seen_ == 5000
    assert model.get_feature_names_out().tolist() == NAMES


def test_missing_bounds_are_an_error_with_a_template() -> None:
    frame = pd.DataFrame(people(10), columns=NAMES)

    with pytest.raises(InvalidRequest, match=r'"age": \(low, high\), "income": \(low, high\)'):
        StandardScaler(epsilon=1).fit(frame)
    with pytest.raises(InvalidRequest, match=r'"flat": \(low, high\)\}'):
        StandardScaler(epsilon=1).fit(Dataset(frame, bounds={name: BOUNDS[name] for name in NAMES[:2]}))
    with pytest.raises(InvalidRequest, match=r"\[\(low, high\), ...\]"):
        StandardScaler(epsilon=1).fit(people(10))


@pytest.mark.parametrize(
    "model",
    [
        StandardScaler(bounds=(0, 1)),
        StandardScaler(epsilon=-1, bounds=(0, 1)),
        StandardScaler(epsilon=1, bounds=(1, 0)),
        StandardScaler(epsilon=1, bounds=[(0, 1)]),
        StandardScaler(epsilon=1, bounds=(0, 1), with_mean="yes"),
        PCA(4, epsilon=1, bounds=(0, 1)),
        PCA(True, epsilon=1, bounds=(0, 1)),
        PCA(2, epsilon=1, bounds=(0, 1), delta=2),
        SelectKBest(1, epsilon=1, bounds=(0, 1)),
        SelectKBest(4, epsilon=1, bounds=(0, 1), target_bounds=1.0),
        SelectKBest(1, epsilon=1, bounds=(0, 1), target_bounds=1.0, classes=[0, 1]),
        SelectKBest(1, epsilon=1, bounds=(0, 1), classes=[0, 0]),
        SelectKBest(1, epsilon=1, bounds=(0, 1), classes="observed"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_spent(model: Any, tmp_path: Any) -> None:
    path = str(tmp_path / "ledger")
    open_ledger(path).open_account("dataset:table", expost.epsilon(10))

    with pytest.raises(InvalidRequest):
        clone(model).set_params(ledger=path).fit(people(30), np.zeros(30))

    assert open_ledger(path).spent("dataset:table").amounts()["epsilon"] == 0


def test_a_table_of_persons_with_several_rows_is_refused() -> None:
    table = pa.table({"id": [1, 1, 2], "age": [30, 31, 40]})
    visits = Dataset(table, unit="id", max_rows_per_unit=2, bounds={"age": (0, 100)})

    with pytest.raises(InvalidRequest, match='unit="row"'):
        StandardScaler(epsilon=1).fit(visits)


def test_fits_are_charged_to_a_ledger_and_to_a_session(tmp_path: Any) -> None:
    path, x = str(tmp_path / "ledger"), people(500)
    open_ledger(path).open_account("dataset:table", expost.epsilon(10))
    model = scaler(epsilon=0.5, ledger=path, simulation_seed=None).fit(x)

    assert open_ledger(path).spent("dataset:table") == model.receipt_.bill

    table = Dataset(pa.table({name: x[:, j] for j, name in enumerate(NAMES)}), name="people", bounds=BOUNDS)
    with Session(table, budget=2.0) as session:
        fitted = session.fit(PCA(1, epsilon=0.75), features=NAMES[:2])
        assert str(session.spent()) == "epsilon 0.75"
        assert fitted.receipt_.ledger_entry is not None
        assert session.price(StandardScaler(epsilon=0.25), features=NAMES).worst_case.amounts()["epsilon"] == 0.25
        session.fit(SelectKBest(1, epsilon=0.25, target_bounds=1.0), features=NAMES[:2], target="flat")
        assert str(session.spent()) == "epsilon 1"


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_components_are_those_of_the_covariance_of_scaled_columns(delta: float) -> None:
    rng = np.random.default_rng(0)
    latent = rng.uniform(-1, 1, (50_000, 2))
    x = np.clip(latent @ [[1.0, 0.9, 0.1], [0.1, -0.1, 0.4]], -2, 2)

    model = PCA(2, epsilon=2.0, delta=delta, bounds=(-2, 2), simulation_seed=1).fit(x)
    exact = sklearn.decomposition.PCA(2).fit(x)

    assert np.abs(np.sum(model.components_ * exact.components_, axis=1)).min() > 0.99
    assert np.abs(model.explained_variance_ratio_ - exact.explained_variance_ratio_).max() < 0.05
    assert np.abs(model.inverse_transform(model.transform(x)) - x).max() < 0.2
    assert model.get_feature_names_out().tolist() == ["pca0", "pca1"]


def test_the_columns_that_separate_the_classes_are_kept() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 5000)
    x = rng.uniform(-1, 1, (5000, 8))
    x[:, 5] += labels
    x[:, 1] -= labels
    frame = pd.DataFrame(x, columns=list("abcdefgh"))

    model = SelectKBest(2, epsilon=1.0, bounds=(-3, 3), classes=[0, 1, 2], simulation_seed=1).fit(frame, labels)

    assert model.get_feature_names_out().tolist() == ["b", "f"]
    assert model.transform(frame).tolist() == x[:, [1, 5]].tolist()


@pytest.mark.parametrize(
    "model",
    [
        scaler(),
        PCA(2, epsilon=5, bounds=list(BOUNDS.values())),
        SelectKBest(1, epsilon=5, bounds=(0, 9), target_bounds=1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_fitted_transformer_survives_a_pickle_and_a_clone_is_unfitted(model: Any) -> None:
    x = people(200)
    fitted = clone(model).fit(x, np.ones(200))

    again = pickle.loads(pickle.dumps(fitted))

    assert again.transform(x).tolist() == fitted.transform(x).tolist()
    assert again.receipt_ == fitted.receipt_
    assert not hasattr(clone(fitted), "release_")


def test_a_dataset_cannot_be_transformed_and_a_sparse_table_is_refused() -> None:
    scipy_sparse = pytest.importorskip("scipy.sparse")
    model = scaler().fit(people(50))

    with pytest.raises(InvalidRequest, match="a Dataset is private"):
        model.transform(Dataset(pa.table({"age": [1]})))
    with pytest.raises(InvalidRequest, match="dense"):
        model.transform(scipy_sparse.csr_array(people(5)))


def test_a_guess_of_the_number_of_rows_drops_none_under_add_remove() -> None:
    table = pa.table({"age": [10.0] * 40 + [90.0] * 60})
    people = Dataset(table, bounds={"age": (0, 100)}, rows=40)

    model = StandardScaler(epsilon=1e6, simulation_seed=1).fit(people)

    assert model.n_samples_seen_ == 100
    assert abs(model.mean_[0] - 58) < 0.01
