"""Exact parameters of noise: the scales and shapes that samplers take, and the privacy levels they support."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Ladder, Norm, Sensitivity, share_parameters
from expost.core.rational import rational, whole

__all__ = [
    "BLOCK",
    "LARGEST_RATE",
    "LARGEST_SCALE",
    "MOST_NUMBERS",
    "Parameter",
    "check_gaussian_ladder",
    "check_level",
    "check_scale",
    "iterate_blocks",
    "read_parameter",
    "read_shape",
    "sensitivity_in",
    "share_noise_parameters",
]

LARGEST_SCALE = 1 << 60  # lattice units; values beyond 62 bits are Python integers
LARGEST_RATE = 1000  # noise of exp(-1000) per unit of sensitivity is none at all, and jumps are counted by the rate
MOST_NUMBERS = 1 << 36  # drawn at once: half a terabyte
BLOCK = 1 << 15  # elements processed at a time: their temporaries stay in the cache

share_noise_parameters = share_parameters(
    {
        "bits": "BitSource, optional\nSource of randomness; the system's by default.",
        "sealed": "Sealed\nThe exact integers with their sensitivity, in the norm that the class states.",
        "exact": "int, list or numpy.ndarray of int\nThe exact integers, not sealed.",
        "sensitivity": "Sensitivity\nHow far one unit can move the answer, in the norm that the class states.",
        "epsilon": "float or Fraction\nThe privacy level, > 0; a float means its shortest decimal.",
        "delta": "float or Fraction\nBetween 0 and 1.",
        "failure_probability": "float or Fraction\nBetween 0 and 1, for everything that the bound covers together.",
        "ladder": "Ladder or iterable of numbers\nThe privacy levels of the rungs, increasing; levels with "
        "noise that is none at all or too wide are refused.",
        "threshold": "int\nIn lattice units.",
        "queries": "list or numpy.ndarray of int\nThe exact queries, in the order they are asked.",
        "rung": "int\nThe index of a rung, 0 for the most private one.",
        "start, stop": "int\nThe rungs from ``start`` to ``stop - 1``.",
        "state": "bytes\nWhat ``state`` returned.",
        "runs": "int\nHow many independent runs to make.",
        "coordinates": "int, default 1\nThe length of the answer.",
        "monotone": "bool, default False\nWhether one unit moves all scores or queries in the same direction, as counts under "
        "add/remove do.",
        "candidates": "int\nHow many candidates there are.",
        "records_per_unit": "int, default 1\nHow many records one unit has.",
        "bounds": "LatticeBounds\nThe public range of the records; records outside are clamped.",
        "probability": "Fraction, default 1/2\nWhich quantile, between 0 and 1, with at most six decimals.",
        "power": "int, default 4\nThe tail of the noise: 4, or 2 for Cauchy noise.",
        "smooth_bound": "float\nThe smooth bound S, in lattice units.",
        "scale": "number, or sequence or array of numbers\nExact, from 1e-30 to 2^60 lattice units; a float means its "
        "shortest decimal. One for all, or one per element.",
        "size": "int or tuple of int, optional\nThe shape of the result; None for a single Python value, or for the shape "
        "of the first argument.",
    }
)
"""Completes a docstring with the parameters that mechanisms, paths and samplers share."""


def iterate_blocks(count: int) -> Iterator[slice]:
    """Yield slices that cover ``count`` elements, each short enough for the cache."""
    return (slice(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK))


class Parameter:
    """Distinct exact rationals and, per element, which of them it takes.

    ``floats`` are within 2^-50 (relative) of the exact values: they steer float filters, never an outcome.

    >>> Parameter.read([0.5, 2, 0.5], None, "scale").exact(1)
    Fraction(2, 1)
    """

    def __init__(
        self,
        floats: NDArray[np.float64],
        entry: Callable[[int], Fraction],
        index: NDArray[np.intp] | None,
        shape: tuple[int, ...] | None,
    ) -> None:
        self.floats, self.entry, self.index, self._shape = floats, entry, index, shape
        self.count = math.prod(shape or ()) if index is None else index.size

    @classmethod
    def read(
        cls, value: object, size: object, name: str, *, positive: bool = True, largest: int = LARGEST_SCALE
    ) -> Parameter:
        """Read the parameter that a caller passed: a number with a size, or a sequence or array of numbers."""
        if not isinstance(value, np.ndarray | Sequence) or isinstance(value, str):
            exact = read_parameter(value, name, positive=positive, largest=largest)
            return cls.of_table([exact], None, read_shape(size))
        try:
            # Element by element, so that exact numbers stay exact.
            given = value if isinstance(value, np.ndarray) else np.array(value, dtype=object)
        except ValueError:
            raise InvalidRequest(
                f"Expected {name} to be a number or a regular array of numbers", do="Flatten it"
            ) from None
        if size is not None and read_shape(size) != given.shape:
            raise InvalidRequest(f"Expected one {name} per element", do="Leave size out, or pass a single number")
        if given.dtype == object:
            table, index = _find_distinct(given.ravel().tolist())
        else:
            kept, index = np.unique(given.ravel(), return_inverse=True)
            table = kept.tolist()
        exacts = [read_parameter(each, name, positive=positive, largest=largest) for each in table]
        return cls.of_table(exacts, index, given.shape)

    @classmethod
    def of_table(
        cls, table: Sequence[Fraction], index: NDArray[np.intp] | None, shape: tuple[int, ...] | None = None
    ) -> Parameter:
        """Make a parameter of its distinct values and the place of each element's value among them."""
        return cls(np.array([float(each) for each in table]), table.__getitem__, index, shape)

    @classmethod
    def constant(cls, value: Fraction, shape: tuple[int, ...]) -> Parameter:
        """Make a parameter that is the same for all elements; unlike ``read`` it has no upper limit."""
        return cls(np.array([float(value)]), lambda _: value, None, shape)

    def exact(self, element: int) -> Fraction:
        """Return the exact value of one element."""
        return self.entry(0 if self.index is None else int(self.index[element]))

    def take(self, table: NDArray[Any], part: slice) -> NDArray[Any]:
        """Return the entries of a per-value table for a slice of the elements (one entry if all are alike)."""
        return table if self.index is None else table[self.index[part]]

    def reshape(self, flat: NDArray[Any]) -> Any:
        """Give a result the shape that the caller passed; a single value is a Python integer or boolean."""
        return flat.tolist()[0] if self._shape is None else flat.reshape(self._shape)

    def with_index(self, index: NDArray[np.intp]) -> Parameter:
        """Return a flat column of other elements that take these values."""
        return Parameter(self.floats, self.entry, index, index.shape)

    def select(self, elements: NDArray[np.intp]) -> Parameter:
        """Return the parameter of some of the elements, as a flat column."""
        index = None if self.index is None else self.index[elements]
        return Parameter(self.floats, self.entry, index, (len(elements),))


