"""Loss distributions against peers and plain sums, and the worst rule of stopping."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

pytest.importorskip("dp_accounting")

import dp_accounting
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as peer
from dp_accounting.pld.pld_pmf import DensePLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from expost.accounting import (
    ApproxEvent,
    ConcentratedEvent,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    ExponentialEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampled,
    PrivacyEvent,
    PureEvent,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
    account,
)
from expost.accounting.composition import HomogeneousTotal
from expost.accounting.concentrated import GaussianTotal
from expost.accounting.loss_distribution import (
    LossDistributionTotal,
    LossMasses,
    StoppedLosses,
    _Stage,
    sum_loss_distribution,
)
from expost.accounting.scenario import list_scenarios

DELTA = Fraction(1, 10**5)


def convolved(event: PrivacyEvent, interval: float | None = None) -> LossDistributionTotal:
    found = sum_loss_distribution(list_scenarios(event)[0], interval)
    assert found is not None
    return found


def test_the_reference_example() -> None:
    """Noise 1.1, rate 0.01, 10,000 steps, delta 1e-5."""
    event = Repeat(PoissonSampled(0.01, GaussianEvent(1.1)), 10_000)
    found = convolved(event).epsilon(DELTA)
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1)), 10_000)

    assert 5.19 <= found <= 5.20
    assert found == pytest.approx(accountant.get_epsilon(1e-5), rel=0.01)
    # Opacus 1.6's PRV accountant reports 5.2029 and prv_accountant at error 0.01 the interval [5.182, 5.203].
    assert found == pytest.approx(5.2029, rel=0.01)
    assert 5.182 <= found <= 5.203
    assert account(event, currency="rdp").epsilon(DELTA) == pytest.approx(5.632, abs=1e-3)
    assert account(event).epsilon(DELTA) == found


@pytest.mark.parametrize(("multiplier", "count"), [(1, 1), (20, 300), (0.7, 2)])
def test_gaussian_steps_are_at_and_above_their_exact_profile(multiplier: float, count: int) -> None:
    found = convolved(Repeat(GaussianEvent(multiplier), count))
    exact = GaussianTotal(count / Fraction(multiplier) ** 2)

    assert exact.epsilon(DELTA) <= found.epsilon(DELTA) <= exact.epsilon(DELTA) * 1.001
    assert exact.delta(Fraction(1)) <= found.delta(Fraction(1)) * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "count"), [(1, 1), (0.1, 200), (2, 5)])
def test_pure_steps_are_at_and_above_the_optimal_composition(epsilon: float, count: int) -> None:
    found = convolved(Repeat(PureEvent(epsilon), count))
    exact = HomogeneousTotal(Fraction(str(epsilon)), Fraction(0), count)

    assert exact.epsilon(DELTA) * (1 - 1e-9) <= found.epsilon(DELTA) <= exact.epsilon(DELTA) * 1.001 + 1e-6


@pytest.mark.parametrize(
    ("event", "theirs"),
    [
        (LaplaceEvent(2), lambda h: peer.from_laplace_mechanism(2, value_discretization_interval=h)),
        (
            PoissonSampled(0.2, LaplaceEvent(1)),
            lambda h: peer.from_laplace_mechanism(1, sampling_prob=0.2, value_discretization_interval=h),
        ),
        (
            DiscreteLaplaceEvent(4, 3),
            lambda h: peer.from_discrete_laplace_mechanism(0.25, sensitivity=3, value_discretization_interval=h),
        ),
        (
            DiscreteGaussianEvent(3, 1),
            lambda h: peer.from_discrete_gaussian_mechanism(3, value_discretization_interval=h),
        ),
        (
            PoissonSampled(0.05, GaussianEvent(0.8)),
            lambda h: peer.from_gaussian_mechanism(0.8, sampling_prob=0.05, value_discretization_interval=h),
        ),
    ],
    ids=["laplace", "sampled laplace", "discrete laplace", "discrete gaussian", "sampled gaussian"],
)
def test_each_leaf_agrees_with_the_peer_where_it_is_right(event: PrivacyEvent, theirs: object) -> None:
    interval = 2.0**-11
    other = theirs(interval).self_compose(10)  # type: ignore[operator]

    # The peer rounds discrete laws up, which is coarser than connecting the dots.
    assert convolved(Repeat(event, 10), interval).epsilon(DELTA) == pytest.approx(
        other.get_epsilon_for_delta(float(DELTA)), rel=3e-3
    )


def test_the_peers_lost_repeats_are_not_ours() -> None:
    """Five randomised responses: the peer's accountant answers for one."""
    keep = 1 - 0.5 * 3 / 4
    once = math.log(keep / (0.5 / 4))
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp_accounting.RandomizedResponseDpEvent(0.5, 4), 5)

    assert accountant.get_epsilon(1e-6) < 2 * once
    assert convolved(Repeat(PureEvent(Fraction(once)), 5)).epsilon(Fraction(1, 10**6)) > 4 * once


