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
from typing import Any

import numpy as np

from expost.accounting import GaussianEvent, PrivacyEvent, RenyiOdometer, renyi
from expost.accounting.concentrated import GaussianTotal, sum_gaussian
from expost.accounting.rounding import Floats, float_down
from expost.accounting.scenario import Scenario, list_scenarios
from expost.core import ApproxLoss, InvalidRequest
from expost.core.errors import MissingExtra
from expost.core.rational import round_up

__all__ = ["ACCOUNTANTS", "PriceList", "check_accountant", "price_last_stop", "price_stops"]

Phases = Sequence[PrivacyEvent]
ACCOUNTANTS = ("auto", "pld", "rdp")
_BINS = 4096  # of a loss distribution, up to the largest price
_LEAST = Fraction(1, 1000)  # smaller prices do not need finer bins
_LARGEST = 100.0  # largest price at which overlap is computed: beyond it exponentials overflow
_HUGE = 2.0**60  # larger rough prices are cut here, where bin widths are still floats
_ROUNDING = Fraction(1, 10**11)  # relative; covers the lattice's factor exp(2.2e-34) per coordinate and step


@dataclass(frozen=True)
class PriceList:
    """The bill of stopping after each phase, known before the run.

    ``epsilons`` are the prices of stopping after each phase, increasing. ``accountant`` found them: ``"gdp"``, ``"pld"`` or
    ``"rdp"``. ``shares`` are the deltas at which the phases up to each stop have its price, where there are such.

    Guarantee: approximate ex-post, known only after the run: (epsilons[k], delta) if it stopped after phase k, whatever
        made it stop; (epsilons[-1], delta)-DP at most.
    Adjacency: add/remove of one row.
    Sensitivity: that of each step, inside its noise multiplier.
    Accuracy: none promised; the model is whatever the steps made of it.
    Numerics: floats rounded up by the accountant, then to a short rational above.
    Reference: docs/proofs/sgd-stopping.md, Theorems 1, 2 and 4.
    """

    epsilons: tuple[Fraction, ...]
    delta: Fraction
    accountant: str
    shares: tuple[Fraction, ...] = ()

    def bill_at(self, phase: int) -> ApproxLoss:
        """Return the cost of stopping after this phase."""
        return ApproxLoss(self.epsilons[phase], self.delta)

    @property
    def cap(self) -> ApproxLoss:
        """Return the cost of the whole training."""
        return self.bill_at(-1)


def check_accountant(name: object) -> None:
    """Raise ``InvalidRequest`` unless ``name`` is a known accountant."""
    if name not in ACCOUNTANTS:
        raise InvalidRequest(
            f"Expected accountant to be one of {', '.join(ACCOUNTANTS)}", got=name, do="Name one of them"
        )


def price_stops(
    phases: Phases,
    delta: Fraction,
    *,
    accountant: str = "auto",
    bins: int = _BINS,
    expected: float | None = None,
    weights: tuple[Fraction, ...] | None = None,
) -> PriceList:
    """Return the price of stopping after each phase, each phase an event.

    Loss distributions have ``bins`` bins up to the ``expected`` largest price. Both change how tight prices are, not
    that they hold. ``weights`` are public and positive, one per stop: shares of delta are proportional to them.

    >>> from expost.accounting import Repeat
    >>> prices = price_stops([Repeat(GaussianEvent(20), 10)] * 2, Fraction(1, 10**6))
    >>> [round(float(epsilon), 3) for epsilon in prices.epsilons]
    [0.685, 0.959]
    """
    found = _price_stops(_Stops(tuple(phases), delta, accountant, bins, expected, weights=weights))
    if not all(map(math.isfinite, found.epsilons)):
        raise InvalidRequest(
            "Expected steps, noise and delta that the accountant can price",
            got=accountant,
            do='Pass accountant="auto", or more noise, or a larger delta',
        )
    rising: list[Fraction] = []
    for epsilon in found.epsilons:
        price = round_up(epsilon, relative=_ROUNDING)
        # A later stop has seen more, so its bill is larger, even if a tighter bound is smaller.
        rising.append(price if not rising or price > rising[-1] else round_up(rising[-1], relative=_ROUNDING))
    return PriceList(tuple(rising), delta, found.accountant, found.shares)


