"""The estimators trained by gradient descent take datasets, by themselves and through a session."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import expost
from expost import Dataset, InvalidRequest, SGDClassifier, SGDRegressor, TargetNotMet
from expost.noise import SeededBits

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


@pytest.mark.parametrize("rows", [0, 1])
def test_a_fit_to_a_table_that_nobody_is_in_is_no_refusal(rows: int) -> None:
    """How many rows there are is private, and none is a number too."""
    private, classes = SEEDED | {"simulation_seed": None}, ["no", "yes"]
    certified = {"method": "absolute_loss", "score": ("log_loss", 0.69), "rows": 3000, "regularization": 0.1}
    models = [
        SGDClassifier(classes=classes, **private),
        expost.LogisticRegression(classes=classes, feature_bound=1.5, max_epsilon=4.0, **certified),
    ]
    for model in models:
        session = expost.Session(Dataset(TABLE[:rows]), budget=expost.approx(10, 1e-5))
        assert session.fit(model, features=["a", "b"], target="kind").receipt_.epsilon <= 4


def test_a_dataset_whose_rows_are_replaced_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="added or removed"):
        SGDClassifier(classes=["no", "yes"], **SEEDED).fit(described(adjacency="replace-one", rows=3000), "kind")


def test_public_facts_must_be_declared_for_a_dataset() -> None:
    for changes in ({"rows": "observed"}, {"classes": "observed"}, {"classes": [0, 1]}):
        terms = {"classes": ["no", "yes"], **SEEDED} | changes
        with pytest.raises(InvalidRequest):
            SGDClassifier(**terms).fit(described(), "kind")


def test_what_is_observed_elsewhere_must_be_listed_for_a_dataset() -> None:
    with pytest.raises(InvalidRequest, match="rows to be a number") as rows:
        SGDClassifier(classes=["no", "yes"], **(SEEDED | {"rows": "observed"})).fit(described(), "kind")
    with pytest.raises(InvalidRequest, match="list of classes for a Dataset"):
        SGDClassifier(classes="observed", **SEEDED).fit(described(), "kind")

    assert 'rows="observed"' not in str(rows.value)


def test_a_session_keeps_its_own_books() -> None:
    session = expost.Session(described(), budget=expost.approx(10, 1e-5))
    model = SGDRegressor(target_bounds=(-2, 2), **SEEDED | {"checkpoint": "run.npz"})

    with pytest.raises(InvalidRequest, match="checkpoint"):
        session.fit(model, features=["a"], target="sum")
    with pytest.raises(InvalidRequest, match="feature"):
        session.fit(SGDRegressor(target_bounds=(-2, 2), **SEEDED), features=[], target="sum")


def test_one_time_window_of_a_table_is_refused_and_charges_neither_account(tmp_path: Path) -> None:
    when = pa.array(np.arange(3000) * 3600 * 10**6, pa.timestamp("us"))
    visits = Dataset(
        TABLE.append_column("when", when).append_column("id", pa.array(np.arange(3000))),
        name="visits",
        unit=expost.Unit.of("id", per="week", time="when"),
        adjacency="add-remove",
    )
    window, path = visits.within_window("1970-01-09"), str(tmp_path / "book.ledger")
    accounts = ("dataset:visits", f"dataset:{window.name}")
    with expost.open_ledger(path) as ledger:
        for account in accounts:
            ledger.open_account(account, expost.approx(10, 1e-5))
    gradient = SGDRegressor(target_bounds=(-2, 2), **SEEDED, ledger=path)
    choice = expost.OneOf(
        [SGDRegressor(target_bounds=(-2, 2), rows=3000, ledger=path, feature_bound=1.0)], score=("rmse", 0.5)
    )

    for model in (gradient, expost.Ridge(epsilon=1.0, ledger=path, feature_bound=1.0, target_bounds=1.0), choice):
        with pytest.raises(InvalidRequest, match=r'Session.window\("1970-01-05"\)'):
            model.fit(window, "sum")
    with expost.open_ledger(path) as ledger:
        assert all(ledger.spent(account).amounts()["epsilon"] == 0 for account in accounts)


def test_a_session_stops_on_public_rows_and_prices_it_before() -> None:
    session = expost.Session(described(), budget=expost.approx(10, 1e-5))
    terms = SEEDED | {"simulation_seed": None, "epsilon": None, "score": ("accuracy", 0.8), "max_epsilon": 4.0}
    model, public = (
        SGDClassifier(classes=["no", "yes"], **terms),
        (np.column_stack([A, B]), np.where(A > B, "yes", "no")),
    )
    asked = {"features": ["a", "b"], "target": "kind", "public_validation": public}

    assert session.price(model, **asked).worst_case.epsilon <= 4
    assert session.fit(model, **asked).receipt_.outcome.value == "certified"
    assert model.score(*public) == pytest.approx(model.receipt_.achieved)


def test_an_estimator_without_a_use_for_public_rows_refuses_them() -> None:
    session = expost.Session(described(adjacency="replace-one", rows=3000), budget=expost.epsilon(10))
    ridge = expost.Ridge(epsilon=1.0, bounds=[(-1, 1)], target_bounds=1.0)

    with pytest.raises(InvalidRequest, match="Ridge takes no public_validation"):
        session.fit(ridge, features=["a"], target="sum", public_validation=(A[:, None], B))
    assert session.spent().amounts()["epsilon"] == 0


def test_a_price_is_guessed_from_fits_to_the_same_target_and_certain_without_one() -> None:
    session = expost.Session(described(), budget=expost.approx(10, 1e-5), bits=SeededBits(1), simulation=True)
    asked = {"features": ["a", "b"], "target": "kind"}
    terms = {"classes": ["no", "yes"], "rows": 3000, "steps": 10, "feature_bound": 1.5}
    reached, fixed = SGDClassifier(score=("accuracy", 0.7), **terms), SGDClassifier(epsilon=0.25, **terms)
    bill = session.fit(reached, **asked).receipt_.bill

    assert session.price(reached, **asked).likely == bill
    assert session.price(SGDClassifier(score=("accuracy", 0.8), **terms), **asked).likely is None
    price = session.price(fixed, **asked)
    assert price.likely == price.worst_case == session.fit(fixed, **asked).receipt_.bill


class FixedWords:
    """The same secret for every training."""

    def words(self, count: int) -> np.ndarray:
        return np.arange(count, dtype=np.uint64) + np.uint64(5)


@pytest.mark.parametrize("unit", [{}, {"unit": "id", "max_rows_per_unit": 2}], ids=["row", "person"])
@pytest.mark.parametrize("terms", [{"epsilon": 1.0, "steps": 3}, {"score": ("accuracy", 0.9), "solver": "newton"}])
def test_rows_that_are_read_in_every_step_train_the_same_bits(
    unit: dict, terms: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (3000, 2))
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "y": (x[:, 0] > x[:, 1]).astype(int), "id": np.arange(3000) // 2})
    used = ["a", "b", "y", *(["id"] if unit else [])]
    pq.write_table(table.select(used), tmp_path / "t.parquet", row_group_size=700)
    monkeypatch.setattr("expost.models.descent.gradient_model.system_bits", FixedWords)

    def fit() -> SGDClassifier:
        dataset = Dataset(tmp_path / "t.parquet", bounds={"a": (-1, 1), "b": (-1, 1)}, **unit)
        model = SGDClassifier(classes=[0, 1], rows=3000, simulation_seed=4, **terms)
        try:
            return model.fit(dataset, "y")
        except TargetNotMet as missed:
            model.release_ = missed.release
            return model

    kept = fit()
    monkeypatch.setattr("expost.models.descent.gradient_model._KEPT_BYTES", 0)
    passes, batches = [], Dataset.batches

    def counted(self: Dataset, columns: list[str]) -> object:
        passes.append(columns)
        return batches(self, columns)

    monkeypatch.setattr(Dataset, "batches", counted)
    streamed = fit()

    assert np.array_equal(kept.release_.value.coefficients, streamed.release_.value.coefficients)
    assert kept.release_.receipt.bill == streamed.release_.receipt.bill
    assert len(passes) > 2 if unit else not passes  # rows that are units are read in threads
