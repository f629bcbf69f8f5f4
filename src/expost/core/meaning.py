"""What a bill means for one person: a privacy loss as a posterior belief, in numbers and in a sentence.

Write L for the privacy loss, the logarithm of how much likelier the answer is with a person's data than without. Bayes'
rule turns a bound on L into a bound on belief. Every bound x here comes with a probability b: the answer, or anything
computed from it, has L > x with probability b at most. Proofs: docs/proofs/interpretation.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from numbers import Real
from statistics import NormalDist
from typing import cast

from expost.core.errors import InvalidRequest
from expost.core.loss import ApproxLoss, GaussianLoss, Loss, PureLoss, RenyiLoss, ZeroConcentratedLoss
from expost.core.rational import decimal_text, finite, float_up, rational

__all__ = [
    "approx_loss_bound",
    "concentrated_loss_bound",
    "explain_belief",
    "explain_loss",
    "gaussian_loss_bound",
    "loss_bound",
    "percent_text",
    "posterior_bound",
    "renyi_loss_bound",
]

_REPORT_CHANCE = Fraction(1, 10**6)  # the exception that is allowed where a bill names no delta
_WIDER = 100  # how many times delta the exception of an (epsilon, delta) bill is: the loss is then epsilon + 0.0101
_LARGE_DELTA = Fraction(1, 10**4)  # from which on the square root of delta is less than a hundred times delta
_MARGIN = 2.0**-40  # relative slack of a float formula, 4,096 units of 2^-52, as in accounting.rounding
_LEAST_ORDER = math.nextafter(1.0, 2.0)  # what an order above 1 may be rounded to
_FAR = 25.0  # from which on the normal tail is bounded by a fraction, off by less than 1e-9 of itself
_LEAST_SURE_DIGITS, _MOST_SURE_DIGITS = 3, 9

BoundAt = Callable[[Fraction], float]
"""A privacy loss that is exceeded with the given probability at most."""


def posterior_bound(prior: float, epsilon: float) -> float:
    """Return the largest belief that an attacker with this prior can reach from an outcome of this loss.

    Bayes' rule with a likelihood ratio of at most e^epsilon (DR14, Definition 2.4; WZ10, Theorem 2.4).

    Parameters
    ----------
    prior : float
        The belief before, in [0, 1].
    epsilon : float
        The privacy loss, at least 0; may be infinite.

    Returns
    -------
    float

    Examples
    --------
    >>> round(posterior_bound(0.5, 0.1), 4)
    0.525
    """
    belief, given = finite(prior, "prior"), cast(object, epsilon)
    loss = math.inf if isinstance(given, Real) and given == math.inf else finite(given, "epsilon")
    if loss < 0:
        raise InvalidRequest("Expected epsilon >= 0", got=epsilon, do="Pass a non-negative epsilon")
    if not 0 <= belief <= 1:
        raise InvalidRequest("Expected prior between 0 and 1", got=prior, do="Pass a probability such as 0.5")
    if belief == 0:
        return 0.0  # no evidence moves it, not even an infinite loss
    # Written with e^-epsilon so that a large epsilon cannot overflow.
    return belief / (belief + (1 - belief) * math.exp(-loss))


def loss_bound(loss: Loss, failure_probability: float | Fraction = 0) -> float:
    """Return a privacy loss that an answer with this bill exceeds with this probability at most.

    The result is infinite where no bound is known.

    Epsilon is such a bound for pure bills only: other ones may exceed the epsilon of (epsilon, delta) far more often than
    with probability delta.

    >>> loss_bound(PureLoss(0.5)), loss_bound(ApproxLoss(1, 1e-6), 1e-6)
    (0.5, inf)
    >>> round(loss_bound(ApproxLoss(1, 1e-6), 1e-4), 4)
    1.0101
    """
    chance = rational(failure_probability, "failure_probability", positive=False)
    match loss:
        case PureLoss(epsilon):
            return approx_loss_bound(epsilon, Fraction(0), chance)
        case ApproxLoss(epsilon, delta):
            return approx_loss_bound(epsilon, delta, chance)
        case ZeroConcentratedLoss(rho):
            return concentrated_loss_bound(rho, chance)
        case GaussianLoss(mu_squared):
            return gaussian_loss_bound(mu_squared, chance)
        case RenyiLoss(curve):
            return renyi_loss_bound(((float(order), float_up(cost)) for order, cost in curve), chance)
    raise TypeError(f"Expected a known loss, got {type(loss).__name__}.")


def approx_loss_bound(epsilon: Fraction, delta: Fraction, chance: Fraction) -> float:
    """Return epsilon - ln(1 - delta/b), the smallest bound for all (epsilon, delta) mechanisms (interpretation.md, Theorem 2)."""
    if not delta:
        return float_up(epsilon)
    # An event A of probability b and loss above x: b <= e^epsilon Q(A) + delta and Q(A) < e^-x b.
    left = 1 - delta / chance if chance > delta else Fraction(0)
    shown = math.nextafter(float(left), 0.0)
    return math.inf if shown <= 0 else (float(epsilon) - math.log(shown)) * (1 + _MARGIN)


def concentrated_loss_bound(rho: Fraction, chance: Fraction) -> float:
    """Return rho + 2 sqrt(rho ln(1/b)), Chernoff's bound over all orders (BS16, Proposition 1.3; interpretation.md, Theorem 3)."""
    if not rho:
        return 0.0
    return (float(rho) + 2 * math.sqrt(float(rho) * _log_inverse(chance))) * (1 + _MARGIN)


