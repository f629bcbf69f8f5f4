"""Adversaries against filters and odometers: exact trees where outcomes are few, simulation where they are normal.

An adversary sees every answer, chooses the next step by it and stops when it likes. What the whole interaction then leaks
is computed from both laws of the transcript and held against the promise; a filter that checks one step too late is caught.
"""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from typing import ClassVar

import numpy as np
import pytest
from scipy.special import ndtr

from expost.accounting import (
    ApproxEvent,
    ApproxFilter,
    BasicFilter,
    ConcentratedFilter,
    ConcentratedOdometer,
    ExPostEvent,
    Filter,
    GaussianEvent,
    GaussianFilter,
    GaussianOdometer,
    Odometer,
    PrivacyEvent,
    PureEvent,
    PureFilter,
    RenyiFilter,
    RenyiOdometer,
)
from expost.accounting.concentrated import gaussian_delta
from expost.accounting.event_price import EventPrice
from expost.core import BudgetExceeded

Law = tuple[tuple[float, float, PrivacyEvent], ...]
"""Each outcome of a step: its probability on the data, on the neighbour, and the event with its realised loss."""


def randomized_response(epsilon: Fraction) -> tuple[PrivacyEvent, Law]:
    keep, event = math.exp(epsilon) / (1 + math.exp(epsilon)), PureEvent(epsilon)
    return event, ((keep, 1 - keep, event), (1 - keep, keep, event))


def rare_disclosure(epsilon: Fraction, delta: Fraction) -> tuple[PrivacyEvent, Law]:
    """Randomised response that with probability delta shows which table it was."""
    event = ApproxEvent(epsilon, delta)
    _, (yes, no) = randomized_response(epsilon)
    shrink = 1 - float(delta)
    return event, (
        (yes[0] * shrink, yes[1] * shrink, event),
        (no[0] * shrink, no[1] * shrink, event),
        (float(delta), 0.0, event),
        (0.0, float(delta), event),
    )


def lucky(cap: Fraction, chance: float = 0.2) -> tuple[PrivacyEvent, Law]:
    """Pure ex-post: a rare outcome costs the cap, the common one far less."""
    rare, rare_there = chance, chance * math.exp(-cap)
    common = abs(math.log((1 - rare) / (1 - rare_there)))
    cheap = Fraction(math.ceil(common * 10**12), 10**12)
    return ExPostEvent.promise(cap), (
        (rare, rare_there, ExPostEvent(cap, cap)),
        (1 - rare, 1 - rare_there, ExPostEvent(min(cheap, cap), cap)),
    )


Adversary = Callable[[int, float], tuple[PrivacyEvent, Law]]
"""What to ask at a depth, having seen this privacy loss so far."""


def greedy(depth: int, loss: float) -> tuple[PrivacyEvent, Law]:
    """Many small steps, larger ones after a lucky outcome."""
    return randomized_response(Fraction(1, 4) if loss > 0 else Fraction(1, 10))


def hoarder(depth: int, loss: float) -> tuple[PrivacyEvent, Law]:
    """Small steps, then one that is far larger than what is left."""
    return randomized_response(Fraction(9, 10) if depth >= 6 else Fraction(1, 10))


def gambler(depth: int, loss: float) -> tuple[PrivacyEvent, Law]:
    """Ex-post steps at high caps, kept up by refunds."""
    return lucky(Fraction(3, 10)) if depth % 2 else randomized_response(Fraction(1, 10))


def discloser(depth: int, loss: float) -> tuple[PrivacyEvent, Law]:
    """Approximate steps among ex-post ones."""
    return rare_disclosure(Fraction(1, 10), Fraction(1, 1000)) if depth % 3 == 0 else gambler(depth, loss)


ADVERSARIES = [greedy, hoarder, gambler]


def transcripts(
    make: Callable[[], Filter], adversary: Adversary, depth: int = 9
) -> tuple[np.ndarray, np.ndarray, list[EventPrice]]:
    """Both probabilities of every transcript, and what the filter had charged; the adversary asks until it is refused."""
    here, there, prices = [], [], []
    for p, q, charged in _walk(make(), adversary, depth, 0, 1.0, 1.0, []):
        here.append(p)
        there.append(q)
        prices.append(charged)
    return np.array(here), np.array(there), prices


