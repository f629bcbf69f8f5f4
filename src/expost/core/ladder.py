"""Privacy levels in increasing order."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from expost.core.errors import InvalidRequest
from expost.core.rational import rational, whole

__all__ = ["Ladder"]

_DIGITS = 6  # significant decimals of a rung: fine enough to search, short enough for exact arithmetic
_MOST_RUNGS = 100_000


@dataclass(frozen=True, slots=True)
class Ladder:
    """Exact privacy levels, most private first; the top rung is the cap.

    >>> Ladder.geometric(0.01, 1, rungs=3).rungs
    (Fraction(1, 100), Fraction(1, 10), Fraction(1, 1))
    >>> Ladder.geometric(0.01, 1).cap
    Fraction(1, 1)
    """

    rungs: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.rungs, Iterable):
            raise InvalidRequest("Expected privacy levels", got=self.rungs, do="Pass several, such as (0.1, 1)")
        rungs = tuple(rational(rung, "rung") for rung in self.rungs)
        if not rungs or any(low >= high for low, high in itertools.pairwise(rungs)):
            raise InvalidRequest("Expected strictly increasing privacy levels", do="Sort the rungs and drop repeats")
        object.__setattr__(self, "rungs", rungs)

    @classmethod
    def of(cls, rungs: Iterable[float | Fraction]) -> Ladder:
        """A ladder of the given levels."""
        return cls(rungs)  # type: ignore[arg-type]  # a ladder keeps them as a tuple

    @classmethod
    def geometric(
        cls, lowest: float | Fraction, highest: float | Fraction, *, rungs: int | None = None, ratio: float = 1.1
    ) -> Ladder:
        """Levels in (nearly) constant ratio, rounded to short decimals; both ends exact.

        Prefixes of a gradual release cost only their last rung, so rungs are free; their number enters the
        certificate's failure budget only through its logarithm (MATHS: LNRWW17, Theorem 2.7).
        """
        low, high = rational(lowest, "lowest rung"), rational(highest, "highest rung")
        if low > high:
            raise InvalidRequest("Expected the lowest rung below the highest", got=lowest, do="Swap them")
        width, factor = math.log(float(high / low)), float(rational(ratio, "ratio"))
        if factor <= 1:
            raise InvalidRequest("Expected ratio above 1", got=ratio, do="Pass e.g. 1.1")
        wanted = math.ceil(width / math.log(factor)) + 1 if rungs is None else rungs
        count = whole(wanted, "rungs", least=1, most=_MOST_RUNGS, do="Widen the ratio, or pass fewer")
        if low == high or count == 1:
            return cls((high,))
        step = width / (count - 1)
        between = (_short(float(low) * math.exp(step * index)) for index in range(1, count - 1))
        inner = sorted({rung for rung in between if low < rung < high})
        return cls((low, *inner, high))

    @property
    def cap(self) -> Fraction:
        """The least private level: what a run can cost at most."""
        return self.rungs[-1]

    def first_at_least(self, level: Fraction) -> int:
        """The index of the most private rung that is not below ``level`` (the length if there is none)."""
        return bisect_left(self.rungs, level)

    def __len__(self) -> int:
        return len(self.rungs)

    def __iter__(self) -> Iterator[Fraction]:
        return iter(self.rungs)

    def __getitem__(self, index: int) -> Fraction:
        return self.rungs[index]


def _short(value: float) -> Fraction:
    exponent = math.floor(math.log10(value)) - _DIGITS + 1
    grid = Fraction(10) ** exponent
    return round(Fraction(value) / grid) * grid
