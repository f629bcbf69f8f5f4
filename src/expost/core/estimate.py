"""Numbers computed from releases: their intervals follow from those of the releases, and they cost nothing."""

from __future__ import annotations

import math
import numbers
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from expost.core.errors import WrongArguments

if TYPE_CHECKING:
    from expost.core.release import Receipt

__all__ = ["Arithmetic", "Estimate"]

Ends = tuple[float, float]


class Arithmetic:
    """Arithmetic of numbers with intervals. Comparing uses the values; ``a - b`` shows whether a difference is certain."""

    __array_ufunc__ = None  # so that a NumPy number on the left leaves the operation to this class
    _by_group = False  # numbers by group take over where they are the second operand

    @abstractmethod
    def to_estimate(self) -> Estimate:
        """Return the number with its interval; raise if this is not one number."""

    def _combine(self, other: Any, sign: str, *, swapped: bool = False) -> Any:
        if isinstance(other, Arithmetic) and other._by_group:
            return NotImplemented
        try:
            own, given = self.to_estimate(), _as_estimate(other)
        except _NotANumber:
            return NotImplemented
        return _combine(given, own, sign) if swapped else _combine(own, given, sign)

    def __add__(self, other: Any) -> Any:
        return self._combine(other, "+")

    def __radd__(self, other: Any) -> Any:
        return self._combine(other, "+", swapped=True)

    def __sub__(self, other: Any) -> Any:
        return self._combine(other, "-")

    def __rsub__(self, other: Any) -> Any:
        return self._combine(other, "-", swapped=True)

    def __mul__(self, other: Any) -> Any:
        return self._combine(other, "*")

    def __rmul__(self, other: Any) -> Any:
        return self._combine(other, "*", swapped=True)

    def __truediv__(self, other: Any) -> Any:
        return self._combine(other, "/")

    def __rtruediv__(self, other: Any) -> Any:
        return self._combine(other, "/", swapped=True)

    def __neg__(self) -> Estimate:
        return _combine(_as_estimate(-1), self.to_estimate(), "*")

    def __float__(self) -> float:
        return self.to_estimate().value

    def __int__(self) -> int:
        return int(float(self))

    def __round__(self, digits: int | None = None) -> float:
        return round(float(self), digits)

    def __format__(self, layout: str) -> str:
        return format(float(self), layout) if layout else str(self)

    def __abs__(self) -> Estimate:
        found = self.to_estimate()
        (low, high), ends = found.interval, sorted(map(abs, found.interval))
        least = 0.0 if low <= 0 <= high else ends[0]
        return Estimate(abs(found.value), (least, ends[1]), found.sources, f"|{found.formula}|")

    def _compare(self, other: Any, holds: Callable[[float, float], bool]) -> Any:
        try:
            return holds(float(self), _as_estimate(other).value)
        except _NotANumber:
            return NotImplemented

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, lambda a, b: a < b)

    def __le__(self, other: Any) -> Any:
        return self._compare(other, lambda a, b: a <= b)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, lambda a, b: a > b)

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, lambda a, b: a >= b)


@dataclass(frozen=True, repr=False)
class Estimate(Arithmetic):
    """A number computed from releases, with an interval that holds whenever all of theirs do.

    It is post-processing: computing it costs nothing and reveals nothing new (DR14, Proposition 2.1). The failure probabilities of
    the releases add up (a union bound); a release that is used twice counts once.

    Parameters
    ----------
    value : float
        The number.
    interval : (float, float)
        Where the exact number lies, at the confidence.
    sources : tuple of (Receipt, Fraction), default empty
        The receipts of the releases, with the probability that the intervals of each fail.
    formula : str, default ""
        How it was computed, in public words.

    Examples
    --------
    >>> from expost.core import PureGuarantee, PureLoss, Receipt, Release
    >>> receipt = Receipt(question="count", method="discrete Laplace", promise=PureGuarantee(1), bill=PureLoss(1))
    >>> count = Release(40, receipt, interval=(38, 42), confidence=Fraction(19, 20))
    >>> count / 10
    Estimate(4, in [3.8, 4.2] at 95 % confidence, from 1 release, free)
    >>> float(2 * count), count > 39
    (80.0, True)
    """

    value: float
    interval: Ends
    sources: tuple[tuple[Receipt, Fraction], ...] = ()
    formula: str = ""

    @property
    def confidence(self) -> Fraction:
        """Return the probability that the interval holds, at least."""
        return max(1 - sum((failure for _, failure in self.sources), Fraction(0)), Fraction(0))

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Return the receipts of the releases that were used."""
        return tuple(receipt for receipt, _ in self.sources)

    def to_estimate(self) -> Estimate:
        """Return this estimate."""
        return self

    def __repr__(self) -> str:
        low, high = self.interval
        count = f"{len(self.sources)} release" + ("" if len(self.sources) == 1 else "s")
        sure = f"{100 * float(self.confidence):.4g} % confidence"
        return f"Estimate({self.value:.6g}, in [{low:.6g}, {high:.6g}] at {sure}, from {count}, free)"


class _NotANumber(Exception):
    """The other operand is not a number, so Python may try its own operator."""


def _as_estimate(value: Any) -> Estimate:
    if isinstance(value, Arithmetic):
        return value.to_estimate()
    # Fractions and NumPy's scalars are registered as real numbers.
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _NotANumber
    number = float(value)
    if not math.isfinite(number):
        raise WrongArguments("Expected a finite number", got=number, do="Pass a finite number")
    return Estimate(number, (number, number), formula=f"{number:g}")


def _combine(first: Estimate, second: Estimate, sign: str) -> Estimate:
    """Combine two estimates: values by the operator, intervals by interval arithmetic."""
    (a, b), (c, d), x, y = first.interval, second.interval, first.value, second.value
    known = {id(receipt) for receipt in first.receipts}
    sources = first.sources + tuple(each for each in second.sources if id(each[0]) not in known)
    formula = f"({first.formula} {sign} {second.formula})"
    if sign == "+":
        return Estimate(x + y, (a + c, b + d), sources, formula)
    if sign == "-":
        return Estimate(x - y, (a - d, b - c), sources, formula)
    if sign == "*":
        corners = [_times(end, other) for end in (a, b) for other in (c, d)]
        return Estimate(x * y, (min(corners), max(corners)), sources, formula)
    if not y:
        raise WrongArguments("Cannot divide by a value of 0", do="Divide by a release that is not 0")
    if c <= 0 <= d:  # the exact divisor may be 0
        return Estimate(x / y, (-math.inf, math.inf), sources, formula)
    corners = [end / other if math.isfinite(other) else 0.0 for end in (a, b) for other in (c, d)]
    return Estimate(x / y, (min(corners), max(corners)), sources, formula)


def _times(a: float, b: float) -> float:
    """Multiply; 0 times infinity is 0, as for every finite number in between."""
    return 0.0 if a == 0 or b == 0 else a * b
