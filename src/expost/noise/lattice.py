"""Exact integer answers: the grid on which floats become integers, and sums with noise that cannot wrap around."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expost.core import InvalidRequest, Norm, Sealed, Sensitivity, unseal
from expost.core.argument import check_unmasked
from expost.core.rational import finite, whole

__all__ = [
    "Grid",
    "add_exactly",
    "add_noise",
    "read_compact_integers",
    "read_integers",
    "sealed_copies",
    "unwrap_scalar",
]

_WIDE = 1 << 62
_LARGEST = (1 << 63) - 1  # symmetric, so that an answer and its negative fit
_MOST_STEPS = 1 << 53  # beyond it a float no longer separates adjacent steps
_FEWEST_BITS, _MOST_BITS = -60, 60


def read_integers(exact: object) -> NDArray[Any]:
    """Read an exact answer as integers whose type depends on the type that was given, never on a value.

    NumPy's integers become int64, unsigned ones of 64 bits Python integers. Python integers, single, in lists or in
    arrays of objects, stay Python integers of any length.

    >>> read_integers(np.array([1, 2])).dtype, read_integers([1, 2**70]).dtype, read_integers([1, 2]).dtype
    (dtype('int64'), dtype('O'), dtype('O'))
    >>> read_integers(0.5)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected exact integers. Put floats on a public grid first ...
    """
    if isinstance(exact, np.ndarray | np.generic):
        values = np.asarray(exact)
        if values.dtype.kind == "i" or values.dtype in (np.uint8, np.uint16, np.uint32):
            narrow: NDArray[Any] = np.maximum(values, -_LARGEST, dtype=np.int64)  # the lowest integer has no negative
            return narrow
        # uint64 does not fit into int64. The dtype is public, a value is not, so the dtype alone decides.
        if values.dtype.kind == "u":
            return values.astype(object)
    else:
        try:
            values = np.array(exact, dtype=object)
        except ValueError:  # rows of several lengths
            values = np.array([None])
    flat: list[Any] = values.ravel().tolist() if values.dtype == object else [None]
    # isinstance counts booleans as ints; type(...) is int refuses them.
    if not all(type(value) is int or isinstance(value, np.integer) for value in flat):
        raise InvalidRequest("Expected exact integers", do="Put floats on a public grid first (expost.noise.Grid)")
    read = np.empty(len(flat), dtype=object)
    read[:] = [int(value) for value in flat]
    return read.reshape(values.shape)


def read_compact_integers(exact: object) -> NDArray[Any]:
    """Read integers as int64 where they fit into 62 bits: for answers that are released in another type."""
    values = read_integers(exact)
    if values.dtype != object or not values.size:
        return values.astype(np.int64)
    return values.astype(np.int64) if max(abs(values.max()), abs(values.min())) < _WIDE else values


def add_noise(values: NDArray[Any], noise: NDArray[Any]) -> NDArray[Any]:
    """Add noise to exact integers for release, in the type of the exact integers (see ``read_integers``).

    An int64 sum that would leave 64 bits stops at the largest integer. That is post-processing, and never further from
    the exact answer than the sum itself.

    >>> add_noise(np.array([2**63 - 1, 5]), np.array([7, 7])).tolist() == [2**63 - 1, 12]
    True
    """
    if values.dtype == object:
        wide: NDArray[Any] = values + noise.astype(object)
        return wide
    if noise.dtype == object:
        stopped: NDArray[Any] = np.clip(values.astype(object) + noise, -_LARGEST, _LARGEST)
        return stopped.astype(np.int64)
    total: NDArray[np.int64] = np.add(values, noise, dtype=np.int64)
    # Two terms of one sign and a sum of the other: the sum has left 64 bits.
    wrapped = ((values ^ total) & (noise ^ total)) < 0
    if wrapped.any():
        total[wrapped] = np.where(np.broadcast_to(values, total.shape)[wrapped] < 0, -_LARGEST, _LARGEST)
    return total


def add_exactly(values: NDArray[Any], noise: NDArray[Any]) -> NDArray[Any]:
    """Add, in Python integers where the sum could leave 64 bits: for sums that are not released as they are."""
    wide = any(part.dtype == object or (part.size and int(np.abs(part).max()) >= _WIDE) for part in (values, noise))
    total: NDArray[Any] = values.astype(object) + noise.astype(object) if wide else values + noise
    return total


def unwrap_scalar(values: NDArray[Any]) -> Any:
    """Return a single number as a Python integer, and an array unchanged."""
    return values if isinstance(values, np.ndarray) and values.ndim else int(values)


def sealed_copies(sealed: Sealed, copies: int) -> Sealed:
    """Repeat a sealed answer, under the sensitivity of one copy: for simulations that run one release many times.

    Noise that is drawn for each coordinate alone (Laplace, Gaussian) makes independent releases of the copies.
    Published together they would cost as much as all the copies do.

    >>> from expost.noise import DiscreteLaplacePath, SeededBits
    >>> many = sealed_copies(Sealed(7, Sensitivity(1)), 1000)
    >>> abs(float(DiscreteLaplacePath(many, [1.0], bits=SeededBits(1)).at(0).mean()) - 7) < 0.3
    True
    """
    return Sealed(np.tile(np.atleast_1d(np.asarray(unseal(sealed))), copies), sealed.sensitivity)


@dataclass(frozen=True)
class Grid:
    """The multiples of 2^-bits between two public bounds.

    Scaling by a power of two and rounding toward zero are exact in floats, so the lattice point of a number is a
    function of that number alone; NaN counts as the lower bound. Rounding toward zero never increases a norm.

    Parameters
    ----------
    low, high : float
        Public bounds, finite, the lower one first, from one to 2^53 steps apart. Numbers outside are clamped.
    bits : int, default 20
        Binary digits after the point, from -60 to 60; the step is 2^-bits.

    Examples
    --------
    >>> grid = Grid(-1.0, 1.0, bits=3)
    >>> grid.to_lattice([0.3, -0.3, 7.0, float("nan")]).tolist()
    [2, -2, 8, -8]
    >>> grid.to_float([2, -2, 8]).tolist()
    [0.25, -0.25, 1.0]
    """

    low: float
    high: float
    bits: int = 20

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", finite(self.low, "low"))
        object.__setattr__(self, "high", finite(self.high, "high"))
        bits = whole(self.bits, "bits", least=_FEWEST_BITS, most=_MOST_BITS, do="Pass an integer such as 20")
        object.__setattr__(self, "bits", bits)
        if self.low >= self.high:
            raise InvalidRequest("Expected finite bounds, the lower below the upper", do="Pass public bounds")
        # Floats hold all integers up to 2^53, so every lattice point converts exactly.
        if max(abs(self.lattice_low), abs(self.lattice_high)) > _MOST_STEPS:
            raise InvalidRequest(
                "Expected at most 2^53 steps between zero and a bound", got=self.bits, do="Use fewer bits"
            )
        if self.lattice_low == self.lattice_high:
            raise InvalidRequest("Expected bounds at least one step apart", got=self.bits, do="Use more bits")

    @property
    def step(self) -> Fraction:
        """The distance between two grid points."""
        return Fraction(2) ** -self.bits

    @property
    def lattice_low(self) -> int:
        """The lower bound in steps, rounded toward zero."""
        return math.trunc(Fraction(self.low) / self.step)

    @property
    def lattice_high(self) -> int:
        """The upper bound in steps, rounded toward zero."""
        return math.trunc(Fraction(self.high) / self.step)

    def to_lattice(self, values: ArrayLike) -> NDArray[np.int64]:
        """Clamp numbers to the bounds and round them toward zero.

        Parameters
        ----------
        values : array_like
            Numbers of any shape; masked arrays are refused.
        """
        # NaN becomes a bound: an error, or a row left out, would reveal that it is there.
        numbers = np.nan_to_num(_read_floats(values), nan=self.low, posinf=self.high, neginf=self.low)
        return np.trunc(np.ldexp(np.clip(numbers, self.low, self.high), self.bits)).astype(np.int64)

    def to_float(self, steps: ArrayLike) -> NDArray[np.float64]:
        """Convert lattice points to floats: the only rounding, after the noise.

        Parameters
        ----------
        steps : array_like
            Integers in steps of the grid.
        """
        return np.ldexp(_read_floats(steps), -self.bits)

    def rounded(self, sensitivity: Sensitivity, *, coordinates: int = 1) -> Sensitivity:
        """Convert the sensitivity of a real answer to that of the answer after rounding to this grid, in steps.

        Two numbers at distance d land at most d / step + 1 steps apart, hence the number of coordinates is added in
        l1, its root in l2 and one in linf (triangle inequality).

        Parameters
        ----------
        sensitivity : Sensitivity
            Of the real answer, *before* rounding, in the units of the bounds.
        coordinates : int, default 1
            The length of the answer.
        """
        # The root is rounded up: a sensitivity may never be too small.
        root_up = Fraction(math.isqrt(coordinates << 80) + 1, 1 << 40)
        extra = {Norm.L1: Fraction(coordinates), Norm.L2: root_up, Norm.LINF: Fraction(1)}
        amount = sensitivity.amount / self.step + extra[sensitivity.norm]
        return Sensitivity(amount, sensitivity.norm, sensitivity.adjacency, sensitivity.unit)

    def seal(self, values: ArrayLike, sensitivity: Sensitivity) -> Sealed:
        """Round a real answer to the grid and seal it.

        A sum of records needs no allowance for rounding: put the records on the grid first and add integers.

        Parameters
        ----------
        values : array_like
            The exact real answer.
        sensitivity : Sensitivity
            Of that answer, before rounding.

        Examples
        --------
        >>> Grid(-1.0, 1.0, bits=10).seal([0.5, 0.25], Sensitivity(1)).sensitivity.amount
        Fraction(1026, 1)
        """
        steps = self.to_lattice(values)
        return Sealed(steps, self.rounded(sensitivity, coordinates=max(1, steps.size)))

    def largest_step_sum(self, *, replace: bool) -> int:
        """Return how many steps one record can move a sum of records on this grid.

        Parameters
        ----------
        replace : bool
            True under replace-one adjacency, false under add/remove.
        """
        # A replaced record moves from one bound to the other, an added one from 0 to the farther bound.
        if replace:
            return self.lattice_high - self.lattice_low
        return max(abs(self.lattice_low), abs(self.lattice_high))


def _read_floats(values: ArrayLike) -> NDArray[np.float64]:
    """Read numbers as floats; anything else is refused without a hint at its content."""
    check_unmasked(values)
    try:
        given = np.asarray(values)
        if given.dtype.kind in "biufO":
            return given.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        pass  # a ragged list, or one that contains more than numbers
    raise InvalidRequest("Expected numbers", do="Pass one number, or an array of them")
