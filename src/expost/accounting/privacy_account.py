"""What a list of events costs, in every currency, and what that means for a person."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from expost.accounting.composition import PureTotal, sum_approx, sum_homogeneous, sum_pure
from expost.accounting.concentrated import sum_concentrated, sum_gaussian
from expost.accounting.privacy_event import (
    ApproxEvent,
    ConcentratedEvent,
    GaussianEvent,
    PoissonSampled,
    PrivacyEvent,
    PureEvent,
    RenyiEvent,
    Repeat,
    Sequence,
    check_event,
)
from expost.accounting.renyi import sum_renyi
from expost.accounting.rounding import Floats, float_up, read_amount, read_delta, sqrt_down
from expost.accounting.scenario import Scenario, event_under, list_scenarios
from expost.accounting.tradeoff_curve import TradeoffCurve, check_prior, epsilon_grid, guess_rate
from expost.core import explain_arguments
from expost.core.adjacency import Adjacency
from expost.core.errors import InvalidRequest, MissingExtra
from expost.core.guarantee import (
    ApproxGuarantee,
    ApproxTerms,
    GaussianTerms,
    Guarantee,
    PureGuarantee,
    PureTerms,
    RenyiTerms,
    Terms,
    ZeroConcentratedTerms,
)
from expost.core.meaning import explain_belief, percent_text, posterior_bound
from expost.core.rational import decimal_text, probability, rational, round_up

__all__ = ["CURRENCIES", "CurrencyTotal", "PrivacyAccount", "account", "account_report", "event_of"]

_MOST_CONVOLVED = 8  # scenarios for which loss distributions are computed
_SMALLEST_DELTA = Fraction(1, 10**12)  # how far a trade-off curve follows the profile
_NEARLY = Fraction(1, 1024)
_FAR = 2.0**60  # an epsilon at which a profile has fallen to the part of delta that never vanishes


class CurrencyTotal(Protocol):
    """A scenario's cost in one currency; no method returns less than the truth."""

    def epsilon(self, delta: Fraction) -> float:
        """Return the epsilon at this delta; infinite where the currency proves none."""
        ...

    def delta(self, epsilon: Fraction) -> float:
        """Return the delta at this epsilon."""
        ...

    def loss_bound(self, chance: Fraction) -> float:
        """Return a privacy loss exceeded with at most this probability; infinite where the currency proves none."""
        ...


@functools.cache
def _has_convolution() -> bool:
    """Return whether the extra ``accounting`` is installed."""
    return importlib.util.find_spec("dp_accounting") is not None


def _sum_loss_distribution(scenario: Scenario) -> CurrencyTotal | None:
    """Convolve with the optional package, which takes a second to import and so is loaded on demand."""
    if not _has_convolution():
        raise MissingExtra("accounting", package="dp-accounting")
    module: Any = importlib.import_module("expost.accounting.loss_distribution")
    found: CurrencyTotal | None = module.sum_loss_distribution(scenario)
    return found


CURRENCIES: dict[str, Callable[[Scenario], CurrencyTotal | None]] = {
    "pure": sum_pure,
    "approx": sum_approx,
    "homogeneous": sum_homogeneous,
    "zcdp": sum_concentrated,
    "gdp": sum_gaussian,
    "rdp": sum_renyi,
    "pld": _sum_loss_distribution,
}
"""Every currency that prices a scenario, loosest first; all are upper bounds, so the smallest is one."""


