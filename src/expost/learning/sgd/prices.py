"""What stopping a training after each of its phases costs."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from expost.accounting import Event, GaussianEvent, RenyiOdometer, Repeat, account
from expost.accounting import Sequence as Events
from expost.core import ApproxLoss, InvalidRequest
from expost.core.rational import round_up

__all__ = ["ACCOUNTANTS", "PriceList", "price_list"]

ACCOUNTANTS = ("auto", "pld", "rdp")
_BINS = 4096  # of a loss distribution, up to the largest price
_LEAST = Fraction(1, 1000)  # prices below it are not worth finer bins
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
    if accountant not in ACCOUNTANTS:
        raise InvalidRequest(
            f"Expected accountant to be one of {', '.join(ACCOUNTANTS)}", got=accountant, do="Name one"
        )
    if accountant == "rdp":
        return _mixture(phases, delta)
    if accountant == "pld" or _exactly_gaussian(phases) or _has_convolution():
        return _union(phases, delta, bins, expected)
    return _mixture(phases, delta)


def _union(phases: Sequence[Event], delta: Fraction, bins: int, expected: float | None) -> PriceList:
    """Each possible stop has an equal share of delta (docs/proofs/sgd-stopping.md, Theorem 1)."""
    share = delta / len(phases)
    if _exactly_gaussian(phases):
        done = (phases[: k + 1] for k in range(len(phases)))
        found = [account(list(events), currency="gdp").epsilon(share) for events in done]
        return PriceList(_increasing(found), delta, "gdp")
    return PriceList(_increasing(_convolved(phases, share, bins, expected)), delta, "pld")


def _mixture(phases: Sequence[Event], delta: Fraction) -> PriceList:
    """One supermartingale over Renyi orders for all stops (docs/proofs/sgd-stopping.md, Theorem 2)."""
    if len(phases) == 1:
        return PriceList(_increasing([account(phases[0], currency="rdp").epsilon(delta)]), delta, "rdp")
    middle = account(list(phases[: (len(phases) + 1) // 2]), currency="rdp").epsilon(delta)
    odometer = RenyiOdometer(delta, expected_epsilon=max(round_up(middle), _LEAST))
    found = []
    for phase in phases:
        odometer.record(phase)
        found.append(odometer.epsilon)
    return PriceList(_increasing(found), delta, "rdp")


def _convolved(phases: Sequence[Event], delta: Fraction, bins: int, expected: float | None) -> list[float]:
    """Loss distributions, one phase after the other; coarse bins err on the side of privacy."""
    # Loaded on demand: the optional package takes a second to import.
    module: Any = importlib.import_module("expost.accounting.loss_distribution")
    scenario: Any = importlib.import_module("expost.accounting.scenario")
    rough = account(list(phases), currency="rdp").epsilon(delta) if expected is None else expected
    width = 2.0 ** math.floor(math.log2(max(rough, float(_LEAST)) / bins))
    distribution, error, found = None, 0.0, []
    for phase in phases:
        one = module.total(scenario.scenarios(phase)[0], interval=width)
        distribution = one.distribution if distribution is None else distribution.compose(one.distribution)
        error += one.error
        found.append(module.LossDistributionTotal(distribution, error).epsilon(delta))
    return found


def _exactly_gaussian(phases: Sequence[Event]) -> bool:
    """Whether Gaussian DP is the exact answer: no sampling."""
    return all(isinstance(leaf, GaussianEvent) for phase in phases for leaf in _leaves(phase))


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
