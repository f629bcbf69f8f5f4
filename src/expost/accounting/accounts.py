"""The public front: what a list of events costs, in every currency, and what that means for a person."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from expost.accounting import approx, composition, gaussian, pure, renyi, zcdp
from expost.accounting.events import (
    ApproxEvent,
    ConcentratedEvent,
    Event,
    GaussianEvent,
    PoissonSampled,
    PureEvent,
    RenyiEvent,
    Repeat,
    Sequence,
    checked_event,
)
from expost.accounting.rounding import Floats, float_up, sqrt_down
from expost.accounting.scenario import Scenario, check_adjacency, scenarios
from expost.accounting.tradeoff import TradeoffCurve, check_prior, grid_of, guess_rate
from expost.accounting.typed import amount_of, delta_of
from expost.core.adjacency import Adjacency
from expost.core.errors import InvalidRequest, MissingExtra
from expost.core.guarantee import ApproxGuarantee, Guarantee, PureGuarantee
from expost.core.meaning import explain_belief, percent_text, posterior_bound
from expost.core.rational import decimal_text, probability, rational, round_up
from expost.core.terms import ApproxTerms, GaussianTerms, PureTerms, RenyiTerms, Terms, ZeroConcentratedTerms

__all__ = ["CURRENCIES", "Account", "Total", "account", "account_report", "event_of"]

_MOST_CONVOLVED = 8  # scenarios for which loss distributions are computed
_SMALLEST_DELTA = Fraction(1, 10**12)  # how far a trade-off curve follows the profile
_NEARLY = Fraction(1, 1024)
_FAR = 2.0**60  # an epsilon at which a profile has come down to what never goes away


class Total(Protocol):
    """A scenario's cost in one currency; both ways never too small."""

    def epsilon(self, delta: Fraction) -> float:
        """The epsilon at this delta; infinite where the currency proves none."""
        ...

    def delta(self, epsilon: Fraction) -> float:
        """The delta at this epsilon."""
        ...

    def loss_bound(self, chance: Fraction) -> float:
        """A privacy loss that is exceeded with this probability at most; infinite where the currency proves none."""
        ...


def _loss_distribution(scenario: Scenario) -> Total | None:
    if not _has_convolution():
        raise MissingExtra("accounting", package="dp-accounting")
    # Loaded on demand: the optional package takes a second to import.
    module: Any = importlib.import_module("expost.accounting.loss_distribution")
    found: Total | None = module.total(scenario)
    return found


CURRENCIES: dict[str, Any] = {
    "pure": pure.total,
    "approx": approx.total,
    "homogeneous": composition.total,
    "zcdp": zcdp.total,
    "gdp": gaussian.total,
    "rdp": renyi.total,
    "pld": _loss_distribution,
}
"""Each way to price a scenario, loosest first; all of them are upper bounds, so the smallest is one."""


@functools.cache
def _has_convolution() -> bool:
    return importlib.util.find_spec("dp_accounting") is not None


