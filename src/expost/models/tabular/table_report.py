"""What is released of a finished model besides its score: ranks of both classes, calibration, coefficients."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.models.descent.clipped_gradient import grid_scores
from expost.models.descent.score_head import CurvedHead
from expost.models.tabular.coefficient_estimates import (
    Contrasts,
    estimate_coefficients,
    measuring_gradient,
    step_noises,
)
from expost.models.tabular.grid_table import GridBlock
from expost.models.tabular.probability_calibration import describe_reliability, fit_calibration, log_odds
from expost.models.tabular.rank_tree import RankTree, center_of
from expost.models.tabular.rung_schedule import split_noise
from expost.models.tabular.table_model import TableModel, fit_grid
from expost.models.tabular.table_profile import TableProfile, sum_blocks
from expost.noise import BitSource

__all__ = ["NO_REPORT", "FinishedModel", "TableReport", "residual_variance_of"]


_RANK_SHARE, _COEFFICIENT_SHARE = 0.15, 0.3  # of what the rungs spent


@dataclass(frozen=True)
class FinishedModel:
    """A trained model with what a report needs to read it once more. ``blocks`` reads the private rows on its grid."""

    model: TableModel
    blocks: Any
    head: CurvedHead
    rows_per_unit: int
    weighted: bool
    """Whether rows have weights other than 1."""
    residual_variance: float
    unit_scale: float


@dataclass(frozen=True)
class TableReport:
    """What a report releases; a frozen value made from public arguments.

    Guarantee: none by itself; a report is one or two Gaussian events whose squared parameters add up to a fixed share of what
        the rungs spent.
    Adjacency: add/remove of one unit.
    Sensitivity: that of ``RankTree`` and of ``CurvedGradient``.
    Accuracy: deviations next to each number; none is promised.
    Numerics: exact integer sums and noise; the rest is computed from released numbers.
    Reference: docs/proofs/tabular-models.md, Theorem 3.
    """

    auc: bool = False
    calibrate: bool = False
    contrasts: Contrasts | None = None

    @property
    def _parts(self) -> tuple[float, float]:
        return _RANK_SHARE * (self.auc or self.calibrate), _COEFFICIENT_SHARE * (self.contrasts is not None)

    @property
    def share(self) -> float:
        """Return what the report may spend, as a share of what the rungs spent."""
        return sum(self._parts)

    def check(self, profile: TableProfile, head: CurvedHead, noise: Fraction, rows_per_unit: int) -> None:
        """Raise ``InvalidRequest`` if the noise is too large for the integers that sums are made of."""
        ranks, coefficients = self._noises(noise)
        if ranks is not None:
            RankTree(rows_per_unit * _count_targets(head)).check_noise(ranks)
        if coefficients is not None:
            for own in step_noises(coefficients):
                measuring_gradient(profile, fit_grid(profile), head, own, rows_per_unit)

    def _noises(self, noise: Fraction) -> tuple[Fraction | None, Fraction | None]:
        """Return the noise multipliers of ranks and coefficients, None for what is not released."""
        ranks, coefficients = (None if not part else split_noise(noise, part / self.share) for part in self._parts)
        return ranks, coefficients

    def release(self, finished: FinishedModel, noise: Fraction, bits: BitSource) -> tuple[TableModel, dict[str, str]]:
        """Return the model with what was released of it, and lines for the receipt."""
        model, lines = finished.model, dict[str, str]()
        ranks, coefficients = self._noises(noise)
        if ranks is not None:
            tree = RankTree(finished.rows_per_unit * _count_targets(finished.head), center_of(model.profile))
            total = sum_blocks(finished.blocks, partial(_sum_ranks, tree, model))
            counts = tree.read(tree.release(total, ranks, bits), ranks)
            if self.auc:
                value, deviation = counts.area
                lines["measured auc"] = f"{value:.4g} ± {2 * deviation:.2g}"
            if self.calibrate:
                found = fit_calibration(counts)
                model = replace(model, calibration=found)
                each = " of each class" if finished.head.outputs > 1 else ""
                lines["calibration"] = f"log-odds{each} times {found[0]:.3g} plus {found[1]:.3g}"
            lines["reliability, predicted: observed"] = describe_reliability(counts, model.calibration)
        if coefficients is not None:
            assert self.contrasts is not None
            estimates = estimate_coefficients(
                model,
                finished.blocks,
                self.contrasts,
                head=finished.head,
                noise=coefficients,
                rows_per_unit=finished.rows_per_unit,
                weighted=finished.weighted,
                residual_variance=finished.residual_variance,
                unit_scale=finished.unit_scale,
                bits=bits,
            )
            model = replace(model, estimates=estimates)
            told = int(np.isfinite(estimates.noise).sum())
            lines["coefficients"] = f"{told} of {len(estimates.noise)} have an interval; the noise hides the others"
        return model, lines


def _count_targets(head: CurvedHead) -> int:
    """Return how often a row is counted: once for two classes, else once for each class, with that part of its weight."""
    return head.outputs


def _sum_ranks(tree: RankTree, model: TableModel, blocks: Iterable[GridBlock]) -> NDArray[np.int64]:
    total = tree.start()
    for rows, targets, weights in blocks:
        scores = grid_scores(rows.integers(), model.weights, model.grid)
        if len(scores) == 1:
            tree.add(total, np.column_stack([scores[0], targets]), weights)
            continue
        known = targets >= 0
        for place, odds in enumerate(log_odds(scores)):
            told = np.where(known, targets == place, -1)
            tree.add(total, np.column_stack([odds, told]), weights / len(scores))
    return total


NO_REPORT = TableReport()


def residual_variance_of(values: dict[str, tuple[float, float]], unit_scale: float) -> float:
    """Return the variance of a regression's errors, in squared spreads of the target, from its measured score, on the safe side.

    >>> residual_variance_of({"rmse": (2.0, 1.0)}, 4.0)
    1.0
    """
    value, deviation = values.get("rmse") or values["mae"]
    # Of normal errors the mean absolute one is sqrt(2 / pi) of the standard deviation.
    factor = 1.0 if "rmse" in values else math.sqrt(math.pi / 2)
    return float(((value + 2 * deviation) * factor / unit_scale) ** 2)
