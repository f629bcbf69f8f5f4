"""Which integers are sealed: linear forms of power sums, with what one row can add to them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from expost.data.clamp import Clamp
from expost.data.sums import PowerSums

__all__ = ["CountForm", "Form", "MomentForm", "ShareForm", "SquareForm", "TotalForm", "sealed_integers"]

Integers = NDArray[Any]

_MOST_ROWS = 1 << 40
_LARGEST = (1 << 63) - 1


class Form(Protocol):
    """Integer coordinates of a cell, linear in its power sums.

    ``row_size`` is the largest L1 norm of what one row adds, ``row_spread`` the largest L1 distance between what two
    rows of one cell add. Both are exact, rounding included, because they are taken over whole steps.
    """

    @property
    def size(self) -> int:
        """Coordinates of one cell."""
        ...

    @property
    def degree(self) -> int:
        """The power of steps that is needed."""
        ...

    @property
    def row_size(self) -> int:
        """The largest L1 norm of one row."""
        ...

    @property
    def row_spread(self) -> int:
        """The largest L1 distance of two rows."""
        ...

    def coordinates(self, sums: PowerSums) -> Integers:
        """The integers of all cells, one row a coordinate."""
        ...


@dataclass(frozen=True)
class CountForm:
    """The number of rows.

    >>> CountForm().row_size
    1
    """

    size = 1
    degree = 0
    row_size = 1
    row_spread = 0

    def coordinates(self, sums: PowerSums) -> Integers:
        return sums.rows[None, :]


@dataclass(frozen=True)
class TotalForm:
    """The sum of one column, in units of ``unit``: the largest number of which both bound and step are multiples.

    >>> form = TotalForm(Clamp.of((-60, 300), whole=True))
    >>> form.unit, form.row_size, form.row_spread
    (Fraction(1, 1), 300, 360)
    """

    clamp: Clamp
    size = 1
    degree = 1

    @property
    def unit(self) -> Fraction:
        """What one lattice unit is worth."""
        return _common_measure(self.clamp.low, self.clamp.step)

    @property
    def _line(self) -> tuple[int, int]:
        return int(self.clamp.low / self.unit), int(self.clamp.step / self.unit)

    @property
    def row_size(self) -> int:
        low, step = self._line
        return max(abs(low), abs(low + step * self.clamp.steps))

    @property
    def row_spread(self) -> int:
        return self._line[1] * self.clamp.steps

    def coordinates(self, sums: PowerSums) -> Integers:
        low, step = self._line
        total: Integers = low * sums.rows.astype(object) + step * sums.first[0].astype(object)
        return total[None, :]


@dataclass(frozen=True)
class ShareForm:
    """Two shares of each row that add up to it: the way from its lower and to its upper bound.

    A row adds (t, steps - t), both non-negative, so its L1 norm is ``steps`` whatever the value. Count and sum follow
    from the two, each with half the variance that a split of epsilon into halves would leave
    (docs/proofs/shares.md).

    >>> ShareForm(Clamp.of((0, 120), whole=True)).row_size
    120
    """

    clamp: Clamp
    size = 2
    degree = 1

    @property
    def row_size(self) -> int:
        return self.clamp.steps

    @property
    def row_spread(self) -> int:
        return 2 * self.clamp.steps

    def coordinates(self, sums: PowerSums) -> Integers:
        up = sums.first[0].astype(object)
        return np.stack([up, self.clamp.steps * sums.rows.astype(object) - up])


@dataclass(frozen=True)
class SquareForm:
    """Three shares of each row that add up to it: t^2, 2 t (steps - t) and (steps - t)^2.

    Count, sum and sum of squares follow from the three (Bernstein's basis of degree 2), each with a third or less of
    the variance that a split of epsilon into thirds would leave (docs/proofs/shares.md).

    >>> SquareForm(Clamp.of((0, 10), whole=True)).row_size
    100
    """

    clamp: Clamp
    size = 3
    degree = 2

    @property
    def row_size(self) -> int:
        return self.clamp.steps**2

    @property
    def row_spread(self) -> int:
        return 2 * self.clamp.steps**2

    def coordinates(self, sums: PowerSums) -> Integers:
        steps = self.clamp.steps
        rows, first, square = (each.astype(object) for each in (sums.rows, sums.first[0], sums.second[0]))
        cross = steps * first - square
        return np.stack([square, 2 * cross, steps * steps * rows - square - 2 * cross])


@dataclass(frozen=True)
class MomentForm:
    """All second moments of several columns: three shares a column, one centred product a pair.

    Every column adds ``share_scale`` to the L1 norm of a row and every pair at most ``scale``, a third of that, whatever
    their own number of steps. Variances depend on shares alone and covariances on both, and with this weight their
    errors are bounded alike, which no other weight improves (docs/proofs/shares.md).

    >>> columns = (Clamp.of((0, 10), whole=True), Clamp.of((0, 5), whole=True))
    >>> form = MomentForm(columns)
    >>> form.size, form.row_size == 7 * form.scale
    (7, True)
    """

    clamps: tuple[Clamp, ...]
    degree = 2

    @property
    def size(self) -> int:
        return 3 * len(self.clamps) + math.comb(len(self.clamps), 2)

    @property
    def scale(self) -> int:
        """What a row of extreme values adds to the product of a pair."""
        return math.lcm(*(clamp.steps for clamp in self.clamps)) ** 2

    @property
    def share_scale(self) -> int:
        """What a row adds to the three shares of a column together."""
        return 3 * self.scale

    @property
    def row_size(self) -> int:
        return self.share_scale * len(self.clamps) + self.scale * math.comb(len(self.clamps), 2)

    @property
    def row_spread(self) -> int:
        return 2 * self.row_size

    def coordinates(self, sums: PowerSums) -> Integers:
        columns = len(self.clamps)
        pairs = [(i, j) for i in range(columns) for j in range(i, columns)]
        second = {pair: sums.second[k].astype(object) for k, pair in enumerate(pairs)}
        rows: list[Integers] = []
        for i, clamp in enumerate(self.clamps):
            own = PowerSums(sums.rows, sums.first[i : i + 1], second[i, i][None, :])
            rows += list(SquareForm(clamp).coordinates(own) * (self.share_scale // clamp.steps**2))
        rows += [self._product(sums, second, i, j) for i, j in pairs if i != j]
        return np.stack(rows)

    def _product(self, sums: PowerSums, second: dict[Any, Integers], i: int, j: int) -> Integers:
        """Sum of (2 t_i - steps_i) (2 t_j - steps_j), scaled."""
        m, n = self.clamps[i].steps, self.clamps[j].steps
        first = sums.first.astype(object)
        centred = 4 * second[i, j] - 2 * n * first[i] - 2 * m * first[j] + m * n * sums.rows.astype(object)
        product: Integers = centred * (self.scale // (m * n))
        return product


def _common_measure(first: Fraction, second: Fraction) -> Fraction:
    """The largest fraction of which both are whole multiples."""
    bottom = math.lcm(first.denominator, second.denominator)
    return Fraction(math.gcd(int(first * bottom), int(second * bottom)), bottom)


def sealed_integers(form: Form, sums: PowerSums) -> Integers:
    """The coordinates of all cells, cell after cell, in a type that depends on the form alone.

    64-bit integers where 2^40 rows cannot leave 62 bits, else Python integers: a type that followed the values would tell
    how large they are. Should a table have more rows, sums stop at the largest integer, which brings no two of them
    further apart.

    >>> sums = PowerSums.of(np.array([0, 1]), np.array([[3.0, 4.0]]), cells=2, degree=2)
    >>> [sealed_integers(form, sums).dtype.name for form in (CountForm(), SquareForm(Clamp.of((0, 1))))]
    ['int64', 'object']
    """
    coordinates = form.coordinates(sums).T.ravel()
    if form.row_size * _MOST_ROWS >= 1 << 62:
        return coordinates.astype(object)
    return coordinates.clip(-_LARGEST, _LARGEST).astype(np.int64)