def _walk(
    filter: Filter,
    adversary: Adversary,
    depth: int,
    at: int,
    p: float,
    q: float,
    path: list[tuple[PrivacyEvent, PrivacyEvent]],
) -> Iterator[tuple[float, float, EventPrice]]:
    loss = 0.0 if p == 0 or q == 0 else math.log(p / q)
    event, law = adversary(at, loss)
    reservation = None
    if at < depth:
        try:
            reservation = filter.reserve(event)
        except BudgetExceeded:
            reservation = None
    if reservation is None:
        yield p, q, filter.spent
        return
    before = filter._total
    for here, there, outcome in law:
        # Each branch continues from the same state of the same filter.
        filter._total, filter._open = before, {reservation.number: reservation}
        filter.settle(reservation, outcome)
        yield from _walk(filter, adversary, depth, at + 1, p * here, q * there, [*path, (event, outcome)])


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((p, q), (q, p)))


def renyi(p: np.ndarray, q: np.ndarray, order: float) -> float:
    return max(math.log(float((a**order * b ** (1 - order)).sum())) / (order - 1) for a, b in ((p, q), (q, p)))


def off_by_one(kind: type[Filter]) -> type[Filter]:
    """The same filter, checking what was spent before the step instead of after it."""

    class Late(kind):  # type: ignore[misc, valid-type]
        def _add_charge(self, price: EventPrice) -> EventPrice:
            if not self.fits(self._sum_charges()):
                raise BudgetExceeded("late")
            return self._sum_charges() + price

        def admits(self, event: PrivacyEvent) -> bool:
            return self.fits(self.spent)

    return Late


class TestPure:
    def leak(self, kind: type[Filter], adversary: Adversary) -> float:
        p, q, _ = transcripts(lambda: kind(Fraction(1)), adversary)
        return float(np.max(np.abs(np.log(p / q))))

    @pytest.mark.parametrize("adversary", ADVERSARIES)
    def test_no_transcript_is_dearer_than_the_budget(self, adversary: Adversary) -> None:
        assert self.leak(PureFilter, adversary) <= 1 + 1e-9

    @pytest.mark.parametrize("adversary", [greedy, hoarder])
    def test_the_check_one_step_late_is_caught(self, adversary: Adversary) -> None:
        assert self.leak(off_by_one(PureFilter), adversary) > 1.05

    def test_refunds_buy_more_steps(self) -> None:
        _, _, prices = transcripts(lambda: PureFilter(1), gambler, depth=12)

        assert max(price.cost + price.loss for price in prices) <= 1
        assert any(price.cost >= Fraction(4, 10) for price in prices)


class TestBasic:
    def leak(self, kind: type[Filter], adversary: Adversary) -> float:
        p, q, _ = transcripts(lambda: kind(Fraction(1), Fraction(3, 1000)), adversary)
        return hockey_stick(p, q, 1.0)

    @pytest.mark.parametrize("adversary", [*ADVERSARIES, discloser])
    def test_the_whole_interaction_keeps_epsilon_and_delta(self, adversary: Adversary) -> None:
        assert self.leak(BasicFilter, adversary) <= 3e-3 + 1e-12

    def test_the_check_one_step_late_is_caught(self) -> None:
        assert self.leak(off_by_one(BasicFilter), hoarder) > 3e-3


class TestConcentrated:
    def leak(self, kind: type[Filter], adversary: Adversary) -> list[float]:
        p, q, _ = transcripts(lambda: kind(Fraction(1, 10)), adversary)
        return [renyi(p, q, order) / order for order in (1.0001, 1.5, 2.0, 4.0, 16.0)]

    @pytest.mark.parametrize("adversary", ADVERSARIES)
    def test_every_order_is_within_rho(self, adversary: Adversary) -> None:
        assert max(self.leak(ConcentratedFilter, adversary)) <= 0.1 * (1 + 1e-6)

    def test_the_check_one_step_late_is_caught(self) -> None:
        assert max(self.leak(off_by_one(ConcentratedFilter), hoarder)) > 0.12

    def test_charging_half_the_square_of_the_realised_loss_would_break_it(self) -> None:
        """Why nothing is refunded here: with a rare dear outcome the realised charge is no supermartingale."""
        _, law = lucky(Fraction(1), chance=0.01)
        p, q = (np.array([outcome[side] for outcome in law]) for side in (0, 1))
        charge = np.array([float(outcome.loss) ** 2 / 2 for _, _, outcome in law])  # type: ignore[attr-defined]
        moments = [float((a * np.exp(np.log(a / b) - 2 * charge)).sum()) for a, b in ((p, q), (q, p))]

        assert max(moments) > 1 + 0.3 * 0.01 / 2