class PrivacyAccount:
    """The cost of events on one data set. Use ``account`` to build one.

    Valid for queries chosen adaptively with events fixed beforehand. Where the events themselves depend on earlier
    answers, use a filter or an odometer. Ex-post events count at their losses; the result is then a bill
    (docs/proofs/ex-post-composition.md, Theorem 4).

    Parameters
    ----------
    event : PrivacyEvent
        Everything that ran.
    adjacency : Adjacency
        When two tables are adjacent.
    currency : str, default "auto"
        One of ``CURRENCIES``, or the tightest of all.

    Examples
    --------
    >>> account(GaussianEvent(1)).epsilon(1e-6).__round__(3)
    4.887
    """

    @explain_arguments
    def __init__(self, event: PrivacyEvent, *, adjacency: Adjacency, currency: str = "auto") -> None:
        if not isinstance(currency, str) or (currency not in CURRENCIES and currency != "auto"):
            names = ", ".join(("auto", *CURRENCIES))
            raise InvalidRequest(f"Expected a currency among {names}", got=currency, do="Name one of them")
        self.event, self.adjacency, self.currency = event, adjacency, currency
        self._scenarios = list_scenarios(event_under(check_event(event), adjacency))
        self._totals: dict[tuple[str, Scenario], CurrencyTotal | None] = {}

    def epsilon(self, delta: float | Fraction = 0) -> float:
        """Return the epsilon at this delta, the smallest that any currency proves.

        Parameters
        ----------
        delta : number in [0, 1), default 0
            The probability that epsilon need not cover.

        Returns
        -------
        float
            Rounded up; infinite if no currency proves a finite one.
        """
        exact = read_delta(delta)
        # Over currencies the smallest may be taken, over scenarios the largest must: a unit can be in any of them.
        return max(self._epsilon_of(scenario, exact) for scenario in self._scenarios)

    def delta(self, epsilon: float | Fraction) -> float:
        """Return the delta at this epsilon, the smallest that any currency proves.

        Parameters
        ----------
        epsilon : number >= 0
            The privacy parameter.

        Returns
        -------
        float
        """
        exact = rational(epsilon, "epsilon", positive=False)
        return max(self._delta_of(scenario, exact) for scenario in self._scenarios)

    def currencies(self, delta: float | Fraction = 0) -> dict[str, float]:
        """Return the epsilon at this delta in each currency that has one.

        Parameters
        ----------
        delta : number in [0, 1), default 0
            The probability that epsilon need not cover.

        Returns
        -------
        dict of str to float
        """
        exact = read_delta(delta)
        found = {}
        for name in self._currency_names(exact):
            epsilons = (self._epsilon_in(name, scenario, exact) for scenario in self._scenarios)
            # A currency that fails in one scenario proves nothing about the event.
            if math.isfinite(worst := max(epsilons)):
                found[name] = worst
        return found

    def guarantee(self, delta: float | Fraction = 0) -> Guarantee:
        """Return the promise at this delta, in exact numbers.

        Parameters
        ----------
        delta : number in [0, 1), default 0
            The delta of the promise; a pure one for 0.

        Returns
        -------
        Guarantee

        Raises
        ------
        InvalidRequest
            If epsilon is infinite at this delta.
        """
        exact, epsilon = read_delta(delta), self.epsilon(delta)
        if not math.isfinite(epsilon):
            raise InvalidRequest("Expected a delta at which epsilon is finite", got=delta, do="Pass a larger delta")
        if exact:
            return ApproxGuarantee(round_up(epsilon), exact)
        # A pure promise stays an exact rational where every leaf has one; floats would round it up.
        sums = [(sum_pure(scenario), scenario.loss) for scenario in self._scenarios]
        known = [found.amount + loss for found, loss in sums if found is not None]
        return PureGuarantee(max(known) if len(known) == len(sums) else round_up(epsilon))

    def tradeoff(self) -> TradeoffCurve:
        """Return false alarms against missed detections of the best attacker, before the run: ex-post parts at caps.

        Returns
        -------
        TradeoffCurve
        """
        return self._curve

    def loss_bound(self, failure_probability: float | Fraction) -> float:
        """Return a privacy loss that is exceeded with at most this probability, the smallest that any currency proves.

        It holds for the outputs and for everything computed from them (docs/proofs/interpretation.md).

        Parameters
        ----------
        failure_probability : number >= 0
            The probability that the loss may exceed the bound.

        Returns
        -------
        float
            Infinite if no currency proves a bound.

        Examples
        --------
        >>> round(account(GaussianEvent(1)).loss_bound(1e-6), 3)
        5.432
        """
        chance = rational(failure_probability, "failure_probability", positive=False)
        bounds = []
        for scenario in self._scenarios:
            found = (total.loss_bound(chance) for total in self._totals_of(scenario))
            # The ex-post part is exact for the outcome seen, so it adds to the bound on the rest.
            bounds.append(_add_loss(min(found, default=math.inf), scenario.loss))
        return max(bounds)

    def posterior(self, prior: float = 0.5, *, failure_probability: float | Fraction = 0) -> float:
        """Return how sure someone can become that a unit is in the data, except with the failure probability.

        Bayes' rule with the largest likelihood ratio (WZ10, Theorem 2.4).

        Parameters
        ----------
        prior : float in (0, 1), default 0.5
            The belief before the answers.
        failure_probability : number >= 0, default 0
            The probability that someone may become surer.

        Returns
        -------
        float
        """
        check_prior(prior)
        bound = self.loss_bound(failure_probability)
        # The factor covers the roundings of Bayes' rule.
        return min(1.0, posterior_bound(prior, bound) * (1 + 2.0**-50))

    def guess_rate(self, prior: float = 0.5) -> float:
        """Return the largest probability, before the run, of guessing right whether a unit is in the data.

        Parameters
        ----------
        prior : float in (0, 1), default 0.5
            The belief before the answers.

        Returns
        -------
        float
        """

        def delta_at(epsilon: float) -> float:
            exact = rational(epsilon, "epsilon", positive=False)
            # Caps, not losses: the probability of a right guess is over all outcomes, not only the one seen.
            return max(self._delta_of(scenario, exact) for scenario in self._planned)

        return guess_rate(delta_at, prior)

    def explain(
        self, delta: float | Fraction = 0, *, prior: float = 0.5, risk: float = 0.01, unit: str = "one row"
    ) -> str:
        """Return a few plain sentences for people.

        Parameters
        ----------
        delta : number in [0, 1), default 0
            The probability that epsilon need not cover.
        prior : float in (0, 1), default 0.5
            An attacker's belief before the answers.
        risk : number in [0, 1], default 0.01
            A risk that a person has without their data.
        unit : str, default "one row"
            What one person contributes.

        Returns
        -------
        str

        Examples
        --------
        >>> print(account(PureEvent(0.1)).explain())
        Epsilon is at most 0.1. Someone who knows everything but whether one row is yours, and thinks 50 % likely that it is,
        can be at most 52.5 % sure after seeing all this. Whatever has a risk of 1 % without your data has at most 1.11 % with it.
        """
        exact = read_delta(delta)
        share = float(read_amount(risk, "risk"))
        check_prior(prior)
        epsilon = self.epsilon(exact)
        # By its shortest decimal: the float 0.1 is above one tenth and would be rounded up to 0.1001.
        shown = decimal_text(Fraction(str(epsilon))) if math.isfinite(epsilon) else "inf"
        head = f"Epsilon is at most {shown}" + (f" at delta {float(exact):.3g}" if exact else "")
        return (
            f"{head}. {explain_belief(self.loss_bound, exact, prior=prior, unit=unit)}. Whatever has a risk of "
            f"{percent_text(share)} % without your data has at most {percent_text(self.tradeoff().risk(share))} % with it."
        )

    def __repr__(self) -> str:
        return f"PrivacyAccount({self.event!r}, adjacency={self.adjacency.value!r})"

    @functools.cached_property
    def _curve(self) -> TradeoffCurve:
        """The curve through pairs down to a very small delta, or nearly to the smallest delta there is."""
        # Part of delta may never vanish, as for (epsilon, delta) events; below it every epsilon is infinite.
        remaining = max(self._delta_of(scenario, Fraction(_FAR)) for scenario in self._planned)
        smallest = max(_SMALLEST_DELTA, Fraction(remaining) * (1 + _NEARLY))
        if smallest >= 1:
            return TradeoffCurve(np.zeros(1), np.ones(1))
        largest = max(self._epsilon_of(scenario, smallest) for scenario in self._planned)
        sums = [sum_approx(scenario) for scenario in self._planned]
        # A curve of (epsilon, delta) events has its kink at their epsilon: a grid without it would be loose.
        corners = [float_up(found.amount) for found in sums if found is not None]
        epsilons = epsilon_grid(largest if math.isfinite(largest) else _FAR, *corners)
        deltas = np.max([self._deltas_of(scenario, epsilons) for scenario in self._planned], axis=0)
        return TradeoffCurve(epsilons, deltas)

    @functools.cached_property
    def _planned(self) -> tuple[Scenario, ...]:
        """The scenarios before the run: ex-post parts are pure mechanisms at their caps.

        A realized loss is about the outcome that was seen. The probability of an event, a guess or a risk counts the
        outcomes of larger losses too.
        """
        return tuple(
            scenario
            if not scenario.cap
            else Scenario(scenario.leaves).joined(Scenario(((PureEvent(scenario.cap + scenario.span), 1),)))
            for scenario in self._scenarios
        )

    def _currency_names(self, delta: Fraction) -> list[str]:
        """Return the currencies to try at this delta."""
        if self.currency != "auto":
            return [self.currency]
        names = [name for name in CURRENCIES if name != "pld"]
        # At delta 0 a loss distribution proves nothing, because its rounding error is part of delta.
        if delta > 0 and _has_convolution() and len(self._scenarios) <= _MOST_CONVOLVED:
            names.append("pld")
        return names

    def _cheapest_names(self, scenario: Scenario, delta: Fraction) -> list[str]:
        """Return the currencies to try, without loss distributions where a closed form is exact."""
        names = self._currency_names(delta)
        if "pld" in names and len(names) > 1:
            leaves = [leaf for leaf, _ in scenario.leaves]
            # Exact: Gaussians alone (BW18), or one (epsilon, delta) mechanism repeated (KOV15).
            one_pair = len(leaves) == 1 and isinstance(leaves[0], PureEvent | ApproxEvent)
            if one_pair or all(isinstance(leaf, GaussianEvent) for leaf in leaves):
                names.remove("pld")
        return names

    def _total_in(self, name: str, scenario: Scenario) -> CurrencyTotal | None:
        """Return the scenario's total in one currency, computed once."""
        key = (name, scenario)
        if key not in self._totals:
            # Without leaves only the exact ex-post part is left, which is added by the caller.
            self._totals[key] = CURRENCIES[name](scenario) if scenario.leaves else PureTotal(Fraction(0))
        return self._totals[key]

    def _totals_of(self, scenario: Scenario) -> list[CurrencyTotal]:
        """Return the totals in all currencies that price the scenario."""
        # Loss distributions are among the currencies at delta 1, but not at delta 0.
        totals = (self._total_in(name, scenario) for name in self._cheapest_names(scenario, Fraction(1)))
        return [found for found in totals if found is not None]

    def _epsilon_in(self, name: str, scenario: Scenario, delta: Fraction) -> float:
        """Return the epsilon of a scenario in one currency."""
        found = self._total_in(name, scenario)
        return math.inf if found is None else _add_loss(found.epsilon(delta), scenario.loss)

    def _epsilon_of(self, scenario: Scenario, delta: Fraction) -> float:
        """Return the smallest epsilon over currencies."""
        return min(self._epsilon_in(name, scenario, delta) for name in self._cheapest_names(scenario, delta))

    def _delta_of(self, scenario: Scenario, epsilon: Fraction) -> float:
        """Return the smallest delta over currencies."""
        left = epsilon - scenario.loss
        if left < 0:
            return 1.0
        # Every currency is an upper bound, so the smallest is; without any, delta 1 always holds.
        return min((found.delta(left) for found in self._totals_of(scenario)), default=1.0)

    def _deltas_of(self, scenario: Scenario, epsilons: Floats) -> Floats:
        """Return the smallest deltas at many epsilons; a convolution reads them all in one pass."""
        # What the exact loss leaves of each epsilon, rounded down: a smaller epsilon has a larger delta.
        left = np.nextafter(epsilons - float_up(scenario.loss), -np.inf) if scenario.loss else epsilons
        at = np.maximum(left, 0.0)
        deltas = np.ones(len(epsilons))
        for found in self._totals_of(scenario):
            many = getattr(found, "deltas", None)
            values = many(at) if many else np.array([found.delta(Fraction(float(one))) for one in at])
            deltas = np.minimum(deltas, np.where(left >= 0, values, 1.0))
        return deltas


