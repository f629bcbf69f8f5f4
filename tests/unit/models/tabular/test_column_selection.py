"""Columns are selected inside the bill, from one noisy release of which one row or person moves a bounded part."""

import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest

import expost
from expost import Classifier, InvalidRequest, Regressor, Session, approx, zcdp
from expost.accounting.concentrated import GaussianTotal
from expost.core import PureLoss
from expost.models.tabular.column_encoding import CategoryColumn, FlagColumn, NumberColumn
from expost.models.tabular.column_selection import ColumnSelection, read_select, selection_noise
from expost.models.tabular.date_column import DateColumn
from expost.models.tabular.rung_schedule import SideShares, plan_epsilon, plan_score
from expost.models.tabular.table_encoder import TableEncoder
from expost.models.tabular.tabular_rows import RowChunk
from expost.noise import SeededBits

RNG = np.random.default_rng(0)
N = 6000
FRAME = pandas.DataFrame({f"z{k}": RNG.uniform(-1, 1, N) for k in range(6)})
FRAME["job"] = RNG.choice(["a", "b", "c"], N)
FRAME["old"] = (FRAME["z4"] + (FRAME["job"] == "b") + RNG.normal(0, 0.3, N)) > 0.4
FRAME["pay"] = 3 * FRAME["z1"] - 2 * FRAME["z4"] + RNG.normal(0, 0.3, N)
FRAME["kind"] = np.digitize(FRAME["z2"], [-0.4, 0.4])
FRAME["id"] = np.arange(N) // 2
COLUMNS: dict[str, Any] = {**{f"z{k}": (-1, 1) for k in range(6)}, "job": ["a", "b", "c"]}
ENCODER = TableEncoder(
    (
        NumberColumn("x", 0, 1),
        CategoryColumn("key", ["a", "b"]),
        FlagColumn("flag"),
        DateColumn("when", "2024-01-01", "2024-12-31"),
    )
)


def classifier(**more: Any) -> Classifier:
    return Classifier(**{"columns": COLUMNS, "select": 2, "epsilon": 2.0, "simulation_seed": 1} | more)


def selection(**more: Any) -> ColumnSelection:
    terms: dict[str, Any] = {"encoder": ENCODER, "picks": 2, "classes": None, "rows_per_unit": 1, "noise": Fraction(1)}
    return ColumnSelection(**terms | more)


@pytest.mark.parametrize(("delta", "level"), [(1e-6, 2.0), (0, 2.0)])
def test_the_columns_that_matter_are_kept_and_shown(delta: float, level: float) -> None:
    model = classifier(delta=delta, epsilon=level).fit(FRAME, target="old")

    assert model.selected_columns_ == ("z4", "job")
    assert list(model.feature_names_in_) == list(COLUMNS) and model.n_features_in_ == 7
    assert model.receipt_.terms["selected columns"] == ["z4", "job"]
    assert "selected columns" in model.card().to_markdown()
    assert {line["column"] for line in model.coefficients().lines} <= {"z4", "job", ""}
    assert float(model.receipt_.epsilon) <= level
    assert model.score(FRAME[["z4", "job"]], FRAME["old"]) > 0.8
    again = pickle.loads(pickle.dumps(model))
    assert again.selected_columns_ == ("z4", "job")


def test_numbers_several_classes_and_persons_are_selected_for_too() -> None:
    numbers = Regressor(columns=COLUMNS, select=2, epsilon=2.0, target_bounds=(-6, 6), simulation_seed=1)
    assert numbers.fit(FRAME, target="pay").selected_columns_ == ("z1", "z4")
    kinds = classifier(classes=[0, 1, 2], select=1).fit(FRAME, target="kind")
    assert kinds.selected_columns_ == ("z2",)
    persons = classifier(unit="id", max_rows_per_unit=2).fit(FRAME, target="old")
    assert persons.selected_columns_ == ("z4", "job")


def test_a_matrix_keeps_all_its_columns_for_predictions() -> None:
    matrix = FRAME[[f"z{k}" for k in range(6)]].to_numpy()
    target = FRAME["old"].to_numpy()
    model = Classifier(columns=(-1, 1), classes=[False, True], select=1, epsilon=2.0, simulation_seed=1)
    model.fit(matrix, target)
    assert model.selected_columns_ == ("x4",)
    assert model.predict(matrix).shape == (N,)
    with pytest.raises(InvalidRequest, match="expecting 6 features"):
        model.predict(matrix[:, :5])


def test_a_score_is_reached_with_selected_columns_at_a_price_that_does_not_depend_on_the_cap() -> None:
    bills = []
    for cap in (1.0, 4.0):
        model = classifier(epsilon=None, score=("accuracy", 0.75), max_epsilon=cap).fit(FRAME, target="old")
        bills.append(model.receipt_.bill)
    assert bills[0] == bills[1]
    with pytest.raises(InvalidRequest, match="leaves something"):
        classifier(epsilon=None, score=("accuracy", 0.75), max_epsilon=0.02).fit(FRAME, target="old")
    with pytest.raises(InvalidRequest, match=r"at least 0\.1"):
        classifier(epsilon=None, score=("accuracy", 0.75), max_epsilon=0.08, delta=0).fit(FRAME, target="old")


