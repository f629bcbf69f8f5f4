"""Privacy levels in increasing order."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from expost.core.errors import InvalidRequest
from expost.core.rational import rational

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
        rungs = tuple(rational(rung, "rung") for rung in self.rungs)
        if not rungs or any(low >= high for low, high in itertools.pairwise(rungs)):
            raise InvalidRequest("Expected strictly increasing privacy levels", do="Sort the rungs and drop repeats")
        object.__setattr__(self, "rungs", rungs)

    @classmethod
    def of(cls, rungs: Iterable[float | Fraction]) -> Ladder:
        """A ladder of the given levels."""
        return cls(tuple(rational(rung, "rung") for rung in rungs))

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
        if rungs is None:
            rungs = math.ceil(math.log(float(high / low)) / math.log(ratio)) + 1
        if not 1 <= rungs <= _MOST_RUNGS:
            raise InvalidRequest(f"Expected between 1 and {_MOST_RUNGS} rungs", got=rungs, do="Widen the ratio")
        if low == high or rungs == 1:
            return cls((high,))
        step = math.log(float(high / low)) / (rungs - 1)
        between = (_short(float(low) * math.exp(step * index)) for index in range(1, rungs - 1))
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