def renyi_loss_bound(curve: Iterable[tuple[float, float]], chance: Fraction) -> float:
    """Return the smallest R_a + ln(1/b)/(a - 1) over pairs (a, R_a), Chernoff's bound at each order (interpretation.md, Theorem 3)."""
    log = _log_inverse(chance)
    above = ((max(order, _LEAST_ORDER) - 1, cost) for order, cost in curve)
    # The float of an order may be off by 2^-53 of it, which is more of the order minus one: hence the factor.
    return min(
        ((cost + log / order * (1 + _MARGIN / order)) * (1 + _MARGIN) for order, cost in above), default=math.inf
    )


def gaussian_loss_bound(mu_squared: Fraction, chance: Fraction) -> float:
    """Return ln(b / Q(z + mu)) with Q(z) = b, Q the normal upper tail; it is exact (interpretation.md, Theorem 1)."""
    if not mu_squared or chance >= 1:
        return 0.0
    shown = float(chance)
    if shown == 0:
        return math.inf
    mu = math.sqrt(float(mu_squared)) * (1 + _MARGIN)
    z = -NormalDist().inv_cdf(shown)
    far = z + 2.0**-48 * (1 + abs(z)) + mu  # a quantile of the standard library is right to a few units of 2^-52
    slack = 16 * 2.0**-52 * (4 + far**2 + abs(math.log(shown)))
    return (max(0.0, math.log(shown) - _log_normal_tail(far)) + slack) * (1 + _MARGIN)


def _log_normal_tail(far: float) -> float:
    """Return the logarithm of Q(far), or a lower bound on it far in the tail."""
    if far < _FAR:
        return math.log(math.erfc(far / math.sqrt(2)) / 2)
    # The fourth convergent of Laplace's continued fraction of Mills' ratio, one of those below it (tested against exact tails).
    square = 1 / far**2
    ratio = (1 + 5 * square) / (1 + 6 * square + 3 * square**2) / far
    return -(far**2) / 2 - math.log(2 * math.pi) / 2 + math.log(ratio)


def explain_loss(loss: Loss, *, unit: str = "one row") -> str:
    """Explain in one sentence what this bill means for a person in the data.

    Parameters
    ----------
    loss : Loss
        The bill.
    unit : str, default "one row"
        What one person is, as ``str(Unit)`` writes it.

    Returns
    -------
    str

    Examples
    --------
    >>> print(explain_loss(PureLoss(0.1)))
    Someone who knows everything but whether one row is yours, and thinks 50 % likely that it is, can be at most 52.5 % sure after seeing this answer.
    """
    match loss:
        case PureLoss():
            stated = Fraction(0)
        case ApproxLoss(_, delta):
            stated = delta
        case _:
            stated = _REPORT_CHANCE
    return explain_belief(lambda chance: loss_bound(loss, chance), stated, unit=unit, seen="this answer") + "."


def explain_belief(
    bound_at: BoundAt, chance: Fraction, *, prior: float = 0.5, unit: str = "one row", seen: str = "all this"
) -> str:
    """Return half a sentence: how sure anyone can become, and with which probability they may become surer.

    Without an exception where one would not lower the bound; else with probability ``chance``; and where no loss is known
    at ``chance``, as for a bill of which only this delta is known, at a hundred times that (its square root, if less).

    >>> explain_belief(lambda chance: 1.0, Fraction(0)).split(", ")[-1]
    'can be at most 73.2 % sure after seeing all this'
    """
    allowed, bound = _choose_exception(bound_at, chance)
    many = unit.startswith("all ")
    are, they = ("are", "they are") if many else ("is", "it is")
    but = f", except with probability {decimal_text(allowed, 3)}" if allowed else ""
    return (
        f"Someone who knows everything but whether {unit} {are} yours, and thinks {percent_text(prior)} % likely that {they}, "
        f"can be at most {percent_text(posterior_bound(prior, bound))} % sure after seeing {seen}{but}"
    )


def _choose_exception(bound_at: BoundAt, chance: Fraction) -> tuple[Fraction, float]:
    """Return the exception to state, and the loss that is exceeded in it only."""
    never = bound_at(Fraction(0))
    for allowed in (chance, _widen_delta(chance)) if chance else ():
        bound = bound_at(allowed)
        if math.isfinite(bound):
            return (allowed, bound) if bound < never * (1 - _MARGIN) else (Fraction(0), never)
    return Fraction(0), never


def percent_text(share: float) -> str:
    """Return a probability in per cent, rounded up at the third digit, or at a later one where that would make it 100.

    >>> percent_text(0.52498), percent_text(0.99966), percent_text(1.0)
    ('52.5', '99.97', '100')
    """
    if share >= 1:
        return "100"
    # A float by its shortest decimal: a caller who typed 0.1 reads 10.
    exact = 100 * Fraction(str(float(share)))
    texts = (decimal_text(exact, digits) for digits in range(_LEAST_SURE_DIGITS, _MOST_SURE_DIGITS + 1))
    return next((text for text in texts if float(text) < 100), "100")


def _widen_delta(delta: Fraction) -> Fraction:
    """Return the exception to state for a bill with this delta: a short number above it, at most 1."""
    aimed = _WIDER * delta if delta <= _LARGE_DELTA else Fraction(math.sqrt(delta))
    return min(Fraction(decimal_text(aimed, 2)), Fraction(1))


def _log_inverse(chance: Fraction) -> float:
    """Return ln(1/b) for b at most 1, rounded up."""
    shown = math.nextafter(float(min(chance, Fraction(1))), 0.0)
    return math.inf if shown <= 0 else -math.log(shown)
