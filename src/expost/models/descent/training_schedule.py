"""The schedule of a training: which rows a step sees, how much noise it gets, how many steps there are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, Literal, Protocol

import numpy as np

from expost.accounting import GaussianEvent, PoissonSampled, PrivacyEvent, Repeat, noise_multiplier_for
from expost.accounting import Sequence as Events
from expost.core import InvalidRequest, approx
from expost.models.descent.feature_grid import Index
from expost.models.descent.stopping_price import PriceList, price_last_stop, price_stops
from expost.noise import BitSource, sample_uniform
from expost.noise.coin import sample_rows

__all__ = ["Batches", "Disjoint", "Full", "Phase", "Poisson", "Schedule", "choose_batches", "round_noise"]

_ROWS_AHEAD = 1 << 14  # rows sampled per call of the sampler, about: amortizes the cost of a call
_STEPS_AHEAD = 32  # the most steps sampled per call
_DIGITS = 4  # significant decimals of a noise multiplier
_LARGEST_NOISE, _SMALLEST_NOISE = 2.0**16, 2.0**-6  # limits of the gradient lattice
_TRIES, _RETRIES = 40, 4  # of the search for the least noise under the cap
_STRIDE, _LEAP = 1.02, 4.0  # smallest and largest factor between two sizes while the cap is not yet bracketed
_LARGEST_SIZE = 2.0**40  # beyond it the noise is at its minimum: an eighth of a sampled row
_SMALLEST_SIZE = 1 / _LARGEST_SIZE  # below it the noise is at its maximum
_CLOSE = 1.002  # relative precision at which the search ends
_AIM = 1.001  # the search aims this factor below the cap
_NEAR = 1.006  # a last price within this factor of the cap is accepted
_INSIDE = 0.1  # share of the bracket that the next size keeps from both of its ends
_TINY = 2.0**-60  # a cost of zero, where a quotient is taken
_COARSE_BINS = 1024  # of loss distributions while searching
_CACHED_PLANS = 256


class Batches(Protocol):
    """A law of batches that depends on public numbers alone.

    ``rows`` is the public number of rows. Sums are divided by ``expected_size``, the public expected number of rows in a
    batch; the true size of a batch is private and never used. After ``period`` steps the draw may restart without
    costing more.
    """

    @property
    def rows(self) -> int: ...
    @property
    def expected_size(self) -> Fraction: ...
    @property
    def period(self) -> int: ...

    def build_event(self, noise_multiplier: Fraction, steps: int) -> Repeat:
        """Return what ``steps`` noisy sums over such batches cost under add/remove adjacency."""

    def draw_batch(self, rows: int, bits: BitSource) -> Iterator[Index]:
        """Yield batches of a table of ``rows`` rows, without end. An empty batch is a batch."""


@dataclass(frozen=True)
class Poisson:
    """Put each row into each batch independently, with probability ``rate``."""

    rate: Fraction
    rows: int
    period = 1  # every step is drawn independently

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InvalidRequest("Expected a batch size between 1 and the number of rows", do="Lower batch_size")

    @property
    def expected_size(self) -> Fraction:
        return self.rate * self.rows

    def build_event(self, noise_multiplier: Fraction, steps: int) -> Repeat:
        """Return sampled Gaussian steps (ACG16; MTZ19, Theorem 4)."""
        step = GaussianEvent(noise_multiplier)
        return Repeat(step if self.rate == 1 else PoissonSampled(self.rate, step), steps)

    def draw_batch(self, rows: int, bits: BitSource) -> Iterator[Index]:
        """Draw a fresh coin per row and step. The coins of several steps are drawn in one call, which is faster."""
        steps = max(1, min(_ROWS_AHEAD // max(math.ceil(self.rate * rows), 1), _STEPS_AHEAD))
        while True:
            places = sample_rows(self.rate, steps * rows, bits=bits)
            borders = np.searchsorted(places, np.arange(steps + 1) * rows)
            for step, (start, stop) in enumerate(itertools.pairwise(borders)):
                yield places[start:stop] - step * rows


@dataclass(frozen=True)
class Disjoint:
    """Split the rows at random into ``parts`` batches per pass that do not overlap.

    Each row draws its batch independently, so adding or removing a row leaves all other batches unchanged and a pass
    costs what one step costs (parallel composition). Later passes are split again, and their costs add up. No
    amplification is claimed: shuffled batches do not have that of Poisson batches.
    """

    parts: int
    rows: int

    @property
    def expected_size(self) -> Fraction:
        return Fraction(self.rows, self.parts)

    @property
    def period(self) -> int:
        """Return the length of a pass: once begun it is charged whole."""
        return self.parts

    def build_event(self, noise_multiplier: Fraction, steps: int) -> Repeat:
        """Return one Gaussian step per pass begun (DR14, parallel composition; docs/proofs/sgd-gradient.md)."""
        return Repeat(GaussianEvent(noise_multiplier), -(-steps // self.parts))

    def draw_batch(self, rows: int, bits: BitSource) -> Iterator[Index]:
        while True:
            part = sample_uniform(self.parts, rows, bits=bits)
            order = np.argsort(part, kind="stable")
            borders = np.searchsorted(part[order], np.arange(self.parts + 1))
            for start, stop in itertools.pairwise(borders):
                yield order[start:stop]


@dataclass(frozen=True)
class Full:
    """Put every row into every batch."""

    rows: int
    period = 1

    @property
    def expected_size(self) -> Fraction:
        return Fraction(self.rows)

    def build_event(self, noise_multiplier: Fraction, steps: int) -> Repeat:
        return Repeat(GaussianEvent(noise_multiplier), steps)

    def draw_batch(self, rows: int, bits: BitSource) -> Iterator[Index]:
        while True:
            yield slice(None)


def choose_batches(name: str, *, rows: int, batch_size: int) -> Batches:
    """Return the batches called ``name``, for a public number of rows and an expected size."""
    if not 1 <= batch_size <= rows:
        raise InvalidRequest("Expected batch_size between 1 and the number of rows", got=batch_size, do="Change it")
    match name:
        case "poisson":
            return Poisson(Fraction(batch_size, rows), rows)
        case "disjoint":
            return Disjoint(-(-rows // batch_size), rows)
        case "full":
            return Full(rows)
    raise InvalidRequest("Expected batches to be poisson, disjoint or full", got=name, do="Name one of them")


@dataclass(frozen=True)
class Phase:
    """A number of steps with the same noise."""

    steps: int
    noise_multiplier: Fraction

    def divide(self, training_share: Fraction) -> tuple[Phase | None, Fraction | None]:
        """Divide what the phase spends between its steps and one measurement of a score.

        Return the steps with the noise that leaves the rest, None if ``training_share`` is 0, and the noise multiplier of
        the measurement, None if the share is 1. Both together are one Gaussian event of the phase's squared parameter at
        most, in exact numbers (docs/proofs/measured-score.md, Theorem 1).

        >>> steps, test = Phase(4, Fraction(10)).divide(Fraction(3, 4))
        >>> float(steps.noise_multiplier), float(test)
        (11.55, 9.993)
        """
        if training_share == 1:
            return self, None
        total = self.steps / self.noise_multiplier**2
        if not training_share:
            return None, round_noise(1 / math.sqrt(total))
        steps = Phase(self.steps, round_noise(float(self.noise_multiplier) / math.sqrt(training_share)))
        left = total - steps.steps / steps.noise_multiplier**2
        return steps, round_noise(1 / math.sqrt(left))


@dataclass(frozen=True)
class Schedule:
    """Batches and phases: everything about a training that its price depends on."""

    batches: Batches
    phases: tuple[Phase, ...]

    @property
    def steps(self) -> int:
        """Return the number of steps of all phases."""
        return sum(phase.steps for phase in self.phases)

    @property
    def phase_events(self) -> tuple[Repeat, ...]:
        """Return what each phase does, as one event per phase."""
        return tuple(self.batches.build_event(phase.noise_multiplier, phase.steps) for phase in self.phases)

    def build_event(self, phases: int) -> PrivacyEvent:
        """Return what happened if the training stopped after this many phases. Adjacent phases of equal noise are merged.

        Events are counted, not steps: a pass that a phase has begun is charged whole, and the next phase begins its own.
        """
        merged: list[Repeat] = []
        for event in self.phase_events[:phases]:
            if merged and merged[-1].event == event.event:
                merged[-1] = Repeat(event.event, merged[-1].count + event.count)
            else:
                merged.append(event)
        return merged[0] if len(merged) == 1 else Events(tuple(merged))

    def prices(self, delta: Fraction, *, accountant: str = "auto", expected: float | None = None) -> PriceList:
        """Return the bill of stopping after each phase. Arguments as for ``price_stops``."""
        return _price_stops(self.phase_events, delta, accountant=accountant, expected=expected)

    @classmethod
    def fixed(
        cls, batches: Batches, *, steps: int, epsilon: Fraction, delta: Fraction, accountant: str = "auto"
    ) -> Schedule:
        """Return one phase whose steps cost at most epsilon, with the least noise that allows."""
        if isinstance(batches, Poisson) and batches.rate < 1:
            return cls.ladder(
                batches, steps=steps, phases=1, lowest=epsilon, highest=epsilon, delta=delta, accountant=accountant
            )[0]
        # Without sampling the calibration is exact: every step counts, or every pass.
        count = batches.build_event(Fraction(1), steps).count
        return cls(batches, (Phase(steps, _calibrate_noise(approx(epsilon, delta), steps=count)),))

    @classmethod
    def even(
        cls, batches: Batches, *, steps: int, phases: int, ratio: Fraction, noise_multiplier: Fraction
    ) -> Schedule:
        """Return phases of equal noise and increasing length: prices rise about geometrically, by 1 / ``ratio`` in all.

        >>> plan = Schedule.even(Full(1000), steps=32, phases=3, ratio=Fraction(1, 4), noise_multiplier=Fraction(20))
        >>> [phase.steps for phase in plan.phases]
        [2, 6, 24]
        """
        return _LadderShape(batches, steps, phases, float(ratio), "even").with_noise(noise_multiplier)

    @classmethod
    def ladder(
        cls,
        batches: Batches,
        *,
        steps: int,
        phases: int,
        lowest: Fraction,
        highest: Fraction,
        delta: Fraction,
        accountant: str = "auto",
        falling: bool = True,
    ) -> tuple[Schedule, PriceList]:
        """Return phases whose prices rise about geometrically from ``lowest`` to ``highest``, never above it.

        If ``falling``, phases have equal length and decreasing noise; otherwise equal noise and increasing length.

        >>> _, prices = Schedule.ladder(Full(1000), steps=40, phases=4, lowest=Fraction(1, 8), highest=Fraction(1),
        ...                             delta=Fraction(1, 10**6))
        >>> [round(float(epsilon), 2) for epsilon in prices.epsilons]
        [0.11, 0.23, 0.48, 1.0]
        """
        kind: Literal["falling", "even"] = "falling" if falling else "even"
        return _fit_ladder(
            _LadderShape(batches, steps, phases, float(lowest / highest), kind), highest, delta, accountant
        )


@dataclass(frozen=True)
class _LadderShape:
    """How the Gaussian-DP parameter should grow from phase to phase. Exact prices are computed afterwards.

    ``ratio`` is the parameter of the first phase over that of all phases. ``kind`` is how the growth is made: by noise
    that falls in phases of equal length, or by phases of equal noise whose length rises.
    """

    batches: Batches
    steps: int
    phases: int
    ratio: float
    kind: Literal["falling", "even"]

    def build_schedule(self, size: float) -> Schedule:
        """Return phases whose parameters grow in geometric progression up to about ``size``."""
        if self.kind == "even":
            return self.with_noise(self._find_noise(size**2, self.steps))
        # Squares of the parameter add up over phases, so each phase gets the noise for its difference of squares.
        each = max(1, -(-self.steps // self.phases))
        grown = (size**2 * (after - before) for before, after in itertools.pairwise([0.0, *self._noise_squares]))
        return Schedule(self.batches, tuple(Phase(each, self._find_noise(amount, each)) for amount in grown))

    def with_noise(self, noise: Fraction) -> Schedule:
        """Return phases of this noise that end, after whole passes, where the square has grown enough."""
        period, ends = self.batches.period, [0]
        for square in self._noise_squares:
            ends.append(max(ends[-1] + period, math.ceil(self.steps * square / period) * period))
        lengths = (after - before for before, after in itertools.pairwise(ends))
        return Schedule(self.batches, tuple(Phase(length, noise) for length in lengths))

    @property
    def _noise_squares(self) -> list[float]:
        """Return the squared parameter after each phase, as a share of the last one."""
        last = max(self.phases - 1, 1)
        return [*(self.ratio ** (2 * (1 - k / last)) for k in range(self.phases - 1)), 1.0]

    def _find_noise(self, mu_squared: float, steps: int) -> Fraction:
        """Return the noise multiplier at which the steps have this squared parameter, with few digits, rounded up."""
        if isinstance(self.batches, Poisson) and self.batches.rate < 1:
            # Central limit of sampled Gaussians (BDLS20, Corollary 4): mu^2 = rate^2 steps (e^(1/z^2) - 1).
            noise = 1 / math.sqrt(math.log1p(mu_squared / (steps * float(self.batches.rate) ** 2)))
        else:
            noise = math.sqrt(self.batches.build_event(Fraction(1), steps).count / mu_squared)
        bounded = min(max(noise, _SMALLEST_NOISE), _LARGEST_NOISE)
        grid = Fraction(10) ** (math.floor(math.log10(bounded)) - _DIGITS + 1)
        return math.ceil(Fraction(bounded) / grid) * grid


def round_noise(noise: float) -> Fraction:
    """Return a noise multiplier of few digits, rounded up far beyond the error of floats."""
    # A millionth covers the rounding of the float; the grid alone would not where the float lies just below one of its points.
    raised = Fraction(noise) * Fraction(1_000_001, 1_000_000)
    grid = Fraction(10) ** (math.floor(math.log10(raised)) - _DIGITS + 1)
    return math.ceil(raised / grid) * grid


# The caches below hold functions of public numbers only: a fit after a price, or the next fold, need not search again.


_price_stops = lru_cache(maxsize=_CACHED_PLANS)(price_stops)
_calibrate_noise = lru_cache(maxsize=_CACHED_PLANS)(noise_multiplier_for)


@lru_cache(maxsize=_CACHED_PLANS)
def _fit_ladder(shape: _LadderShape, highest: Fraction, delta: Fraction, accountant: str) -> tuple[Schedule, PriceList]:
    """Return the least noise of this shape that costs at most ``highest``."""
    terms: dict[str, Any] = {"accountant": accountant, "expected": float(highest)}
    guess = 1 / float(noise_multiplier_for(approx(highest, delta / shape.phases)))

    @cache
    def cost(size: float) -> float:
        return price_last_stop(shape.build_schedule(size).phase_events, delta, bins=_COARSE_BINS, **terms)

    if math.isinf(cost(guess)):
        shape.build_schedule(guess).prices(delta, **terms)  # raises with the reason
    wanted, best = float(highest), None
    # Stops share delta and overlap, which the search of the last price does not see; its floats may err, too. So its
    # result is priced in full, and the search repeated with a corrected goal.
    for _ in range(_RETRIES):
        size = _find_largest_size(cost, wanted, guess)
        schedule = shape.build_schedule(size)
        prices = schedule.prices(delta, **terms)
        if prices.cap.epsilon <= highest:
            best = max(best or (schedule, prices), (schedule, prices), key=lambda plan: plan[1].cap.epsilon)
            if float(prices.cap.epsilon) * _NEAR >= highest or size == _LARGEST_SIZE:
                break
        wanted, guess = wanted * float(highest / prices.cap.epsilon) / _AIM, size
    if best is None:
        raise _unaffordable_error()
    return best


def _find_largest_size(cost: Callable[[float], float], highest: float, guess: float) -> float:
    """Return a size that costs at most ``highest`` and nearly as much, by secants in logarithms; it was tried itself.

    If the largest size is affordable it is returned: less noise than it has is no more accurate.
    """
    low, high, size, stride = (0.0, 0.0), (math.inf, math.inf), guess, _STRIDE
    for tried in range(_TRIES):
        size = min(max(size, _SMALLEST_SIZE), _LARGEST_SIZE)
        found = cost(size)
        if found <= highest:
            low = (size, found)
        else:
            high = (size, found)
        if low[1] * _CLOSE >= highest or high[0] < low[0] * _CLOSE or low[0] == _LARGEST_SIZE:
            return low[0]
        if high[0] == _SMALLEST_SIZE:
            break
        if math.isinf(high[0]):
            size, stride = size * max(stride, min(highest / (_AIM * max(found, _TINY)), _LEAP)), stride**2
        elif not low[0]:
            size, stride = size / max(stride, min(found * _AIM / highest, _LEAP)), stride**2
        else:
            part = 0.5
            # Every third time the middle: with secants alone one end of the bracket may never move.
            if low[1] and math.isfinite(high[1]) and tried % 3 != 2:
                part = math.log(highest / _AIM / low[1]) / math.log(high[1] / low[1])
            size = float(low[0] * (high[0] / low[0]) ** min(max(part, _INSIDE), 1 - _INSIDE))
    raise _unaffordable_error()


def _unaffordable_error() -> InvalidRequest:
    return InvalidRequest(
        "Expected a privacy level that these steps can keep", do="Raise epsilon or max_epsilon, or lower steps"
    )
