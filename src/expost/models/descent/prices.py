"""What stopping a training after each of its phases costs."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from expost.accounting import Event, GaussianEvent, RenyiOdometer, gaussian, renyi
from expost.accounting.gaussian import GaussianTotal
from expost.accounting.rounding import Floats, float_down
from expost.accounting.scenario import Scenario, scenarios
from expost.core import ApproxLoss, InvalidRequest
from expost.core.errors import MissingExtra
from expost.core.rational import round_up

__all__ = ["ACCOUNTANTS", "PriceList", "last_price", "price_list"]

ACCOUNTANTS = ("auto", "pld", "rdp")
_BINS = 4096  # of a loss distribution, up to the largest price
_LEAST = Fraction(1, 1000)  # prices below it are not worth finer bins
_LARGEST = 100.0  # price at which shares overlap: larger ones protect nobody, and their exponentials are no floats
_HUGE = 2.0**60  # a price that nobody wants, and whose bins are still floats
_ROUNDING = Fraction(1, 10**11)  # relative; covers the lattice's factor exp(2.2e-34) a coordinate and step


@dataclass(frozen=True)
class PriceList:
    """The bill of stopping after each phase; known before the run.

    Guarantee: approximate ex-post, known only after the run: (epsilons[k], delta) if it stopped after phase k, whatever
        made it stop; (epsilons[-1], delta)-DP at most.
    Adjacency: add/remove of one row.
    Sensitivity: that of each step, inside its noise multiplier.
    Accuracy: none promised; the model is whatever the steps made of it.
    Numerics: floats rounded up by the accountant, then to a short rational above.
    Reference: docs/proofs/sgd-stopping.md, Theorems 1, 2 and 4.

    >>> PriceList((Fraction(1, 10), Fraction(1, 2)), Fraction(1, 10**6), "pld").bill(0)
    ApproxLoss(epsilon=Fraction(1, 10), delta=Fraction(1, 1000000))
    """

    epsilons: tuple[Fraction, ...]
    delta: Fraction
    accountant: str
    shares: tuple[Fraction, ...] = ()
    """The deltas at which the phases up to each stop have these prices, where there are such."""

    def bill(self, phase: int) -> ApproxLoss:
        """What stopping after this phase costs."""
        return ApproxLoss(self.epsilons[phase], self.delta)

    @property
    def cap(self) -> ApproxLoss:
        """What the whole training costs."""
        return self.bill(-1)


def price_list(
    phases: Sequence[Event],
    delta: Fraction,
    *,
    accountant: str = "auto",
    bins: int = _BINS,
    expected: float | None = None,
) -> PriceList:
    """The price of stopping after each phase, each phase an event.

    Loss distributions have ``bins`` bins up to the ``expected`` largest price; both change how tight prices are, not
    that they hold.

    >>> from expost.accounting import Repeat
    >>> prices = price_list([Repeat(GaussianEvent(20), 10)] * 2, Fraction(1, 10**6))
    >>> [round(float(epsilon), 3) for epsilon in prices.epsilons]
    [0.685, 0.959]
    """
    found = _found(_Asked(tuple(phases), delta, accountant, bins, expected))
    if not all(map(math.isfinite, found.epsilons)):
        raise InvalidRequest(
            "Expected steps, noise and delta that the accountant can price",
            got=accountant,
            do='Pass accountant="auto", or more noise, or a larger delta',
        )
    return PriceList(_increasing(found.epsilons), delta, found.accountant, found.shares)


def last_price(phases: Sequence[Event], delta: Fraction, **terms: Any) -> float:
    """The last price of ``price_list`` or a little more, in less time; infinite where there would be none.

    >>> from expost.accounting import Repeat
    >>> round(last_price([Repeat(GaussianEvent(20), 10)] * 2, Fraction(1, 10**6)), 3)
    0.96
    """
    return _found(_Asked(tuple(phases), delta, every=False, **terms)).epsilons[-1]


class _Stop(Protocol):
    """What all phases up to a possible stop tell."""

    def epsilon(self, delta: Fraction) -> float:
        """Their price at a share of delta."""
        ...


@dataclass(frozen=True)
class _Asked:
    """Phases to be priced: every stop, or the last one alone."""

    phases: tuple[Event, ...]
    delta: Fraction
    accountant: str = "auto"
    bins: int = _BINS
    expected: float | None = None
    every: bool = True

    def shares(self, overlap: float = 1.0) -> list[Fraction]:
        """The parts of delta that possible stops have, times how far they overlap (docs/proofs/sgd-stopping.md).

        A stop in the middle is likelier than an early one, and the last is what is held and what noise is made for: their
        shares are up to twice as large.
        """
        stops = len(self.phases)
        weights = [*(stops + 2 * min(number, stops - 1 - number) for number in range(stops - 1)), 2 * stops]
        shares = [self.delta * weight * Fraction(overlap) / sum(weights) for weight in weights]
        return shares if self.every else shares[-1:]

    @cached_property
    def each(self) -> tuple[Scenario, ...]:
        """The steps of every phase."""
        return tuple(scenarios(phase)[0] for phase in self.phases)

    @property
    def most_overlap(self) -> float:
        """At which the largest share is delta itself."""
        return float(self.delta / max(self.shares()))


@dataclass(frozen=True)
class _Found:
    """Prices as floats, by an accountant, and the shares of delta behind them if there are such."""

    epsilons: list[float]
    accountant: str
    shares: tuple[Fraction, ...] = ()


def _found(asked: _Asked) -> _Found:
    """Which accountant it is depends on public numbers alone."""
    if asked.accountant not in ACCOUNTANTS:
        raise InvalidRequest(
            f"Expected accountant to be one of {', '.join(ACCOUNTANTS)}", got=asked.accountant, do="Name one"
        )
    if asked.accountant == "rdp":
        return _mixture(asked)
    if all(isinstance(leaf, GaussianEvent) for phase in asked.each for leaf, _ in phase.leaves):
        return _gaussian(asked)
    if asked.accountant == "auto" and not _has_convolution():
        return _mixture(asked)
    found, doubtful = _convolved(asked)
    if asked.accountant == "pld" or not doubtful:
        return found
    # Where delta is near the rounding of convolutions, or losses are too large for them, others are cheaper.
    return min([found, _mixture(asked), _at(asked.shares(), _gaussian_stops(asked), "gdp")], key=_dearest)


def _gaussian(asked: _Asked) -> _Found:
    """Exact Gaussian DP at each stop, and shares that overlap as far as loss distributions show."""
    stops = _gaussian_stops(asked)
    safe = _at(asked.shares(), stops, "gdp")
    if len(stops) == 1 or not _has_convolution() or not max(safe.epsilons) <= _LARGEST:
        return safe
    # Nothing but the overlap is read from these, so each phase has bins of its own.
    widths = map(_loaded("stopping").stage_width, accumulate(safe.epsilons, max))
    parts = _totals(zip(asked.each, widths, strict=True))
    return safe if parts is None else _overlapping(asked, stops, parts, safe)


def _gaussian_stops(asked: _Asked) -> list[GaussianTotal]:
    """Exact; a sample is priced as the whole would be, which it never exceeds (DRS22, Section 4)."""
    squares = list(accumulate(map(_mu_squared, asked.each)))
    return [GaussianTotal(square) for square in (squares if asked.every else squares[-1:])]


def _at(shares: Sequence[Fraction], stops: Sequence[_Stop], accountant: str) -> _Found:
    epsilons = [stop.epsilon(share) for stop, share in zip(stops, shares, strict=True)]
    return _Found(epsilons, accountant, tuple(shares))


def _dearest(found: _Found) -> float:
    """Nearly always the last; but an early stop may have no price where its share is within rounding and the last one's is not."""
    return max(found.epsilons)


