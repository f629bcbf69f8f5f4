"""What the parts of a fit release, for many runs at once: minima and moments."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.audit.pair_attack import Features, Outcomes, Pair
from expost.audit.privacy_claim import Claim
from expost.core import EngineFailed, Ladder, PureGuarantee, Sealed
from expost.data.unit_ball import GRID_BITS, UnitRows
from expost.models.linear.output_perturbation import OutputHypotheses
from expost.models.linear.risk_minimum import SealedRisk
from expost.models.linear.row_loss import RowLoss
from expost.models.linear.tilted_risk import GaussianTilt, SphericalTilt, TiltedRisk
from expost.noise import DiscreteLaplacePath, GaussianPath
from expost.noise.bits import BitSource, SeededBits
from expost.noise.lattice import sealed_copies

__all__ = ["ManyMinima", "hypotheses_pair", "path_pair", "tilt_pair"]

Floats = NDArray[np.float64]

_STEPS, _HALVINGS = 100, 40
_CLOSE = 1e-10  # of the gradient
_AT_ONCE = 1 << 17  # tilts solved together


@dataclass(frozen=True)
class ManyMinima:
    """Minimizes mean loss + penalty / 2 |theta|^2 + tilt . theta for each row of a table of tilts.

    ``slopes(theta)`` is the change of variables the other way: the tilt whose minimum is theta. The density of the
    minimum at theta is that of the tilt there, times the determinant of the curvature of the risk.
    """

    rows: UnitRows
    loss: RowLoss
    penalty: float
    target_scale: float = 1.0

    def __call__(self, tilts: Floats) -> Floats:
        """Minimize the risk under each tilt."""
        parts = np.split(tilts, np.arange(_AT_ONCE, len(tilts), _AT_ONCE))
        return np.concatenate([self._solve_part(part) for part in parts])

    def slopes(self, theta: Floats) -> Floats:
        """Compute minus the gradient of the risk without a tilt, at each row of theta."""
        features, target, weight = self._table
        slope = self.loss.slope_at(theta @ features.T, target) * weight
        return np.asarray(-(slope @ features) - self.penalty * theta)

    def _solve_part(self, tilts: Floats) -> Floats:
        theta = np.zeros_like(tilts)
        for _ in range(_STEPS):
            gradient = tilts - self.slopes(theta)
            left = np.flatnonzero(np.abs(gradient).max(axis=1) > _CLOSE * (1 + np.abs(tilts).max(axis=1)))
            if not len(left):
                return theta
            theta[left] = self._take_step(theta[left], gradient[left], tilts[left])
        raise EngineFailed("Expected the solver to converge", do="Ask for a larger regularization")

    def _take_step(self, theta: Floats, gradient: Floats, tilts: Floats) -> Floats:
        """Take a Newton step for each tilt, halved until the length of its gradient falls."""
        features, target, weight = self._table
        bent = self.loss.curvature_at(theta @ features.T, target) * weight
        curvature = np.einsum("kr,ri,rj->kij", bent, features, features) + self.penalty * np.eye(theta.shape[1])
        direction = np.linalg.solve(curvature, gradient[..., None])[..., 0]
        size, length = np.ones((len(theta), 1)), np.linalg.norm(gradient, axis=1)
        for _ in range(_HALVINGS):
            ahead = theta - size * direction
            worse = np.linalg.norm(tilts - self.slopes(ahead), axis=1) >= length
            if not worse.any():
                break
            size[worse] /= 2
        return np.asarray(theta - size * direction)

    @cached_property
    def _table(self) -> tuple[Floats, Floats, Floats]:
        """Features in the unit ball, targets in the loss's units, and the weight of each row."""
        chunks = list(self.rows.chunks())
        features = np.concatenate([features for features, _ in chunks]) * 2.0**-GRID_BITS
        target = np.concatenate([target for _, target in chunks]) * self.target_scale
        seen, counts = np.unique(np.c_[features, target], axis=0, return_counts=True)
        return seen[:, :-1], seen[:, -1], counts / self.rows.rows


