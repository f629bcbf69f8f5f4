"""Gradual release of integers under discrete Laplace noise."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Ladder, Norm, PureLoss, Sealed, unseal
from expost.noise.bits import BitSource, source_of
from expost.noise.jumps import JumpLine, draw_jumps
from expost.noise.laplace import draw_laplace
from expost.noise.parameter import Parameter

__all__ = ["DiscreteLaplacePath"]

_ROOM = 2.0**62  # sums below this, in magnitude, cannot wrap in 64 bits
_LARGEST_RATE = 1000  # noise of exp(-1000) per unit of sensitivity is none at all


class DiscreteLaplacePath:
    """An exact integer answer under discrete Laplace noise that shrinks rung by rung.

    Rung r adds noise of P(k) proportional to exp(-|k| epsilon_r / sensitivity) to every coordinate. Going up the
    ladder removes noise that was added on top of the next rung's, so a rung reveals nothing about the answer that the
    rung above it does not: showing every rung up to r costs epsilon_r, not the sum. Each coordinate has its own coins.

    Guarantee: pure ex-post, known only after the run: loss ``epsilon_r`` of the last rung read, at most the cap.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: L1, over all coordinates together, in lattice units.
    Accuracy: at rung r, |error| > t with probability 2 a^(t+1) / (1 + a) per coordinate, a = exp(-epsilon_r / sensitivity).
    Numerics: exact; integers, rational epsilons, no float decides an outcome.
    Reference: LNRWW17, Theorem 2.7 and KHP17, Theorem 9 (reals); docs/proofs/lattice-laplace.md (lattice, ours).

    >>> from expost.core import Sensitivity
    >>> from expost.noise.bits import SeededBits
    >>> path = DiscreteLaplacePath(Sealed(41, Sensitivity(1)), Ladder.of([0.1, 1, 10]), bits=SeededBits(1))
    >>> path.at(2)
    array([41])
    >>> path.block(0, 3).shape
    (3, 1)
    >>> path.loss(1)
    PureLoss(epsilon=Fraction(1, 1))
    """

    def __init__(
        self, sealed: Sealed, ladder: Ladder | Iterable[float | Fraction], *, bits: BitSource | None = None
    ) -> None:
        self._bits = source_of(bits)
        self.ladder = ladder if isinstance(ladder, Ladder) else Ladder.of(ladder)
        self._sensitivity = _l1_amount(sealed)
        if self.ladder.cap > _LARGEST_RATE * self._sensitivity:
            raise InvalidRequest(
                f"Expected a highest rung of at most {_LARGEST_RATE} per unit of sensitivity",
                got=self.ladder.cap,
                do="Lower the cap",
            )
        exact = _column(unseal(sealed))
        floats = np.array([float(rung) for rung in self.ladder])
        amount = float(self._sensitivity)
        line = JumpLine(floats / amount, self._rate, order=2, coordinates=len(exact))
        steps, self._coordinates = draw_jumps(line, self._bits)
        self._rungs = line.top - 1 - steps  # a jump belongs to this rung and all more private ones
        self._sizes = self._draw(amount / floats, self._rungs)
        top = self._draw(amount / floats, np.full(len(exact), line.top))
        self._exact, self._noise = exact, top
        self._widen_if_needed()

    def _rate(self, rung: int) -> Fraction:
        return self.ladder[rung] / self._sensitivity

    def _draw(self, scales: NDArray[np.float64], rungs: NDArray[np.intp]) -> NDArray[Any]:
        parameter = Parameter(scales, lambda rung: self._sensitivity / self.ladder[rung], rungs, (len(rungs),))
        return draw_laplace(parameter, self._bits)

    def _widen_if_needed(self) -> None:
        """Switch to Python integers when some sum might leave 64 bits."""
        most = np.abs(self._exact.astype(float)) + np.abs(self._noise.astype(float))
        np.add.at(most, self._coordinates, np.abs(self._sizes.astype(float)))
        if most.size and most.max() >= _ROOM:
            self._exact, self._noise, self._sizes = (
                each.astype(object) for each in (self._exact, self._noise, self._sizes)
            )

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return len(self._exact)

    @property
    def private(self) -> bool:
        """Whether the bits came from a private source; false means simulation."""
        return self._bits.private

    def loss(self, rung: int) -> PureLoss:
        """What reading every rung up to this one costs."""
        return PureLoss(self.ladder[self._checked(rung)])

    def at(self, rung: int) -> NDArray[Any]:
        """The answer under the noise of one rung, one value a coordinate."""
        return _narrowed(self._noisy(self._checked(rung)))

    def _noisy(self, rung: int) -> NDArray[Any]:
        value: NDArray[Any] = self._exact + self._noise
        jumped = self._jumps_from(rung)
        np.add.at(value, self._coordinates[:jumped], self._sizes[:jumped])
        return value

    def _jumps_from(self, rung: int) -> int:
        """How many jumps belong to this rung or to less private ones; they are stored from the top down."""
        return int(np.searchsorted(-self._rungs, -rung, side="right"))

    def block(self, start: int, stop: int) -> NDArray[Any]:
        """The answers at rungs ``start`` to ``stop - 1``, one row a rung; reading it costs its last rung."""
        start, last = self._checked(start), self._checked(stop - 1)
        rows = np.zeros((last - start + 1, self.size), self._exact.dtype)
        rows[-1] = self._noisy(last)
        jumped = slice(self._jumps_from(last), self._jumps_from(start))
        rows[self._rungs[jumped] - start, self._coordinates[jumped]] = self._sizes[jumped]
        upward = rows[::-1]
        np.cumsum(upward, axis=0, out=upward)
        return _narrowed(rows)

    def _checked(self, rung: int) -> int:
        if isinstance(rung, bool) or not isinstance(rung, int | np.integer) or not 0 <= rung < len(self.ladder):
            raise InvalidRequest(f"Expected a rung from 0 to {len(self.ladder) - 1}", got=rung, do="Pass its index")
        return int(rung)

    def __repr__(self) -> str:
        return f"<discrete Laplace path of {self.size} coordinates over {len(self.ladder)} rungs>"

    def _refuse(self, *_: object) -> Any:
        raise TypeError("Expected a path to stay where it is; its less private rungs are as good as the data.")

    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = _refuse


def _l1_amount(sealed: Sealed) -> Fraction:
    if sealed.sensitivity.norm is not Norm.L1:
        raise InvalidRequest(
            "Expected an L1 sensitivity", got=sealed.sensitivity.norm.value, do="Seal the answer with its L1 bound"
        )
    return Fraction(sealed.sensitivity.amount)


def _column(exact: Any) -> NDArray[Any]:
    """The exact answer as a flat column of integers."""
    column = np.atleast_1d(np.asarray(exact, dtype=None if isinstance(exact, np.ndarray) else object))
    if column.ndim != 1 or column.dtype.kind not in "iuO":
        raise InvalidRequest("Expected a sealed integer or a flat array of integers", do="Round to the grid first")
    if column.dtype.kind != "O" and column.dtype != np.uint64:
        return column.astype(np.int64)
    whole = [int(value) for value in column.tolist()]
    fits = all(-(1 << 62) < value < 1 << 62 for value in whole)
    return np.array(whole, dtype=np.int64 if fits else object)


def _narrowed(values: NDArray[Any]) -> NDArray[Any]:
    """The values as int64 if they fit: the type is a function of what is shown, so it tells nothing more."""
    if values.dtype == object and all(-(1 << 63) <= value < 1 << 63 for value in values.flat):
        return values.astype(np.int64)
    return values
