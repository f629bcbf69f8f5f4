"""What a fit is asked for: an excess risk, a score, or a privacy level."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from expost.core import BudgetExceeded, InvalidRequest, Measure, Target
from expost.core.rational import probability, rational

__all__ = ["Aim"]

_MEASURES = {
    "r2": Measure.R2,
    "rmse": Measure.RMSE,
    "accuracy": Measure.ACCURACY,
    "log_loss": Measure.LOG_LOSS,
}
_LEAST_EPSILON = Fraction(1, 10**9)  # the noise of a fit is about 2^31 / epsilon grid steps, and 2^76 can be drawn
_SHARES = (Measure.R2, Measure.ACCURACY)  # scores below 1


@dataclass(frozen=True)
class Aim:
    """One of an accuracy with a cap on what it may cost, or a fixed epsilon.

    >>> print(Aim.of(excess_risk=0.01, failure_probability=0.1, max_epsilon=1).target)
    excess risk <= 0.01 with probability 0.9
    >>> Aim.of(failure_probability=0.1, max_epsilon=1)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected exactly one of excess_risk, score and epsilon. Pass the one you need.
    """

    target: Target | None
    epsilon: Fraction | None
    failure_probability: Fraction
    cap: Fraction

    @classmethod
    def of(
        cls,
        *,
        excess_risk: object = None,
        score: object = None,
        epsilon: object = None,
        failure_probability: object,
        max_epsilon: object,
        scores: tuple[str, ...] = tuple(_MEASURES),
    ) -> Aim:
        """The aim behind the usual arguments; ``scores`` are the names that the model offers."""
        if sum(given is not None for given in (excess_risk, score, epsilon)) != 1:
            raise InvalidRequest("Expected exactly one of excess_risk, score and epsilon", do="Pass the one you need")
        failure = probability(failure_probability, "failure_probability")
        if epsilon is not None:
            level = rational(epsilon, "epsilon")
            if level < _LEAST_EPSILON:
                raise InvalidRequest(
                    "Expected epsilon of at least 1e-9", got=epsilon, do="Raise it: noise drowns the model"
                )
            return cls(None, level, failure, level)
        if excess_risk is not None:
            target = Target(Measure.EXCESS_RISK, rational(excess_risk, "excess_risk"), failure)
        else:
            target = Target(*_read_score(score, scores), failure)
        return cls(target, None, failure, rational(max_epsilon, "max_epsilon"))

    @property
    def tolerance(self) -> float:
        """The accuracy asked for, as a float not above (for a loss) what was asked."""
        assert self.target is not None
        return float(self.target.tolerance) * (1 - 1e-12)

    def afford(self, epsilon: Fraction) -> Fraction:
        """``epsilon``, if the cap allows it; refused before the data is touched otherwise."""
        if epsilon > self.cap:
            raise BudgetExceeded(
                f"Expected a target that costs at most {float(self.cap):.4g}",
                got=f"epsilon {float(epsilon):.4g}",
                do="Raise max_epsilon, or ask for less accuracy",
            )
        return epsilon


def _read_score(score: object, names: tuple[str, ...]) -> tuple[Measure, Fraction]:
    do = f'Pass a pair such as ("{names[0]}", 0.5)' if names else "Pass excess_risk or epsilon"
    if not (isinstance(score, tuple | list) and len(score) == 2 and score[0] in names):
        raise InvalidRequest(f"Expected score to be a name of {', '.join(names) or 'none'} and a number", do=do)
    value = rational(score[1], "score")
    measure = _MEASURES[score[0]]
    if measure in _SHARES and value >= 1:
        raise InvalidRequest(f"Expected a score of {score[0]} below 1", got=score[1], do=do)
    return measure, value
