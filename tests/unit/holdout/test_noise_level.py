from fractions import Fraction

import numpy as np
import pytest

from expost.core import InvalidRequest
from expost.holdout.noise_level import analysed_level, improved_level
from expost.noise import SeededBits, discrete_laplace, geometric

ROWS, QUERIES, HITS = 1000, 50, 5
UNIT = 1 << 20


def levels():
    return {
        "analysed": analysed_level(tolerance=Fraction(1, 10), failure_probability=0.1, max_queries=QUERIES),
        "improved": improved_level(
            tolerance=Fraction(1, 10),
            failure_probability=0.1,
            max_queries=QUERIES,
            max_hits=HITS,
            noise_share=Fraction(1, 4),
        ),
    }


@pytest.mark.parametrize("name", ["analysed", "improved"])
def test_noise_stays_within_its_promise(name):
    """The worst of all thresholds, questions and answers of a session, over many sessions."""
    level, runs = levels()[name], 4000
    draw = geometric if level.one_sided else discrete_laplace
    tests = 2 * QUERIES if level.one_sided else QUERIES
    thresholds = draw(level.threshold_scale * UNIT, (runs, HITS), bits=SeededBits(1)) / UNIT
    questions = draw(level.query_scale * UNIT, (runs, tests), bits=SeededBits(2)) / UNIT
    promised = level.sample_errors(max_queries=QUERIES, max_hits=HITS, failure_probability=0.1)
    margin = level.hit_margin(max_queries=QUERIES, max_hits=HITS, failure_probability=0.1)

    # A kept training answer: difference < threshold + its noise - the question's noise.
    kept = float(level.threshold) + thresholds.max(1) - questions.min(1)
    # A hit: difference >= threshold + threshold noise - question noise.
    least = float(level.threshold) + thresholds.min(1) - questions.max(1)
    if level.answer_scale is None:
        answers = np.abs(questions - float(level.query_scale)).max(1) + float(level.threshold_scale)
    else:
        answers = np.abs(discrete_laplace(level.answer_scale * UNIT, (runs, HITS), bits=SeededBits(3)) / UNIT).max(1)

    assert (kept > promised[0]).mean() <= 0.1
    assert (least < margin).mean() <= 0.1
    assert (answers > promised[1]).mean() <= 0.1


def test_the_published_constants_are_used():
    level = levels()["analysed"]
    sigma = level.answer_scale

    assert level.threshold == Fraction(3, 40)
    assert (level.threshold_scale, level.query_scale) == (2 * sigma, 4 * sigma)
    assert float(sigma) == pytest.approx(0.1 / (96 * np.log(4 * QUERIES / 0.1)), rel=1e-5)
    assert level.hit_epsilon_rows == 2 / sigma  # LeeNotes, Lemma 3.2(1): 2 B / (sigma n)


def test_the_split_of_the_improved_level_is_the_cheapest():
    level = levels()["improved"]
    b1, b2 = float(level.threshold_scale), float(level.query_scale)
    fine = 0.1 * 0.1 / 50
    first, second = np.log(2 * HITS / fine), np.log(4 * QUERIES / fine)
    spent = b1 * first + b2 * second

    assert spent == pytest.approx(0.1 / 4, rel=1e-4)
    for other in np.linspace(0.3, 3, 30) * b1:
        rest = (spent - other * first) / second
        if rest > 0:
            assert 1 / other + 2 / rest >= float(level.hit_epsilon_rows) * (1 - 1e-4)


def test_the_improved_level_costs_less_for_the_same_tolerance():
    cheap, dear = levels()["improved"], levels()["analysed"]

    assert cheap.hit_epsilon_rows < dear.hit_epsilon_rows / 3


def test_a_share_beyond_the_tolerance_is_refused():
    with pytest.raises(InvalidRequest):
        improved_level(
            tolerance=Fraction(1, 10), failure_probability=0.1, max_queries=5, max_hits=1, noise_share=Fraction(1)
        )