def price_last_stop(
    phases: Phases, delta: Fraction, *, accountant: str = "auto", bins: int = _BINS, expected: float | None = None
) -> float:
    """Return the last price of ``price_stops`` or a little more, in less time; infinite where there is none.

    >>> from expost.accounting import Repeat
    >>> round(price_last_stop([Repeat(GaussianEvent(20), 10)] * 2, Fraction(1, 10**6)), 3)
    0.96
    """
    return _price_stops(_Stops(tuple(phases), delta, accountant, bins, expected, every=False)).epsilons[-1]


@dataclass(frozen=True)
class _Stops:
    """Phases to be priced: every possible stop, or the last one alone."""

    phases: tuple[PrivacyEvent, ...]
    delta: Fraction
    accountant: str = "auto"
    bins: int = _BINS
    expected: float | None = None
    every: bool = True
    weights: tuple[Fraction, ...] | None = None

    def shares(self, overlap: float = 1.0) -> list[Fraction]:
        """Return the share of delta of each possible stop, times a factor for how far stops overlap.

        Any split of delta is valid (docs/proofs/sgd-stopping.md, Theorem 1). A stop in the middle is likelier than an
        early one, and the last price is what is held and what the noise is calibrated to: these get up to twice as much.
        """
        stops = len(self.phases)
        usual = [*(stops + 2 * min(number, stops - 1 - number) for number in range(stops - 1)), 2 * stops]
        weights = usual if self.weights is None else self.weights
        shares = [self.delta * weight * Fraction(overlap) / sum(weights) for weight in weights]
        return shares if self.every else shares[-1:]

    @cached_property
    def steps(self) -> tuple[Scenario, ...]:
        """Return the steps of every phase."""
        return tuple(list_scenarios(phase)[0] for phase in self.phases)


@dataclass(frozen=True)
class _Prices:
    """Prices as floats, by an accountant, and the shares of delta behind them if there are such."""

    epsilons: list[float]
    accountant: str
    shares: tuple[Fraction, ...] = ()


def _price_stops(stops: _Stops) -> _Prices:
    """Choose an accountant, by public numbers alone, and price the stops."""
    check_accountant(stops.accountant)
    if stops.accountant == "rdp":
        return _price_by_mixture(stops)
    if all(isinstance(leaf, GaussianEvent) for phase in stops.steps for leaf, _ in phase.leaves):
        return _price_gaussian(stops)
    if stops.accountant == "auto" and not _has_convolution():
        return _price_by_mixture(stops)
    found, doubtful = _price_by_convolution(stops)
    if stops.accountant == "pld" or not doubtful:
        return found
    # Convolutions are loose where delta is near their rounding or losses are large. All three are valid bounds fixed
    # before the run, so the cheapest may be taken. The largest price is compared: nearly always the last, but an early
    # stop may have none at all.
    plain = _price_at(stops.shares(), _gaussian_totals(stops), "gdp")
    return min([found, _price_by_mixture(stops), plain], key=lambda prices: max(prices.epsilons))


def _price_gaussian(stops: _Stops) -> _Prices:
    """Price each stop by exact Gaussian DP, with shares that overlap as far as loss distributions show."""
    totals = _gaussian_totals(stops)
    safe = _price_at(stops.shares(), totals, "gdp")
    if len(totals) == 1 or not _has_convolution() or not max(safe.epsilons) <= _LARGEST:
        return safe
    # Only the overlap is read from these distributions, so each phase may have its own bin width.
    widths = map(_load_loss_distribution().stage_width, accumulate(safe.epsilons, max))
    parts = _loss_distributions(zip(stops.steps, widths, strict=True))
    return safe if parts is None else _price_with_overlap(stops, totals, parts, safe)


def _gaussian_totals(stops: _Stops) -> list[GaussianTotal]:
    """Return exact totals. A sampled step is priced as if it saw all rows, which bounds it (DRS22, Section 4)."""
    phases = [sum_gaussian(phase) for phase in stops.steps]
    squares = list(accumulate(phase.mu_squared for phase in phases if phase is not None))
    assert len(squares) == len(phases)  # every phase is made of Gaussian steps
    return [GaussianTotal(square) for square in (squares if stops.every else squares[-1:])]