@explain_arguments
def account(
    events: PrivacyEvent | Terms | Iterable[PrivacyEvent | Terms],
    *,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    currency: str = "auto",
) -> PrivacyAccount:
    """Return what these events cost together.

    Parameters
    ----------
    events : PrivacyEvent, Guarantee, Loss, or an iterable of them
        What ran; promises and bills of ``expost.core`` count as events.
    adjacency : Adjacency or str, default "add-remove"
        When two tables are adjacent; each kind of sampling needs its own.
    currency : str, default "auto"
        One of pure, approx, homogeneous, zcdp, gdp, rdp and pld, or the tightest of all that apply. ``"pld"`` needs the
        extra ``accounting``; ``"auto"`` uses it where it is installed.

    Returns
    -------
    PrivacyAccount

    Raises
    ------
    InvalidRequest
        If an event, the adjacency or the currency is not valid.

    Examples
    --------
    >>> account([PureEvent(0.1), PureEvent(0.2)]).epsilon()
    0.30000000000000004
    """
    listed = list(events) if isinstance(events, Iterable) else [events]
    # A single event is kept as it was passed, not wrapped in a sequence of one.
    first = listed[0] if len(listed) == 1 else None
    event = first if isinstance(first, PrivacyEvent) else Sequence(tuple(map(event_of, listed)))
    return PrivacyAccount(event, adjacency=Adjacency.parse(adjacency), currency=currency)


