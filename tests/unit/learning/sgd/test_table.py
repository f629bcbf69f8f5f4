"""Labels and targets are read without ever complaining about a private value."""

import numpy as np
import pytest

from expost.core import InvalidRequest
from expost.learning.sgd.table import label_numbers, target_numbers


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
