import itertools
import math

import numpy as np
import pytest

from expost.holdout.transcript import log_binomial, transcript_error


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
