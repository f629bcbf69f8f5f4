"""What stopping a training after each of its phases costs."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any

from expost.accounting import Event, GaussianEvent, RenyiOdometer, Repeat, gaussian, renyi
from expost.accounting import Sequence as Events
from expost.accounting.gaussian import GaussianTotal
from expost.accounting.scenario import Scenario, scenarios
from expost.core import ApproxLoss, InvalidRequest
from expost.core.errors import MissingExtra
from expost.core.rational import round_up

__all__ = ["ACCOUNTANTS", "PriceList", "last_price", "price_list"]

ACCOUNTANTS = ("auto", "pld", "rdp")
_BINS = 4096  # of a loss distribution, up to the largest price
_LEAST = Fraction(1, 1000)  # prices below it are not worth finer bins
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
    Reference: docs/proofs/sgd-stopping.md, Theorems 1 and 2.

    >>> PriceList((Fraction(1, 10), Fraction(1, 2)), Fraction(1, 10**6), "pld").bill(0)
    ApproxLoss(epsilon=Fraction(1, 10), delta=Fraction(1, 1000000))
    """

    epsilons: tuple[Fraction, ...]
    delta: Fraction
    accountant: str

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

    >>> prices = price_list([Repeat(GaussianEvent(20), 10)] * 2, Fraction(1, 10**6))
    >>> [round(float(epsilon), 3) for epsilon in prices.epsilons]
    [0.672, 0.974]
    """
    found, name = _found(_Asked(tuple(phases), delta, accountant, bins, expected))
    if not math.isfinite(found[-1]):
        raise InvalidRequest(
            "Expected steps, noise and delta that the accountant can price",
            got=accountant,
            do='Pass accountant="auto", or more noise, or a larger delta',
        )
    return PriceList(_increasing(found), delta, name)


def last_price(phases: Sequence[Event], delta: Fraction, **terms: Any) -> float:
    """About what the last price of ``price_list`` would be, in less time; infinite where there would be none.

    >>> round(last_price([Repeat(GaussianEvent(20), 10)] * 2, Fraction(1, 10**6)), 3)
    0.974
    """
    return _found(_Asked(tuple(phases), delta, every=False, **terms))[0][-1]


@dataclass(frozen=True)
class _Asked:
    """Phases to be priced: every stop, or the last one alone."""

    phases: tuple[Event, ...]
    delta: Fraction
    accountant: str = "auto"
    bins: int = _BINS
    expected: float | None = None
    every: bool = True

    @property
    def share(self) -> Fraction:
        """The part of delta that each possible stop has (docs/proofs/sgd-stopping.md, Theorem 1)."""
        return self.delta / len(self.phases)


def _found(asked: _Asked) -> tuple[list[float], str]:
    """The prices and the accountant's name; which one it is depends on public numbers alone."""
    if asked.accountant not in ACCOUNTANTS:
        raise InvalidRequest(
            f"Expected accountant to be one of {', '.join(ACCOUNTANTS)}", got=asked.accountant, do="Name one"
        )
    if asked.accountant == "rdp":
        return _mixture(asked), "rdp"
    if all(isinstance(leaf, GaussianEvent) for phase in asked.phases for leaf in _leaves(phase)):
        return _unsampled(asked), "gdp"
    if asked.accountant == "auto" and not _has_convolution():
        return _mixture(asked), "rdp"
    found, doubtful = _convolved(asked)
    if asked.accountant == "pld" or not doubtful:
        return found, "pld"
    # Where delta is near the rounding of convolutions, or losses are too large for them, others are cheaper.
    lists = [(found, "pld"), (_mixture(asked), "rdp"), (_unsampled(asked), "gdp")]
    return min(lists, key=lambda one: one[0][-1])


def _unsampled(asked: _Asked) -> list[float]:
    """Exact Gaussian DP; a sample is priced as the whole would be, which it never exceeds (DRS22, Section 4)."""
    squares = list(accumulate(map(_mu_squared, asked.phases)))
    return [GaussianTotal(square).epsilon(asked.share) for square in (squares if asked.every else squares[-1:])]


def _mu_squared(phase: Event) -> Fraction:
    found = gaussian.total(_scenario([phase]))
    assert found is not None  # every phase is of Gaussian steps
    return found.mu_squared


def _mixture(asked: _Asked) -> list[float]:
    """One supermartingale over Renyi orders for all stops (docs/proofs/sgd-stopping.md, Theorem 2)."""
    phases, delta = asked.phases, asked.delta
    middle = _by_orders(phases[: (len(phases) + 1) // 2], delta)
    if len(phases) == 1 or not math.isfinite(middle):
        return [middle]
    odometer = RenyiOdometer(delta, expected_epsilon=max(round_up(middle), _LEAST))
    found = []
    for phase in phases:
        odometer.record(phase)
        if asked.every:
            found.append(odometer.epsilon)
    return found or [odometer.epsilon]


def _convolved(asked: _Asked) -> tuple[list[float], bool]:
    """Loss distributions, one phase after the other, and whether another accountant may be cheaper.

    Coarse bins err on the side of privacy.
    """
    if not _has_convolution():
        raise MissingExtra("accounting", package="dp-accounting")
    # Loaded on demand: the optional package takes a second to import.
    module: Any = importlib.import_module("expost.accounting.loss_distribution")
    rough = min(asked.expected or _by_orders(asked.phases, asked.share), _HUGE)
    width = 2.0 ** math.floor(math.log2(max(rough, float(_LEAST)) / asked.bins))
    distribution, error, found = None, 0.0, []
    for part in [(phase,) for phase in asked.phases] if asked.every else [asked.phases]:
        one = module.total(_scenario(part), interval=width)
        if one is None:  # too many steps, or losses whose exponential is no float
            return [math.inf], True
        distribution = one.distribution if distribution is None else distribution.compose(one.distribution)
        error += one.error
        found.append(module.LossDistributionTotal(distribution, error).epsilon(asked.share))
    return found, not math.isfinite(found[-1]) or error > asked.share / 2


def _by_orders(phases: Sequence[Event], delta: Fraction) -> float:
    """The price of all these phases together, by Renyi orders."""
    found = renyi.total(_scenario(phases))
    return math.inf if found is None else found.epsilon(delta)


def _scenario(phases: Sequence[Event]) -> Scenario:
    """All steps of some phases, by kind: many phases of the same noise are as fast as one."""
    counts: Counter[Event] = Counter()
    for phase in phases:
        counts.update(dict(scenarios(phase)[0].leaves))
    return Scenario(tuple(counts.items()))


def _leaves(event: Event) -> list[Event]:
    if isinstance(event, Repeat):
        return _leaves(event.event)
    if isinstance(event, Events):
        return [leaf for one in event.events for leaf in _leaves(one)]
    return [event]


def _has_convolution() -> bool:
    return importlib.util.find_spec("dp_accounting") is not None


def _increasing(epsilons: Sequence[float]) -> tuple[Fraction, ...]:
    """Rounded up, and always rising: what has been paid stays paid."""
    found: list[Fraction] = []
    for epsilon in epsilons:
        price = round_up(epsilon, relative=_ROUNDING)
        found.append(price if not found or price > found[-1] else round_up(found[-1], relative=_ROUNDING))
    return tuple(found)
