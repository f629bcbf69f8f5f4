"""Exact sums, and the composition theorems by name."""

import math
from fractions import Fraction
from math import comb

import mpmath as mp
import pytest

from expost.accounting import (
    ApproxEvent,
    DiscreteLaplaceEvent,
    ExponentialEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampled,
    PureEvent,
    Repeat,
    Sequence,
    advanced_composition,
    basic_composition,
    optimal_composition,
)
from expost.accounting.composition import (
    ApproxTotal,
    HomogeneousTotal,
    PureTotal,
    approx_cost_of,
    pure_cost_of,
    sum_approx,
    sum_homogeneous,
    sum_pure,
)
from expost.accounting.scenario import Scenario, list_scenarios
from expost.core import InvalidRequest


def test_leaves_have_exact_epsilons() -> None:
    assert pure_cost_of(LaplaceEvent(Fraction(3, 2))) == Fraction(2, 3)
    assert pure_cost_of(DiscreteLaplaceEvent(7, 3)) == Fraction(3, 7)
    assert pure_cost_of(ExponentialEvent(Fraction(1, 3))) == Fraction(1, 3)
    assert pure_cost_of(GaussianEvent(1)) is None


def test_a_thousand_tenths_are_a_hundred() -> None:
    found = sum_pure(list_scenarios(Repeat(PureEvent(0.1), 1000))[0])

    assert found == PureTotal(Fraction(100))


def test_one_step_without_pure_privacy_spoils_the_sum() -> None:
    assert sum_pure(list_scenarios(Sequence([PureEvent(1), GaussianEvent(1)]))[0]) is None


def test_sampling_amplifies_sums_inside_the_sample() -> None:
    inner = Sequence([PureEvent(1), Repeat(LaplaceEvent(2), 2)])

    assert float(pure_cost_of(PoissonSampled(0.1, inner))) == pytest.approx(math.log1p(0.1 * math.expm1(2)), rel=1e-9)


def test_delta_of_a_pure_total_is_that_of_randomised_response() -> None:
    pure = PureTotal(Fraction(1))
    keep = math.e / (1 + math.e)

    assert pure.delta(Fraction(0)) == pytest.approx(keep - (1 - keep), rel=1e-12)
    assert pure.delta(Fraction(1)) == 0
    assert pure.epsilon(Fraction(pure.delta(Fraction(1, 2)))) == pytest.approx(0.5, rel=1e-9)
    assert pure.epsilon(Fraction(99, 100)) == 0


def test_pairs_add_exactly() -> None:
    found = sum_approx(list_scenarios(Sequence([PureEvent(0.5), Repeat(ApproxEvent(0.1, 1e-6), 3)]))[0])

    assert found == ApproxTotal(Fraction(8, 10), Fraction(3, 10**6))


def test_below_its_own_delta_there_is_no_epsilon() -> None:
    pair = ApproxTotal(Fraction(1), Fraction(1, 100))

    assert pair.epsilon(Fraction(1, 1000)) == math.inf
    assert pair.epsilon(Fraction(1, 100)) == 1
    assert 0 < pair.epsilon(Fraction(1, 10)) < 1
    assert pair.delta(Fraction(2)) == pytest.approx(0.01)


def test_deltas_that_reach_one_prove_nothing() -> None:
    assert sum_approx(list_scenarios(Repeat(ApproxEvent(0.1, 0.5), 2))[0]) is None


def test_sampling_multiplies_delta_by_the_rate() -> None:
    epsilon, delta = approx_cost_of(PoissonSampled(0.01, ApproxEvent(5, 1e-6)))  # type: ignore[misc]

    # Not 2 q epsilon = 0.10, which holds for small epsilon only.
    assert float(epsilon) == pytest.approx(0.9058, abs=1e-3)
    assert delta == Fraction(1, 10**8)


def test_gaussian_noise_has_no_pair_of_its_own() -> None:
    assert approx_cost_of(GaussianEvent(1)) is None


