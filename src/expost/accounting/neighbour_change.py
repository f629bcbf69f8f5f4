"""What a run under add/remove adjacency costs where a replaced unit counts: a replacement is a removal and an addition.

Let P, Q and R be the laws of an answer on a table, on the table without one unit, and on the table with another unit in
its place. A guarantee under add/remove bounds P against Q and Q against R. The functions here bound P against R
(docs/proofs/replace-one-accounts.md). There is no way back: replace-one privacy says nothing about an added unit.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from expost.accounting.composition import approx_cost_of, pure_cost_of
from expost.accounting.concentrated import concentrated_cost_of, failure_of, gaussian_cost_of
from expost.accounting.privacy_event import (
    ApproxEvent,
    ConcentratedEvent,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    ExponentialEvent,
    ExPostEvent,
    GaussianEvent,
    LaplaceEvent,
    Mixture,
    Parallel,
    PermuteAndFlipEvent,
    PoissonSampled,
    PrivacyEvent,
    PureEvent,
    RenyiEvent,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
)
from expost.accounting.renyi import renyi_divergences
from expost.accounting.rounding import Floats, sqrt_down, widen
from expost.accounting.scenario import list_scenarios
from expost.core import (
    ApproxLoss,
    GaussianLoss,
    InvalidRequest,
    Loss,
    PureLoss,
    RenyiLoss,
    ZeroConcentratedLoss,
)
from expost.core.rational import round_up

__all__ = ["exp_up", "replaced_event", "replaced_loss", "share_for_added"]

_BITS = 192  # of the fixed-point numbers in exp_up
_TERMS = 64  # of its series: (1/2)^64 / 64! is far below 2^-192
_LEAST_DELTA = Fraction(1, 10**15)  # half of a smaller rest is not worth a name
_LARGEST_EXPONENT = 200  # beyond it every delta that a loss may name becomes 1


def exp_up(exponent: Fraction) -> Fraction:
    """Return an upper bound on e^exponent in integer arithmetic, so that it is equal on every machine.

    >>> float(exp_up(Fraction(1))), exp_up(Fraction(0)) - 1 < Fraction(1, 2**180)
    (2.718281828459045, True)
    """
    one, halvings = 1 << _BITS, int(exponent).bit_length() + 1
    part = _divide_up(exponent.numerator << _BITS, exponent.denominator << halvings)  # at most 1/2
    term = total = one
    for number in range(1, _TERMS):
        term = _divide_up(term * part, number << _BITS)
        total += term
    total += term  # the rest of the series is below its last term
    for _ in range(halvings):
        total = _divide_up(total * total, one)
    return Fraction(total, one)


def replaced_loss(loss: Loss) -> Loss:
    """Return what a loss under add/remove is for a replaced unit.

    By docs/proofs/replace-one-accounts.md, Theorem 1: a pure (ex-post) epsilon doubles, (epsilon, delta) becomes
    (2 epsilon, delta (1 + e^epsilon)), rho and the square of mu become four times as large (BS16, Proposition 1.9;
    DRS22, Theorem 2.14), and a Renyi curve keeps the orders of which twice the order is listed.

    Parameters
    ----------
    loss : Loss
        A worst case or a bill.

    Returns
    -------
    Loss
        Of the same definition.

    Raises
    ------
    InvalidRequest
        If nothing is left of the guarantee: a delta of 1 or more, or no Renyi order.

    Examples
    --------
    >>> print(replaced_loss(PureLoss(0.25)), "|", replaced_loss(ZeroConcentratedLoss(0.25)))
    epsilon 0.5 | rho 1
    """
    match loss:
        case PureLoss(epsilon):
            return PureLoss(2 * epsilon)
        case ApproxLoss(epsilon, delta):
            return ApproxLoss(2 * epsilon, _replaced_delta(epsilon, delta))
        case ZeroConcentratedLoss(rho):
            return ZeroConcentratedLoss(4 * rho)
        case GaussianLoss(mu_squared):
            return GaussianLoss(4 * mu_squared)
        case RenyiLoss(curve):
            largest = max(order for order, _ in curve)
            kept = tuple(float(order) for order, _ in curve if 2 * order <= largest)
            found = _replaced_divergences(RenyiEvent(curve), kept) if kept else None
            if found is not None:
                orders = [order for order, _ in curve if 2 * order <= largest]
                costs = [round_up(Fraction(float(cost))) for cost in found]
                return RenyiLoss(tuple(zip(orders, costs, strict=True)))
    raise _nothing_left(loss.definition)


def share_for_added(left: Loss) -> Loss:
    """Return what a run under add/remove may cost at most if ``left`` is left for a replaced unit.

    Parameters
    ----------
    left : Loss
        What an account that counts replaced units has left.

    Returns
    -------
    Loss
        Of the same definition; ``replaced_loss`` of it is within ``left``.

    Examples
    --------
    >>> print(share_for_added(PureLoss(1)))
    epsilon 0.5
    """
    match left:
        case ApproxLoss(epsilon, delta):
            if epsilon >= 2 * _LARGEST_EXPONENT or delta < _LEAST_DELTA:
                return ApproxLoss(epsilon / 2, Fraction(0))
            # One part in 10^12 less, because delta is rounded up when it is converted.
            return ApproxLoss(epsilon / 2, delta / (1 + exp_up(epsilon / 2)) * (1 - Fraction(1, 10**12)))
        case ZeroConcentratedLoss() | GaussianLoss():
            return left.with_amounts({name: amount / 4 for name, amount in left.amounts().items()})
    return left.with_amounts({name: amount / 2 for name, amount in left.amounts().items()})


def replaced_event(event: PrivacyEvent, *, definition: str, orders: tuple[float, ...] = ()) -> PrivacyEvent:
    """Return an event whose price bounds what an event under add/remove costs for a replaced unit.

    Every step is converted by itself, given the past, so what did not run comes back as before.

    Parameters
    ----------
    event : PrivacyEvent
        What may run, or ran.
    definition : str
        The definition of the account that pays, for samples, which have no event of the same kind.
    orders : tuple of float, default ()
        The Renyi orders at which that account adds up.

    Returns
    -------
    PrivacyEvent

    Raises
    ------
    InvalidRequest
        If a part has no price for a replaced unit in this definition.

    Examples
    --------
    >>> replaced_event(ExPostEvent(0.1, 1.0), definition="pure")
    ExPostEvent(loss=Fraction(1, 5), cap=Fraction(2, 1), before=Fraction(0, 1))
    """

    def convert(inner: PrivacyEvent) -> PrivacyEvent:
        return replaced_event(inner, definition=definition, orders=orders)

    match event:
        case ExPostEvent(loss, cap, before):
            return ExPostEvent(2 * loss, 2 * cap, 2 * before)
        case Sequence(events) | Mixture(events):
            # The choice of a mixture does not depend on the data: each part is converted by itself.
            return replace(event, events=tuple(map(convert, events)))
        case Parallel(events):
            # A replaced unit may leave one part and enter another. Each of the two parts then loses what an added unit
            # does, and twice that is at most what either converted part costs.
            return replace(event, events=tuple(map(convert, events)))
        case Repeat(inner, count):
            return Repeat(convert(inner), count)
        case PoissonSampled():
            alternatives = list_scenarios(event)
            if len(alternatives) != 1:
                raise _nothing_left(event.kind)
            (found,) = alternatives
            steps = [Repeat(_replaced_leaf(leaf, definition, orders), count) for leaf, count in found.leaves]
            pure = ExPostEvent(2 * found.loss, 2 * found.cap, found.span)
            return Sequence((*steps, pure) if found.cap else tuple(steps))
        case SampledWithoutReplacement():
            raise _nothing_left(event.kind)
    return _replaced_leaf(event, definition, orders)


def _replaced_leaf(leaf: PrivacyEvent, definition: str, orders: tuple[float, ...]) -> PrivacyEvent:
    """Convert one leaf. By the triangle inequality a sensitivity is at most twice as large under replace-one."""
    match leaf:
        case PureEvent(epsilon):
            return PureEvent(2 * epsilon)
        case ApproxEvent(epsilon, delta):
            return ApproxEvent(2 * epsilon, _replaced_delta(epsilon, delta))
        case ConcentratedEvent(rho):
            return ConcentratedEvent(4 * rho)
        case GaussianEvent(noise_multiplier) | LaplaceEvent(noise_multiplier):
            return replace(leaf, noise_multiplier=noise_multiplier / 2)
        case DiscreteLaplaceEvent(scale, sensitivity):
            return DiscreteLaplaceEvent(scale, 2 * sensitivity)
        case DiscreteGaussianEvent(scale, distance, dimension):
            return DiscreteGaussianEvent(scale, 2 * distance, dimension)
        case ExponentialEvent(epsilon):
            return ExponentialEvent(2 * epsilon)  # the ranges of two losses add
        case PermuteAndFlipEvent(epsilon):
            return PermuteAndFlipEvent(2 * epsilon)  # scores move by twice as much
    return _replaced_sample(leaf, definition, orders)


def _replaced_sample(leaf: PrivacyEvent, definition: str, orders: tuple[float, ...]) -> PrivacyEvent:
    """Convert a leaf of another kind, such as a sampled one, by what is known of it in the account's definition."""
    epsilon_alone = pure_cost_of(leaf)
    if epsilon_alone is not None:
        return PureEvent(2 * epsilon_alone)
    if failure_of(leaf):
        pair = approx_cost_of(leaf)
        if pair is None:
            raise _nothing_left(leaf.kind)
        return ApproxEvent(2 * pair[0], _replaced_delta(*pair))
    if orders:
        return _listed_event(leaf, orders)
    cost = {"zcdp": concentrated_cost_of, "gdp": gaussian_cost_of}.get(definition, lambda _: None)(leaf)
    if cost is None:
        raise _nothing_left(leaf.kind)
    return ConcentratedEvent(4 * cost) if definition == "zcdp" else GaussianEvent(sqrt_down(1 / (4 * cost)))