def _price_at(shares: Sequence[Fraction], totals: Sequence[Any], accountant: str) -> _Prices:
    """Price each stop at its share of delta."""
    epsilons = [total.epsilon(share) for total, share in zip(totals, shares, strict=True)]
    return _Prices(epsilons, accountant, tuple(shares))


def _price_by_mixture(stops: _Stops) -> _Prices:
    """Price all stops by one supermartingale over Renyi orders (docs/proofs/sgd-stopping.md, Theorem 2)."""
    middle = _price_by_orders(stops.steps[: (len(stops.phases) + 1) // 2], stops.delta)
    if len(stops.phases) == 1 or not math.isfinite(middle):
        return _Prices([middle], "rdp")
    odometer = RenyiOdometer(stops.delta, expected_epsilon=max(round_up(middle), _LEAST))
    found = []
    for phase in stops.phases:
        odometer.record(phase)
        if stops.every:
            found.append(odometer.epsilon)
    return _Prices(found or [odometer.epsilon], "rdp")


def _price_by_convolution(stops: _Stops) -> tuple[_Prices, bool]:
    """Price stops by loss distributions; also return whether another accountant may be cheaper."""
    if not _has_convolution():
        raise MissingExtra("accounting", package="dp-accounting")
    least = min(stops.shares())
    rough = min(stops.expected or _price_by_orders(stops.steps, least), _HUGE)
    # Losses are rounded up to bins, so coarse bins cost accuracy of the price, never privacy.
    width = 2.0 ** math.floor(math.log2(max(rough, float(_LEAST)) / stops.bins))
    phases = stops.steps if stops.every else (_merge_steps(stops.steps),)
    parts = _loss_distributions((phase, width) for phase in phases)
    if parts is None:
        return _Prices([math.inf], "pld"), True
    totals = list(accumulate(parts, lambda before, phase: before.then(phase)))
    found = _price_at(stops.shares(), totals, "pld")
    if len(totals) > 1 and max(found.epsilons) <= _LARGEST:
        found = _price_with_overlap(stops, totals, parts, found)
    return found, not all(map(math.isfinite, found.epsilons)) or totals[-1].error > least / 2


def _loss_distributions(phases: Iterable[tuple[Scenario, float]]) -> list[Any] | None:
    """Return the loss distribution of each (phase, bin width); None if there are too many steps or floats overflow."""
    wanted = list(phases)
    total = _load_loss_distribution().sum_loss_distribution
    found = {(phase, width): total(phase, interval=width) for phase, width in dict.fromkeys(wanted)}
    return None if None in found.values() else [found[one] for one in wanted]


def _price_with_overlap(stops: _Stops, totals: Sequence[Any], parts: Sequence[Any], safe: _Prices) -> _Prices:
    """Price stops at shares that add up to more than delta, as far as the worst stopping rule allows (Theorem 4).

    Shares may exceed delta in sum because the events "loss above the price at stop k" overlap: no stopping rule can
    collect all of them. The dynamic program over loss distributions finds the worst rule.
    """
    tried = {1.0: safe}

    def bills(size: float) -> Floats:
        if size not in tried:
            tried[size] = _price_at(stops.shares(size), totals, safe.accountant)
        return np.array(tried[size].epsilons)

    losses = _load_loss_distribution().StoppedLosses(parts, bills(1.0))
    most = float(stops.delta / max(stops.shares()))  # the largest share is delta itself
    return tried[losses.overlap(bills, float_down(stops.delta), most=most)]


def _price_by_orders(phases: Sequence[Scenario], delta: Fraction) -> float:
    """Return the price of all these phases together by Renyi orders."""
    found = renyi.sum_renyi(_merge_steps(phases))
    return math.inf if found is None else found.epsilon(delta)


def _merge_steps(phases: Sequence[Scenario]) -> Scenario:
    """Count the steps of some phases by kind: many phases of the same noise are then as fast as one."""
    counts: Counter[PrivacyEvent] = Counter()
    for phase in phases:
        counts.update(dict(phase.leaves))
    return Scenario(tuple(counts.items()))


def _load_loss_distribution() -> Any:
    """Import the module on demand: the optional package behind it takes a second to import."""
    return importlib.import_module("expost.accounting.loss_distribution")


def _has_convolution() -> bool:
    return importlib.util.find_spec("dp_accounting") is not None