class Account:
    """The cost of events on one data set; ask for epsilon at a delta, delta at an epsilon, or what it means.

    Valid for questions chosen adaptively with events fixed beforehand. Where the events themselves depend on earlier
    answers, use a filter or an odometer. Ex-post events count at what they came to; the answer is then a bill
    (docs/proofs/ex-post-composition.md, Theorem 4).

    >>> account(GaussianEvent(1)).epsilon(1e-6).__round__(3)
    4.887
    """

    def __init__(self, event: Event, *, adjacency: Adjacency, currency: str = "auto") -> None:
        if not isinstance(currency, str) or (currency not in CURRENCIES and currency != "auto"):
            names = ", ".join(("auto", *CURRENCIES))
            raise InvalidRequest(f"Expected a currency among {names}", got=currency, do="Name one of them")
        check_adjacency(checked_event(event), adjacency)
        self.event, self.adjacency, self.currency = event, adjacency, currency
        self._scenarios = scenarios(event)
        self._totals: dict[tuple[str, Scenario], Total | None] = {}

    def epsilon(self, delta: float | Fraction = 0) -> float:
        """The epsilon at this delta, the smallest that any currency proves; infinite if none does."""
        exact = delta_of(delta)
        return max(self._scenario_epsilon(scenario, exact) for scenario in self._scenarios)

    def delta(self, epsilon: float | Fraction) -> float:
        """The delta at this epsilon, the smallest that any currency proves."""
        exact = rational(epsilon, "epsilon", positive=False)
        return max(self._scenario_delta(scenario, exact) for scenario in self._scenarios)

    def currencies(self, delta: float | Fraction = 0) -> dict[str, float]:
        """The epsilon at this delta in each currency that has one."""
        exact = delta_of(delta)
        names = self._names(exact)
        found = {name: max(self._one(name, scenario, exact) for scenario in self._scenarios) for name in names}
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def guarantee(self, delta: float | Fraction = 0) -> Guarantee:
        """The promise at this delta, in exact numbers."""
        exact, epsilon = delta_of(delta), self.epsilon(delta)
        if not math.isfinite(epsilon):
            raise InvalidRequest("Expected a delta at which epsilon is finite", got=delta, do="Pass a larger delta")
        if exact:
            return ApproxGuarantee(round_up(epsilon), exact)
        sums = [(pure.total(scenario), scenario.loss) for scenario in self._scenarios]
        known = [found.amount + loss for found, loss in sums if found is not None]
        return PureGuarantee(max(known) if len(known) == len(sums) else round_up(epsilon))

    def tradeoff(self) -> TradeoffCurve:
        """False alarms against missed detections of the best attacker, before anything ran: ex-post events at their caps."""
        return self._curve

    def loss_bound(self, failure_probability: float | Fraction) -> float:
        """A privacy loss that is exceeded with this probability at most, the smallest that any currency proves.

        Infinite if none does. It holds for the outputs and for all that is computed from them
        (docs/proofs/interpretation.md).

        >>> round(account(GaussianEvent(1)).loss_bound(1e-6), 3)
        5.432
        """
        chance = rational(failure_probability, "failure_probability", positive=False)
        return max(self._scenario_bound(scenario, chance) for scenario in self._scenarios)

    def posterior(self, prior: float = 0.5, *, failure_probability: float | Fraction = 0) -> float:
        """How sure someone with this prior can become that a unit is in the data, but for the failure probability.

        Bayes' rule with the largest likelihood ratio (WZ10, Theorem 2.4).
        """
        check_prior(prior)
        bound = self.loss_bound(failure_probability)
        return min(1.0, posterior_bound(prior, bound) * (1 + 2.0**-50))

    def guess_rate(self, prior: float = 0.5) -> float:
        """The largest probability, before anything ran, of guessing right whether a unit is in the data."""
        return guess_rate(self._planned_delta, prior)

    def explain(
        self, delta: float | Fraction = 0, *, prior: float = 0.5, risk: float = 0.01, unit: str = "one row"
    ) -> str:
        """A few plain sentences for people.

        >>> print(account(PureEvent(0.1)).explain())
        Epsilon is at most 0.1. Someone who knows everything but whether one row is yours, and thinks 50 % likely that it is,
        can be at most 52.5 % sure after seeing all this. Whatever has a risk of 1 % without your data has at most 1.11 % with it.
        """
        exact = delta_of(delta)
        share = float(amount_of(risk, "risk"))
        check_prior(prior)
        head = f"Epsilon is at most {_up(self.epsilon(exact))}" + (f" at delta {float(exact):.3g}" if exact else "")
        return (
            f"{head}. {explain_belief(self.loss_bound, exact, prior=prior, unit=unit)}. Whatever has a risk of "
            f"{percent_text(share)} % without your data has at most {percent_text(self.tradeoff().risk(share))} % with it."
        )

    def __repr__(self) -> str:
        return f"Account({self.event!r}, adjacency={self.adjacency.value!r})"

    @functools.cached_property
    def _curve(self) -> TradeoffCurve:
        """The pairs that are looked at: up to a very small delta, or to one that is nearly as small as it ever gets."""
        remaining = max(self._scenario_delta(scenario, Fraction(_FAR)) for scenario in self._planned)
        smallest = max(_SMALLEST_DELTA, Fraction(remaining) * (1 + _NEARLY))
        if smallest >= 1:
            return TradeoffCurve(np.zeros(1), np.ones(1))
        largest = max(self._scenario_epsilon(scenario, smallest) for scenario in self._planned)
        sums = [approx.total(scenario) for scenario in self._planned]
        corners = [float_up(found.amount) for found in sums if found is not None]
        epsilons = grid_of(largest if math.isfinite(largest) else _FAR, *corners)
        deltas = np.max([self._scenario_deltas(scenario, epsilons) for scenario in self._planned], axis=0)
        return TradeoffCurve(epsilons, deltas)

    @functools.cached_property
    def _planned(self) -> tuple[Scenario, ...]:
        """What could happen to a unit, seen before the run: ex-post parts are pure mechanisms at their caps.

        A realised loss speaks of the outcome that was seen. The probability of an event, a guess or a risk, counts the
        outcomes of larger losses too.
        """
        return tuple(
            scenario
            if not scenario.cap
            else Scenario(scenario.leaves).joined(Scenario(((PureEvent(scenario.cap), 1),)))
            for scenario in self._scenarios
        )

    def _planned_delta(self, epsilon: float) -> float:
        exact = rational(epsilon, "epsilon", positive=False)
        return max(self._scenario_delta(scenario, exact) for scenario in self._planned)

    def _names(self, delta: Fraction) -> list[str]:
        if self.currency != "auto":
            return [self.currency]
        names = [name for name in CURRENCIES if name != "pld"]
        if delta > 0 and _has_convolution() and len(self._scenarios) <= _MOST_CONVOLVED:
            names.append("pld")
        return names

    def _total(self, name: str, scenario: Scenario) -> Total | None:
        key = (name, scenario)
        if key not in self._totals:
            self._totals[key] = CURRENCIES[name](scenario) if scenario.leaves else pure.PureTotal(Fraction(0))
        return self._totals[key]

    def _one(self, name: str, scenario: Scenario, delta: Fraction) -> float:
        found = self._total(name, scenario)
        return math.inf if found is None else _plus(found.epsilon(delta), scenario.loss)

    def _scenario_epsilon(self, scenario: Scenario, delta: Fraction) -> float:
        """The best over currencies; loss distributions only where no exact answer is at hand."""
        names = self._names(delta)
        if "pld" in names and len(names) > 1 and self._exact(scenario):
            names.remove("pld")
        return min(self._one(name, scenario, delta) for name in names)

    def _scenario_bound(self, scenario: Scenario, chance: Fraction) -> float:
        bounds = (found.loss_bound(chance) for found in self._profiles(scenario))
        return _plus(min(bounds, default=math.inf), scenario.loss)

    def _scenario_delta(self, scenario: Scenario, epsilon: Fraction) -> float:
        left = epsilon - scenario.loss
        if left < 0:
            return 1.0
        return min((found.delta(left) for found in self._profiles(scenario)), default=1.0)

    def _scenario_deltas(self, scenario: Scenario, epsilons: Floats) -> Floats:
        """The same at many epsilons; a convolution reads them all in one pass."""
        left = np.nextafter(epsilons - float_up(scenario.loss), -np.inf) if scenario.loss else epsilons
        deltas = np.ones(len(epsilons))
        for found in self._profiles(scenario):
            many = getattr(found, "deltas", None)
            at = np.maximum(left, 0.0)
            values = many(at) if many else np.array([found.delta(Fraction(float(one))) for one in at])
            deltas = np.minimum(deltas, np.where(left >= 0, values, 1.0))
        return deltas

    def _profiles(self, scenario: Scenario) -> list[Total]:
        names = self._names(Fraction(1))
        if "pld" in names and len(names) > 1 and self._exact(scenario):
            names.remove("pld")
        totals = (self._total(name, scenario) for name in names)
        return [found for found in totals if found is not None]

    def _exact(self, scenario: Scenario) -> bool:
        """Whether a closed form is the true answer: Gaussians alone, or one (epsilon, delta) mechanism repeated."""
        leaves = [leaf for leaf, _ in scenario.leaves]
        return all(isinstance(leaf, GaussianEvent) for leaf in leaves) or (
            len(leaves) == 1 and isinstance(leaves[0], PureEvent | ApproxEvent)
        )