@pytest.mark.parametrize("fixed", [True, False])
def test_the_selection_is_part_of_every_price(fixed: bool) -> None:
    delta = Fraction(1, 10**6)
    first = selection_noise(Fraction(1), delta, fixed=fixed)
    sides = SideShares(0.1, 0.3, first)
    schedule = plan_epsilon(Fraction(1), delta, sides) if fixed else plan_score(Fraction(1), delta, sides=sides)
    prices = schedule.prices
    for number, price in enumerate(prices.epsilons):
        noises = [each.noise_multiplier for each in schedule.event(number + 1).events]  # type: ignore[attr-defined]
        assert first in noises and len(noises) == number + 4
        share = delta if fixed else prices.shares[number]  # type: ignore[index]
        assert GaussianTotal(sum(1 / noise**2 for noise in noises)).epsilon(share) <= float(price) <= 1


def test_a_pure_selection_is_added_to_the_bill() -> None:
    receipt = classifier(delta=0, epsilon=1.0).fit(FRAME, target="old").receipt_
    assert receipt.bill == PureLoss(1) and receipt.breakdown["selection"] == Fraction(1, 10)
    assert sum(receipt.breakdown.values()) == 1


@pytest.mark.parametrize("budget", [approx(5, 1e-5), zcdp(1), 5.0])
def test_every_kind_of_account_pays_for_a_selection(budget: Any) -> None:
    session = Session(expost.Dataset(FRAME), budget=budget, bits=SeededBits(1), simulation=True)
    model = session.fit(classifier(simulation_seed=None), target="old")
    assert len(model.selected_columns_) == 2 and model.receipt_.ledger_entry


@pytest.mark.parametrize("classes", [None, 2, 4])
@pytest.mark.parametrize("noise", [Fraction(1), None])
def test_no_row_moves_the_sums_further_than_the_proof_says(noise: Fraction | None, classes: int | None) -> None:
    chosen = selection(noise=noise, epsilon=Fraction(1), classes=classes)
    rng = np.random.default_rng(3)
    lattice, count = chosen.lattice, 400
    # Corners of the public set: each column as long as it can be.
    days = rng.integers(0, 366, count).astype("timedelta64[D]")
    table = {
        "x": rng.choice([0.0, 1.0, 0.5, np.nan], count),
        "key": rng.choice(["a", "b", "?"], count),
        "flag": rng.choice([True, False], count),
        "when": (np.datetime64("2024-01-01") + days).astype("datetime64[us]"),
    }
    features = ENCODER.encode(pa.table(table))
    targets = rng.choice([-1.0, 1.0], count) if classes is None else rng.integers(-1, classes, count)
    rows = RowChunk(features, targets, np.ones(count, np.float32))
    vectors = chosen.write_vectors(rows)
    lengths = np.abs(vectors).sum(axis=1) if noise is None else np.sqrt((vectors**2).sum(axis=1))
    assert 0.6 * lattice.longest < lengths.max() <= lattice.longest * (1 + 1e-12)
    total = lattice.start()
    lattice.add(total, vectors[:1], rows.weights[:1])
    order = 1 if noise is None else 2
    assert 0 < np.linalg.norm(total.astype(float), order) <= lattice.sensitivity.amount


def test_a_row_longer_than_declared_counts_as_zero() -> None:
    chosen = selection()
    rows = RowChunk(np.full((1, ENCODER.width), 9.0, np.float32), np.ones(1), np.ones(1, np.float32))
    total = chosen.lattice.start()
    chosen.lattice.add(total, chosen.write_vectors(rows), rows.weights)
    assert not total.any()


def test_scores_without_noise_are_shares_of_explained_variance() -> None:
    rng = np.random.default_rng(5)
    encoder = TableEncoder((NumberColumn("x", -1, 1, missing=False), CategoryColumn("key", ["a", "b", "c"])))
    numbers, keys = rng.uniform(-1, 1, 4000), rng.integers(0, 3, 4000)
    target = np.clip(0.4 * numbers + 0.2 * keys - 0.2 + rng.normal(0, 0.1, 4000), -1, 1)
    features = np.zeros((4000, encoder.width), np.float32)
    features[:, 0] = numbers
    features[np.arange(4000), 1 + keys] = 1
    chosen = selection(encoder=encoder, noise=Fraction(1, 10**3), picks=1)
    rows = RowChunk(features, target, np.ones(4000, np.float32))
    scores = chosen.score_columns(chosen.release_sums(lambda: [rows], SeededBits(1)))
    means = np.array([target[keys == each].mean() for each in range(3)])
    between = np.mean((means[keys] - target.mean()) ** 2)
    assert scores[0] == pytest.approx(np.cov(numbers, target)[0, 1] ** 2 / numbers.var(), rel=0.01)
    # c^2 / (p (1 - p)) instead of c^2 / p: between 1 and 1 / (1 - p) times the variance between the levels.
    assert between < scores[1] < 2 * between


def test_what_cannot_be_selected_is_refused_before_anything_is_spent() -> None:
    for wrong in (0, 8, -1, 1.5, True, "two"):
        with pytest.raises(InvalidRequest, match="whole number from 1 to 7"):
            classifier(select=wrong).fit(FRAME, target="old")
    assert read_select(7, 7) is None
    whole = classifier(select=7).fit(FRAME, target="old")
    assert whole.coef_.tolist() == classifier(select=None).fit(FRAME, target="old").coef_.tolist()
