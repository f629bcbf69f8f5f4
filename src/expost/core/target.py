"""What accuracy is wanted, and the ladder of privacy levels that is climbed to reach it."""

from __future__ import annotations

import enum
import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from expost.core.errors import InvalidRequest
from expost.core.rational import decimal_text, probability, rational, whole

__all__ = ["Ladder", "Measure", "Target"]

_DIGITS = 6  # significant decimals of a rung: fine enough to search, short enough for exact arithmetic
_MOST_RUNGS = 100_000


class Measure(enum.Enum):
    """How the distance from the exact answer is measured."""

    ABSOLUTE_ERROR = "absolute error"
    RELATIVE_ERROR = "relative error"
    EXCESS_RISK = "excess risk"
    LOG_LOSS = "log loss"
    RMSE = "rmse"
    MAE = "mae"
    R2 = "r2"
    ACCURACY = "accuracy"
    AUC = "auc"
    POWER = "power"
    RANK_ERROR = "rank error"

    @classmethod
    def _missing_(cls, value: object) -> Measure | None:
        return cls.MAE if value == "mean loss" else None  # in receipts of earlier versions

    @property
    def is_loss(self) -> bool:
        """Whether smaller is better."""
        # These are scores, where a target is reached from below.
        return self not in (Measure.R2, Measure.ACCURACY, Measure.AUC, Measure.POWER)


