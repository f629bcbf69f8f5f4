"""Fits where a row or a person is added or removed: half the noise of a replaced one, and one budget with statistics."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import expost
from expost import BudgetExceeded, Dataset, InvalidRequest, Session, TargetNotMet
from expost.core import Adjacency, Norm, Sealed, Sensitivity, Unit
from expost.core.sealed import unseal
from expost.data.person_rows import read_added_rows
from expost.data.row_source import read_rows
from expost.data.second_moment import EuclideanLayout, MomentLayout
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows, grid_numbers
from expost.models.linear.counted_fit import CountedFit
from expost.models.linear.fit_neighbours import ADDED_ROWS, FitNeighbours
from expost.models.linear.linear_fit import Aim, Problem
from expost.models.linear.ridge_objective import ResidualCheck, TiltedRidge
from expost.models.linear.row_loss import HuberHinge, LogisticLoss, RowLoss, TruncatedSquare
from expost.models.linear.tilted_risk import TiltedRisk
from expost.noise import SeededBits

LOSSES = [LogisticLoss(), HuberHinge(), TruncatedSquare(1.0)]
PERSONS = FitNeighbours(Adjacency.ADD_REMOVE, Unit.of("id"), 4)
CORNERS = [(sign * unit, label) for unit in np.eye(2) for sign in (-1, 1) for label in (-1.0, 1.0)]
POINTS = [np.array([a, b]) for a in (-30, -3, -1, 0, 1, 3, 30) for b in (-30, -3, -1, 0, 1, 3, 30)]


def table(rows: int = 20_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 1, (rows, 3))
    return x, np.clip(x @ [0.8, -0.5, 0.3] + 0.1 * rng.normal(size=rows), -1, 1)


def described(rows: int = 20_000, **terms) -> Dataset:
    x, y = table(rows)
    columns = {name: x[:, place] for place, name in enumerate("abc")} | {"y": y, "label": (y > 0.3).astype(int)}
    return Dataset(pa.table(columns | {"id": np.arange(rows) // 4}), name="people", **terms)


BOX = [(0, 1)] * 3
ESTIMATORS = {
    "ridge": (lambda **terms: expost.Ridge(excess_risk=0.05, bounds=BOX, target_bounds=1.0, **terms), "y"),
    "logistic": (
        lambda **terms: expost.LogisticRegression(excess_risk=0.05, bounds=BOX, classes=(0, 1), **terms),
        "label",
    ),
    "svm": (lambda **terms: expost.HuberSVC(excess_risk=0.05, bounds=BOX, classes=(0, 1), **terms), "label"),
    "certificate": (
        lambda **terms: expost.Ridge(epsilon=1, method="certificate", bounds=BOX, target_bounds=1.0, **terms),
        "y",
    ),
    "score": (
        lambda **terms: expost.LogisticRegression(score=("accuracy", 0.5), bounds=BOX, classes=(0, 1), **terms),
        "label",
    ),
}


def log_density(loss: RowLoss, base, unit, total: float, scale: float, at: np.ndarray) -> float:
    """Of the exact minimum of a sum of losses and a unit's weighted losses, under a public penalty on the whole."""
    gradient, jacobian = total * at, total * np.eye(2)
    for (x, y), weight in ((base, 1.0), (unit, 1 / max(len(unit[1]), 1))):
        if len(y):
            scores = x @ at
            gradient = gradient + weight * loss.slope_at(scores, y) @ x
            jacobian = jacobian + weight * (x.T * loss.curvature_at(scores, y)) @ x
    return float(-np.abs(gradient).sum() / scale + np.linalg.slogdet(jacobian)[1])


