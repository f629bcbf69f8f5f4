"""The tester meets a right, a too small and a too large case of every law (numpy's samplers stand in for ours)."""

import numpy as np
import pytest
from tests.distribution.goodness import (
    SAMPLES,
    follows,
    gaussian_cdf,
    geometric_cdf,
    laplace_cdf,
    notices_wrong_scales,
    p_value,
    uniform_cdf,
)


def rounded(law: str, scale: float) -> np.ndarray:
    rng = np.random.default_rng(5)
    if law == "geometric":
        return rng.geometric(-np.expm1(-1 / scale), SAMPLES) - 1
    if law == "laplace":
        a = -np.expm1(-1 / scale)
        return rng.geometric(a, SAMPLES) - rng.geometric(a, SAMPLES)
    return np.rint(rng.normal(scale=scale, size=SAMPLES)).astype(int)


CDF = {"geometric": geometric_cdf, "laplace": laplace_cdf, "gaussian": lambda scale: gaussian_cdf(scale**2)}


@pytest.mark.parametrize("law", ["geometric", "laplace", "gaussian"])
@pytest.mark.parametrize("scale", [30.0, 2000.0])
def test_the_right_law_passes_and_wrong_scales_fail(law: str, scale: float) -> None:
    cdf = CDF[law](scale)

    assert follows(rounded(law, scale), cdf)
    assert notices_wrong_scales(lambda factor: rounded(law, scale * factor), cdf)


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_coarse_laws_are_told_apart_too(scale: float) -> None:
    assert follows(rounded("laplace", scale), laplace_cdf(scale))
    assert notices_wrong_scales(lambda factor: rounded("laplace", scale * factor), laplace_cdf(scale))


def test_p_values_of_the_right_law_are_uniform() -> None:
    rng = np.random.default_rng(6)
    values = [p_value(rng.integers(0, 1000, 2000), uniform_cdf(1000), cells=20) for _ in range(100)]

    assert 0.4 < np.mean(values) < 0.6
    assert np.mean(np.array(values) < 0.1) < 0.25


def test_a_value_outside_the_support_fails() -> None:
    sample = rounded("geometric", 30.0)

    assert follows(sample, geometric_cdf(30.0))
    assert not follows(np.append(sample, -1), geometric_cdf(30.0))


def test_a_shifted_sample_fails() -> None:
    assert not follows(rounded("laplace", 30.0) + 1, laplace_cdf(30.0))


@pytest.mark.parametrize("cdf", [laplace_cdf(3.0), geometric_cdf(3.0), gaussian_cdf(9.0), uniform_cdf(7)])
def test_a_distribution_function_rises_from_zero_to_one(cdf) -> None:
    values = cdf(np.arange(-200.0, 200.0))

    assert values[0] == pytest.approx(0, abs=1e-12)
    assert values[-1] == pytest.approx(1, abs=1e-12)
    assert (np.diff(values) >= 0).all()