@dataclass(frozen=True, slots=True)
class Target:
    """The accuracy that an answer must have: measure, tolerance, and how often it may be missed.

    Parameters
    ----------
    measure : Measure
        How the distance from the exact answer is measured.
    tolerance : Fraction
        The largest error, or the smallest score. The power of a test.
    failure_probability : Fraction
        How often it may be missed, in (0, 1). The level of a test.

    Examples
    --------
    >>> print(Target.within("5%", confidence=0.95))
    relative error <= 0.05 with probability 0.95
    >>> print(Target.within(100, confidence=0.9))
    absolute error <= 100 with probability 0.9
    >>> print(Target(Measure.POWER, 0.8, 0.05))
    power >= 0.8 at level 0.05
    """

    measure: Measure
    tolerance: Fraction
    failure_probability: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "tolerance", rational(self.tolerance, "tolerance"))
        object.__setattr__(self, "failure_probability", probability(self.failure_probability, "failure_probability"))

    @classmethod
    def within(cls, within: object, *, confidence: object = 0.95) -> Target:
        """Return the target of ``within=100`` (absolute) or ``within="5%"`` (relative).

        Parameters
        ----------
        within : float or str
            An error in the answer's own units, or a percentage of the answer.
        confidence : float, default 0.95
            The probability with which the error is at most that, in (0, 1).
        """
        # Exact, so that a confidence of 0.95 leaves one twentieth and not a float next to it.
        failure = 1 - probability(confidence, "confidence")
        do = 'Pass a positive number such as 100, or a percentage such as "5%"'
        if not isinstance(within, str):
            return cls(Measure.ABSOLUTE_ERROR, rational(within, "within", do=do), failure)
        # A text without a percent sign is refused: "5" could mean either kind of error.
        number, sign, rest = within.strip().partition("%")
        try:
            share = Fraction(number.strip()) / 100 if sign and not rest else Fraction(-1)
        except (ValueError, ZeroDivisionError):
            share = Fraction(-1)
        if not 0 < share < 1:
            raise InvalidRequest("Expected within to be a percentage between 0% and 100%", got=within, do=do)
        return cls(Measure.RELATIVE_ERROR, share, failure)

    @property
    def confidence(self) -> Fraction:
        """The probability with which the target is reached."""
        return 1 - self.failure_probability

    def to_json(self) -> dict[str, str]:
        """Return a JSON object without loss."""
        return {
            "measure": self.measure.value,
            "tolerance": str(self.tolerance),
            "failure_probability": str(self.failure_probability),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Target:
        """Read the target that ``to_json`` wrote.

        Parameters
        ----------
        data : mapping
            The JSON object.
        """
        return cls(Measure(data["measure"]), Fraction(data["tolerance"]), Fraction(data["failure_probability"]))

    def __str__(self) -> str:
        if self.measure is Measure.POWER:
            return f"power >= {decimal_text(self.tolerance)} at level {decimal_text(self.failure_probability)}"
        sign = "<=" if self.measure.is_loss else ">="
        confidence = f"{float(self.confidence):.6g}"
        return f"{self.measure.value} {sign} {decimal_text(self.tolerance)} with probability {confidence}"


@dataclass(frozen=True, slots=True)
class Ladder:
    """Exact privacy levels, most private first; the top rung is the cap.

    Parameters
    ----------
    rungs : iterable of float or Fraction
        Strictly increasing values of epsilon.

    Examples
    --------
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
        # The price of a prefix is that of its last rung only where noise falls at every rung (LNRWW17, Theorem 2.7).
        if not rungs or any(low >= high for low, high in itertools.pairwise(rungs)):
            raise InvalidRequest("Expected strictly increasing privacy levels", do="Sort the rungs and drop repeats")
        object.__setattr__(self, "rungs", rungs)

    @classmethod
    def of(cls, rungs: Iterable[float | Fraction]) -> Ladder:
        """Return a ladder of the given levels.

        Parameters
        ----------
        rungs : iterable of float or Fraction
            Strictly increasing values of epsilon.
        """
        return cls(rungs)  # type: ignore[arg-type]  # a ladder keeps them as a tuple

    @classmethod
    def geometric(
        cls, lowest: float | Fraction, highest: float | Fraction, *, rungs: int | None = None, ratio: float = 1.1
    ) -> Ladder:
        """Return levels in (nearly) constant ratio, rounded to short decimals, with both ends exact.

        Prefixes of a gradual release cost only their last rung, so rungs are free. Their number enters the
        certificate's failure budget only through its logarithm (LNRWW17, Theorem 2.7).

        Parameters
        ----------
        lowest : float or Fraction
            The most private level.
        highest : float or Fraction
            The least private level: the cap.
        rungs : int, optional
            The number of levels. Default: as many as ``ratio`` gives.
        ratio : float, default 1.1
            The ratio of consecutive levels, above 1.
        """
        low, high = rational(lowest, "lowest rung"), rational(highest, "highest rung")
        if low > high:
            raise InvalidRequest("Expected the lowest rung below the highest", got=lowest, do="Swap them")
        # The ends are exact rationals; only the rungs between them come from floats and are rounded.
        width, factor = math.log(float(high / low)), float(rational(ratio, "ratio"))
        if factor <= 1:
            raise InvalidRequest("Expected ratio above 1", got=ratio, do="Pass e.g. 1.1")
        wanted = math.ceil(width / math.log(factor)) + 1 if rungs is None else rungs
        count = whole(wanted, "rungs", least=1, most=_MOST_RUNGS, do="Widen the ratio, or pass fewer")
        if low == high or count == 1:
            return cls((high,))
        step = width / (count - 1)
        inner = set()
        for index in range(1, count - 1):
            value = float(low) * math.exp(step * index)
            # Short decimals keep exact sampling fast: the size of its integers grows with the denominators.
            grid = Fraction(10) ** (math.floor(math.log10(value)) - _DIGITS + 1)
            inner.add(round(Fraction(value) / grid) * grid)
        # Rounding can push a rung onto its neighbor or past an end; such rungs are dropped.
        return cls((low, *sorted(rung for rung in inner if low < rung < high), high))

    @property
    def cap(self) -> Fraction:
        """The least private level: what a run can cost at most."""
        return self.rungs[-1]

    def first_at_least(self, level: Fraction) -> int:
        """Return the index of the most private rung that is not below ``level``.

        Parameters
        ----------
        level : Fraction
            A privacy level.
        """
        return bisect_left(self.rungs, level)

    def __len__(self) -> int:
        return len(self.rungs)

    def __iter__(self) -> Iterator[Fraction]:
        return iter(self.rungs)

    def __getitem__(self, index: int) -> Fraction:
        return self.rungs[index]