def worst_ratio(loss: RowLoss, scale: float, sizes: tuple[int, ...]) -> float:
    """The largest density ratio between a table and the table with one unit more, both ways."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (11, 2)) / 2
    y = rng.uniform(-1, 1, 11)
    base = x, y if isinstance(loss, TruncatedSquare) else np.sign(y)
    worst = 0.0
    for size in sizes:
        for first in CORNERS:
            others = [CORNERS[place] for place in rng.integers(len(CORNERS), size=size - 1)]
            rows = [first] * size if size < 3 else [first, *others]
            unit = np.array([row for row, _ in rows]), np.array([label for _, label in rows])
            nobody = np.zeros((0, 2)), np.zeros(0)
            for point in POINTS:
                here, there = (log_density(loss, base, who, 3.0, scale, point) for who in (unit, nobody))
                worst = max(worst, abs(here - there))
    return worst


@pytest.mark.parametrize("neighbours", [ADDED_ROWS, PERSONS], ids=["rows", "persons"])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_an_added_unit_is_hidden_by_half_the_tilt_and_by_no_less(loss: RowLoss, neighbours: FitNeighbours) -> None:
    risk = TiltedRisk(loss, UnitBall(2), 12, 0.25, neighbours=neighbours)
    replaced = TiltedRisk(loss, UnitBall(2), 12, 0.25)
    tilt, _ = risk.prices.split(Fraction(1))
    claimed, scale = float(tilt + risk.prices.jacobian), float(risk.law.scale_at(tilt))
    sizes = (1,) if neighbours.unit.is_row else (1, 2, 4)

    assert risk.law.scale_at(tilt) == replaced.law.scale_at(tilt) / 2
    assert worst_ratio(loss, scale, sizes) <= claimed
    assert worst_ratio(loss, 0.5 * scale, sizes) > claimed


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_session_that_counts_fits_every_model_without_going_over_to_replaced_rows(name: str) -> None:
    make, target = ESTIMATORS[name]
    session = Session(described(), budget=expost.epsilon(20))
    session.count(within=200)
    before = session.spent().epsilon

    model = session.fit(make(), features=["a", "b", "c"], target=target)

    receipt = model.receipt_
    assert receipt.adjacency is Adjacency.ADD_REMOVE
    assert receipt.account_note is None
    assert "count" in receipt.breakdown
    assert session.spent().epsilon == before + receipt.bill.epsilon
    assert "private" in receipt.terms["rows"]
    session.count(within=200)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_declared_number_of_rows_makes_arrays_private_in_their_number(name: str) -> None:
    make, target = ESTIMATORS[name]
    x, y = table()
    model = make(rows=20_000).fit(x, y if target == "y" else (y > 0.3).astype(int))

    assert model.receipt_.adjacency is Adjacency.ADD_REMOVE
    assert "declared" in model.receipt_.terms["rows"]
    assert "count" not in model.receipt_.breakdown


def test_an_added_row_costs_about_half_of_a_replaced_one() -> None:
    x, y = table()
    prices = [
        expost.Ridge(excess_risk=0.01, bounds=BOX, simulation_seed=1, target_bounds=1.0, **terms)
        .fit(x, y)
        .receipt_.epsilon
        for terms in ({}, {"rows": 20_000})
    ]

    assert 0.4 < prices[1] / prices[0] < 0.75


def test_adjacency_is_an_option_for_arrays_and_that_of_a_dataset() -> None:
    x, y = table()
    counted = expost.Ridge(excess_risk=0.05, bounds=BOX, adjacency="add-remove", target_bounds=1.0).fit(x, y).receipt_

    assert counted.adjacency is Adjacency.ADD_REMOVE and "count" in counted.breakdown
    with pytest.raises(InvalidRequest, match="number is public"):
        expost.Ridge(excess_risk=0.05, rows=10, adjacency="replace-one", feature_bound=1.0, target_bounds=1.0).fit(x, y)
    with pytest.raises(InvalidRequest, match="adjacency of the dataset"):
        expost.Ridge(excess_risk=0.05, adjacency="replace-one", feature_bound=1.0, target_bounds=1.0).fit(
            described(), "y"
        )
    with pytest.raises(InvalidRequest, match="adjacency to be"):
        expost.Ridge(excess_risk=0.05, adjacency="both", feature_bound=1.0, target_bounds=1.0).fit(x, y)


def problem_for(**aim) -> Problem:
    asked = Aim.of(**({"max_epsilon": 1.0, "failure_probability": 0.1} | aim))
    return Problem(UnitBall(3), 0, 0.005, asked, neighbours=ADDED_ROWS)


@pytest.mark.parametrize("rows", [3, 60, 1000, 30_000])
def test_a_noisy_count_is_below_the_true_one_and_close_where_the_cap_allows(rows: int) -> None:
    plan = CountedFit(problem_for(excess_risk=0.05, failure_probability=0.9), TiltedRidge)
    bits = SeededBits(rows)
    counts = [plan._count_units(Sealed(rows, Sensitivity(1)), bits) for _ in range(300)]

    low = [count for count in counts if count.enough]
    assert sum(count.units > rows for count in low) <= 300 * 0.009 + 8
    if rows == 30_000:
        assert len(low) == 300
        assert min(count.units for count in low) > 0.85 * rows
        assert max(float(count.epsilon) for count in low) < 0.05


def test_too_few_rows_miss_the_target_for_the_price_of_a_count() -> None:
    x, y = table(50)
    with pytest.raises(TargetNotMet) as missed:
        expost.Ridge(excess_risk=0.001, bounds=BOX, adjacency="add-remove", target_bounds=1.0).fit(x, y)

    assert missed.value.receipt.epsilon <= 0.1
    assert not missed.value.release.value.coefficients.any()


def test_a_cap_that_no_table_fits_is_refused_before_the_count() -> None:
    x, y = table(50)
    with pytest.raises(BudgetExceeded):
        expost.Ridge(excess_risk=1e-9, bounds=BOX, adjacency="add-remove", max_epsilon=1e-5, target_bounds=1.0).fit(
            x, y
        )


def test_methods_without_a_proof_for_added_rows_are_refused_for_free() -> None:
    session = Session(described(), budget=expost.epsilon(2))
    for method in ("output", "gradient", "cov_nr"):
        with pytest.raises(InvalidRequest, match="added or removed"):
            session.fit(
                expost.Ridge(excess_risk=0.05, method=method, feature_bound=1.0, target_bounds=1.0),
                features=["a", "b", "c"],
                target="y",
            )

    assert session.spent().epsilon == 0


# Persons ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ridge", "logistic", "svm", "certificate"])
def test_a_person_with_several_rows_is_fitted_at_the_price_of_one_row(name: str) -> None:
    make, target = ESTIMATORS[name]
    session = Session(described(unit="id", max_rows_per_unit=3), budget=expost.epsilon(20))
    receipt = session.fit(make(rows=5000), features=["a", "b", "c"], target=target).receipt_
    one_row = (
        make(rows=5000)
        .fit(*((table(5000)[0]), (table(5000)[1] > 0.3).astype(int) if target == "label" else table(5000)[1]))
        .receipt_
    )

    assert receipt.unit == Unit.of("id")
    assert receipt.terms["rows per unit"] == "at most 3"
    assert receipt.epsilon < 1.2 * one_row.epsilon


def test_persons_are_counted_not_their_rows() -> None:
    plan = CountedFit(
        Problem(UnitBall(3), 0, 0.005, problem_for(excess_risk=0.05).aim, neighbours=PERSONS), TiltedRidge
    )
    source = read_added_rows(described(unit="id", max_rows_per_unit=3), "y", names=("a", "b", "c"))

    assert plan._unit_rows(source).count_units() == 5000


def test_persons_need_a_limit_and_a_way_that_weighs_their_rows() -> None:
    with pytest.raises(InvalidRequest, match="limit on the rows"):
        expost.Ridge(excess_risk=0.05, feature_bound=1.0, target_bounds=1.0).fit(described(unit="id"), "y")
    with pytest.raises(InvalidRequest, match="weighs the rows"):
        expost.Ridge(score=("r2", 0.1), feature_bound=1.0, target_bounds=1.0).fit(
            described(unit="id", max_rows_per_unit=2), "y"
        )


rows_of_persons = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0, 7.0]), st.sampled_from([-1.0, 0.3, 1.0])),
    max_size=14,
)


def kept_of(rows: list[tuple[int, float, float]], secret: bytes) -> dict[int, list[tuple[float, float, float]]]:
    if not rows:
        return {}
    ids, x, y = (np.array(each) for each in zip(*rows, strict=True))
    # The id is a feature too, so that rows tell whose they are.
    table = pa.table({"id": ids, "who": ids.astype(float), "x": x, "y": y})
    source = read_added_rows(Dataset(table, unit="id", max_rows_per_unit=2), "y", names=("who", "x"))
    found: dict[int, list[tuple[float, float, float]]] = {}
    for features, target, weights in source.read_weighted(secret):
        for (who, feature), told, weight in zip(features.tolist(), target.tolist(), weights.tolist(), strict=True):
            found.setdefault(int(who), []).append((feature, told, weight))
    return {person: sorted(each) for person, each in found.items()}


def test_persons_are_counted_once_however_their_rows_are_scattered() -> None:
    rng = np.random.default_rng(4)
    ids = rng.permutation(np.concatenate([np.repeat(np.arange(9_000), 3), np.arange(9_000, 9_700)]))
    table = pa.table({"id": ids, "x": rng.uniform(0, 1, len(ids)), "y": np.zeros(len(ids))})
    for without in (None, 5, 9_300):
        part = table.filter(pc.not_equal(table["id"], -1 if without is None else without))
        source = read_added_rows(Dataset(part, unit="id", max_rows_per_unit=2), "y", names=("x",))
        counted = UnitRows(source, UnitBall(1), grid_numbers(1.0), secret=bytes(32)).count_units()
        assert counted == 9_700 - (without is not None)


@settings(max_examples=60, deadline=None)
@given(rows=rows_of_persons, more=rows_of_persons, seed=st.integers(0, 5), order=st.randoms())
def test_what_a_person_keeps_depends_on_its_own_rows_only(rows, more, seed, order) -> None:
    secret = bytes([seed]) * 32
    added = [(9, x, y) for _, x, y in more]
    together = rows + added
    order.shuffle(together)
    alone, crowded = kept_of(rows, secret), kept_of(together, secret)
    newcomer = crowded.pop(9, [])

    assert crowded == alone
    for person in (*alone.values(), newcomer):
        assert len(person) <= 2 and sum(Fraction(weight) for _, _, weight in person) <= 1


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), min_size=1, max_size=5),
    norm=st.sampled_from([Norm.L1, Norm.L2]),
)
def test_no_person_moves_the_moments_further_than_declared(rows, norm) -> None:
    x = np.array([row[:2] for row in rows])
    x = x / np.maximum(np.abs(x).sum(axis=1) if norm is Norm.L1 else np.linalg.norm(x, axis=1), 1e-300)[:, None]
    y = np.sign([row[2] for row in rows])
    ball = UnitBall(2, norm)
    weights = np.full(len(x), np.nextafter(1 / len(x), 0))
    person = _weighted_rows(x, y, weights, ball)
    layouts = [
        MomentLayout(ball, adjacency=Adjacency.ADD_REMOVE),
        MomentLayout(ball, with_square=True, adjacency=Adjacency.ADD_REMOVE),
    ]
    for layout in layouts:
        moved = sum(abs(int(each)) for each in unseal(layout.measure(person)))
        assert moved <= layout.sensitivity.amount
    euclidean = EuclideanLayout(ball, Adjacency.ADD_REMOVE)
    moved = sum(int(each) ** 2 for each in unseal(euclidean.measure(person)))
    assert moved <= euclidean.sensitivity.square


def _weighted_rows(x: np.ndarray, y: np.ndarray, weights: np.ndarray, ball: UnitBall) -> UnitRows:
    rows = UnitRows(read_rows(x, y), ball, grid_numbers(1.0))
    ((features, target, _),) = rows.weighted_chunks()
    rows._cache = [(features, target, weights)]
    return rows.scale_to_weights()


def test_no_person_moves_what_truncation_hides_further_than_declared() -> None:
    rng = np.random.default_rng(2)
    check = ResidualCheck(np.array([2.0, -1.5]), 1.0, UnitBall(2), 1.5, PERSONS)
    for size in (1, 2, 3, 4) * 5:
        x, y = rng.choice([-1.0, 1.0], (size, 1)) * np.eye(2)[rng.integers(2, size=size)], rng.choice([-1.0, 1.0], size)
        rows = UnitRows(read_rows(x, y), UnitBall(2), grid_numbers(1.0))
        ((features, target, _),) = rows.weighted_chunks()
        rows._cache = [(features, target, np.full(size, np.nextafter(1 / size, 0)))]
        sealed = check._seal_contributions(rows)

        assert int(unseal(sealed)) <= sealed.sensitivity.amount


def test_the_public_box_bounds_scores_and_lengths_of_its_rows() -> None:
    rng = np.random.default_rng(3)
    for norm in (Norm.L1, Norm.L2):
        for bound in (0.5, 1.0, 2.5, 4.0):
            for intercept in (False, True):
                ball = UnitBall(4, norm, bound, (0.0,) * 4, (1.0,) * 4, intercept)
                corners = ball.grid_rows(rng.integers(0, 2, (64, 4)).astype(float)) * 2.0**-GRID_BITS
                theta = rng.normal(size=ball.dimension)
                assert np.abs(corners @ theta).max() <= ball.furthest_score(theta) + 1e-6
                assert (corners**2).sum(axis=1).max() <= ball.squared_length + 1e-6
    box = UnitBall(4, Norm.L1, 4.0, (0.0,) * 4, (1.0,) * 4)
    theta = np.array([3.0, -1.0, 2.0, -5.0])
    assert box.furthest_score(theta) == pytest.approx(1.5)  # all that is negative: 6 / 4
    assert box.squared_length == pytest.approx(0.25)
