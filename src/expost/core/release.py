"""The only thing that leaves."""

from __future__ import annotations

import html
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Generic, TypeVar

from expost.core.picture import draw
from expost.core.receipt import Receipt

__all__ = ["Release", "Step"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """One rung of a climb as it could be seen from outside: level, value, interval.

    Showing the rungs below the last is free: each is a randomisation of the last (LNRWW17, Theorem 2.7).

    >>> Step(Fraction(1, 10), 41.0, 30.0, 52.0).width
    22.0
    """

    epsilon: Fraction
    value: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """The length of the interval."""
        return self.high - self.low


@dataclass(frozen=True)
class Release(Generic[T]):
    """A value, its interval and its receipt; the loss never travels without the value, nor the value without it.

    >>> from expost.core import PureGuarantee, PureLoss
    >>> receipt = Receipt(question="count", method="discrete Laplace", promise=PureGuarantee(1), bill=PureLoss(1))
    >>> Release(41, receipt, interval=(38, 44))
    Release(41, in [38, 44], epsilon 1)
    """

    value: T
    receipt: Receipt
    interval: tuple[Any, Any] | None = None
    climb: tuple[Step, ...] = ()

    def entered(self, ledger_entry: str) -> Release[T]:
        """This release with the id under which a ledger keeps its receipt."""
        return replace(self, receipt=self.receipt.entered(ledger_entry))

    def plot(self, path: str | None = None, **options: Any) -> Any:
        """Draw the climb (rung, interval, target); to a PNG or SVG file if ``path`` is given."""
        return draw("climb", self, path=path, **options)

    def __repr__(self) -> str:
        between = "" if self.interval is None else f", in [{self.interval[0]}, {self.interval[1]}]"
        warning = ", SIMULATION" if self.receipt.simulation else ""
        return f"{type(self).__name__}({self.value!r}{between}, {self.receipt.bill}{warning})"

    def _repr_html_(self) -> str:
        return f"<p><b>{html.escape(repr(self))}</b></p>{self.receipt._repr_html_()}"
