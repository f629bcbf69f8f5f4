"""No rule of stopping tells more than the computed excess, and the worst one tells that much."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from expost.accounting import Event, GaussianEvent, PoissonSampled, Repeat
from expost.accounting.loss_distribution import LossDistributionTotal, total
from expost.accounting.loss_masses import LossMasses
from expost.accounting.scenario import scenarios
from expost.accounting.stopping import StoppedLosses, _coarse, _Stage

WIDTH = 2.0**-7
SAMPLED = Repeat(PoissonSampled(Fraction(1, 10), GaussianEvent(1)), 5)


def losses_of(*phases: Event, scale: np.ndarray, width: float = WIDTH) -> StoppedLosses:
    return StoppedLosses([part(phase, width) for phase in phases], scale)


def part(phase: Event, width: float = WIDTH) -> LossDistributionTotal:
    found = total(scenarios(phase)[0], interval=width)
    assert found is not None
    return found


def coin(up: float) -> LossDistributionTotal:
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
    found = StoppedLosses([coin(up)] * 3, np.array(bills)).excess(np.array(bills))

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
def test_fourier_transforms_agree_with_plain_sums(phases: list[Event]) -> None:
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
        low, kernel = _coarse(LossMasses(WIDTH, -(length // 2), masses, 0.0, True), WIDTH)
        padded = np.pad(values, length + 2)

        plain = np.correlate(padded, kernel, "valid")[length + 2 + low :][:2049]

        assert float(np.abs(stage.before(values) - plain).max()) < 2.0**-48


@pytest.mark.parametrize("finer", [1, 2, 8])
def test_wider_bins_keep_both_laws_and_dominate(finer: int) -> None:
    step = PoissonSampled(Fraction(1, 10), GaussianEvent(1))
    fine = part(step, WIDTH / finer).distribution._pmf_remove
    low, masses = _coarse(fine, WIDTH)
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

    added = _coarse(fine, WIDTH)[1].sum() - 1

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
