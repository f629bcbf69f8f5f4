"""Gradual release of integers under discrete Laplace noise."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from numpy.typing import NDArray

from expost.core import InvalidRequest, Ladder, Norm, PureLoss, Sealed
from expost.core.rational import rational
from expost.noise.backward import draw_less_noise
from expost.noise.bits import BitSource, source_of
from expost.noise.jump_noise import JumpNoise, check_rates
from expost.noise.laplace import draw_laplace
from expost.noise.lattice import released_sum
from expost.noise.one_holder import OneHolder
from expost.noise.path import (
    check_block,
    check_norm,
    check_rung,
    exact_column,
    ladder_of,
    refuse_copies,
)
from expost.noise.path_state import pack_state, unpack_state

__all__ = ["DiscreteLaplacePath"]

_ROOM = 2.0**62  # sums below this, in magnitude, cannot wrap in 64 bits
_KIND = "discrete Laplace path"


class DiscreteLaplacePath:
    """An exact integer answer under discrete Laplace noise that shrinks rung by rung.

    Rung r adds noise of P(k) proportional to exp(-|k| epsilon_r / sensitivity) to every coordinate. Going up the
    ladder removes noise that was added on top of the next rung's, so a rung reveals nothing about the answer that the
    rung above it does not: showing every rung up to r costs epsilon_r, not the sum. Each coordinate has its own coins.

    Guarantee: pure ex-post, known only after the run: loss ``epsilon_r`` of the last rung read, at most the cap.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: L1, over all coordinates together, in lattice units.
    Accuracy: |error| > t with probability 2 a^(t+1) / (1 + a) per coordinate, a = exp(-epsilon_r / sensitivity).
    Numerics: exact; integers, rational epsilons, no float decides an outcome.
    Reference: LNRWW17, Theorem 2.7 (on the reals); docs/proofs/lattice-laplace.md (on the lattice).

    >>> from expost.core import Sensitivity
    >>> from expost.noise.bits import SeededBits
    >>> path = DiscreteLaplacePath(Sealed(41, Sensitivity(1)), Ladder.of([0.1, 1, 10]), bits=SeededBits(1))
    >>> path.at(2)
    array([41], dtype=object)
    >>> path.block(0, 3).shape
    (3, 1)
    >>> path.loss(1)
    PureLoss(epsilon=Fraction(1, 1))
    """

    def __init__(
        self, sealed: Sealed, ladder: Ladder | Iterable[float | Fraction], *, bits: BitSource | None = None
    ) -> None:
        self._bits, self._holder = source_of(bits), OneHolder()
        self._drawn_privately = self._bits.private
        self._ladder = ladder_of(ladder)
        self._sensitivity = check_norm(sealed, Norm.L1)
        self._exact = exact_column(sealed)
        self._noise = JumpNoise.draw(
            self._ladder, self._sensitivity, len(self._exact), order=2, sampler=draw_laplace, bits=self._bits
        )
        self._widen_if_needed()

    @property
    def ladder(self) -> Ladder:
        """The rungs, most private first; ``refine`` adds to its end."""
        return self._ladder

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return len(self._exact)

    @property
    def private(self) -> bool:
        """Whether all bits came from a private source; false means simulation."""
        return self._drawn_privately and self._bits.private

    def loss(self, rung: int) -> PureLoss:
        """What reading every rung up to this one costs."""
        return PureLoss(self._ladder[check_rung(self._ladder, rung)])

    def at(self, rung: int) -> NDArray[Any]:
        """The answer under the noise of one rung, one value a coordinate."""
        return released_sum(self._exact, self._noise.at(check_rung(self._ladder, rung)))

    def block(self, start: int, stop: int) -> NDArray[Any]:
        """The answers at rungs ``start`` to ``stop - 1``, one row a rung; reading it costs its last rung."""
        return released_sum(self._exact[None], self._noise.block(*check_block(self._ladder, start, stop)))

    def refine(self, to_epsilon: float | Fraction) -> int:
        """Add a rung above the top, chosen after looking at the others, and return its index.

        The noise of the new rung is drawn given the top rung's by the backward kernel, so the longer path has the law
        it would have had from the start, and reading it up to the new rung costs ``to_epsilon``
        (docs/proofs/lattice-laplace.md). Two refinements of one path are two rungs of one ladder, never two answers.
        """
        level = rational(to_epsilon, "to_epsilon")
        with self._holder.alone():
            return self._refine(level)

    def _refine(self, level: Fraction) -> int:
        if level <= self._ladder.cap:
            raise InvalidRequest("Expected a level above the top rung", got=level, do="Raise it")
        longer = Ladder((*self._ladder.rungs, level))
        check_rates(longer, self._sensitivity)
        check_rates(Ladder((level - self._ladder.cap,)), self._sensitivity)
        rates = self._ladder.cap / self._sensitivity, level / self._sensitivity
        top = draw_less_noise(self._noise.top, *rates, self._bits)
        self._noise = self._noise.under(top, len(self._ladder) - 1)
        self._ladder = longer
        self._widen_if_needed()
        return len(longer) - 1

    def state(self) -> bytes:
        """Everything needed to go on after a restart. SECRET: it holds the exact answer; store it encrypted only.

        A path that is drawn a second time for the same answer is a second answer; this is how a ledger avoids that.
        Of all paths made from one state only one may be refined.
        """
        return pack_state(
            _KIND,
            {
                "ladder": [str(rung) for rung in self._ladder],
                "sensitivity": str(self._sensitivity),
                "private": self.private,
            },
            {
                "exact": self._exact,
                "top": self._noise.top,
                "rungs": self._noise.rungs,
                "coordinates": self._noise.coordinates,
                "sizes": self._noise.sizes,
            },
        )

    @classmethod
    def from_state(cls, state: bytes, *, bits: BitSource | None = None) -> DiscreteLaplacePath:
        """The path that ``state`` described; ``bits`` are used if it is refined further."""
        facts, arrays = unpack_state(_KIND, state)
        path = cls.__new__(cls)
        path._bits, path._holder = source_of(bits), OneHolder()
        path._drawn_privately = facts["private"]
        path._ladder = Ladder(tuple(Fraction(rung) for rung in facts["ladder"]))
        path._sensitivity = Fraction(facts["sensitivity"])
        path._exact = arrays["exact"]
        path._noise = JumpNoise(*(arrays[name] for name in ("top", "rungs", "coordinates", "sizes")))
        return path

    def _widen_if_needed(self) -> None:
        """Switch the noise to Python integers when some sum of its parts might leave 64 bits."""
        reach = self._noise.reach()
        if reach.size and reach.max() >= _ROOM:
            self._noise = self._noise.widened()

    def __repr__(self) -> str:
        return f"<{_KIND} of {self.size} coordinates over {len(self._ladder)} rungs>"

    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = refuse_copies
