"""Gradual release of integers under discrete Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Ladder, Norm, Sealed, ZeroConcentratedLoss
from expost.noise.bits import BitSource, source_of
from expost.noise.gaussian import draw_gaussian
from expost.noise.lattice import released_sum
from expost.noise.one_holder import OneHolder
from expost.noise.parameter import LARGEST_SCALE, Parameter
from expost.noise.path import (
    check_block,
    check_norm,
    check_rung,
    exact_column,
    ladder_of,
    refuse_copies,
)
from expost.noise.path_state import pack_state, unpack_state

__all__ = ["GaussianPath"]

_KIND = "Gaussian path"


class GaussianPath:
    """An exact integer answer under Gaussian noise that shrinks rung by rung.

    Rung i is an independent release y_i = answer + discrete Gaussian noise of variance sensitivity^2 / (2 (rho_i -
    rho_{i-1})), drawn when it is first read. The estimate at rung i weighs the releases so far by their precision,
    sum_j (rho_j - rho_{j-1}) y_j / rho_i; its error has the law of Brownian noise reduction (on the reals; there is no
    exact additive kernel for lattice Gaussians, docs/proofs/gaussian-path.md).

    Guarantee: zCDP, known only after the run: loss ``rho_r`` of the last rung read, at most the cap.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: L2, over all coordinates together, in lattice units.
    Accuracy: error of rung i is sub-Gaussian with proxy sensitivity^2 / (2 rho_i), per coordinate.
    Numerics: releases are exact integers; estimates are computed from them, in floats or (``fractions``) exactly.
    Reference: CKS20, Theorem 4 (one release), BS16, Lemma 2.3 (their sum); docs/proofs/gaussian-path.md.

    >>> from expost.core import Sensitivity
    >>> from expost.noise.bits import SeededBits
    >>> sealed = Sealed(41, Sensitivity(1, Norm.L2))
    >>> path = GaussianPath(sealed, Ladder.of([0.1, 1, 100]), bits=SeededBits(1))
    >>> path.loss(1)
    ZeroConcentratedLoss(rho=Fraction(1, 1))
    >>> path.at(2).round()
    array([41.])
    """

    def __init__(
        self, sealed: Sealed, ladder: Ladder | Iterable[float | Fraction], *, bits: BitSource | None = None
    ) -> None:
        self._square = check_norm(sealed, Norm.L2) ** 2
        self._bits, self._holder = source_of(bits), OneHolder()
        self._drawn_privately = self._bits.private
        self.ladder = ladder_of(ladder)
        self._exact = exact_column(sealed)
        self._releases: list[NDArray[Any]] = []
        if max(self._variance(rung) for rung in range(len(self.ladder))) > LARGEST_SCALE**2:
            raise InvalidRequest("Expected noise below 2^60 lattice units", do="Raise the lowest rung or the gaps")

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return len(self._exact)

    @property
    def private(self) -> bool:
        """Whether all bits come from a private source; false means simulation."""
        return self._drawn_privately and self._bits.private

    def loss(self, rung: int) -> ZeroConcentratedLoss:
        """What reading every rung up to this one costs (BS16, Lemma 2.3: the rho of independent releases add)."""
        return ZeroConcentratedLoss(self.ladder[check_rung(self.ladder, rung)])

    def mu(self, rung: int) -> float:
        """The mu of Gaussian DP that this noise approaches on a fine lattice, sqrt(2 rho). A view, not a bill.

        Lattice noise of variance v is not exactly sqrt(2 rho)-Gaussian-DP: its mu is larger by a share of about
        1 / (24 v), with v in lattice units (docs/proofs/gaussian-path.md).
        """
        return math.sqrt(2 * self.ladder[check_rung(self.ladder, rung)])

    def release(self, rung: int) -> NDArray[Any]:
        """The integers released at one rung alone."""
        self._draw_up_to(check_rung(self.ladder, rung))
        return self._releases[rung].copy()

    def fractions(self, rung: int) -> list[Fraction]:
        """The estimate at one rung, exactly."""
        self._draw_up_to(check_rung(self.ladder, rung))
        steps = [self._step(j) for j in range(rung + 1)]
        columns = zip(*(release.tolist() for release in self._releases[: rung + 1]), strict=True)
        return [
            sum((step * y for step, y in zip(steps, column, strict=True)), Fraction(0)) / self.ladder[rung]
            for column in columns
        ]

    def at(self, rung: int) -> NDArray[np.float64]:
        """The estimate at one rung, one float a coordinate."""
        return self.block(rung, rung + 1).reshape(self.size)

    def block(self, start: int, stop: int) -> NDArray[np.float64]:
        """The estimates at rungs ``start`` to ``stop - 1``, one row a rung; reading it costs its last rung."""
        first, end = check_block(self.ladder, start, stop)
        self._draw_up_to(end - 1)
        releases = np.array([release.astype(float) for release in self._releases[:end]])
        steps = np.array([float(self._step(j)) for j in range(end)])
        levels = np.array([float(rung) for rung in self.ladder.rungs[:end]])
        estimates: NDArray[np.float64] = np.cumsum(steps[:, None] * releases, axis=0)[first:] / levels[first:, None]
        return estimates

    def state(self) -> bytes:
        """Everything needed to go on after a restart. SECRET: it holds the exact answer; store it encrypted only.

        Of all paths made from one state only one may draw further rungs.
        """
        facts = {
            "ladder": [str(rung) for rung in self.ladder],
            "square": str(self._square),
            "private": self.private,
            "drawn": len(self._releases),
        }
        releases = {f"release {rung}": release for rung, release in enumerate(self._releases)}
        return pack_state(_KIND, facts, {"exact": self._exact, **releases})

    @classmethod
    def from_state(cls, state: bytes, *, bits: BitSource | None = None) -> GaussianPath:
        """The path that ``state`` described; ``bits`` are used for the rungs not yet drawn."""
        facts, arrays = unpack_state(_KIND, state)
        path = cls.__new__(cls)
        path._bits, path._holder = source_of(bits), OneHolder()
        path._drawn_privately = facts["private"]
        path.ladder = Ladder(tuple(Fraction(rung) for rung in facts["ladder"]))
        path._square = Fraction(facts["square"])
        path._exact = arrays["exact"]
        path._releases = [arrays[f"release {rung}"] for rung in range(facts["drawn"])]
        return path

    def _step(self, rung: int) -> Fraction:
        return self.ladder[rung] - (self.ladder[rung - 1] if rung else 0)

    def _variance(self, rung: int) -> Fraction:
        return self._square / (2 * self._step(rung))  # CKS20, Theorem 4: rho = sensitivity^2 / (2 variance)

    def _draw_up_to(self, rung: int) -> None:
        """Draw the releases not read before, all in one batch."""
        if rung < len(self._releases):
            return
        with self._holder.alone():
            new = range(len(self._releases), rung + 1)
            if not new:  # another thread has drawn them
                return
            table = [self._variance(each) for each in new]
            variances = Parameter.of_table(table, np.repeat(np.arange(len(new)), self.size))
            noise = draw_gaussian(variances, self._bits).reshape(len(new), self.size)
            self._releases += [released_sum(self._exact, row) for row in noise]

    def __repr__(self) -> str:
        return f"<{_KIND} of {self.size} coordinates over {len(self.ladder)} rungs>"

    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = refuse_copies
