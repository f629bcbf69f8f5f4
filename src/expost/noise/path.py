"""What all paths share: sealed integers in, rungs by index, values out."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Ladder, Norm, Sealed, unseal
from expost.noise.lattice import integers

__all__ = [
    "check_block",
    "check_norm",
    "check_rung",
    "exact_column",
    "ladder_of",
    "narrowed",
    "refuse_copies",
]


def ladder_of(rungs: Ladder | Iterable[float | Fraction]) -> Ladder:
    """The ladder a caller passed, or the one of its numbers."""
    return rungs if isinstance(rungs, Ladder) else Ladder.of(rungs)


def check_norm(sealed: Sealed, norm: Norm) -> Fraction:
    """The sensitivity of a sealed answer, if it is measured in the norm its noise protects."""
    if not isinstance(sealed, Sealed):
        raise InvalidRequest("Expected a sealed exact answer", do="Seal it with its sensitivity")
    if sealed.sensitivity.norm is not norm:
        name = norm.value.upper()
        raise InvalidRequest(
            f"Expected an {name} sensitivity",
            got=sealed.sensitivity.norm.value,
            do=f"Seal the answer with its {name} bound",
        )
    return Fraction(sealed.sensitivity.amount)


def exact_column(sealed: Sealed) -> NDArray[Any]:
    """The sealed answer as a flat column of integers, in a type that depends on the sealed type alone."""
    column = np.atleast_1d(integers(unseal(sealed)))
    if column.ndim != 1:
        raise InvalidRequest("Expected a sealed integer or a flat array of integers", do="Flatten it")
    return column


def check_rung(ladder: Ladder, rung: int) -> int:
    """The index a caller passed, if it names a rung."""
    if isinstance(rung, bool) or not isinstance(rung, int | np.integer) or not 0 <= rung < len(ladder):
        raise InvalidRequest(f"Expected a rung from 0 to {len(ladder) - 1}", got=rung, do="Pass its index")
    return int(rung)


def check_block(ladder: Ladder, start: int, stop: int) -> tuple[int, int]:
    """The range of rungs a caller passed, if it is a range of at least one."""
    first, last = check_rung(ladder, start), check_rung(ladder, stop - 1)
    if first > last:
        raise InvalidRequest("Expected start below stop", got=start, do="Ask for at least one rung")
    return first, last + 1


def narrowed(values: NDArray[Any]) -> NDArray[Any]:
    """Noise as int64 if it fits; for noise that is kept secret, whose type nobody sees."""
    if values.dtype == object and all(-(1 << 63) <= value < 1 << 63 for value in values.flat):
        return values.astype(np.int64)
    return values


def refuse_copies(*_: object) -> NoReturn:
    """What a path answers to pickle and copy."""
    raise TypeError("Expected a path to stay where it is; its less private rungs are as good as the data.")
