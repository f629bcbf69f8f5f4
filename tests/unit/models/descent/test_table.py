"""Labels and targets are read without ever complaining about a private value."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from expost.core import InvalidRequest
from expost.models.descent.descent_rule import DescentRule
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.descent.linear_learner import LinearProblem
from expost.models.descent.score_head import Logistic
from expost.models.descent.sgd_estimator import label_numbers, target_numbers
from expost.models.descent.training_schedule import Full, Phase, Schedule


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        (["b", "a", "c"], ["a", "b"], [1, 0, -1]),
        ([3, 1, 2, 7], [3, 2, 1], [0, 2, 1, -1]),
        ([True, False], [False, True], [1, 0]),
        ([1.0, np.nan, 0.0], [0, 1], [1, -1, 0]),
        (["1", "x"], np.array(["x", "1"]), [1, 0]),
    ],
)
def test_labels_become_places_among_the_declared_classes(labels: list, classes: list, expected: list) -> None:
    assert label_numbers(labels, classes).tolist() == expected


@pytest.mark.parametrize("classes", [["a"], ["a", "a"], [[1, 2]]])
def test_classes_must_be_at_least_two_and_different(classes: list) -> None:
    with pytest.raises(InvalidRequest, match="classes"):
        label_numbers(["a"], classes)


def test_targets_are_cut_and_centred() -> None:
    assert target_numbers([-np.inf, 0, 5, 10, np.inf, np.nan], 0, 10).tolist() == [-1, -1, 0, 1, 1, 0]
    with pytest.raises(InvalidRequest, match="bounds"):
        target_numbers([0], 1, 1)


def test_labels_of_any_kind_are_looked_up_and_what_is_no_class_is_absent() -> None:
    strange = np.array(["yes", "no", None, 3, ["yes"], float("nan"), 10**400], dtype=object)

    assert label_numbers(strange, ["no", "yes"]).tolist() == [1, 0, -1, -1, -1, -1, -1]
    assert label_numbers(np.array([True, 1.0, 0, "1"], dtype=object), [0, 1]).tolist() == [1, 1, 0, -1]
    with pytest.raises(InvalidRequest, match="kind"):
        label_numbers(np.array(["a", "b"]), [0, 1])


def test_targets_that_are_no_numbers_count_as_missing() -> None:
    strange = np.array([1.0, "x", None, [2], 10**400, -(10**400), Decimal("sNaN"), Decimal("0.5")], dtype=object)

    assert target_numbers(strange, -1.0, 1.0).tolist() == [1.0, 0.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.5]
    with pytest.raises(InvalidRequest, match="numbers"):
        target_numbers(np.array(["1", "2"]), 0.0, 1.0)


def test_what_no_lattice_or_step_can_carry_is_refused_without_rows() -> None:
    grid, head = FeatureGrid(2), Logistic()
    usual = Schedule(Full(100), (Phase(5, Fraction(2)),))
    LinearProblem(grid, head, clip=1.0, rule=DescentRule()).check(usual)

    with pytest.raises(InvalidRequest, match="noise multiplier"):
        huge = Schedule(Full(100), (Phase(5, Fraction(2)), Phase(5, Fraction(10**9))))
        LinearProblem(grid, head, clip=1.0, rule=DescentRule()).check(huge)
    with pytest.raises(InvalidRequest, match="regularization"):
        LinearProblem(grid, head, clip=1.0, rule=DescentRule(learning_rate=1.0, regularization=100.0)).check(usual)