def test_different_leaves_convolve() -> None:
    event = Sequence([LaplaceEvent(3), Repeat(GaussianEvent(4), 3), ExponentialEvent(0.2), ApproxEvent(0.1, 1e-7)])

    assert convolved(event).epsilon(DELTA) < account(event, currency="rdp").epsilon(DELTA)
    assert convolved(event).epsilon(Fraction(1, 10**8)) == math.inf


def test_sampling_without_replacement_convolves_under_its_own_adjacency() -> None:
    event = Repeat(SampledWithoutReplacement(10, 1000, GaussianEvent(2)), 500)
    by_distribution, by_order = (
        account(event, adjacency="replace-one", currency=name).epsilon(DELTA) for name in ("pld", "rdp")
    )

    assert by_distribution < by_order


def test_a_delta_within_the_error_of_the_floats_proves_nothing() -> None:
    found = convolved(Repeat(PoissonSampled(0.01, GaussianEvent(1.1)), 10_000), 1e-3)

    assert found.epsilon(Fraction(1, 10**11)) == math.inf
    assert found.delta(Fraction(1000)) >= found.error > 0


@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.01, 1.1, 10_000), (0.2, 4.0, 1000)])
def test_the_error_reserved_covers_that_of_the_transform(rate: float, noise: float, steps: int) -> None:
    """The same power of the same masses in 80-bit arithmetic."""
    fft = pytest.importorskip("scipy.fft")
    interval = 2.0**-9
    one = convolved(PoissonSampled(Fraction(rate), GaussianEvent(Fraction(noise))), interval).distribution._pmf_remove
    many = convolved(Repeat(PoissonSampled(Fraction(rate), GaussianEvent(Fraction(noise))), steps), interval)
    composed = many.distribution._pmf_remove
    size = fft.next_fast_len(max(len(composed._probs), len(one._probs)))
    spectrum, power, left = fft.fft(one._probs.astype(np.longdouble), size), 1, steps
    exact = np.ones_like(spectrum)
    while left:
        exact = exact * spectrum if left & power else exact
        left &= ~power
        spectrum, power = spectrum * spectrum, power << 1
    exact = np.roll(np.real(fft.ifft(exact)), one._lower_loss * steps - composed._lower_loss)[: len(composed._probs)]
    losses = (np.arange(len(composed._probs)) + composed._lower_loss) * interval
    error = composed._probs - exact
    worst = max(
        abs(float(np.dot(-np.expm1(epsilon - losses[losses > epsilon]), error[losses > epsilon])))
        for epsilon in np.linspace(losses[0], losses[-1], 100)
    )

    assert worst * 4 < many.error


def test_unknown_leaves_and_endless_steps_are_left_to_other_currencies() -> None:
    assert sum_loss_distribution(list_scenarios(ConcentratedEvent(1))[0]) is None
    assert sum_loss_distribution(list_scenarios(Repeat(PureEvent(0.1), 10**9))[0]) is None


@pytest.mark.parametrize("event", [GaussianEvent(0.01), PureEvent(200), PureEvent(Fraction(1, 10**6))], ids=repr)
def test_the_width_of_a_bin_follows_the_size_of_the_cost(event: PrivacyEvent) -> None:
    found, exact = convolved(event).epsilon(DELTA), account(event, currency="auto").epsilon(DELTA)

    assert exact * (1 - 1e-9) <= found <= exact * 1.01 + 1e-9


