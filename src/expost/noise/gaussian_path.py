"""Gradual release of integers under discrete Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Ladder, Norm, Sealed, ZeroConcentratedLoss
from expost.noise.bits import BitSource, resolve_bits
from expost.noise.lattice import add_noise
from expost.noise.lattice_sampler import draw_gaussian
from expost.noise.parameter import LARGEST_SCALE, Parameter
from expost.noise.release_path import (
    ReleasePath,
    check_norm,
    check_rung,
    pack_state,
    read_column,
    read_ladder,
    unpack_state,
)

__all__ = ["GaussianPath"]


class GaussianPath(ReleasePath):
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

    Parameters
    ----------
    sealed : Sealed
        An integer or a flat array of integers, with its L2 sensitivity.
    ladder : Ladder or iterable of numbers
        The rhos of the rungs, increasing.
    bits : BitSource, optional
        Source of randomness; the system's by default.

    Raises
    ------
    InvalidRequest
        If the sensitivity is not L2, or the noise of a rung would be wider than 2^60 lattice units.

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
        self._bits = resolve_bits(bits)
        self._drawn_privately = self._bits.private
        self._ladder = read_ladder(ladder)
        self._exact = read_column(sealed)
        self._size = len(self._exact)
        self._releases: list[NDArray[Any]] = []
        # Checked for all rungs before the first is drawn: a rung that fails later would be paid for and not delivered.
        if max(self._variance(rung) for rung in range(len(self._ladder))) > LARGEST_SCALE**2:
            raise InvalidRequest("Expected noise below 2^60 lattice units", do="Raise the lowest rung or the gaps")

    @property
    def private(self) -> bool:
        """Whether all bits come from a private source; false means simulation."""
        return self._drawn_privately and self._bits.private

    def loss(self, rung: int) -> ZeroConcentratedLoss:
        """Return what reading every rung up to this one costs.

        Parameters
        ----------
        rung : int
            The index of a rung, 0 for the most private one.

        Returns
        -------
        ZeroConcentratedLoss
            The rho of the rung: those of independent releases add (BS16, Lemma 2.3).
        """
        return ZeroConcentratedLoss(self._ladder[check_rung(self._ladder, rung)])

    def mu(self, rung: int) -> float:
        """Return the mu of Gaussian DP that this noise approaches on a fine lattice, sqrt(2 rho). Not a bill.

        Lattice noise of variance v is not exactly sqrt(2 rho)-Gaussian-DP: its mu is larger by a share of about
        1 / (24 v), with v in lattice units (docs/proofs/gaussian-path.md).

        Parameters
        ----------
        rung : int
            The index of a rung.

        Returns
        -------
        float
        """
        return math.sqrt(2 * self._ladder[check_rung(self._ladder, rung)])

    def release(self, rung: int) -> NDArray[Any]:
        """Return the integers released at one rung alone.

        Parameters
        ----------
        rung : int
            The index of a rung; rungs below it are drawn too.

        Returns
        -------
        numpy.ndarray
            One integer per coordinate, in the type of the sealed answer.
        """
        self._draw_up_to(check_rung(self._ladder, rung))
        return self._releases[rung].copy()

    def fractions(self, rung: int) -> list[Fraction]:
        """Return the estimate at one rung, exactly.

        Parameters
        ----------
        rung : int
            The index of a rung.

        Returns
        -------
        list of Fraction
            One per coordinate.
        """
        self._draw_up_to(check_rung(self._ladder, rung))
        # Weights inverse to the variances: the estimate of least variance among the unbiased ones, and post-processing.
        steps = [self._rho_step(j) for j in range(rung + 1)]
        columns = zip(*(release.tolist() for release in self._releases[: rung + 1]), strict=True)
        return [
            sum((step * y for step, y in zip(steps, column, strict=True)), Fraction(0)) / self._ladder[rung]
            for column in columns
        ]

    def at(self, rung: int) -> NDArray[np.float64]:
        """Return the estimate at one rung.

        Parameters
        ----------
        rung : int
            The index of a rung.

        Returns
        -------
        numpy.ndarray of float
            One per coordinate.
        """
        return self.block(rung, rung + 1).reshape(self._size)

    def block(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return the estimates at several rungs; reading them costs the last rung.

        Parameters
        ----------
        start, stop : int
            The rungs from ``start`` to ``stop - 1``.

        Returns
        -------
        numpy.ndarray of float
            One row per rung, one column per coordinate.
        """
        first, end = self._check_block(start, stop)
        self._draw_up_to(end - 1)
        # Floats only after the noise was added to exact integers: rounding here is post-processing.
        releases = np.array([release.astype(float) for release in self._releases[:end]])
        steps = np.array([float(self._rho_step(j)) for j in range(end)])
        levels = np.array([float(rung) for rung in self._ladder.rungs[:end]])
        estimates: NDArray[np.float64] = np.cumsum(steps[:, None] * releases, axis=0)[first:] / levels[first:, None]
        return estimates

    def state(self) -> bytes:
        """Return everything needed to continue after a restart. SECRET: it holds the exact answer; encrypt it.

        Of all paths made from one state only one may draw further rungs.

        Returns
        -------
        bytes
            The input of ``from_state``.
        """
        # Releases already drawn are part of the state: drawn again they would be further answers.
        facts = {
            "ladder": [str(rung) for rung in self._ladder],
            "square": str(self._square),
            "private": self.private,
            "drawn": len(self._releases),
        }
        releases = {f"release {rung}": release for rung, release in enumerate(self._releases)}
        return pack_state(self._kind, facts, {"exact": self._exact, **releases})

    @classmethod
    def from_state(cls, state: bytes, *, bits: BitSource | None = None) -> GaussianPath:
        """Restore the path that ``state`` described.

        Parameters
        ----------
        state : bytes
            What ``state`` returned.
        bits : BitSource, optional
            Source of randomness for the rungs not drawn yet; the system's by default.

        Returns
        -------
        GaussianPath

        Raises
        ------
        InvalidRequest
            If these bytes are not the state of such a path.
        """
        facts, arrays = unpack_state(cls._kind, state)
        path = cls.__new__(cls)
        path._take_ownership()
        path._bits, path._drawn_privately = resolve_bits(bits), facts["private"]
        path._ladder = Ladder(tuple(Fraction(rung) for rung in facts["ladder"]))
        path._square = Fraction(facts["square"])
        path._exact, path._size = arrays["exact"], len(arrays["exact"])
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
