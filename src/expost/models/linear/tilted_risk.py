"""Objective perturbation: laws of the random tilt, what a privacy level buys, and the minimum of the tilted risk."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainccinv

from expost.accuracy.noise_norm import laplace_norm_quantile, spherical_norm_quantile
from expost.core import InvalidRequest, Ladder, Norm, Sealed, Sensitivity
from expost.core.rational import round_up
from expost.data.unit_ball import UnitBall, UnitRows
from expost.models.linear.fit_neighbours import REPLACED_ROWS, FitNeighbours
from expost.models.linear.risk_minimum import Objective, SolverAccuracy, minimize_objective
from expost.models.linear.row_loss import RowLoss
from expost.noise import BitSource, DiscreteLaplacePath, sample_gaussian, sample_laplace, sample_spherical_laplace
from expost.noise.mechanism import gaussian_delta
from expost.noise.parameter import LARGEST_RATE
from expost.noise.spherical_noise import GRID_RATIO

__all__ = [
    "GaussianTilt",
    "LaplaceTilt",
    "PerturbedObjective",
    "SphericalTilt",
    "TiltLaw",
    "TiltedRisk",
    "draws_to_floats",
    "grid_below",
    "pure_tilt",
]

Floats = NDArray[np.float64]

_TILT_BITS = 36  # the scale of the tilt is about 2^36 grid units
_CLOSE = 1e-9  # relative, on the safe side of floats
_NEAR = 33  # grid units per coordinate: lattice Gaussians are rounded real ones this close, but for 1e-100 of the draws
_LATTICE_COST = (
    3.0e-16  # epsilon per coordinate for that rounding (docs/proofs/discrete-gaussian-calibration.md, t^2 = 2)
)
_LONGEST = 600  # bits of a draw beyond which only the direction of the tilt is kept; 2^-2^500 is its probability
_OUTPUT_BITS = 18  # the sensitivity of the output is about 2^18 grid steps
_FAR = 2.0**50  # times every other gradient: beyond it only the direction of a tilt matters
_OUTPUT_SHARES = tuple(Fraction(1, part) for part in (200, 50, 20, 8))  # of epsilon, to hide the solver's error
_LARGEST_PART = 0.05  # of the excess risk, for the noise that hides it: the least share that keeps it is taken
_OUTPUT_FAILURE = Fraction(1, 100)  # of the failure probability, for the noise that hides it
_NEVER = 1e-9


class TiltLaw(Protocol):
    """The public law of a random tilt, at the privacy level that is left for it. ``name`` is used in receipts."""

    @property
    def name(self) -> str: ...

    def length_quantile(self, epsilon: Fraction, failure_probability: float) -> float:
        """Return a Euclidean length that the tilt exceeds with at most this probability."""

    def rounding_distance(self, epsilon: Fraction) -> float:
        """Bound the Euclidean distance between the draw and an ideal tilt of real numbers."""

    def draw_tilt(self, epsilon: Fraction, bits: BitSource | None, runs: int | None = None) -> Floats:
        """Draw one tilt, a sum over rows; with ``runs``, one in each of so many rows."""


def grid_below(scale: Fraction | float, bits: int = _TILT_BITS) -> Fraction:
    """Return a power of two that is at least 2^bits times smaller than a scale, and about that much.

    >>> grid_below(Fraction(5), 2)
    Fraction(1, 1)
    """
    return Fraction(2) ** (math.floor(math.log2(scale)) - bits)


def draws_to_floats(draws: NDArray[np.int64], grid: Fraction) -> Floats:
    """Convert integer draws in units of the grid to floats. A vector too long for floats keeps its direction only.

    One vector, or a table with one vector in each row.

    >>> draws_to_floats(np.array([3, -4]), Fraction(1, 2))
    array([ 1.5, -2. ])
    """
    if draws.ndim > 1 and draws.dtype == np.int64:
        # The grid is a power of two, and a vector of 64-bit integers is never too long.
        return np.asarray(draws * float(grid), np.float64)
    if draws.ndim > 1:
        return np.array([draws_to_floats(each, grid) for each in draws])
    whole = [int(draw) for draw in draws]
    excess = max(0, max(draw.bit_length() for draw in whole) - _LONGEST)
    return np.array([float((draw >> excess) * grid) for draw in whole])


@dataclass(frozen=True)
class LaplaceTilt:
    """Independent Laplace coordinates of scale 2 steepest spread / epsilon.

    One row moves the sum of gradients by at most 2 steepest spread in the 1-norm, where ``spread`` is the largest
    1-norm of a row: 1, or the root of the dimension in a Euclidean ball.
    """

    dimension: int
    steepest: float
    spread: float
    name = "discrete Laplace tilt"

    @cached_property
    def _row_sensitivity(self) -> Fraction:
        return 2 * round_up(self.steepest * self.spread)

    def scale_at(self, epsilon: Fraction) -> Fraction:
        """Return the scale of each coordinate."""
        return self._row_sensitivity / epsilon

    def length_quantile(self, epsilon: Fraction, failure_probability: float) -> float:
        return float(self.scale_at(epsilon)) * laplace_norm_quantile(self.dimension, failure_probability)

    def rounding_distance(self, epsilon: Fraction) -> float:
        # A discrete Laplace variable can be drawn together with a real one less than a grid unit away.
        return math.sqrt(self.dimension) * float(grid_below(self.scale_at(epsilon)))

    def draw_tilt(self, epsilon: Fraction, bits: BitSource | None, runs: int | None = None) -> Floats:
        scale = self.scale_at(epsilon)
        grid = grid_below(scale)
        shape = (self.dimension,) if runs is None else (runs, self.dimension)
        return draws_to_floats(sample_laplace(scale / grid, shape, bits=bits), grid)


@dataclass(frozen=True)
class SphericalTilt:
    """A tilt whose density falls like exp(-epsilon |b|_2 / (2 steepest)), on a lattice.

    One row moves the sum of gradients by at most 2 steepest in the Euclidean norm. A tilt drawn on the lattice stands
    for a real one in its cell, which may be moved by half a diagonal (docs/proofs/spherical-laplace.md, as a tilt).
    """

    dimension: int
    steepest: float
    name = "spherical Laplace tilt"

    @cached_property
    def _row_sensitivity(self) -> Fraction:
        return 2 * round_up(self.steepest)

    def _grid_at(self, epsilon: Fraction) -> Fraction:
        return grid_below(2 * Fraction(self.steepest) / epsilon)

    def scale_at(self, epsilon: Fraction) -> Fraction:
        """Return the scale of the noise in grid units."""
        diagonal = math.isqrt(self.dimension - 1) + 1  # the root of the dimension, rounded up
        return GRID_RATIO * (self._row_sensitivity / self._grid_at(epsilon) + diagonal) / epsilon

    def length_quantile(self, epsilon: Fraction, failure_probability: float) -> float:
        units = float(self.scale_at(epsilon)) * spherical_norm_quantile(self.dimension, failure_probability)
        return float(self._grid_at(epsilon)) * (units + _NEAR * math.sqrt(self.dimension))

    def rounding_distance(self, epsilon: Fraction) -> float:
        return math.sqrt(self.dimension) * float(self._grid_at(epsilon))

    def draw_tilt(self, epsilon: Fraction, bits: BitSource | None, runs: int | None = None) -> Floats:
        draws = sample_spherical_laplace(self.scale_at(epsilon), self.dimension, 1 if runs is None else runs, bits=bits)
        shape = (self.dimension,) if runs is None else (runs, self.dimension)
        return draws_to_floats(draws.reshape(shape), self._grid_at(epsilon))


@dataclass(frozen=True)
class GaussianTilt:
    """Independent normal coordinates, for (epsilon, delta)-DP.

    ``one_sided``: the slope of a row's loss has one sign, known from its label. The gradients of two rows then span
    fewer differences, and delta is nearly that of a single Gaussian (docs/proofs/gaussian-tilt.md).
    """

    dimension: int
    steepest: float
    delta: Fraction
    one_sided: bool
    name = "discrete Gaussian tilt"

    def deviation_at(self, epsilon: Fraction) -> float:
        """Return the standard deviation of each coordinate."""
        cost = _LATTICE_COST * self.dimension
        least = float(self.delta) * math.exp(-cost) * (1 - _CLOSE)
        if float(epsilon) <= 2 * cost:
            raise InvalidRequest("Expected an epsilon that this noise can reach", got=epsilon, do="Raise epsilon")
        mu = _largest_tilt_mu(float(epsilon) - cost, least, self.one_sided)
        return 2 * self.steepest / mu * (1 + _CLOSE)

    def _grid_at(self, epsilon: Fraction) -> Fraction:
        return grid_below(self.deviation_at(epsilon), _TILT_BITS + 5)

    def length_quantile(self, epsilon: Fraction, failure_probability: float) -> float:
        failure = failure_probability * (1 - _CLOSE)
        quantile = math.sqrt(2 * float(gammainccinv(self.dimension / 2, failure)))
        return self.deviation_at(epsilon) * quantile * (1 + _CLOSE) + self.rounding_distance(epsilon)

    def rounding_distance(self, epsilon: Fraction) -> float:
        return _NEAR * math.sqrt(self.dimension) * float(self._grid_at(epsilon))

    def draw_tilt(self, epsilon: Fraction, bits: BitSource | None, runs: int | None = None) -> Floats:
        grid = self._grid_at(epsilon)
        variance = (Fraction(self.deviation_at(epsilon)) / grid) ** 2 + 2  # 2 grid units squared for the rounding
        shape = (self.dimension,) if runs is None else (runs, self.dimension)
        return draws_to_floats(sample_gaussian(variance, shape, bits=bits), grid)


@lru_cache(maxsize=1024)
def _largest_tilt_mu(epsilon: float, delta: float, one_sided: bool) -> float:
    """Return the largest 2 steepest / deviation that is (epsilon, delta)-DP, rounded down (docs/proofs/gaussian-tilt.md)."""
    # Two-sided slopes: beyond this two short moves could cost more than one long one.
    most = math.inf if one_sided else math.sqrt(2 * (math.sqrt(1 + epsilon**2) - 1)) * (1 - _CLOSE)

    def is_private(mu: float) -> bool:
        longest = gaussian_delta(epsilon, mu)
        corners = longest + 2 * gaussian_delta(epsilon, mu / 2) if one_sided else 2 * longest
        return mu <= most and corners <= delta

    low, high = 0.0, 1.0
    while is_private(high):
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if is_private(middle) else (low, middle)
        if high < 1e-12:
            raise InvalidRequest("Expected an epsilon that this noise can reach", got=epsilon, do="Raise epsilon")
    return low


def pure_tilt(ball: UnitBall, steepest: float) -> LaplaceTilt | SphericalTilt:
    """Return the shorter of the two pure tilts: by coordinate for rows of bounded 1-norm, spherical in a Euclidean ball.

    >>> pure_tilt(UnitBall(5, Norm.L2), 1.0).name, pure_tilt(UnitBall(5, Norm.L1), 1.0).name
    ('spherical Laplace tilt', 'discrete Laplace tilt')
    """
    # Rows of 1-norm at most 1 need no spread; a Euclidean ball of dimension 1 is the same ball.
    if ball.norm is Norm.L2 and ball.dimension > 1:
        return SphericalTilt(ball.dimension, steepest)
    return LaplaceTilt(ball.dimension, steepest, 1.0)


@dataclass(frozen=True)
class PerturbedObjective:
    """The public numbers of one perturbed problem, in which rows lie in a unit ball.

    The tilt b of the objective has a public law at epsilon', what the Jacobian leaves of epsilon. Its minimum has
    gradient -b / rows, so the excess risk is at most |b|^2 / (2 penalty rows^2): known in law before the run. Proofs:
    docs/proofs/objective-perturbation.md.
    """

    rows: int
    dimension: int
    penalty: float
    steepest: float
    sharpest: float
    at_zero: float
    tilt: TiltLaw
    solver: SolverAccuracy
    squared_length: float = 1.0
    """The largest squared Euclidean length of a row."""
    neighbours: FitNeighbours = REPLACED_ROWS
    output_share: Fraction = _OUTPUT_SHARES[0]
    """The part of epsilon that hides the solver's error."""

    def with_enough_output(self) -> PerturbedObjective:
        """Return the prices with the least share for the solver's error that hardly adds to the excess risk.

        Both parts of the risk fall alike with epsilon, so one epsilon decides for all.
        """
        epsilon, failure = 4 * self.jacobian + Fraction(1, 1000), Fraction(1, 10)
        for share in _OUTPUT_SHARES:
            priced = replace(self, output_share=share)
            try:
                gradient = priced.tilt.length_quantile(priced.split(epsilon)[0], float(failure)) / priced.rows
                hidden = priced.output_length(epsilon, failure)
            except InvalidRequest:  # beyond floats; the price says so
                return self
            if priced._smoothness * hidden**2 <= _LARGEST_PART * gradient**2 / priced.penalty:
                break
        return priced

    @cached_property
    def jacobian(self) -> Fraction:
        """Return the cost of the change of variables: ln(1 + sharpest |row|^2 / (rows penalty)), rounded up."""
        ratio = self.sharpest * self.squared_length / (self.rows * self.penalty)
        return round_up(self.neighbours.jacobian(ratio) * (1 + _CLOSE))

    @property
    def _smoothness(self) -> float:
        """Return the largest curvature of the risk, for as many rows as a table may have."""
        return self.neighbours.crowd * self.sharpest * self.squared_length + self.penalty

    def split(self, epsilon: Fraction) -> tuple[Fraction, Fraction]:
        """Return the part of epsilon that is left for the tilt, and the part that hides the solver's error."""
        output = epsilon * self.output_share
        tilt = epsilon - output - self.jacobian
        if tilt <= 0:
            raise InvalidRequest(
                f"Expected an epsilon above {float(self.jacobian):.3g} for this number of rows and regularization",
                got=float(epsilon),
                do="Raise epsilon or regularization",
            )
        return tilt, output

    def reach(self, epsilon: Fraction) -> float:
        """Return the length to which minima are cut. A longer one has probability 1e-9 and counts as a failure."""
        tilt = self.tilt.length_quantile(self.split(epsilon)[0], _NEVER) / self.rows
        # No worse than zero: penalty / 2 r^2 <= at_zero + tilt r.
        return 1.001 * (tilt + math.sqrt(tilt**2 + 2 * self.penalty * self.at_zero)) / self.penalty

    def bound_distance(self, epsilon: Fraction) -> float:
        """Bound the distance between the solver's point and the exact minimum, both cut to the reach.

        It holds for every tilt: minima of up to twice the reach decide (docs/proofs/objective-perturbation.md, 5).
        """
        reach, spacing = self.reach(epsilon), self.tilt.rounding_distance(self.split(epsilon)[0]) / self.rows
        longest = self.steepest + 2 * self.penalty * reach + spacing  # the tilt of a minimum of twice the reach
        found = self.solver.bound_distance(2 * reach, longest) + spacing / self.penalty
        if found > reach / 4:
            raise InvalidRequest(
                "Expected a regularization that float64 can resolve for this table",
                do="Ask for a larger regularization",
            )
        return found

    def output_sensitivity(self, epsilon: Fraction) -> float:
        """Bound the distance, in the 1-norm, between two solutions for the same exact minimum."""
        return 2 * math.sqrt(self.dimension) * self.bound_distance(epsilon)

    def output_length(self, epsilon: Fraction, failure_probability: Fraction) -> float:
        """Bound the distance between the release and the exact minimum, except with a hundredth of this probability."""
        distance = self.bound_distance(epsilon)
        scale = 2 * math.sqrt(self.dimension) * distance / float(self.split(epsilon)[1])
        quantile = laplace_norm_quantile(self.dimension, float(failure_probability * _OUTPUT_FAILURE))
        return 1.01 * scale * quantile + distance  # 1 % for the rounding to the grid

    def excess_risk(self, epsilon: Fraction, failure_probability: Fraction) -> float:
        """Return the excess risk that is exceeded with at most this probability."""
        # What exceeds the reach is among the failures: _NEVER is the smaller probability.
        length = self.tilt.length_quantile(self.split(epsilon)[0], float(failure_probability * (1 - _OUTPUT_FAILURE)))
        gradient, hidden = length / self.rows, self.output_length(epsilon, failure_probability)
        smooth = self._smoothness
        # Strong convexity, then smoothness for the step that the output noise takes (Nes04, Theorems 2.1.5 and 2.1.10).
        return gradient**2 / (2 * self.penalty) + gradient * hidden + smooth / 2 * hidden**2

    def excess_risks(self, epsilon: Fraction, failure_probabilities: Sequence[float]) -> Floats:
        """Return ``excess_risk`` for many failure probabilities at once."""
        rarest = Fraction(min(failure_probabilities))
        level, kept = self.split(epsilon)[0], float(1 - _OUTPUT_FAILURE)
        lengths = [self.tilt.length_quantile(level, each * kept) for each in failure_probabilities]
        gradients, hidden = np.array(lengths) / self.rows, self.output_length(epsilon, rarest)
        risks: Floats = gradients**2 / (2 * self.penalty) + gradients * hidden
        return risks + self._smoothness / 2 * hidden**2

    def epsilon_for(self, excess_risk: float, failure_probability: Fraction) -> Fraction:
        """Return the smallest epsilon whose excess risk stays within the target, to nine digits."""
        low = float(self.jacobian / (1 - self.output_share)) * 1.01 + 1e-15
        high = max(low, 1e-6)
        while self.excess_risk(Fraction(high), failure_probability) > excess_risk:
            high *= 2
            if high > 1e9:
                raise InvalidRequest("Expected a target within reach", got=excess_risk, do="Allow a larger excess risk")
        while high - low > _CLOSE * high:
            middle = (low + high) / 2
            enough = self.excess_risk(Fraction(middle), failure_probability) <= excess_risk
            low, high = (low, middle) if enough else (middle, high)
        return round_up(high)