class TestRenyi:
    CURVE = ((Fraction(3, 2), Fraction(3, 10)), (Fraction(4), Fraction(5, 10)))

    def leak(self, kind: type[Filter], adversary: Adversary) -> list[float]:
        p, q, _ = transcripts(lambda: kind(self.CURVE), adversary)
        return [renyi(p, q, float(order)) / float(limit) for order, limit in self.CURVE]

    @pytest.mark.parametrize("adversary", ADVERSARIES)
    def test_every_listed_order_is_within_its_limit(self, adversary: Adversary) -> None:
        assert max(self.leak(RenyiFilter, adversary)) <= 1 + 1e-9

    def test_the_check_one_step_late_is_caught(self) -> None:
        assert max(self.leak(off_by_one(RenyiFilter), hoarder)) > 1.1

    @pytest.mark.parametrize("order", [1.5, 2.0, 4.0, 16.0])
    def test_realised_losses_keep_the_supermartingale(self, order: float) -> None:
        """E exp((a - 1)(L - charges)) <= 1 at the stopping time, pure ex-post steps charged what they came to."""
        p, q, prices = transcripts(lambda: RenyiFilter(((order, Fraction(8, 10)),)), gambler, depth=11)
        charged = np.array([float(price.cost[0]) for price in prices])

        assert float((p * np.exp((order - 1) * (np.log(p / q) - charged))).sum()) <= 1 + 1e-9
        assert float((q * np.exp((order - 1) * (np.log(q / p) - charged))).sum()) <= 1 + 1e-9


class TestApprox:
    def leak(self, kind: type[Filter], adversary: Adversary) -> float:
        p, q, _ = transcripts(lambda: kind(Fraction(1), Fraction(1, 100)), adversary, depth=12)
        return hockey_stick(p, q, 1.0)

    @pytest.mark.parametrize("adversary", ADVERSARIES)
    def test_the_whole_interaction_keeps_epsilon_and_delta(self, adversary: Adversary) -> None:
        assert self.leak(ApproxFilter, adversary) <= 0.01

    def test_the_check_one_step_late_is_caught(self) -> None:
        def finale(depth: int, loss: float) -> tuple[PrivacyEvent, Law]:
            return randomized_response(Fraction(2) if depth >= 4 else Fraction(1, 10))

        assert self.leak(ApproxFilter, finale) <= 0.01
        assert self.leak(off_by_one(ApproxFilter), finale) > 0.01

    def test_steps_beyond_basic_composition_are_admitted(self) -> None:
        filter = ApproxFilter(1, 1e-6)
        steps = 0
        while filter.admits(PureEvent(Fraction(1, 50))):
            filter.charge(PureEvent(Fraction(1, 50)))
            steps += 1

        assert steps > 80


RUNS = 200_000
COARSE, FINE = GaussianEvent(Fraction(5, 2)), GaussianEvent(8)


class Table:
    """What a filter or an odometer says after i coarse and j fine steps, read off the real thing once."""

    def __init__(self, make: Callable[[], Filter | Odometer], size: int) -> None:
        self.make, self.size = make, size

    def admitted(self, event: PrivacyEvent) -> np.ndarray:
        table = np.zeros((self.size, self.size), dtype=bool)
        for coarse in range(self.size):
            filter = self.make()
            assert isinstance(filter, Filter)
            try:
                for _ in range(coarse):
                    filter.charge(COARSE)
                for fine in range(self.size):
                    table[coarse, fine] = filter.admits(event)
                    filter.charge(FINE)
            except BudgetExceeded:
                continue
        return table

    def reported(self) -> np.ndarray:
        """What is said after so many steps of each kind, fewer than ``size`` of both together."""
        table = np.zeros((self.size, self.size))
        for coarse in range(self.size):
            odometer = self.make()
            assert isinstance(odometer, Odometer)
            for _ in range(coarse):
                odometer.record(COARSE)
            for fine in range(self.size - coarse):
                table[coarse, fine] = odometer.epsilon
                odometer.record(FINE)
        return table