@pytest.mark.parametrize(("epsilon", "count", "value"), [(0.1, 100, 6.31), (0.5, 50, 34.8)])
def test_the_second_term_of_advanced_composition_is_outside_the_root(epsilon: float, count: int, value: float) -> None:
    assert advanced_composition(epsilon, count, slack=1e-6)[0] == pytest.approx(value, rel=2e-3)


def test_advanced_composition_starts_to_pay_at_thirty_five_steps_of_a_tenth() -> None:
    # k > 2 ln(1/slack) / (2 - e^epsilon)^2, not / (e^epsilon - 1)^2 which would be 2,498.
    better = next(
        k for k in range(1, 3000) if advanced_composition(0.1, k, slack=1e-6)[0] < basic_composition(0.1, k)[0]
    )

    assert better == math.ceil(2 * math.log(1e6) / (2 - math.exp(0.1)) ** 2)
    assert better == 35


def exact_delta(epsilon: mp.mpf, step: mp.mpf, count: int) -> mp.mpf:
    """The hockey-stick divergence of ``count`` randomised responses, summed in long arithmetic."""
    terms = (
        comb(count, lies)
        * (mp.exp((count - lies) * step) - mp.exp(epsilon + lies * step))
        / (1 + mp.exp(step)) ** count
        for lies in range(count + 1)
        if (count - 2 * lies) * step > epsilon
    )
    return mp.fsum(terms)


@pytest.mark.parametrize(("step", "count"), [(1.0, 1), (0.1, 30), (0.5, 7), (2.0, 12), (0.01, 500)])
def test_optimal_composition_is_the_exact_sum_rounded_up(step: float, count: int) -> None:
    pairs = HomogeneousTotal(Fraction(step), Fraction(0), count)
    with mp.workdps(60):
        for share in (0.0, 0.1, 0.5, 0.9):
            epsilon = step * count * share
            exact, found = exact_delta(mp.mpf(epsilon), mp.mpf(step), count), pairs.delta(Fraction(epsilon))

            assert exact <= found <= exact * (1 + mp.mpf("1e-9")) + mp.mpf(2) ** -999


def test_the_theorem_as_printed_agrees() -> None:
    # KOV15, Theorem 3.3: ((k - 2i) e, sum_{l < i} C(k, l)(e^((k - l) e) - e^((k - 2i + l) e)) / (1 + e^e)^k).
    k, e, i = 10, 0.3, 3
    printed = sum(comb(k, l) * (math.exp((k - l) * e) - math.exp((k - 2 * i + l) * e)) for l in range(i))  # noqa: E741
    printed /= (1 + math.exp(e)) ** k

    assert HomogeneousTotal(Fraction(e), Fraction(0), k).delta(Fraction(k - 2 * i) * Fraction(e)) == pytest.approx(
        printed, rel=1e-9
    )


def test_optimal_composition_is_never_above_the_others() -> None:
    for count in (1, 10, 100, 1000):
        best = optimal_composition(0.1, count, at_delta=1e-6)

        assert best <= basic_composition(0.1, count)[0]
        assert best <= advanced_composition(0.1, count, slack=1e-6)[0]


def test_failures_come_out_of_delta() -> None:
    assert optimal_composition(0.1, 10, at_delta=1e-6, delta=1e-7) <= 1.0
    assert optimal_composition(0.1, 10, at_delta=1e-6, delta=1e-6) == math.inf


def test_only_one_kind_of_step_is_homogeneous() -> None:
    assert sum_homogeneous(Scenario(((PureEvent(1), 3),))) == HomogeneousTotal(Fraction(1), Fraction(0), 3)
    assert sum_homogeneous(Scenario(((PureEvent(1), 3), (PureEvent(2), 1)))) is None
    assert sum_homogeneous(Scenario(((GaussianEvent(1), 3),))) is None


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="whole number"):
        basic_composition(0.1, -1)
