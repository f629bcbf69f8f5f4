"""Laplace against Gaussian noise reduction."""

import csv

import numpy as np
import pytest

from expost.core import Norm
from expost.experiments import brownian_figures
from expost.experiments.experiment_data import load
from expost.noise import GaussianPath, SeededBits


def test_a_quick_run_orders_the_bills_as_theory_does(tmp_path) -> None:
    files = brownian_figures.run(tmp_path, quick=True, trials=1, workers=1)

    assert {file.suffix for file in files} == {".md", ".csv", ".png", ".svg"}
    with (tmp_path / "brownian.csv").open(encoding="utf-8") as file:
        bills = {(row["table"], row["method"], row["tolerance"]): float(row["epsilon"]) for row in csv.DictReader(file)}
    for (table, method, tolerance), epsilon in bills.items():
        if method.startswith("Brownian"):
            assert epsilon > bills[table, "Gaussian, variance known in advance", tolerance]


@pytest.mark.parametrize("name", ["made-up regression", "made-up classification"])
def test_both_layouts_give_back_the_minimum_without_noise(name: str) -> None:
    answer = brownian_figures.Answer(load(name, None, rows=3000), 0.05)
    for norm in Norm:
        exact, _ = answer._vector(norm)
        theta = answer.hypotheses(np.rint(exact / 2.0**-30)[None], norm)

        assert np.allclose(theta[0], answer.risk.best, atol=1e-6)


def test_no_pair_of_rows_moves_the_moments_further_than_declared() -> None:
    generator = np.random.default_rng(3)
    width, worst = 3, 0.0
    upper = np.triu_indices(width)
    weights = np.where(upper[0] == upper[1], 1.0, np.sqrt(2))
    for _ in range(4000):
        rows = generator.normal(size=(2, width))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        targets = generator.choice([-1.0, -0.5, 0.0, 0.5, 1.0], size=2)
        first, second = (np.append(np.outer(x, x)[upper] * weights, x * y) for x, y in zip(rows, targets, strict=True))
        worst = max(worst, float(np.linalg.norm(first - second)))

    assert 2.0 < worst <= brownian_figures._GAUSSIAN_L2


def test_the_gaussian_path_has_the_standard_deviation_of_its_rung() -> None:
    answer = brownian_figures.Answer(load("made-up regression", None, rows=3000), 0.05)
    exact, amount = answer._vector(Norm.L2)
    rho = 0.02
    draws = [
        GaussianPath(answer.sealed(Norm.L2), [rho], bits=SeededBits(seed)).at(0) * 2.0**-30 - exact
        for seed in range(10)
    ]

    assert np.std(draws) == pytest.approx(amount / np.sqrt(2 * rho), rel=0.05)


def test_doubling_is_billed_for_twice_the_clock_by_the_same_curve() -> None:
    mixture = brownian_figures._gaussian_bills()["Brownian, mixture boundary"]

    assert brownian_figures._doubling_bill(0.01) == pytest.approx(mixture(0.02))
    assert brownian_figures._doubling_bill(0.01) > brownian_figures._known_in_advance(0.02)