def event_of(terms: PrivacyEvent | Terms) -> PrivacyEvent:
    """Return a promise or a bill as an event that costs no less.

    Parameters
    ----------
    terms : PrivacyEvent, Guarantee or Loss
        What is to be priced.

    Returns
    -------
    PrivacyEvent

    Raises
    ------
    InvalidRequest
        If it is none of these.

    Examples
    --------
    >>> from expost.core import PureLoss
    >>> event_of(PureLoss(0.5))
    PureEvent(epsilon=Fraction(1, 2))
    """
    match terms:
        case PrivacyEvent():
            return terms
        case PureTerms(epsilon):
            return PureEvent(epsilon)
        case ApproxTerms(epsilon, delta):
            return ApproxEvent(epsilon, delta)
        case ZeroConcentratedTerms(rho):
            return ConcentratedEvent(rho)
        case GaussianTerms(mu_squared):
            # The noise is rounded down: less noise costs more.
            return GaussianEvent(sqrt_down(1 / mu_squared)) if mu_squared else Sequence()
        case RenyiTerms(curve):
            return RenyiEvent(curve)
    raise InvalidRequest(
        "Expected an event, a promise or a bill", got=terms, do="Pass one of expost.accounting's events"
    )


@explain_arguments
def account_report(
    *,
    gaussian: float | Fraction,
    delta: float | Fraction,
    sampling: float | Fraction = 1,
    steps: int = 1,
) -> dict[str, Any]:
    """Price Gaussian steps on Poisson samples in every currency: what ``expost account`` prints.

    Parameters
    ----------
    gaussian : number > 0
        The noise multiplier of each step.
    delta : number in (0, 1)
        The delta of the whole.
    sampling : number in (0, 1], default 1
        The probability that a row is in the sample of a step.
    steps : int >= 0, default 1
        How many steps there are.

    Returns
    -------
    dict
        The arguments, the adjacency, ``epsilon``, ``currencies`` and ``meaning``.

    Raises
    ------
    InvalidRequest
        If an argument is not a number in its range.

    Examples
    --------
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


def _add_loss(value: float, loss: Fraction) -> float:
    """Add an exact loss to a bound, rounded up."""
    if not loss or math.isinf(value):
        return value if not loss else math.inf
    # Nothing is rounded where one of the two is zero: a bill of pure losses alone stays exact.
    return math.nextafter(value + float_up(loss), math.inf) if value else float_up(loss)