@pytest.mark.parametrize("steps", [1, 2, 100])
@pytest.mark.parametrize("noise", [3.4, 100])
def test_sampled_discrete_gaussian_steps_convolve_and_cost_about_what_gaussian_ones_do(
    noise: float, steps: int
) -> None:
    discrete, continuous = (
        account(Repeat(PoissonSampled(0.01, event(noise)), steps)) for event in (DiscreteGaussianEvent, GaussianEvent)
    )

    assert discrete.currencies(1e-6)["pld"] == pytest.approx(continuous.currencies(1e-6)["pld"], rel=0.05)
    assert discrete.delta(0.001) == pytest.approx(continuous.delta(0.001), rel=0.05, abs=1e-12)
    assert "at most" in discrete.explain(1e-6)


def coin(chance: float, lost: float = 0.0, width: float = 0.5) -> LossMasses:
    return LossMasses(width, -1, np.array([1 - chance, 0.0, chance]) * (1 - lost), lost, True)


@pytest.mark.parametrize("count", [1, 2, 7, 60])
@pytest.mark.parametrize("lost", [0.0, 0.001])
def test_many_coins_have_the_law_of_binomials(count: int, lost: float) -> None:
    chance = Fraction(5, 8)
    exact = {
        count - 2 * tails: math.comb(count, tails) * chance ** (count - tails) * (1 - chance) ** tails
        for tails in range(count + 1)
    }
    missing = 1 - (1 - Fraction(lost)) ** count

    found = coin(float(chance), lost).self_compose(count)

    for epsilon in (0.0, 0.25, 1.0, 3.0):
        kept = sum(float(mass) * -math.expm1(epsilon - loss / 2) for loss, mass in exact.items() if loss / 2 > epsilon)
        delta = float(missing) + float(1 - missing) * kept
        assert found.get_delta_for_epsilon(epsilon) == pytest.approx(delta, rel=1e-9, abs=2e-15)
        if kept:
            assert found.get_epsilon_for_delta(delta) == pytest.approx(epsilon, abs=1e-9)


masses = st.lists(st.integers(0, 1000), min_size=2, max_size=40).filter(any)


@settings(max_examples=50, derandomize=True)
@example(masses=[0, 1], lost=0.0, first=8, count=10, width=8.0)
@given(
    masses=masses,
    lost=st.sampled_from([0.0, 1e-6, 0.2]),
    first=st.integers(-40, 10),
    count=st.integers(2, 300),
    width=st.sampled_from([2.0**-10, 0.25, 8.0, 64.0]),
)
def test_sums_and_their_epsilons_are_those_of_the_peer(masses, lost, first, count, width) -> None:
    assume((1 - lost) ** count > 1e-9)  # else next to nothing is left beside what is cut off
    probabilities = np.array(masses) * (1 - lost) / sum(masses)
    ours, theirs = (
        kind(width, first, probabilities, lost, True).self_compose(count) for kind in (LossMasses, DensePLDPmf)
    )

    assert abs(ours._lower_loss - theirs._lower_loss) <= 1 and abs(ours.size - theirs.size) <= 2
    assert ours._infinity_mass == theirs._infinity_mass
    shift = ours._lower_loss - theirs._lower_loss
    here, there = ours._probs[max(0, -shift) :], theirs._probs[max(0, shift) :]
    np.testing.assert_allclose(here[: len(there)], there[: len(here)], atol=1e-13 * count)
    same = DensePLDPmf(width, ours._lower_loss, ours._probs, ours._infinity_mass, True)
    for delta in (0.0, 1e-9, 1e-4, 0.1, 0.5, 0.999):
        assert ours.get_epsilon_for_delta(delta) == pytest.approx(_their_epsilon(same, delta), rel=1e-12, abs=1e-12)


def _their_epsilon(masses: DensePLDPmf, delta: float) -> float:
    """Losses far below zero overflow in the peer's loop, and say nothing about an epsilon >= 0."""
    kept = max(0, -masses._lower_loss)
    if kept >= masses.size:
        return math.inf if masses._infinity_mass > delta else 0.0
    cut = DensePLDPmf(
        masses._discretization, masses._lower_loss + kept, masses._probs[kept:], masses._infinity_mass, True
    )
    with np.errstate(over="ignore"):  # losses above 700: both say infinity, which is safe
        return cut.get_epsilon_for_delta(delta)


def test_two_different_losses_are_added_as_by_the_peer() -> None:
    one, other = coin(0.7), coin(0.6, 0.01).self_compose(3)
    theirs = DensePLDPmf(0.5, one._lower_loss, one._probs, 0.0, True).compose(
        DensePLDPmf(0.5, other._lower_loss, other._probs, other._infinity_mass, True)
    )

    ours = one.compose(other)

    assert isinstance(ours, LossMasses)
    assert ours.get_epsilon_for_delta(0.1) == theirs.get_epsilon_for_delta(0.1)