@dataclass(frozen=True)
class _CrowdedLoss:
    """Bounds of a loss summed over more rows than were declared; read by ``SolverAccuracy`` only."""

    steepest: float
    sharpest: float


@dataclass(frozen=True)
class TiltedRisk:
    """Minimizes mean loss + penalty/2 |theta|^2 + tilt . theta / rows for a random tilt.

    Guarantee: pure DP with the given epsilon, known before the run; (epsilon, delta)-DP with a Gaussian tilt.
    Adjacency: that of ``neighbours``: a row or a person is replaced, or added or removed; ``rows`` is a public number.
    Sensitivity: a replaced row moves the sum of gradients by at most 2 steepest in the dual norm of the ball, an added
        or removed one by steepest; the solver's error is hidden by noise of its own (L1).
    Accuracy: excess risk <= |tilt|^2 / (2 penalty rows^2), with the quantile of the tilt's norm (PerturbedObjective).
    Numerics: tilt and output noise are exact and on a grid; that the ideal tilt is real-valued and the solver works in
        float64 is part of the output's sensitivity, however long the tilt: minima are cut to a public length.
        Convergence of the solver is checked, not assumed.
    Reference: CMS11, Theorem 9 (idea); KST12, Theorem 1; INSTTW19, Theorem 1 (inexact minima);
        docs/proofs/objective-perturbation.md, docs/proofs/gaussian-tilt.md, docs/proofs/added-units.md (constants, ours).
    """

    loss: RowLoss
    ball: UnitBall
    rows: int
    penalty: float
    law: TiltLaw | None = None
    """The law of the tilt; by default the shorter of the pure ones."""
    neighbours: FitNeighbours = REPLACED_ROWS

    def __post_init__(self) -> None:
        if self.law is None:
            # Laws are written for two gradients; an added or removed unit has one.
            object.__setattr__(self, "law", pure_tilt(self.ball, self.loss.steepest * self.neighbours.gradients / 2))

    @cached_property
    def prices(self) -> PerturbedObjective:
        """Return what epsilon buys."""
        assert self.law is not None
        crowd, loss = self.neighbours.crowd, self.loss
        crowded = _CrowdedLoss(crowd * loss.steepest, crowd * loss.sharpest)
        return PerturbedObjective(
            rows=self.rows,
            dimension=self.ball.dimension,
            penalty=self.penalty,
            steepest=crowded.steepest,
            sharpest=loss.sharpest,
            at_zero=crowd * loss.at_zero,
            tilt=self.law,
            solver=SolverAccuracy(crowded, self.ball, rows=crowd * self.rows, penalty=self.penalty),
            squared_length=self.ball.squared_length,
            neighbours=self.neighbours,
        ).with_enough_output()

    def release(
        self, rows: UnitRows, epsilon: Fraction, *, target_scale: float = 1.0, bits: BitSource | None = None
    ) -> Floats:
        """Return the private coefficients for rows in the unit ball."""
        tilt = self._draw_tilt(epsilon, bits) / self.rows
        return self._hide_solver(self._cut_minimum(rows, tilt, epsilon, target_scale), epsilon, bits)

    def simulate(
        self, minima: Callable[[Floats], Floats], epsilon: Fraction, *, runs: int, bits: BitSource | None = None
    ) -> Floats:
        """Return independent releases, one per row, for a table that is not private.

        ``minima`` solves for a table of tilts.
        """
        found = minima(self._draw_tilt(epsilon, bits, runs) / self.rows)
        reach = self.prices.reach(epsilon)
        length = np.linalg.norm(found, axis=1, keepdims=True)
        return self._hide_solver(found * np.minimum(1.0, reach / np.maximum(length, reach)), epsilon, bits)

    def _draw_tilt(self, epsilon: Fraction, bits: BitSource | None, runs: int | None = None) -> Floats:
        """Draw the tilt at the level that is left for it."""
        assert self.law is not None
        level = self.prices.split(epsilon)[0]
        return self.law.draw_tilt(level, bits) if runs is None else self.law.draw_tilt(level, bits, runs)

    def _cut_minimum(self, rows: UnitRows, tilt: Floats, epsilon: Fraction, target_scale: float) -> Floats:
        """Return the minimum that the solver finds, scaled down to the reach where it is longer."""
        reach = self.prices.reach(epsilon)
        largest = float(np.abs(tilt).max())
        length = largest * float(np.linalg.norm(tilt / largest)) if largest > 0 else 0.0
        if length > _FAR * (self.prices.steepest + self.penalty * reach):
            # The tilt alone decides: the minimum is opposite to it, far beyond the reach.
            return tilt / length * -reach
        minimum = minimize_objective(Objective(rows, self.loss, self.penalty, tilt, target_scale))
        return minimum * min(1.0, reach / max(float(np.linalg.norm(minimum)), reach))

    def _hide_solver(self, minimum: Floats, epsilon: Fraction, bits: BitSource | None) -> Floats:
        """Add the noise that hides the difference between the solver's point and the exact minimum.

        A table has one minimum in each row.
        """
        _, share = self.prices.split(epsilon)
        distance = self.prices.output_sensitivity(epsilon)
        step = math.ldexp(1.0, math.floor(math.log2(distance)) - _OUTPUT_BITS)
        # Rounding moves each of two neighboring outputs by at most half a step.
        units = math.ceil(distance / step * (1 + 1e-9)) + self.ball.dimension
        gridded = np.rint(minimum.ravel() / step).astype(np.int64)
        sealed = Sealed(gridded, Sensitivity(units, adjacency=self.neighbours.adjacency))
        level = min(share, Fraction(LARGEST_RATE * units))  # beyond it there is no noise left to shrink
        released = DiscreteLaplacePath(sealed, Ladder((level,)), bits=bits).at(0)
        return np.asarray(released, dtype=np.float64).reshape(minimum.shape) * step
