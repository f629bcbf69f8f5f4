"""What a bill means for one person, in a sentence."""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Real

from expost.core.errors import InvalidRequest
from expost.core.loss import ApproxLoss, GaussianLoss, Loss, PureLoss, RenyiLoss, ZeroConcentratedLoss
from expost.core.rational import finite

__all__ = ["explain_loss", "posterior_bound"]

_REPORT_DELTA = Fraction(1, 10**6)  # at which losses without an epsilon are put into words


def posterior_bound(prior: float, epsilon: float) -> float:
    """The largest belief an attacker with this prior can reach from an outcome of this loss.

    Bayes' rule with a likelihood ratio of at most e^epsilon (DR14, Definition 2.4; WZ10, Theorem 2.4).

    >>> round(posterior_bound(0.5, 0.1), 4)
    0.525
    """
    belief, loss = finite(prior, "prior"), _loss_of(epsilon)
    if not 0 <= belief <= 1:
        raise InvalidRequest("Expected prior between 0 and 1", got=prior, do="Pass a probability such as 0.5")
    if belief == 0:
        return 0.0  # no evidence moves it, not even an endless loss
    # Written with e^-epsilon so that a large epsilon cannot overflow.
    return belief / (belief + (1 - belief) * math.exp(-loss))


def _loss_of(epsilon: object) -> float:
    """A number >= 0, or infinity, which a bill may be."""
    if isinstance(epsilon, Real) and epsilon == math.inf:
        return math.inf
    found = finite(epsilon, "epsilon")
    if found < 0:
        raise InvalidRequest("Expected epsilon >= 0", got=epsilon, do="Pass a non-negative epsilon")
    return found


def explain_loss(loss: Loss, *, unit: str = "one row") -> str:
    """One plain sentence about what this bill means for a person in the data.

    >>> print(explain_loss(PureLoss(0.1)))
    Someone who knows everything but whether one row is yours, and thinks that 50 % likely, can be at most 52.5 % sure after seeing this answer.
    """
    epsilon, delta = _as_epsilon_delta(loss)
    are = "are" if unit.startswith("all ") else "is"
    percent = math.ceil(1000 * posterior_bound(0.5, float(epsilon)) - 1e-9) / 10
    text = (
        f"Someone who knows everything but whether {unit} {are} yours, and thinks that 50 % likely, "
        f"can be at most {min(percent, 100.0):.3g} % sure after seeing this answer"
    )
    if delta:
        text += f", except with probability about {float(delta):.1g}"
    return text + "."


def _as_epsilon_delta(loss: Loss) -> tuple[float, Fraction]:
    match loss:
        case PureLoss(epsilon):
            return float(epsilon), Fraction(0)
        case ApproxLoss(epsilon, delta):
            return float(epsilon), delta
        case ZeroConcentratedLoss(rho):
            return _zcdp_epsilon(float(rho)), _REPORT_DELTA
        case GaussianLoss(mu_squared):
            return _zcdp_epsilon(float(mu_squared) / 2), _REPORT_DELTA
        case RenyiLoss(curve):
            # Mir17, Proposition 3, at the best listed order.
            log = math.log(1 / _REPORT_DELTA)
            return min(float(e) + log / (float(order) - 1) for order, e in curve), _REPORT_DELTA
    raise TypeError(f"Expected a known loss, got {type(loss).__name__}.")


def _zcdp_epsilon(rho: float) -> float:
    # BS16, Proposition 1.3; a loose but safe conversion, enough for a sentence.
    return rho + 2 * math.sqrt(rho * math.log(1 / _REPORT_DELTA))