def account(
    events: Event | Terms | Iterable[Event | Terms],
    *,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    currency: str = "auto",
) -> Account:
    """What these events cost together; promises and bills of ``expost.core`` count as events.

    ``currency`` names one way of accounting, ``"auto"`` takes the tightest of all that apply; ``"pld"`` needs the extra
    ``accounting``, and ``"auto"`` uses it where it is installed.

    >>> account([PureEvent(0.1), PureEvent(0.2)]).epsilon()
    0.30000000000000004
    """
    listed = list(events) if isinstance(events, Iterable) else [events]
    event = listed[0] if len(listed) == 1 and isinstance(listed[0], Event) else Sequence(tuple(map(event_of, listed)))
    return Account(event, adjacency=Adjacency.parse(adjacency), currency=currency)


def event_of(terms: Event | Terms) -> Event:
    """A promise or a bill as an event, never cheaper than it.

    >>> from expost.core import PureLoss
    >>> event_of(PureLoss(0.5))
    PureEvent(epsilon=Fraction(1, 2))
    """
    match terms:
        case Event():
            return terms
        case PureTerms(epsilon):
            return PureEvent(epsilon)
        case ApproxTerms(epsilon, delta):
            return ApproxEvent(epsilon, delta)
        case ZeroConcentratedTerms(rho):
            return ConcentratedEvent(rho)
        case GaussianTerms(mu_squared):
            return GaussianEvent(sqrt_down(1 / mu_squared)) if mu_squared else Sequence()
        case RenyiTerms(curve):
            return RenyiEvent(curve)
    raise InvalidRequest(
        "Expected an event, a promise or a bill", got=terms, do="Pass one of expost.accounting's events"
    )


