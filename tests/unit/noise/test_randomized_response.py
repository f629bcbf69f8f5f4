import math
from fractions import Fraction

import numpy as np
import pytest
from tests.unit.noise.law_fit import fits

from expost.audit.noise_laws import response_law
from expost.core import Adjacency, InvalidRequest, PureLoss, Sealed, Sensitivity
from expost.noise import RandomizedResponse, SeededBits

ONE = Sensitivity(1, adjacency=Adjacency.REPLACE_ONE)


@pytest.mark.parametrize("categories", [2, 5])
def test_answers_follow_the_law_of_the_definition(categories):
    def answers(level):
        mechanism = RandomizedResponse(level, categories=categories)
        return mechanism.simulate([1], ONE, runs=100_000, bits=SeededBits(1)).ravel().tolist()

    law = response_law(1, categories, math.exp(-1))
    assert fits(answers(1), law)
    assert not fits(answers(0.9), law)
    assert not fits(answers(1.1), law)


def test_a_unit_with_two_records_shares_its_epsilon():
    two = Sensitivity(2, adjacency=Adjacency.REPLACE_ONE)
    answers = RandomizedResponse(2).simulate([1, 1], two, runs=50_000, bits=SeededBits(1)).ravel().tolist()

    assert fits(answers, response_law(1, 2, math.exp(-1)))


def test_records_answer_independently():
    answers = RandomizedResponse(1).simulate([0, 0], ONE, runs=50_000, bits=SeededBits(3)).astype(float)

    assert abs(np.corrcoef(answers.T)[0, 1]) < 0.02


def test_the_estimate_is_unbiased_and_its_error_as_stated():
    mechanism = RandomizedResponse(1, categories=3)
    records = np.repeat([0, 1, 2], [500, 300, 200])
    runs = mechanism.simulate(records, ONE, runs=400, bits=SeededBits(2))
    estimates = np.array([mechanism.estimate(run) for run in runs])
    error = mechanism.standard_error(1000)

    assert np.abs(estimates.mean(axis=0) - [0.5, 0.3, 0.2]).max() < 4 * error / 20
    assert (estimates.std(axis=0) <= 1.15 * error).all()


def test_a_category_out_of_range_is_counted_as_the_nearest_one():
    answer = RandomizedResponse(50, categories=3).release(Sealed([9, -4], ONE), bits=SeededBits(1))

    assert answer.tolist() == [2, 0]


def test_adding_and_removing_is_refused_because_the_length_would_tell():
    with pytest.raises(InvalidRequest, match="replace-one"):
        RandomizedResponse(1).release(Sealed([0], Sensitivity(1)))


@pytest.mark.parametrize("categories", [1, 0, 2.5, True])
def test_fewer_than_two_categories_are_refused(categories):
    with pytest.raises(InvalidRequest):
        RandomizedResponse(1, categories=categories)


def test_the_bill_is_the_epsilon_asked_for():
    assert RandomizedResponse(0.5).loss == PureLoss(Fraction(1, 2))
