"""The claims of docs/proofs/tabular-models.md, checked in exact integers and by simulation."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from expost.core import Measure, Target, unseal
from expost.models.descent.clipped_gradient import CurvedGradient
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.descent.score_head import Logistic, Softmax, Squared
from expost.models.tabular.lattice_sum import LatticeSum
from expost.models.tabular.rung_schedule import plan_score
from expost.models.tabular.score_sum import MeasuredScore, ScoreSum
from expost.models.tabular.stop_rule import StopRule
from expost.models.tabular.table_profile import TableProfile
from expost.models.tabular.table_training import _SLOPE

SEEDS = range(20)


def shared_weights(rng: np.random.Generator, rows: int) -> Any:
    """Weights of one unit's rows as the rows have them, or any others that add up to at most 1."""
    if rng.random() < 0.5:
        return np.full(rows, np.float32(math.floor(2**24 / rows) / 2**24))
    parts = rng.dirichlet(np.ones(rows) * rng.choice([0.05, 1.0]))
    return np.nextafter(np.asarray(parts, np.float32), np.float32(0)) * np.float32(1 - 1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_unit_moves_sums_by_the_sensitivity_at_most(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, most = int(rng.integers(1, 40)), int(rng.choice([1, 2, 7, 300]))
    rows, longest = int(rng.integers(1, most + 1)), float(rng.choice([0.3, 1.0, 11.7]))
    lattice = LatticeSum(size, longest, most)
    one = rng.normal(size=size)
    vectors = np.tile(one / np.linalg.norm(one) * longest, (rows, 1))  # all in one direction, as long as allowed
    total = lattice.start()
    lattice.add(total, vectors, shared_weights(rng, rows))

    moved = sum(int(each) ** 2 for each in total)
    assert moved <= lattice.sensitivity.square
    assert moved >= 0.5 * float(lattice.sensitivity.square) * (0.9 if most == 1 else 0.0)


def moved_by(curved: CurvedGradient, rng: np.random.Generator, rows: int, weights: Any, *, alone: bool = False) -> int:
    """Return the squared distance by which some rows of one unit move the sum."""
    raw = rng.normal(size=(rows, curved.grid.width)) * rng.choice([0.01, 1.0, 100.0])
    raw = np.tile(raw[:1], (rows, 1)) if rng.random() < 0.5 else raw
    found = curved.grid.encode_rows(raw)
    if isinstance(curved.head, Squared):
        targets: Any = rng.choice([-1e6, 0.0, 0.3, 1e6], rows)
    else:
        targets = rng.integers(-1, max(2, curved.head.outputs), rows)
    model = rng.normal(size=(curved.head.outputs, curved.grid.columns)) * rng.choice([0.0, 0.1, 10.0])
    sealed = curved.measure_blocks([(found, targets, np.asarray(weights, np.float64))], model, curved=not alone)
    assert sealed.sensitivity == (curved.gradient if alone else curved).sensitivity
    return sum(int(each) ** 2 for each in unseal(sealed))


@pytest.mark.parametrize("head", [Logistic(), Softmax(3), Squared()], ids=lambda head: head.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_one_unit_moves_gradient_and_curvature_by_the_sensitivity_at_most(seed: int, head: Any) -> None:
    rng = np.random.default_rng(seed)
    most = int(rng.choice([1, 3, 40]))
    curved = any_curved(rng, head, most)
    rows = int(rng.integers(1, most + 1))

    assert moved_by(curved, rng, rows, shared_weights(rng, rows)) <= curved.sensitivity.square


@pytest.mark.parametrize("head", [Logistic(), Softmax(3), Squared()], ids=lambda head: head.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_one_unit_moves_a_gradient_alone_by_its_own_sensitivity_at_most(seed: int, head: Any) -> None:
    rng = np.random.default_rng(seed)
    most = int(rng.choice([1, 3, 40]))
    curved = any_curved(rng, head, most)
    rows = int(rng.integers(1, most + 1))

    moved = moved_by(curved, rng, rows, shared_weights(rng, rows), alone=True)
    assert moved <= curved.gradient.sensitivity.square < curved.sensitivity.square


def any_curved(rng: np.random.Generator, head: Any, most: int) -> CurvedGradient:
    """Return a rule of any width, noise and division between gradient and curvature."""
    grid = FeatureGrid(int(rng.integers(1, 30)), 4.0, intercept_share=0.125)
    noise, slope = float(rng.choice([1.0, 50.0, 400.0])), float(rng.choice([0.5, _SLOPE, 3.0]))
    return CurvedGradient(grid, head, 0.5, noise, row_limit=1.2, rows_per_unit=most, slope=slope)


def test_weights_above_one_would_break_the_sensitivity() -> None:
    grid = FeatureGrid(3, 4.0, intercept_share=0.125)
    curved = CurvedGradient(grid, Squared(), 0.5, 10.0, row_limit=1.2, rows_per_unit=4)
    found = grid.encode_rows(np.tile([[0.5, 0.5, 0.5]], (4, 1)))
    sealed = curved.measure_blocks([(found, np.full(4, 1e6), np.ones(4))], np.zeros((1, 4)))

    assert sum(int(each) ** 2 for each in unseal(sealed)) > curved.sensitivity.square


@pytest.mark.parametrize("numeric", [False, True])
def test_a_larger_cap_changes_no_earlier_price(numeric: bool) -> None:
    delta = Fraction(1, 10**6)
    large = plan_score(Fraction(10), delta, numeric=numeric)
    for cap in ("0.02", "0.1", "0.37", "1", "3"):
        small = plan_score(Fraction(cap), delta, numeric=numeric)
        common = len(small.rungs) - 1
        assert small.prices.epsilons[:common] == large.prices.epsilons[:common]
        assert small.rungs[:common] == large.rungs[:common]
        assert small.prices.cap.epsilon <= Fraction(cap)
    assert list(large.prices.epsilons) == sorted(set(large.prices.epsilons))


@pytest.mark.parametrize("path", ["at the target", "rising", "noisy start"])
def test_a_model_that_misses_the_target_is_seldom_accepted(path: str) -> None:
    failure, rungs, runs = Fraction(1, 10), 12, 4000
    target = Target(Measure.ACCURACY, Fraction(8, 10), failure)
    sums, profile = ScoreSum(target, 2), TableProfile(20_000.0, np.zeros(1), np.ones(1), 1.0)
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(runs):
        stops = StopRule(target, failure)
        for rung in range(rungs):
            deviation = 400.0 / 1.3**rung
            truth = {"at the target": -1e-6, "rising": -600.0 / 2**rung, "noisy start": -1e-6 if rung else -3000.0}[
                path
            ]
            score = MeasuredScore(truth + rng.normal() * deviation, deviation, {"accuracy": (0.8, 0.01)})
            if stops.judge(score, sums, profile, last=rung + 1 == rungs):
                break
        wrong += stops.met

    # Three standard errors of a share of 0.1 among 4000 runs.
    assert wrong / runs <= float(failure) + 0.015
