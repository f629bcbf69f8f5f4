"""``score``: an argument when a model is made, a method when it is used."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

__all__ = ["ScoreParameter"]


class ScoreParameter:
    """Lets ``Model(score=("r2", 0.6))`` and ``model.score(X, y)`` live under one name.

    The argument is kept in the instance's dictionary, where ``get_params`` finds it; reading the attribute gives the
    method, as scikit-learn expects of every estimator.

    >>> class Model:
    ...     score = ScoreParameter(lambda self, X, y: 1.0)
    >>> model = Model()
    >>> model.score = ("r2", 0.6)
    >>> vars(model), model.score([[1]], [1])
    ({'score': ('r2', 0.6)}, 1.0)
    """

    def __init__(self, method: Callable[..., float]) -> None:
        self._method = method

    def __get__(self, instance: Any, owner: type) -> Any:
        return self._method if instance is None else partial(self._method, instance)

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__["score"] = value