def gaussian_losses(
    admit_coarse: np.ndarray, admit_fine: np.ndarray, report: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Losses of runs whose step depends on the loss so far, until refused; and whether a report was ever exceeded."""
    rng = np.random.default_rng(2024)
    loss, coarse, fine = np.zeros(RUNS), np.zeros(RUNS, dtype=int), np.zeros(RUNS, dtype=int)
    running, crossed = np.ones(RUNS, dtype=bool), np.zeros(RUNS, dtype=bool)
    mu_coarse, mu_fine = (float(event.mu_squared) ** 0.5 for event in (COARSE, FINE))
    for _ in range(len(admit_coarse) - 2):
        # Gamble on a large step after a bad outcome, otherwise creep.
        wants_coarse = (loss < 0) & admit_coarse[coarse, fine]
        running &= wants_coarse | admit_fine[coarse, fine]
        mu = np.where(wants_coarse, mu_coarse, mu_fine)
        loss = np.where(running, loss + mu**2 / 2 + mu * rng.standard_normal(RUNS), loss)
        coarse, fine = coarse + (running & wants_coarse), fine + (running & ~wants_coarse)
        if report is not None:
            crossed |= running & (loss > report[coarse, fine])
            running &= ~crossed
    return loss, crossed


class TestGaussian:
    def leak(self, kind: type[Filter]) -> np.ndarray:
        table = Table(lambda: kind(Fraction(1)), size=40)
        admit = [table.admitted(event) for event in (COARSE, FINE)]
        loss, _ = gaussian_losses(*admit)
        return np.array([np.maximum(-np.expm1(epsilon - loss), 0).mean() for epsilon in (0.5, 1.0, 2.0)])

    def test_the_whole_interaction_keeps_the_profile(self) -> None:
        promised = gaussian_delta(np.array([0.5, 1.0, 2.0]), 1.0)

        assert np.all(self.leak(GaussianFilter) <= promised + 4 * np.sqrt(promised / RUNS))

    def test_the_check_one_step_late_is_caught(self) -> None:
        promised = gaussian_delta(np.array([0.5, 1.0, 2.0]), 0.6)
        table = Table(lambda: off_by_one(GaussianFilter)(Fraction(36, 100)), size=40)
        loss, _ = gaussian_losses(table.admitted(COARSE), table.admitted(FINE))
        leak = np.array([np.maximum(-np.expm1(epsilon - loss), 0).mean() for epsilon in (0.5, 1.0, 2.0)])

        assert np.any(leak > promised + 6 * np.sqrt(promised / RUNS))


class TestOdometers:
    CHANCE = 0.05
    SIZE = 60
    KINDS: ClassVar = {
        "renyi": lambda: RenyiOdometer(0.05, expected_epsilon=2),
        "concentrated": lambda: ConcentratedOdometer(0.05, tuned_at=0.5),
        "concentrated line": lambda: ConcentratedOdometer(0.05, tuned_at=0.5, linear=True),
        "gaussian": lambda: GaussianOdometer(0.05, tuned_at=1),
        "gaussian line": lambda: GaussianOdometer(0.05, tuned_at=1, linear=True),
    }

    @classmethod
    def crossing(cls, report: np.ndarray) -> float:
        always = np.ones((cls.SIZE, cls.SIZE), dtype=bool)
        _, crossed = gaussian_losses(always, always, report)
        return float(crossed.mean())

    @classmethod
    @cache
    def crossing_of(cls, kind: str) -> float:
        return cls.crossing(Table(cls.KINDS[kind], cls.SIZE).reported())

    @pytest.mark.parametrize("kind", list(KINDS))
    def test_no_report_is_ever_exceeded_but_for_the_failure_probability(self, kind: str) -> None:
        found = self.crossing_of(kind)

        assert found <= self.CHANCE + 4 * math.sqrt(self.CHANCE / RUNS)

    @pytest.mark.parametrize("kind", ["gaussian", "gaussian line"])
    def test_the_report_is_not_needlessly_large(self, kind: str) -> None:
        assert self.crossing_of(kind) > self.CHANCE / 8

    def test_a_bound_for_one_moment_read_at_all_moments_is_caught(self) -> None:
        """The exact quantile of the loss at each moment, fine for a single reading, is exceeded far more often."""
        steps = np.arange(self.SIZE)
        clock = steps[:, None] * float(COARSE.mu_squared) + steps[None, :] * float(FINE.mu_squared)
        pointwise = clock / 2 + np.sqrt(clock) * 1.6448536
        assert ndtr(-1.6448536) == pytest.approx(self.CHANCE, rel=1e-6)

        assert self.crossing(pointwise) > 2 * self.CHANCE