def _mu_squared(phase: Scenario) -> Fraction:
    found = gaussian.total(phase)
    assert found is not None  # every phase is of Gaussian steps
    return found.mu_squared


def _mixture(asked: _Asked) -> _Found:
    """One supermartingale over Renyi orders for all stops (docs/proofs/sgd-stopping.md, Theorem 2)."""
    phases, delta = asked.phases, asked.delta
    middle = _by_orders(asked.each[: (len(phases) + 1) // 2], delta)
    if len(phases) == 1 or not math.isfinite(middle):
        return _Found([middle], "rdp")
    odometer = RenyiOdometer(delta, expected_epsilon=max(round_up(middle), _LEAST))
    found = []
    for phase in phases:
        odometer.record(phase)
        if asked.every:
            found.append(odometer.epsilon)
    return _Found(found or [odometer.epsilon], "rdp")


def _convolved(asked: _Asked) -> tuple[_Found, bool]:
    """Loss distributions, one phase after the other, and whether another accountant may be cheaper.

    Coarse bins err on the side of privacy.
    """
    if not _has_convolution():
        raise MissingExtra("accounting", package="dp-accounting")
    least = min(asked.shares())
    rough = min(asked.expected or _by_orders(asked.each, least), _HUGE)
    width = 2.0 ** math.floor(math.log2(max(rough, float(_LEAST)) / asked.bins))
    phases = asked.each if asked.every else (_joined(asked.each),)
    parts = _totals((phase, width) for phase in phases)
    if parts is None:
        return _Found([math.inf], "pld"), True
    stops = list(accumulate(parts, lambda before, phase: before.then(phase)))
    found = _at(asked.shares(), stops, "pld")
    if len(stops) > 1 and max(found.epsilons) <= _LARGEST:
        found = _overlapping(asked, stops, parts, found)
    return found, not all(map(math.isfinite, found.epsilons)) or stops[-1].error > least / 2


def _totals(phases: Iterable[tuple[Scenario, float]]) -> list[Any] | None:
    """Loss distributions of phases and widths of bins; None for too many steps, or exponentials that are no floats."""
    asked = list(phases)
    total = _loaded("loss_distribution").total
    found = {(phase, width): total(phase, interval=width) for phase, width in dict.fromkeys(asked)}
    return None if None in found.values() else [found[one] for one in asked]


def _overlapping(asked: _Asked, stops: Sequence[_Stop], parts: Sequence[Any], safe: _Found) -> _Found:
    """Prices at shares that add up to more than delta, as far as the worst rule of stopping allows (Theorem 4)."""
    tried = {1.0: safe}

    def bills(size: float) -> Floats:
        if size not in tried:
            tried[size] = _at(asked.shares(size), stops, safe.accountant)
        return np.array(tried[size].epsilons)

    losses = _loaded("stopping").StoppedLosses(parts, bills(1.0))
    return tried[losses.overlap(bills, float_down(asked.delta), most=asked.most_overlap)]


def _loaded(name: str) -> Any:
    """On demand: the optional package behind these modules takes a second to import."""
    return importlib.import_module(f"expost.accounting.{name}")


def _by_orders(phases: Sequence[Scenario], delta: Fraction) -> float:
    """The price of all these phases together, by Renyi orders."""
    found = renyi.total(_joined(phases))
    return math.inf if found is None else found.epsilon(delta)


def _joined(phases: Sequence[Scenario]) -> Scenario:
    """All steps of some phases, by kind: many phases of the same noise are as fast as one."""
    counts: Counter[Event] = Counter()
    for phase in phases:
        counts.update(dict(phase.leaves))
    return Scenario(tuple(counts.items()))


def _has_convolution() -> bool:
    return importlib.util.find_spec("dp_accounting") is not None


def _increasing(epsilons: Sequence[float]) -> tuple[Fraction, ...]:
    """Rounded up, and always rising: what has been paid stays paid."""
    found: list[Fraction] = []
    for epsilon in epsilons:
        price = round_up(epsilon, relative=_ROUNDING)
        found.append(price if not found or price > found[-1] else round_up(found[-1], relative=_ROUNDING))
    return tuple(found)
