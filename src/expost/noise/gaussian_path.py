"""Gradual release of integers under discrete Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Ladder, Norm, Sealed, ZeroConcentratedLoss
from expost.core.rational import rational
from expost.noise.bits import BitSource
from expost.noise.lattice import add_noise
from expost.noise.lattice_sampler import draw_gaussian
from expost.noise.parameter import LARGEST_SCALE, Parameter, share_noise_parameters
from expost.noise.release_path import AnswerPath, check_norm, check_rung

__all__ = ["GaussianPath"]


@share_noise_parameters
class GaussianPath(AnswerPath):
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

    Examples
    --------
    >>> from expost.core import Sensitivity
    >>> from expost.noise.bits import SeededBits
    >>> sealed = Sealed(41, Sensitivity(1, Norm.L2))
    >>> path = GaussianPath(sealed, Ladder.of([0.1, 1, 100]), bits=SeededBits(1))
    >>> path.loss(1)
    ZeroConcentratedLoss(rho=Fraction(1, 1))
    >>> path.at(2).round()
    array([41.])
    """

    _kind = "Gaussian path"

    def __init__(
        self, sealed: Sealed, ladder: Ladder | Iterable[float | Fraction], *, bits: BitSource | None = None
    ) -> None:
        super().__init__()
        # Squared once: variances are rational in it, while the root of a rho need not be.
        self._square = check_norm(sealed, Norm.L2) ** 2
        self._set_answer(sealed, ladder, bits)
        self._releases: list[NDArray[Any]] = []
        # Checked for all rungs before the first is drawn: a rung that fails later would be paid for and not delivered.
        if max(self._variance(rung) for rung in range(len(self._ladder))) > LARGEST_SCALE**2:
            raise InvalidRequest("Expected noise below 2^60 lattice units", do="Raise the lowest rung or the gaps")

    def loss(self, rung: int) -> ZeroConcentratedLoss:
        # The rhos of independent releases add (BS16, Lemma 2.3), so a prefix of rungs costs the rho of its last one.
        return ZeroConcentratedLoss(self._ladder[check_rung(self._ladder, rung)])

    @share_noise_parameters
    def mu(self, rung: int) -> float:
        """Return the mu of Gaussian DP that this noise approaches on a fine lattice, sqrt(2 rho). Not a bill.

        Lattice noise of variance v is not exactly sqrt(2 rho)-Gaussian-DP: its mu is larger by a share of about
        1 / (24 v), with v in lattice units (docs/proofs/gaussian-path.md).
        """
        return math.sqrt(2 * self._ladder[check_rung(self._ladder, rung)])

    @share_noise_parameters
    def release(self, rung: int) -> NDArray[Any]:
        """Return the integers released at one rung alone; rungs below it are drawn too."""
        self._draw_up_to(check_rung(self._ladder, rung))
        return self._releases[rung].copy()

    @share_noise_parameters
    def fractions(self, rung: int) -> list[Fraction]:
        """Return the estimate at one rung, exactly."""
        self._draw_up_to(check_rung(self._ladder, rung))
        # Weights inverse to the variances: the estimate of least variance among the unbiased ones, and post-processing.
        steps = [self._rho_step(j) for j in range(rung + 1)]
        columns = zip(*(release.tolist() for release in self._releases[: rung + 1]), strict=True)
        return [
            sum((step * y for step, y in zip(steps, column, strict=True)), Fraction(0)) / self._ladder[rung]
            for column in columns
        ]

    def refine(self, to_rho: float | Fraction) -> int:
        """Add a rung above the top, which may be chosen after seeing the others, and return its index.

        Rungs are independent releases, so a rung that is added later is one that was there from the start.

        Parameters
        ----------
        to_rho : float or Fraction
            The level of the new rung, above the cap of the ladder.
        """
        level = rational(to_rho, "to_rho")
        with self._draw_alone():
            if level <= self._ladder.cap:
                raise InvalidRequest("Expected a level above the top rung", got=level, do="Raise it")
            if self._square > 2 * (level - self._ladder.cap) * LARGEST_SCALE**2:
                raise InvalidRequest("Expected noise below 2^60 lattice units", do="Raise the new rung")
            self._ladder = Ladder((*self._ladder.rungs, level))
            return len(self._ladder) - 1

    def at(self, rung: int) -> NDArray[np.float64]:
        return self.block(rung, rung + 1).reshape(self._size)

    def block(self, start: int, stop: int) -> NDArray[np.float64]:
        first, end = self._check_block(start, stop)
        self._draw_up_to(end - 1)
        # Floats only after the noise was added to exact integers: rounding here is post-processing.
        releases = np.array([release.astype(float) for release in self._releases[:end]])
        steps = np.array([float(self._rho_step(j)) for j in range(end)])
        levels = np.array([float(rung) for rung in self._ladder.rungs[:end]])
        estimates: NDArray[np.float64] = np.cumsum(steps[:, None] * releases, axis=0)[first:] / levels[first:, None]
        return estimates

    def state(self) -> bytes:
        # Releases already drawn are part of the state: drawn again they would be further answers.
        releases = {f"release {rung}": release for rung, release in enumerate(self._releases)}
        return self._pack({"square": str(self._square), "drawn": len(self._releases)}, releases)

    @classmethod
    def from_state(cls, state: bytes, *, bits: BitSource | None = None) -> Self:
        path, facts, arrays = cls._unpack(state, bits)
        path._square = Fraction(facts["square"])
        path._releases = [arrays[f"release {rung}"] for rung in range(facts["drawn"])]
        return path

    def _rho_step(self, rung: int) -> Fraction:
        """Return the rho that a rung adds to the one below it."""
        return self._ladder[rung] - (self._ladder[rung - 1] if rung else 0)

    def _variance(self, rung: int) -> Fraction:
        return self._square / (2 * self._rho_step(rung))  # CKS20, Theorem 4: rho = sensitivity^2 / (2 variance)

    def _draw_up_to(self, rung: int) -> None:
        """Draw the releases not read before, all in one batch."""
        if rung < len(self._releases):
            return
        with self._draw_alone():
            new = range(len(self._releases), rung + 1)
            if not new:  # another thread has drawn them
                return
            # Rungs have independent noise, so their rhos add up to the level of the last one (BS16, Lemma 2.3).
            table = [self._variance(each) for each in new]
            variances = Parameter.of_table(table, np.repeat(np.arange(len(new)), self._size))
            noise = draw_gaussian(variances, self._bits).reshape(len(new), self._size)
            self._releases += [add_noise(self._exact, row) for row in noise]