@pytest.mark.parametrize(
    ("masses", "first", "lost", "delta", "epsilon"),
    [
        ([0.5, 0.4], -1, 0.1, 0.05, math.inf),  # more is lost than delta allows
        ([0.5, 0.5], -9, 0.0, 0.01, 0.0),  # no positive loss
        ([0.0, 0.0], 3, 0.0, 0.5, 0.0),  # nothing at all
        ([0.5, 0.5], 2000, 0.0, 0.1, 2001.0),  # e^-loss is no float
        ([1.0], 0, 0.0, 0.0, 0.0),  # no loss
        ([1.0], 1, 0.0, 1.0, 0.0),  # everything is allowed
    ],
)
def test_the_ends_of_the_scale(masses, first, lost, delta, epsilon) -> None:
    assert LossMasses(1.0, first, np.array(masses), lost, True).get_epsilon_for_delta(delta) == epsilon


def test_a_loss_that_is_certain_or_empty_stays_so() -> None:
    for lost in (1.0, 0.5):
        found = LossMasses(1.0, 0, np.zeros(3), lost, True).self_compose(10)
        assert found._infinity_mass >= 1 - (1 - lost) ** 10
        assert found.get_epsilon_for_delta(0.5) == math.inf


def test_what_is_cut_off_counts_as_lost() -> None:
    found = coin(0.5).self_compose(10**6)

    assert found.size < 400_000  # of 2 million
    assert found._infinity_mass == 1e-15
    assert float(found._probs.sum()) == pytest.approx(1, abs=1e-9)


WIDTH = 2.0**-7
SAMPLED = Repeat(PoissonSampled(Fraction(1, 10), GaussianEvent(1)), 5)


def losses_of(*phases: PrivacyEvent, scale: np.ndarray, width: float = WIDTH) -> StoppedLosses:
    return StoppedLosses([part(phase, width) for phase in phases], scale)


def part(phase: PrivacyEvent, width: float = WIDTH) -> LossDistributionTotal:
    found = sum_loss_distribution(list_scenarios(phase)[0], interval=width)
    assert found is not None
    return found


def paired_coin(up: float) -> LossDistributionTotal:
    """A loss of one with this probability, else of minus one: laws (p, 1 - p) and (1 - p, p) if the odds are e."""
    masses = LossMasses(1 / 8, -8, np.array([1 - up, *[0.0] * 15, up]), 0.0, True)
    return LossDistributionTotal(PrivacyLossDistribution(masses), 0.0)


def worst_of_all_rules(up: float, bills: np.ndarray) -> float:
    """The largest excess over every rule that stops after some histories of coins and not after others."""
    depth = len(bills)

    def told(history: tuple[int, ...]) -> float:
        chance = np.prod([up if step > 0 else 1 - up for step in history])
        return float(chance * max(0.0, 1 - np.exp(bills[len(history) - 1] - sum(history))))

    inner = [history for size in range(1, depth) for history in product((1, -1), repeat=size)]
    best = 0.0
    for stops in product((False, True), repeat=len(inner)):
        stopping = dict(zip(inner, stops, strict=True))

        def value(history: tuple[int, ...], stopping: dict[tuple[int, ...], bool] = stopping) -> float:
            if len(history) == depth or stopping.get(history, False):
                return told(history)
            return value((*history, 1)) + value((*history, -1))

        best = max(best, value((1,)) + value((-1,)))
    return best


@pytest.mark.parametrize("bills", [(0.9, 1.4, 1.9), (0.2, 1.0, 2.5), (2.0, 0.3, 0.1), (1.6, 1.6, 1.6)])
def test_the_excess_is_that_of_the_best_of_all_rules(bills: tuple[float, ...]) -> None:
    up = float(np.e / (1 + np.e))
    found = StoppedLosses([paired_coin(up)] * 3, np.array(bills)).excess(np.array(bills))

    assert found == pytest.approx(worst_of_all_rules(up, np.array(bills)), abs=1e-9)