def _listed_event(leaf: PrivacyEvent, orders: tuple[float, ...]) -> RenyiEvent:
    """Return a leaf by its divergences for a replaced unit at these orders."""
    found = _replaced_divergences(leaf, orders)
    curve = [
        (Fraction(order), Fraction(float(cost)))
        for order, cost in sorted(zip(orders, found, strict=True))
        if np.isfinite(cost)
    ]
    if not curve:
        raise _nothing_left(leaf.kind)
    return RenyiEvent(tuple(curve))


def _replaced_divergences(leaf: PrivacyEvent, orders: tuple[float, ...]) -> Floats:
    """Return 2a/(2a - 1) D_(2a-1) + D_2a at each order a, rounded up (docs/proofs/replace-one-accounts.md, Theorem 1)."""
    grid = np.array(orders, dtype=np.float64)
    first = renyi_divergences(leaf, tuple((2 * grid - 1).tolist()))
    second = renyi_divergences(leaf, tuple((2 * grid).tolist()))
    return widen(2 * grid / (2 * grid - 1) * first + second)


def _replaced_delta(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return delta (1 + e^epsilon), rounded up."""
    if not delta:
        return delta
    if epsilon > _LARGEST_EXPONENT:
        raise _nothing_left("approx")
    found = round_up(delta * (1 + exp_up(epsilon)), relative=Fraction(0))
    if found >= 1:
        raise _nothing_left("approx")
    return found


def _divide_up(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def _nothing_left(kind: str) -> InvalidRequest:
    return InvalidRequest(
        "Expected a run that has a price in an account which counts replaced units",
        got=kind,
        do='Describe the dataset with adjacency="replace-one", or ask for a smaller epsilon and delta',
    )
