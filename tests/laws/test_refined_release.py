"""Two levels of a discrete Laplace path: what the refinement costs by itself (docs/proofs/refined-release.md)."""

import numpy as np
import pytest

from expost.accounting.budget_rule import ComposedGuarantee, rule_for
from expost.accounting.renyi import ex_post_divergences
from expost.core import PureLoss, approx

REACH = 150
GRID = np.arange(-REACH, REACH + 1)
LEVELS = [(0.1, 0.2), (0.2, 1.0), (0.5, 0.6), (1.0, 3.0)]
ORDERS = (1.5, 2.0, 8.0, 32.0)


def discrete_laplace(level: float) -> np.ndarray:
    """The masses of discrete Laplace noise; one step of the value changes a mass by the factor e^level."""
    ratio = np.exp(-level)
    return (1 - ratio) / (1 + ratio) * ratio ** np.abs(GRID)


def joint_laws(first: float, second: float) -> tuple[np.ndarray, np.ndarray]:
    """The laws of (X, Y) for the values 0 and 1, one row per X near the middle, one column per Y.

    Y has noise of the second level. X is Y with probability w, else Y plus fresh noise of the first level: that is noise
    of the first level around the value (by characteristic functions).
    """
    one, two = np.exp(-first), np.exp(-second)
    weight = two / one * (1 - one) ** 2 / (1 - two) ** 2
    shown = np.arange(-12, 14)
    kernel = (1 - weight) * (1 - one) / (1 + one) * one ** np.abs(shown[:, None] - GRID[None, :])
    kernel += weight * (shown[:, None] == GRID[None, :])
    noise = discrete_laplace(second)
    return kernel * noise, kernel * np.roll(noise, 1)


def conditional_losses(first: float, second: float) -> tuple[np.ndarray, np.ndarray]:
    """For each X: the law of Y under the value 0, and the losses against the value 1."""
    here, there = joint_laws(first, second)
    here, there = (law / law.sum(axis=1, keepdims=True) for law in (here, there))
    inside = slice(5, -5)  # the shifted noise wraps around at the ends
    return here[:, inside], np.log(here[:, inside] / there[:, inside])


@pytest.mark.parametrize(("first", "second"), LEVELS)
def test_the_first_answer_has_the_noise_of_its_level(first, second):
    here, there = joint_laws(first, second)
    ratio = np.log(here.sum(axis=1) / there.sum(axis=1))

    assert np.abs(ratio).max() == pytest.approx(first, rel=1e-6)


@pytest.mark.parametrize(("first", "second"), LEVELS)
def test_given_the_first_answer_the_refinement_loses_at_most_both_levels(first, second):
    _, losses = conditional_losses(first, second)

    assert np.abs(losses).max() <= first + second + 1e-9
    assert np.abs(losses).max() > second - first + 0.01  # more than what the sum is charged for it


def largest_moment(first: float, second: float, order: float, charge: float) -> float:
    """The largest E exp((order - 1)(loss - charge)) over first answers: at most 1 for a valid charge."""
    masses, losses = conditional_losses(first, second)
    return float((masses * np.exp((order - 1) * (losses - charge))).sum(axis=1).max())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("first", "second"), LEVELS)
def test_the_charge_keeps_the_supermartingale_at_every_order(first, second, order):
    rule = rule_for(ComposedGuarantee.of(approx(10, 1e-6), orders=ORDERS))
    held = rule.held(PureLoss(second - first), before=PureLoss(first).epsilon)
    charge = held.costs[ORDERS.index(order)] / 2**40

    assert largest_moment(first, second, order, charge) <= 1 + 1e-9


@pytest.mark.parametrize(("first", "second"), LEVELS)
def test_the_difference_alone_would_break_it(first, second):
    charge = float(ex_post_divergences(*(PureLoss(second - first).epsilon,) * 2, (2.0,))[0])

    assert largest_moment(first, second, 2.0, charge) > 1.0001