def plain_worst(masses: list[LossMasses], bills: np.ndarray) -> float:
    """The same problem solved by plain sums on a grid that is far larger than it must be."""
    width, reach = masses[0]._discretization, 3 * sum(len(part._probs) for part in masses)
    losses = np.arange(-reach, reach + 1) * width

    def told(bill: float) -> np.ndarray:
        return np.maximum(1 - np.exp(np.minimum(bill - losses, 0.0)), 0.0)

    value = np.zeros(len(losses))
    for phase, bill in zip(reversed(masses), reversed(bills), strict=True):
        value = np.maximum(told(bill), value)
        padded = np.pad(value, len(phase._probs), constant_values=(0.0, 1.0))
        start = len(phase._probs) + phase._lower_loss
        mean = np.correlate(padded, np.maximum(phase._probs, 0.0), "valid")[start : start + len(losses)]
        value = mean + phase._infinity_mass
    return float(value[reach])


@pytest.mark.parametrize(
    "phases", [[GaussianEvent(3)] * 3, [SAMPLED, Repeat(SAMPLED.event, 20)]], ids=["whole", "sampled"]
)
def test_fourier_transforms_agree_with_plain_sums(phases: list[PrivacyEvent]) -> None:
    bills = np.linspace(3.0, 4.0, len(phases))
    parts = [part(phase, 2.0**-5) for phase in phases]
    stopped = StoppedLosses(parts, bills)

    plain = max(
        plain_worst([getattr(one.distribution, name) for one in parts], bills) for name in ("_pmf_remove", "_pmf_add")
    )

    assert plain <= stopped.excess(bills) <= plain + 2 * stopped._error + 1e-12


