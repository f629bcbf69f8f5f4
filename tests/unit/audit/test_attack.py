import math

import numpy as np
import pytest

from expost.audit import ExPost, Outcomes, Pair, attack
from expost.core import InvalidRequest, epsilon
from expost.noise import SeededBits, sample_bernoulli


def coin(chance, bill=None):
    def sampler(runs, bits):
        values = sample_bernoulli(chance, runs, bits=bits)
        return Outcomes.of(values, None if bill is None else np.full(runs, bill))

    return sampler


def response(epsilon_made):
    truth = math.exp(epsilon_made) / (1 + math.exp(epsilon_made))
    return coin(truth), coin(1 - truth)


def test_the_bound_nears_the_truth_as_runs_grow():
    left, right = response(1.0)
    pair = Pair("response", epsilon(1), left, right)
    found = [attack(pair, runs, bits=SeededBits(1)).found for runs in (1000, 10_000, 100_000)]

    assert found == sorted(found)
    assert 0.95 < found[-1] <= 1


def test_a_sound_claim_is_called_violated_no_more_often_than_stated():
    left, right = response(1.0)
    pair = Pair("response", epsilon(1), left, right)
    alarms = sum(attack(pair, 400, bits=SeededBits(seed), failure_probability=0.2).violated for seed in range(150))

    assert alarms <= 0.2 * 150


def test_ten_percent_too_much_is_noticed():
    left, right = response(1.1)

    assert attack(Pair("response", epsilon(1), left, right), 100_000, bits=SeededBits(1)).violated


def test_an_outcome_only_one_side_has_is_found_whatever_its_form():
    def values(shift):
        return lambda runs, bits: Outcomes.of(np.arange(runs) + shift, np.full(runs, 1.0 + shift))

    finding = attack(Pair("disjoint", ExPost(epsilon(9)), values(0), values(0.5)), 20_000, bits=SeededBits(1))

    assert finding.found > 5


def test_an_ex_post_bill_is_held_against_its_own_outcomes():
    """Half of the runs are billed 2 and deserve it, half are billed 0.1 and lose 2 as well."""
    truth = math.exp(2) / (1 + math.exp(2))

    def sampler(chance):
        def runs_of(runs, bits):
            cheap, value = sample_bernoulli(0.5, runs, bits=bits), sample_bernoulli(chance, runs, bits=bits)
            return Outcomes.of(np.stack([cheap, value], axis=1), np.where(cheap, 0.1, 2.0))

        return runs_of

    finding = attack(Pair("bills", ExPost(epsilon(2)), sampler(truth), sampler(1 - truth)), 40_000, bits=SeededBits(1))

    assert finding.violated
    assert finding.allowed == 0.1


def test_too_few_runs_are_refused():
    with pytest.raises(InvalidRequest, match="100 runs"):
        attack(Pair("few", epsilon(1), coin(0.5), coin(0.5)), 50, bits=SeededBits(1))