Sides = tuple[UnitRows, UnitRows]
PathKind = type[DiscreteLaplacePath] | type[GaussianPath]

_EVERYWHERE = 1e300  # a ball that no hypothesis leaves


def tilt_pair(
    name: str,
    risk: TiltedRisk,
    epsilon: Fraction,
    sides: Sides,
    *,
    target_scale: float = 1.0,
    claim: Claim | None = None,
) -> Pair:
    """Build a pair of minima of a tilted risk on two adjacent tables; its feature is the log-likelihood ratio of the tilt."""
    solvers = [ManyMinima(rows, risk.loss, risk.penalty, target_scale) for rows in sides]

    def sample_minima(minima: ManyMinima, runs: int, bits: BitSource) -> Outcomes:
        return Outcomes.of(risk.simulate(minima, epsilon, runs=runs, bits=bits).round(9))

    # The norm of the tilt's density: the longer of the two tilts that lead to an outcome is the less likely one.
    order, power = {SphericalTilt: (2, 1), GaussianTilt: (2, 2)}.get(type(risk.law), (1, 1))

    def compare_lengths(theta: Floats) -> Floats:
        ours, theirs = (np.linalg.norm(each.slopes(theta), ord=order, axis=1) ** power for each in solvers)
        return np.asarray(theirs - ours)

    return Pair.of(name, claim or PureGuarantee(epsilon), sample_minima, *solvers, features=compare_lengths)


def path_pair(name: str, kind: PathKind, sides: tuple[Sealed, Sealed], ladder: Ladder, claim: Claim) -> Pair:
    """Build a pair of the first rung of a path of sealed numbers, with one copy of the numbers per run."""

    def sample_rung(sealed: Sealed, runs: int, bits: BitSource) -> Outcomes:
        rows = kind(sealed_copies(sealed, runs), ladder, bits=bits).at(0)
        return Outcomes.of(np.asarray(rows, np.float64).reshape(runs, -1))

    return Pair.of(name, claim, sample_rung, *sides, features=_path_likelihood(kind, sides))


def _path_likelihood(kind: PathKind, sides: tuple[Sealed, Sealed]) -> Features:
    """Compute how much likelier an outcome is on the left, from exact answers on tables of the audit."""
    level = Fraction(10**6 if kind is GaussianPath else 100)  # a level at which hardly any noise is left
    one, other = (np.asarray(kind(sealed, Ladder((level,)), bits=SeededBits(1)).at(0), np.float64) for sealed in sides)
    if kind is GaussianPath:
        return lambda values: np.asarray((values - (one + other) / 2) @ (one - other))
    return lambda values: np.asarray(np.abs(values - other).sum(axis=1) - np.abs(values - one).sum(axis=1))


class _CopiedRisk:
    """A risk whose minimum is sealed several times over, once per run."""

    def __init__(self, risk: SealedRisk, copies: int) -> None:
        self._risk, self._copies, self.dimension = risk, copies, risk.dimension

    def seal_minimum(self, *terms: Any) -> Sealed:
        return sealed_copies(self._risk.seal_minimum(*terms), self._copies)


def hypotheses_pair(name: str, risks: tuple[SealedRisk, SealedRisk], level: Fraction, *, sensitivity: float) -> Pair:
    """Build a pair of minima under the noise of one level of output perturbation."""

    def sample_minima(risk: SealedRisk, runs: int, bits: BitSource) -> Outcomes:
        copies: Any = _CopiedRisk(risk, runs)
        made = OutputHypotheses(copies, Ladder((level,)), sensitivity=sensitivity, radius=_EVERYWHERE, bits=bits)
        return Outcomes.of(made.block(0, 1).reshape(runs, -1))

    return Pair.of(name, PureGuarantee(level), sample_minima, *risks)