def _find_distinct(values: list[Any]) -> tuple[list[Any], NDArray[np.intp]]:
    """Return the distinct values in order of appearance, and the place of each value among them."""
    try:
        places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    except TypeError:
        raise InvalidRequest("Expected numbers", do="Pass ints, floats or Fractions") from None
    return list(places), np.array([places[value] for value in values], dtype=np.intp)


def read_parameter(value: object, name: str, *, positive: bool = True, largest: int = LARGEST_SCALE) -> Fraction:
    """Read one number that a sampler takes."""
    # Computed scales may pass the 10^18 that ``rational`` allows for numbers that people type.
    if isinstance(value, int | Fraction | np.integer) and not isinstance(value, bool) and value > 1:
        if value > largest:
            raise InvalidRequest(f"Expected {name} of at most {largest}", got=value, do=f"Pass a smaller {name}")
        return Fraction(int(value) if isinstance(value, np.integer) else value)
    return rational(value, name, positive=positive)


def read_shape(size: object) -> tuple[int, ...] | None:
    """Read the shape that a caller passed; None means a single value."""
    if size is None:
        return None
    lengths = size if isinstance(size, tuple) else (size,)
    shape = tuple(
        whole(length, "size", most=MOST_NUMBERS, do="Pass a length or a tuple of lengths") for length in lengths
    )
    if math.prod(shape) > MOST_NUMBERS:
        raise InvalidRequest(f"Expected at most {MOST_NUMBERS} numbers at once", do="Draw them in several parts")
    return shape


def sensitivity_in(norm: Norm, sensitivity: Sensitivity, coordinates: int) -> Fraction:
    """Return the sensitivity in the norm that a mechanism needs.

    In one dimension all norms agree; linf <= l2 <= l1 always. The other directions cost a power of the dimension, so
    they are refused rather than paid silently.

    >>> sensitivity_in(Norm.L2, Sensitivity(3), 10)
    Fraction(3, 1)
    """
    order = {Norm.LINF: 0, Norm.L2: 1, Norm.L1: 2}
    if coordinates > 1 and order[sensitivity.norm] < order[norm]:
        raise InvalidRequest(
            f"Expected a sensitivity in {norm.value}", got=sensitivity.norm.value, do=f"Compute it in {norm.value}"
        )
    return Fraction(sensitivity.amount)


def check_level(level: Fraction, sensitivity: int | Fraction) -> None:
    """Refuse an epsilon at which exact integer noise is none at all, or wider than its integers.

    Questions check this before anything is held, so that no epsilon fails after it is paid for.
    """
    check_scale(level, sensitivity)
    if level > LARGEST_RATE * sensitivity:
        raise InvalidRequest(
            f"Expected epsilon of at most {LARGEST_RATE} per unit of sensitivity, so that any noise is left",
            got=f"epsilon {float(level):.4g}",
            do="Lower it",
        )


def check_scale(level: Fraction, sensitivity: int | Fraction) -> None:
    """Refuse an epsilon whose noise is wider than exact sampling supports."""
    if sensitivity > LARGEST_SCALE * level:
        raise InvalidRequest(
            "Expected epsilon whose noise is narrower than 2^60 lattice units",
            got=f"epsilon {float(level):.4g}",
            do="Raise it, or ask for more accuracy",
        )


def check_gaussian_ladder(ladder: Ladder, sensitivity: int | Fraction) -> None:
    """Refuse rhos whose Gaussian noise is wider than exact sampling supports.

    Each rung adds a release at the difference from the rung below (docs/proofs/gaussian-path.md).
    """
    # The smallest gap between rungs has the widest noise.
    least = min((high - low for low, high in pairwise((Fraction(0), *ladder))), default=ladder.cap)
    if Fraction(sensitivity) ** 2 > 2 * least * LARGEST_SCALE**2:
        raise InvalidRequest(
            "Expected rho whose noise is narrower than 2^60 lattice units",
            got=f"rho {float(least):.4g}",
            do="Raise epsilon or delta",
        )
