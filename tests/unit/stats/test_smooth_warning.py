"""Quantiles by smooth sensitivity warn where the exponential mechanism is better, from public facts alone."""

import warnings
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from expost.core import Adjacency, Sensitivity
from expost.data import Dataset
from expost.noise import ExponentialQuantile, LatticeBounds, SeededBits, SmoothQuantile
from expost.stats import Median, Quantile
from expost.stats.quantile import _rows_for_exponential


def table(rows: int, adjacency: str = "replace-one", value: float = 0.5) -> Dataset:
    public = {"rows": rows} if adjacency == "replace-one" else {}
    return Dataset(pa.table({"x": np.full(rows, value)}), bounds={"x": (0, 1)}, adjacency=adjacency, **public)


def is_quiet(question: Quantile, dataset: Dataset) -> bool:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        question.plan(dataset)
    return not caught


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(9, 10)])
@pytest.mark.parametrize(("epsilon", "width"), [(Fraction(1, 10), 1 << 20), (1, 120), (1, 1 << 20), (3, 1 << 20)])
def test_where_it_warns_the_exponential_mechanism_has_the_smaller_error(adjacency, share, epsilon, width):
    sensitivity, bounds, bits = Sensitivity(1, adjacency=adjacency), LatticeBounds(0, width), SeededBits(5)
    smooth = SmoothQuantile(epsilon, bounds, probability=share)
    rows, center = _rows_for_exponential(smooth, sensitivity), width // 3
    for spread in (0, width // 20):
        values = np.rint(center + np.linspace(-1, 1, rows) * spread).astype(int).tolist()
        truth = values[int(np.ceil(float(share) * rows)) - 1]
        errors = [
            np.abs(mechanism.simulate(values, sensitivity, runs=400, bits=bits) - truth).mean()
            for mechanism in (ExponentialQuantile(epsilon, bounds, share), smooth)
        ]

        assert errors[0] < errors[1]


def test_few_rows_at_one_point_are_left_to_smooth_sensitivity():
    sensitivity, bounds, bits = (
        Sensitivity(1, adjacency=Adjacency.REPLACE_ONE),
        LatticeBounds(0, 1 << 20),
        SeededBits(6),
    )
    smooth = SmoothQuantile(1, bounds)
    values = [1 << 18] * (_rows_for_exponential(smooth, sensitivity) * 6 // 10)
    errors = [
        np.abs(mechanism.simulate(values, sensitivity, runs=400, bits=bits) - (1 << 18)).mean()
        for mechanism in (ExponentialQuantile(1, bounds), smooth)
    ]

    assert errors[0] > 2 * errors[1]


def test_a_public_number_of_rows_decides_the_warning():
    question = Median("x", epsilon=1, method="smooth")

    with pytest.warns(UserWarning, match="From 95 rows on, the exponential mechanism is more accurate"):
        question.plan(table(95))
    assert is_quiet(question, table(94))
    assert is_quiet(Median("x", epsilon=4, method="smooth"), table(1000))
    assert is_quiet(Median("x", epsilon=1), table(1000))


def test_a_private_number_of_rows_does_not_change_the_warning():
    question, said = Quantile("x", 0.9, epsilon=1, method="smooth"), set()
    for rows in (1, 5, 100_000):
        with pytest.warns(UserWarning) as caught:
            question.plan(table(rows, "add-remove", value=rows / 100_000))
        said.add(tuple(str(each.message) for each in caught))

    assert len(said) == 1
