"""Sums of losses move one way when a row comes or goes: tests and tilts get by with half the noise."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from expost import Dataset, InvalidRequest, Session, epsilon
from expost.core import Adjacency, Outcome
from expost.data.row_source import read_rows
from expost.data.unit_ball import UnitBall, UnitRows
from expost.models import LogisticRegression
from expost.models.linear.classifier_fit import grid_labels
from expost.models.linear.linear_fit import Aim, Problem
from expost.models.linear.row_loss import LogisticLoss
from expost.models.linear.tested_score import MonotoneFit, ScoreQuery, TestedFit
from expost.noise import SeededBits

SIGNS = grid_labels((-1.0, 1.0))


def table(rows: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    x = rng.dirichlet(np.ones(3), rows) * np.sign(rng.normal(size=(rows, 3)))
    return x, np.sign(x @ np.array([1.5, -1.0, 0.3]) + 0.1 * rng.normal(size=rows))


def problem_for(goal: float = 0.5, rows: int = 4000, **aim) -> Problem:
    asked = Aim.of(**(aim or {"score": ("log_loss", goal)}), failure_probability=0.2, max_epsilon=30.0)
    return Problem(UnitBall(3), rows, 0.001, asked)


def request_for(**terms) -> MonotoneFit:
    return MonotoneFit(problem_for(**terms), LogisticLoss(), SIGNS)


def test_the_loss_is_reached_as_often_as_promised() -> None:
    x, y = table()
    request, bits = request_for(), SeededBits(1)
    rows = request.measure(read_rows(x, y))

    releases = [request.climb(rows, bits) for _ in range(15)]

    losses = [np.logaddexp(0, -y * release.value.predict(x)).mean() for release in releases]
    assert all(release.receipt.outcome is Outcome.TESTED for release in releases)
    assert np.mean(np.array(losses) <= 0.5) >= 0.8
    assert {release.receipt.adjacency for release in releases} == {Adjacency.ADD_REMOVE}
    assert all(release.receipt.bill.within(request.worst_case) for release in releases)


def test_a_loss_out_of_reach_is_almost_never_reported_as_reached() -> None:
    x, _ = table()
    coins = np.random.default_rng(3).choice([-1.0, 1.0], len(x))
    request, bits = request_for(goal=0.68), SeededBits(2)
    rows = request.measure(read_rows(x, coins))

    met = [request.climb(rows, bits).receipt.outcome is Outcome.TESTED for _ in range(20)]

    assert np.mean(met) <= 0.2


def test_one_row_moves_every_query_in_the_same_direction_and_no_further_than_declared() -> None:
    x, y = table(300)
    request = request_for(rows=300)
    query = request._query
    rng = np.random.default_rng(4)
    thetas = [theta * request._radius * rng.uniform() / np.linalg.norm(theta) for theta in rng.normal(size=(30, 3))]

    def sums(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
        chunks = list(UnitRows(read_rows(features, labels), UnitBall(3), SIGNS).chunks())
        return np.array([sum(query._sum_chunk(f @ (theta * 2.0**-20), t) for f, t in chunks) for theta in thetas])

    for row in range(10):
        moved = sums(x, y) - sums(np.delete(x, row, axis=0), np.delete(y, row))

        assert (moved <= 0).all()  # a loss is never negative
        assert np.abs(moved).max() <= query.sensitivity.amount


def test_tilts_and_tests_have_half_the_noise_of_replaced_rows() -> None:
    ours, theirs = request_for(), TestedFit(problem_for(), LogisticLoss(), SIGNS)

    assert ours._rule.query_scale(3) * 2 == theirs._rule.query_scale(3)
    halved = ours._risk.law.scale_at(Fraction(1)) / theirs._risk.law.scale_at(Fraction(1))
    assert float(halved) == pytest.approx(0.5, rel=1e-9)
    assert ours._query.sensitivity.adjacency is Adjacency.ADD_REMOVE


@pytest.mark.parametrize("rows", [3000, 4000, 5000])
def test_the_true_number_of_rows_is_nowhere_in_what_leaves(rows: int) -> None:
    x, y = table(4000)
    request = request_for(rows=rows)

    release = request.climb(request.measure(read_rows(x, y)), SeededBits(1))

    assert str(rows) in str(release.receipt.terms["rows"])
    assert rows == 4000 or "4000" not in release.receipt.to_json()


def test_the_solver_is_trusted_for_four_times_the_rows() -> None:
    ours, theirs = request_for()._risk, TestedFit(problem_for(), LogisticLoss(), SIGNS)._risk

    assert ours.prices.bound_distance(Fraction(1)) > 2 * theirs.prices.bound_distance(Fraction(1))


@pytest.mark.parametrize("aim", [{"score": ("accuracy", 0.9)}, {"excess_risk": 0.1}, {"epsilon": 1.0}])
def test_only_a_log_loss_is_monotone(aim) -> None:
    with pytest.raises(InvalidRequest, match="log loss"):
        MonotoneFit(problem_for(**aim), LogisticLoss(), SIGNS)


@pytest.mark.parametrize(
    "terms",
    [
        {"method": "absolute_loss"},
        {"method": "absolute_loss", "rows": 0},
        {"method": "absolute_loss", "rows": 2.5},
        {"method": "absolute_loss", "rows": True},
        {"method": "absolute_loss", "rows": "many"},
    ],
)
def test_rows_are_declared_beside_the_method_that_needs_them(terms) -> None:
    x, y = table(100)

    with pytest.raises(InvalidRequest, match="rows"):
        LogisticRegression(score=("log_loss", 0.6), classes=(-1, 1), **terms).fit(x, y)


def test_the_estimator_says_in_its_receipt_who_the_neighbours_are() -> None:
    x, y = table()

    model = LogisticRegression(
        score=("log_loss", 0.6),
        method="absolute_loss",
        rows=4000,
        classes=(-1, 1),
        max_epsilon=20,
        simulation_seed=1,
        feature_bound=1.0,
    ).fit(x, y)

    assert model.receipt_.adjacency is Adjacency.ADD_REMOVE
    assert isinstance(ScoreQuery.__dataclass_fields__["adjacency"].default, Adjacency)


def described(**facts) -> Dataset:
    x, y = table()
    return Dataset(pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "label": y}), name="people", **facts)


def asked() -> LogisticRegression:
    return LogisticRegression(
        score=("log_loss", 0.6), method="absolute_loss", rows=3900, classes=(-1, 1), max_epsilon=20, feature_bound=1.0
    )


def test_a_dataset_whose_rows_come_and_go_is_fitted_in_a_session() -> None:
    session = Session(described(), budget=epsilon(30))

    model = session.fit(asked(), features=["a", "b", "c"], target="label")

    assert session.spent() == model.receipt_.bill
    assert model.receipt_.adjacency is Adjacency.ADD_REMOVE


@pytest.mark.parametrize(
    "data",
    [
        lambda: described(adjacency="replace-one", rows=4000),  # the bill would be half of what a replaced row loses
        lambda: described(unit="a", max_rows_per_unit=2),  # a sum of losses has no weights
    ],
    ids=["replace-one", "ids"],
)
def test_other_datasets_are_refused_before_anything_is_spent(data) -> None:
    session = Session(data(), budget=epsilon(30))

    with pytest.raises(InvalidRequest, match=r"added or removed|weighs the rows of a person"):
        session.fit(asked(), features=["b", "c"], target="label")

    assert session.spent().epsilon == 0