def test_the_reserve_for_rounding_is_larger_than_what_is_lost() -> None:
    generator = np.random.default_rng(0)
    for length in (500, 9000):
        masses, values = generator.dirichlet(np.ones(length)), np.sort(generator.random(2049))[::-1]
        stage = _Stage(LossMasses(WIDTH, -(length // 2), masses, 0.0, True), WIDTH)
        low, kernel = LossMasses(WIDTH, -(length // 2), masses, 0.0, True).widen_bins(WIDTH)
        padded = np.pad(values, length + 2)

        plain = np.correlate(padded, kernel, "valid")[length + 2 + low :][:2049]

        assert float(np.abs(stage.mean_before(values) - plain).max()) < 2.0**-48


@pytest.mark.parametrize("finer", [1, 2, 8])
def test_wider_bins_keep_both_laws_and_dominate(finer: int) -> None:
    step = PoissonSampled(Fraction(1, 10), GaussianEvent(1))
    fine = part(step, WIDTH / finer).distribution._pmf_remove
    low, masses = fine.widen_bins(WIDTH)
    losses = WIDTH * (low + np.arange(len(masses)))
    before = fine._discretization * (fine._lower_loss + np.arange(len(fine._probs)))

    assert masses.sum() == pytest.approx(fine._probs.sum(), abs=1e-12)
    assert masses @ np.exp(-losses) == pytest.approx(fine._probs @ np.exp(-before), abs=1e-12)
    for epsilon in (0.01, 0.1, 0.33, 1.0):
        wide = float(masses @ -np.expm1(np.minimum(epsilon - losses, 0.0)))
        narrow = float(fine._probs @ -np.expm1(np.minimum(epsilon - before, 0.0)))
        assert narrow - 1e-13 <= wide <= narrow + (1e-13 if finer == 1 else 1e-3)


def test_rounding_adds_no_mass_that_bills_would_cover() -> None:
    """Sums of tiny losses leave masses below zero: cutting these off would keep what rounding adds elsewhere."""
    rare = Repeat(PoissonSampled(Fraction(1, 10**6), GaussianEvent(Fraction(22, 100))), 100)
    whole = part(rare, 2.0**-13)
    fine = whole.distribution._pmf_remove

    added = fine.widen_bins(WIDTH)[1].sum() - 1

    assert np.maximum(fine._probs, 0.0).sum() - 1 > 2 * abs(added)
    assert added < whole.error / 4


def test_losses_whose_exponentials_are_no_floats_count_as_told() -> None:
    step = LossMasses(1.0, -1, np.array([0.4, 0.0, 0.6]), 0.0, True)

    stopped = StoppedLosses([LossDistributionTotal(PrivacyLossDistribution(step), 0.0)] * 2, np.array([1.0, 2.0]))

    assert stopped.excess(np.array([5.0, 5.0])) == 1
    assert stopped.overlap(lambda size: np.array([5.0, 5.0]) / size, 0.1, most=2.0) == 1


def test_narrower_bins_for_smaller_bills_tell_no_less_than_one_grid() -> None:
    """Grids that change on the way bound what one fine grid says from above, closely."""
    phases = [Repeat(GaussianEvent(60), count) for count in (1, 3, 12, 48)]
    bills = np.array([0.07, 0.14, 0.28, 0.56])
    parts = [part(phase, 2.0**-11) for phase in phases]

    one_grid = max(plain_worst([one.distribution._pmf_remove for one in parts], bills), 0.0)

    found = StoppedLosses(parts, bills)
    assert one_grid <= found.excess(bills) < 1.02 * one_grid
    assert len({stage.width for stage in found._directions[0]}) > 2


def simulated(
    mus: np.ndarray, bills: np.ndarray, rule: Callable[[np.ndarray], np.ndarray], runs: int = 400_000
) -> float:
    """What a rule of stopping tells of Gaussian phases."""
    generator = np.random.default_rng(5)
    losses = np.cumsum(mus**2 / 2 + mus * generator.normal(size=(runs, len(mus))), axis=1)
    stops = rule(losses)
    past = losses[np.arange(runs), stops] - bills[stops]
    return float(np.mean(-np.expm1(-np.maximum(past, 0.0))))


def test_gaussian_phases_keep_the_bills_that_a_simulated_adversary_attacks() -> None:
    mus, bills = np.full(8, 0.5), 1.2 * np.sqrt(np.arange(1, 9)) * 0.9
    stopped = losses_of(*[GaussianEvent(2)] * 8, scale=bills)

    def first_above(slack: float) -> Callable[[np.ndarray], np.ndarray]:
        def rule(losses: np.ndarray) -> np.ndarray:
            above = losses > bills + slack
            return np.where(above.any(axis=1), above.argmax(axis=1), len(bills) - 1)

        return rule

    told = max(simulated(mus, bills, first_above(slack)) for slack in (0.0, 0.2, 0.4, 0.6))

    assert 0.93 < told / stopped.excess(bills) < 1.01


def test_bills_three_percent_lower_are_caught() -> None:
    phases, delta = [Repeat(GaussianEvent(20), count) for count in (4, 3, 5, 8)], 1e-5
    parts = [part(phase, 2.0**-11) for phase in phases]

    def bills(size: float) -> np.ndarray:
        stops = [parts[0]]
        for one in parts[1:]:
            stops.append(stops[-1].then(one))
        return np.array([stop.epsilon(Fraction(size * delta / 4)) for stop in stops])

    stopped = StoppedLosses(parts, bills(1.0))
    found = bills(stopped.overlap(bills, delta, most=4.0))

    assert 0.95 * delta < stopped.excess(found) <= delta
    assert stopped.excess(0.97 * found) > 1.2 * delta


def test_shares_overlap_but_never_beyond_the_largest() -> None:
    alone = part(GaussianEvent(4))
    both = alone.then(alone)

    def bills(size: float) -> np.ndarray:
        return np.array([stop.epsilon(Fraction(size * 1e-6 / 2)) for stop in (alone, both)])

    stopped = StoppedLosses([alone, alone], bills(1.0))

    assert 1 < stopped.overlap(bills, 1e-6, most=2.0) < 2
    assert stopped.overlap(bills, 1e-6, most=1.03) == 1.03
    assert stopped.overlap(bills, 1e-14, most=2.0) == 1  # nothing is gained where rounding hides it


def test_stopping_costs_a_mechanism_no_more_than_the_pair_that_dominates_it() -> None:
    """A phase of half the loss is dominated by a whole one: whatever the rule, it tells no more."""
    bills = np.array([0.6, 0.8, 1.0])
    whole, half = (losses_of(*[GaussianEvent(noise)] * 3, scale=bills) for noise in (4, 8))

    assert half.excess(bills) < whole.excess(bills)


def test_a_finer_grid_tells_a_little_less() -> None:
    bills = np.array([0.6, 0.9])

    coarse, fine = (losses_of(SAMPLED, SAMPLED, scale=bills, width=width).excess(bills) for width in (2.0**-5, 2.0**-9))

    assert fine <= coarse < 1.2 * fine