def account_report(
    *,
    gaussian: float | Fraction,
    delta: float | Fraction,
    sampling: float | Fraction = 1,
    steps: int = 1,
) -> dict[str, Any]:
    """Gaussian steps on Poisson samples, in every currency: what ``expost account`` prints.

    >>> round(account_report(gaussian=1, delta=1e-6)["epsilon"], 3)
    4.887
    """
    step = GaussianEvent(rational(gaussian, "gaussian"))
    rate = rational(sampling, "sampling", do="Pass a sampling rate above 0 and at most 1")
    exact = probability(delta, "delta")
    whole = account(Repeat(step if rate == 1 else PoissonSampled(rate, step), steps))
    return {
        "noise_multiplier": float(step.noise_multiplier),
        "sampling_rate": float(rate),
        "steps": steps,
        "delta": float(exact),
        "adjacency": whole.adjacency.value,
        "epsilon": whole.epsilon(exact),
        "currencies": whole.currencies(exact),
        "meaning": whole.explain(exact),
    }


def _plus(value: float, loss: Fraction) -> float:
    if not loss or math.isinf(value):
        return value if not loss else math.inf
    return math.nextafter(value + float_up(loss), math.inf) if value else float_up(loss)


def _up(value: float) -> str:
    """A float for people, rounded up at the fourth digit of its shortest decimal."""
    return decimal_text(Fraction(str(value))) if math.isfinite(value) else "inf"
