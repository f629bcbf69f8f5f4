"""Coefficients in the units of the columns, with intervals for the noise and for the sampling of rows."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.models.descent.clipped_gradient import CurvedGradient, SumGradients
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.descent.score_head import CurvedHead, Squared
from expost.models.tabular.column_encoding import CategoryColumn, FlagColumn, NumberColumn
from expost.models.tabular.date_column import DateColumn
from expost.models.tabular.rung_schedule import split_noise
from expost.models.tabular.table_encoder import TableEncoder
from expost.models.tabular.table_model import CoefficientEstimates, TableModel
from expost.models.tabular.table_profile import TableProfile, sum_blocks
from expost.noise import BitSource
from expost.noise.gaussian_stream import GaussianStream

__all__ = ["Contrasts", "estimate_coefficients", "list_contrasts", "measuring_gradient", "step_noises"]

Floats = NDArray[np.float64]
Contrasts = Callable[[TableProfile], Floats]
"""Makes the reported combinations of features (combinations x features) from a profile."""
_ROW_LIMIT = 1.2  # usual lengths of a row up to which it counts in full, as in the training
_NUMERIC_CLIP = 3.0  # usual lengths times target spreads: larger residuals are cut
_SEEN = 4.0  # deviations, per root of the columns, that an eigenvalue of the curvature needs
_HIDDEN_PART = 0.01  # of a combination's squared length, along directions that the noise hides
_SPARE_BITS = 8
_EDGE = 2.0  # deviations, per root of the columns, at which the spectrum of the noise ends
_YEAR = datetime.timedelta(days=365.25)
_STEPS = (0.06, 0.06, 0.06, 0.06, 0.06, 0.7)  # shares of the release


@dataclass(frozen=True)
class ReportedCoefficient:
    """A line of the table of coefficients."""

    column: str
    level: str
    meaning: str


def list_contrasts(encoder: TableEncoder) -> tuple[tuple[ReportedCoefficient, ...], Contrasts]:
    """Return what is reported of each column, and the combinations of features that it is.

    A number has a slope per unit of the column, a boolean the difference between true and false. A level or a weekday is
    compared with the mean of its column's, weighted by their released shares: adding the same number to all of them
    changes nothing, so only differences have a value.
    """
    reported: list[ReportedCoefficient] = []
    scales: list[float] = []
    groups: list[NDArray[np.intp]] = []
    place = 0
    for column in encoder.columns:
        names = column.names_out
        if isinstance(column, CategoryColumn):
            groups.append(np.arange(place, place + column.width))
            levels = [*map(str, column.levels), "other"]
            reported += [ReportedCoefficient(column.name, level, "compared with the mean level") for level in levels]
            scales += [1.0] * column.width
        elif isinstance(column, NumberColumn):
            reported.append(ReportedCoefficient(column.name, "", "per unit"))
            scales.append(2 / (column.high - column.low))
            if column.missing:
                reported.append(ReportedCoefficient(column.name, "missing", "compared with the middle of the bounds"))
                scales.append(1.0)
        elif isinstance(column, FlagColumn):
            reported.append(ReportedCoefficient(column.name, "", "true compared with false"))
            scales.append(2.0)
        elif isinstance(column, DateColumn):
            days = column.weekdays
            groups.append(place + np.array([*days, column.width - 1]))  # a missing date has no weekday
            reported.append(ReportedCoefficient(column.name, "", "per 365.25 days"))
            for number, name in enumerate(names[1:], 1):
                compared = number in days or number == column.width - 1
                meaning = "compared with the mean weekday" if compared else "per unit of the feature"
                reported.append(ReportedCoefficient(column.name, name.partition("=")[2], meaning))
            scales += [2 * _YEAR / (column.end - column.start), *[1.0] * (column.width - 1)]
        else:
            reported += [ReportedCoefficient(column.name, name, "per unit of the feature") for name in names]
            scales += [1.0] * column.width
        place += column.width

    def combine(profile: TableProfile) -> Floats:
        matrix = np.diag(scales)
        for group in groups:
            shares = np.maximum(profile.middles[group], 0.0) + 1e-12
            matrix[np.ix_(group, group)] -= shares / shares.sum()
        return matrix

    return tuple(reported), combine


def measuring_gradient(
    profile: TableProfile, model_grid: FeatureGrid, head: CurvedHead, noise: Fraction, rows: int
) -> CurvedGradient:
    """Return the sums whose release gives coefficients: residuals of a classifier are not cut at all."""
    clip = _NUMERIC_CLIP if isinstance(head, Squared) else _ROW_LIMIT * 1.001
    return CurvedGradient(
        model_grid,
        head,
        clip=clip * profile.length,
        noise_multiplier=float(noise),
        row_limit=_ROW_LIMIT * profile.length,
        rows_per_unit=rows,
        spare_bits=_SPARE_BITS,
    )


def step_noises(noise: Fraction) -> tuple[Fraction, ...]:
    """Return the noise multipliers of the steps that share a release."""
    return tuple(split_noise(noise, share) for share in _STEPS)


def estimate_coefficients(
    model: TableModel,
    blocks: Any,
    contrasts: Contrasts,
    *,
    head: CurvedHead,
    noise: Fraction,
    rows_per_unit: int,
    weighted: bool,
    residual_variance: float,
    unit_scale: float,
    bits: BitSource,
) -> CoefficientEstimates:
    """Release gradients and curvatures at a model, and step from it to the coefficients without shrinkage and cut residuals.

    Gaussian events that together have this noise multiplier. The first steps come near the coefficients, whatever
    the training has left; the last one decides. ``unit_scale`` is what a score of 1 is in the target's units. The rest
    follows from the releases (docs/proofs/coefficient-intervals.md).
    """
    profile = model.profile
    weights = model.weights.copy()
    noises = step_noises(noise)
    for place, own in enumerate(noises):
        curved = measuring_gradient(profile, model.grid, head, own, rows_per_unit)
        stream = GaussianStream(own, curved.sensitivity, size=curved.size, releases=1, bits=bits)
        slope, bend = curved.split(
            stream.release(curved.seal_sum(sum_blocks(blocks, SumGradients(curved, weights, weighted))))
        )
        deviation = float(own) * float(curved.sensitivity.amount) / profile.rows
        slope_noise, bend_noise = deviation / curved.gradient.unit, deviation / curved.unit
        values, vectors = np.linalg.eigh(bend / profile.rows)
        edge = bend_noise * math.sqrt(len(values))
        if place < len(noises) - 1:
            # Along directions that the noise hides the weight shrinks towards zero, the more the less can be seen of it.
            floor = _EDGE * edge
            moved = (weights @ vectors) * np.clip(values / floor, 0.0, 1.0)
            weights = (moved - (slope / profile.rows @ vectors) / np.maximum(values, floor)) @ vectors.T
    seen = values > _SEEN * edge
    directions, unseen = vectors[:, seen], vectors[:, ~seen]
    # What follows is divided by the smallest eigenvalues that are plausible, those that passed are too large on average.
    lowered = values[seen] - edge
    steps = -(slope[0] / profile.rows @ directions) / values[seen]
    # The training leaves noise along hidden directions, where rows hardly differ: it is dropped.
    weights = (weights + directions @ steps) @ directions @ directions.T
    # The curvature's noise times the step is noise of the gradient too.
    length = float(np.linalg.norm(steps))
    per_direction = math.hypot(slope_noise, bend_noise * length) / lowered
    if not isinstance(head, Squared):
        # The curvature changes along the step, by at most its share of a logarithm that a row's score moves.
        moved = 0.5 * _ROW_LIMIT * profile.length * length * math.sqrt(float(steps**2 @ values[seen]))
        per_direction = np.hypot(per_direction, moved / np.sqrt(lowered))

    matrix = contrasts(profile)
    combined = np.column_stack([matrix * profile.factors, np.zeros(len(matrix))])
    along = combined @ directions
    lengths = np.sum(combined**2, axis=1)
    beside = np.sum((combined @ unseen) ** 2, axis=1)
    hidden = beside > _HIDDEN_PART * lengths
    # Along a hidden direction the weight may be as large as along the others.
    left = float(np.mean((weights[0] @ directions) ** 2)) if directions.size else 0.0
    noise_deviation = np.sqrt(np.sum((along * per_direction) ** 2, axis=1) + beside * left)
    sampling = np.sqrt(np.sum(along**2 / lowered, axis=1) * residual_variance / profile.rows)
    noise_deviation[hidden] = sampling[hidden] = np.nan
    return CoefficientEstimates(
        values=combined @ weights[0] * unit_scale,
        noise=noise_deviation * unit_scale,
        sampling=sampling * unit_scale,
    )
