"""Plans of holdouts: a number, or the house's refusal; never another library's error."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.odd_numbers import answers

from expost import holdout
from expost.core import InvalidRequest, approx, epsilon, gdp, zcdp
from expost.holdout import (
    chance_of_overfitting,
    generalization_error,
    max_information_of_privacy,
    max_information_of_transcripts,
    sampling_error,
    transfer_error,
)
from expost.holdout.generalization import (
    _posterior_shift,
    check_amount,
    check_chance,
    check_count,
    log_binomial,
    transcript_error,
)


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


def noisy_count_log_ratios(rows, epsilon, chance=0.5):
    """All pairs (count, output) of a private count of random bits: log P(output | count) / P(output), and their law."""
    counts, outputs = np.arange(rows + 1), np.arange(-60, rows + 61)
    prior = stats.binom.pmf(counts, rows, chance)
    decay = np.exp(-epsilon)
    law = (1 - decay) / (1 + decay) * decay ** np.abs(outputs[None] - counts[:, None])
    return np.log(law) - np.log(prior @ law), prior[:, None] * law


@pytest.mark.parametrize(("rows", "epsilon"), [(20, 0.5), (100, 0.1), (100, 0.5)])
@pytest.mark.parametrize("failure", [0.1, 0.01, 1e-4])
def test_the_bound_holds_exactly_for_a_private_count(rows, epsilon, failure):
    ratios, joint = noisy_count_log_ratios(rows, epsilon)
    nats = max_information_of_privacy(epsilon, rows, failure_probability=failure) * np.log(2)

    assert joint[ratios > nats].sum() <= failure
    assert ratios[joint > 0].max() <= epsilon * rows


def test_the_check_has_power():
    """A fifth of the bound would be exceeded: the exact law is not far below it."""
    ratios, joint = noisy_count_log_ratios(100, 0.5)
    nats = max_information_of_privacy(0.5, 100, failure_probability=0.01) * np.log(2)

    assert joint[ratios > nats / 5].sum() > 0.01


def test_independent_rows_never_cost_more_than_the_worst_case():
    for privacy in (1e-4, 0.1, 20.0):
        worst = max_information_of_privacy(privacy, 100)

        assert max_information_of_privacy(privacy, 100, failure_probability=0.1) <= worst


def test_the_corollary_of_the_notes_follows():
    """LeeNotes, Theorem 2.3 with 3 sqrt(beta): epsilon^2 n <= ln(1/beta)/2, half of the square root for each part."""
    for beta in (0.5, 0.01, 1e-6, 1e-12):
        rows = 10_000
        epsilon = np.sqrt(np.log(1 / beta) / (2 * rows))
        bits = max_information_of_privacy(epsilon, rows, failure_probability=np.sqrt(beta))

        assert chance_of_overfitting(bits, beta, failure_probability=np.sqrt(beta)) <= 3 * np.sqrt(beta)


def test_few_outputs_cost_their_number():
    assert chance_of_overfitting(max_information_of_transcripts(np.log(8)), 0.01) == pytest.approx(0.08)
    assert chance_of_overfitting(1e6, 0.5) == 1.0
    assert chance_of_overfitting(1e6, 0.0) == 0.0


def test_nonsense_is_refused():
    for call in (
        lambda: max_information_of_privacy(-1, 10),
        lambda: max_information_of_privacy(1, 0),
        lambda: max_information_of_privacy(1, 10, failure_probability=1.0),
        lambda: max_information_of_transcripts(float("nan")),
    ):
        with pytest.raises(InvalidRequest):
            call()


def test_conversations_are_counted():
    """Every sequence of answers with two answers of news among four, each one of three values."""
    answers = ["none", 0, 1, 2]
    exact = sum(1 for path in itertools.product(answers, repeat=4) if sum(a != "none" for a in path) == 2)

    assert math.exp(log_binomial(4, 2) + 2 * math.log(3)) == pytest.approx(exact)


def bound(**changes):
    arguments = dict(question=9, hits=2, alphabet=5, max_questions=10, max_hits=3, failure_probability=0.1)
    return transcript_error(500, **(arguments | changes)).error


def test_the_bound_grows_with_what_was_said():
    assert bound(hits=0) < bound(hits=1) < bound(hits=2) < bound(hits=2, alphabet=50)
    assert bound(question=3) < bound(question=9)
    assert bound(hits=0, question=0) == pytest.approx(math.sqrt(math.log(2 * 10 * 4 / 0.1) / 1000), rel=1e-6)


def test_an_analyst_who_learns_two_answers_stays_within_the_bound():
    """Two of forty answers are news; the last question is whatever fits them best. Its truth is known: one quarter."""
    rng = np.random.default_rng(1)
    errors = []
    for _ in range(300):
        bits = rng.random((300, 40)) < 0.5
        means = bits.mean(0)
        told = np.argsort(-np.abs(means - 0.5))[:2]
        both = (bits[:, told] == (means[told] > 0.5)).all(1)
        errors.append(both.mean() - 0.25)
    limit = transcript_error(
        300, question=40, hits=2, alphabet=301, max_questions=41, max_hits=2, failure_probability=0.05
    ).error

    assert np.mean(np.abs(errors) > limit) <= 0.05
    assert np.mean(errors) > 0.02  # it does overfit, only not beyond the bound


SIZE = {"max_hits": 10, "sigma": 0.1, "error": 0.1, "failure_probability": 0.05}
PLAN = {"rows": 50_000, "tolerance": 0.1, "failure_probability": 0.05, "max_queries": 100, "variant": "improved"}

CALLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "rows for pure": (holdout.rows_for_pure, SIZE),
    "rows for approximate": (holdout.rows_for_approximate, SIZE),
    "rows for concentrated": (holdout.rows_for_concentrated, SIZE),
    "approximate epsilon": (holdout.approximate_epsilon, {"max_hits": 10, "sigma": 0.1, "rows": 1000, "delta": 1e-5}),
    "overfitting": (
        holdout.chance_of_overfitting,
        {"bits": 3.0, "chance_when_fixed": 0.01, "failure_probability": 0.01},
    ),
    "bits of privacy": (
        holdout.max_information_of_privacy,
        {"epsilon": 0.1, "rows": 1000, "failure_probability": 0.01},
    ),
    "bits of transcripts": (holdout.max_information_of_transcripts, {"log_count": 3.0}),
    "sampling error": (holdout.sampling_error, {"rows": 1000, "failure_probability": 0.05}),
    "generalization error": (
        holdout.generalization_error,
        {"guarantee": approx(0.1, 1e-6), "rows": 1000, "failure_probability": 0.05},
    ),
    "transfer error": (
        holdout.transfer_error,
        {"guarantee": epsilon(0.1), "sample_error": 0.1, "sample_failure": 0.01, "failure_probability": 0.05},
    ),
    "plan": (holdout.plan_holdout, PLAN | {"max_hits": None, "noise_share": Fraction(1, 4)}),
    "affordable hits": (holdout.affordable_hits, PLAN),
    "rows needed": (
        holdout.rows_needed,
        {"max_hits": 10, "tolerance": 0.1, "failure_probability": 0.05, "max_queries": 100, "variant": "improved"},
    ),
    "tolerance reached": (
        holdout.tolerance_reached,
        {"rows": 50_000, "max_hits": 10, "failure_probability": 0.05, "max_queries": 100},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_number_ends_in_an_error_that_is_not_ours(name: str) -> None:
    for argument, value, found in answers(*CALLS[name]):
        assert found == found, (argument, value)  # not nan


def test_numbers_are_taken_as_they_are_and_refused_by_name() -> None:
    assert check_amount(np.float64(2.5), "sigma") == 2.5
    assert check_chance(0, "sample_failure", zero=True) == 0.0
    assert check_count(2**53, "rows") == 2**53
    for call, value, said in (
        (check_count, 2**53 + 1, "rows of at most 2\\^53"),
        (check_amount, 0, "rows to be a number > 0, got 0"),
        (check_chance, 1, "rows below 1, got 1"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            call(value, "rows")
