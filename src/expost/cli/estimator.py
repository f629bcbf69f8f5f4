"""The estimator that the options of ``expost fit`` describe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from expost.core import Guarantee, InvalidRequest, epsilon

__all__ = ["EstimatorOptions"]

_CONVEX = ("ridge", "logistic", "huber-svm")
_DESCENT = ("sgd-classifier", "sgd-regressor")
_PENALTY = 0.005
_DELTA = 1e-6


@dataclass(frozen=True, kw_only=True)
class EstimatorOptions:
    """What was typed; what does not go with the model is refused before the ledger is opened.

    >>> options = EstimatorOptions(model="sgd-regressor", rows=1000, bounds=[(0, 1)], epsilon=1.0, target_bound=300.0)
    >>> options.adjacency, options.budget(2.0)
    ('add-remove', ApproxGuarantee(epsilon=Fraction(2, 1), delta=Fraction(1, 1000000)))
    """

    model: str
    rows: int
    bounds: list[tuple[Any, Any]]
    excess_risk: float | None = None
    score: str | None = None
    epsilon: float | None = None
    target_bound: float = 1.0
    classes: str | None = None
    regularization: float | None = None
    max_epsilon: float = 1.0
    failure_probability: float = 0.1
    method: str | None = None
    delta: float | None = None
    solver: str | None = None

    def __post_init__(self) -> None:
        if self.model not in (*_CONVEX, *_DESCENT):
            names = f"{', '.join((*_CONVEX, *_DESCENT)[:-1])} or {_DESCENT[-1]}"
            raise InvalidRequest(f"Expected --model {names}", got=self.model, do="Name one of them")
        strange = ("excess_risk", "method") if self.descends else ("solver",)
        for name in strange:
            if getattr(self, name) is not None:
                raise InvalidRequest(
                    f"Expected no --{name.replace('_', '-')} beside --model {self.model}",
                    do=f"Leave it out, or pass --model {_CONVEX[0] if self.descends else _DESCENT[0]}",
                )

    @property
    def descends(self) -> bool:
        """Whether it is trained by gradient descent."""
        return self.model in _DESCENT

    @property
    def adjacency(self) -> str:
        """The neighbours that such a model protects."""
        return "add-remove" if self.descends else "replace-one"

    def budget(self, amount: float | None) -> Guarantee | None:
        """The budget of an account that is opened for such a model."""
        return None if amount is None else epsilon(amount, self._delta)

    @property
    def _delta(self) -> float:
        usual = _DELTA if self.descends else 0.0
        return usual if self.delta is None else self.delta

    def estimator(self) -> Any:
        """The estimator, not fitted."""
        shared = {
            "epsilon": self.epsilon,
            "delta": self._delta,
            "bounds": self.bounds,
            "max_epsilon": self.max_epsilon,
            "failure_probability": self.failure_probability,
        }
        return self._descending(shared) if self.descends else self._convex(shared)

    def _convex(self, shared: dict[str, Any]) -> Any:
        from expost.models import HuberSVC, LogisticRegression, Ridge

        terms = shared | {
            "excess_risk": self.excess_risk,
            "score": self._score(),
            "feature_bound": 1.0,
            "regularization": _PENALTY if self.regularization is None else self.regularization,
            "method": self.method or "auto",
        }
        if self.model == "ridge":
            return Ridge(target_bound=self.target_bound, **terms)
        labels = self._labels()
        if len(labels) != 2:
            raise InvalidRequest("Expected --classes negative,positive", got=self.classes, do="Name both labels")
        return (LogisticRegression if self.model == "logistic" else HuberSVC)(classes=labels, **terms)

    def _descending(self, shared: dict[str, Any]) -> Any:
        from expost.models import SGDClassifier, SGDRegressor

        terms = shared | {
            "target": self._score(),
            "rows": self.rows,
            "regularization": self.regularization or 0.0,
            "solver": self.solver or "gradient",
        }
        if self.model == "sgd-regressor":
            return SGDRegressor(target_bounds=(-self.target_bound, self.target_bound), **terms)
        labels = self._labels()
        if len(labels) < 2:
            raise InvalidRequest("Expected --classes a,b,...", got=self.classes, do="Name all labels")
        return SGDClassifier(classes=labels, **terms)

    def _labels(self) -> tuple[Any, ...]:
        return tuple(_number(label) for label in (self.classes or "").split(","))

    def _score(self) -> tuple[str, float] | None:
        if self.score is None:
            return None
        name, _, value = self.score.partition("=")
        try:
            return name, float(value)
        except ValueError:
            raise InvalidRequest("Expected --score as name=value", got=self.score, do="Pass e.g. r2=0.6") from None


def _number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text
