"""Lengths of Laplace noise: upper bounds, and tight ones."""

import math

import numpy as np
import pytest

from expost import InvalidRequest
from expost.accuracy.laplace_norm import laplace_norm_quantile, laplace_norm_tail

DRAWS = 200_000


@pytest.mark.parametrize("dimension", [1, 2, 7, 40])
@pytest.mark.parametrize("failure", [0.5, 0.1, 0.01])
def test_the_quantile_is_exceeded_as_often_as_it_says(dimension: int, failure: float) -> None:
    lengths = np.linalg.norm(np.random.default_rng(dimension).laplace(size=(DRAWS, dimension)), axis=1)
    spread = 5 * math.sqrt(failure / DRAWS)

    quantile = laplace_norm_quantile(dimension, failure)

    assert (lengths > quantile).mean() <= failure + spread
    assert (lengths > 0.97 * quantile).mean() > failure + spread  # a bound 3 % too small would be noticed
    assert (lengths > 1.03 * quantile).mean() < failure - spread  # and one 3 % too large


def test_one_dimension_has_the_exponential_tail() -> None:
    assert laplace_norm_quantile(1, 1e-6) == pytest.approx(-math.log(1e-6))
    assert laplace_norm_tail(1, 3.0) == pytest.approx(math.exp(-3), rel=0.01)


def test_tail_and_quantile_are_inverse_to_each_other() -> None:
    quantile = laplace_norm_quantile(20, 0.05)

    assert laplace_norm_tail(20, quantile * 1.0001) <= 0.05 <= laplace_norm_tail(20, quantile * 0.99)


def test_deep_tails_follow_one_large_coordinate() -> None:
    # P(norm > t) is at least P(one coordinate > t) = exp(-t) and, deep in the tail, not much above p exp(-t).
    quantile = laplace_norm_quantile(5, 1e-8)

    assert -math.log(1e-8) < quantile < -math.log(1e-8 / 5) + 2


@pytest.mark.parametrize("failure", [0.0, 1.0, 1e-30])
def test_an_impossible_failure_probability_is_refused(failure: float) -> None:
    with pytest.raises(InvalidRequest):
        laplace_norm_quantile(3, failure)
