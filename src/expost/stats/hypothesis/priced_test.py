"""What all tests share: a price known before the run, and numbers under exact noise."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from expost.core import InvalidRequest, Ladder, Loss, PureLoss, Sealed
from expost.noise import BitSource, DiscreteLaplacePath
from expost.stats.hypothesis.price import Ask, Priced

__all__ = ["PricedTest", "under_noise"]


class PricedTest:
    """The base of tests asked of a dataset; the epsilon given, or the one that ``check`` finds for a power.

    >>> PricedTest(Ask(epsilon=0.5)).worst_case
    PureLoss(epsilon=Fraction(1, 2))
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._found: Priced | None = ask.fixed

    @property
    def worst_case(self) -> Loss:
        """The price; of a power, known after ``check``."""
        return PureLoss(self._priced.epsilon)

    @property
    def _priced(self) -> Priced:
        if self._found is None:
            raise InvalidRequest("Expected a dataset to price the power for", do="Call check(dataset) first")
        return self._found

    @_priced.setter
    def _priced(self, priced: Priced) -> None:
        self._found = priced


def under_noise(sealed: Sealed, epsilon: Fraction, bits: BitSource | None) -> Any:
    """The sealed integers under discrete Laplace noise: all that a test releases, the rest is post-processing.

    >>> from expost.core import Sensitivity
    >>> from expost.noise import SeededBits
    >>> under_noise(Sealed(41, Sensitivity(1)), Fraction(10), SeededBits(1)).tolist()
    [41]
    """
    return DiscreteLaplacePath(sealed, Ladder((epsilon,)), bits=bits).at(0)
