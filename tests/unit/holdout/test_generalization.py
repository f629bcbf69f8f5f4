import math

import numpy as np
import pytest

from expost.core import InvalidRequest, approx, epsilon, gdp, zcdp
from expost.holdout import generalization_error, sampling_error, transfer_error
from expost.holdout.generalization import _posterior_shift


def test_the_posterior_shift_is_reached_by_randomized_response():
    """A bit with prior 1/(1 + e^(epsilon/2)), told truthfully with odds e^epsilon: the posterior mean moves most."""
    for strength in (0.01, 0.5, 2.0):
        prior = 1 / (1 + math.exp(strength / 2))
        posterior = prior * math.exp(strength) / (1 - prior + prior * math.exp(strength))

        assert posterior - prior == pytest.approx(math.tanh(strength / 4), rel=1e-12)
        assert _posterior_shift(strength, 0.0) == math.tanh(strength / 4)


def test_no_private_posterior_moves_further():
    rng = np.random.default_rng(1)
    for _ in range(2000):
        prior = rng.dirichlet(np.ones(4))
        likelihood = np.exp(rng.uniform(0, 1.3, 4))
        values = rng.random(4)
        posterior = prior * likelihood / (prior @ likelihood)
        strength = np.log(likelihood.max() / likelihood.min())

        assert abs((posterior - prior) @ values) <= math.tanh(strength / 4) + 1e-12


def test_the_sharpened_transfer_beats_the_published_one():
    for strength in (0.01, 0.1, 1.0):
        ours = transfer_error(epsilon(strength), sample_error=0.01, sample_failure=1e-8, failure_probability=0.01)
        published = 0.01 + math.expm1(strength) + 1e-6

        assert ours.error < published


@pytest.mark.parametrize("guarantee", [epsilon(0.01), approx(0.01, 1e-12), zcdp(1e-5)])
def test_bounds_shrink_with_rows_and_grow_with_confidence(guarantee):
    errors = [
        generalization_error(guarantee, rows, failure_probability=0.05).error for rows in (100, 10_000, 1_000_000)
    ]
    surer = generalization_error(guarantee, 10_000, failure_probability=1e-6).error

    assert errors == sorted(errors, reverse=True)
    assert surer >= errors[1]
    assert errors[1] >= sampling_error(10_000, 0.05).error


def test_a_private_choice_generalises_as_promised_and_a_free_choice_does_not():
    """Pick the column that looks best: exactly, or by the exponential mechanism; the gap to the truth is bounded."""
    rng = np.random.default_rng(3)
    rows, columns, strength = 400, 2000, 0.1
    exact, private = [], []
    for _ in range(200):
        means = rng.binomial(rows, 0.5, columns) / rows
        exact.append(means.max() - 0.5)
        # Gumbel noise of scale 2/(epsilon rows) and the largest: the exponential mechanism with epsilon.
        chosen = (means + 2 / (strength * rows) * rng.gumbel(size=columns)).argmax()
        private.append(abs(means[chosen] - 0.5))
    bound = generalization_error(epsilon(strength), rows, failure_probability=0.05).error

    assert np.mean(np.array(private) > bound) <= 0.05
    assert np.median(exact) > 3 * np.median(private)


def test_the_tightest_bound_wins():
    weak = generalization_error(epsilon(0.2), 1_000_000, failure_probability=0.01)
    assert weak.theorem == "max-information of independent rows"
    assert weak.error < 0.2  # what Corollary 2.3.1 gives: epsilon itself

    approximate = generalization_error(approx(0.001, 1e-18), 10**9, failure_probability=0.05)
    assert approximate.theorem == "LeeNotes, Theorem 2.4"
    assert generalization_error(epsilon(50), 10, failure_probability=0.05).error == 1.0


def test_other_definitions_are_refused():
    with pytest.raises(InvalidRequest, match="Convert it first"):
        generalization_error(gdp(1), 100, failure_probability=0.05)
