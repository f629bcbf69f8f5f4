"""A matrix with the error of each entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from expost.core import Release
from expost.plots.style import new_figure, save

__all__ = ["draw_matrix"]


def draw_matrix(release: Release[Any], *, path: str | Path | None = None) -> Figure:
    """Every entry with its error, coloured by the correlation it amounts to: blue below zero, orange above.

    >>> from expost.core import PureGuarantee, PureLoss, Receipt
    >>> receipt = Receipt(question="covariance", method="m", promise=PureGuarantee(1), bill=PureLoss(1))
    >>> value = np.array([[4.0, 1.0], [1.0, 9.0]])
    >>> len(draw_matrix(Release(value, receipt, (value - 1, value + 1))).axes)
    2
    """
    value = np.asarray(release.value, dtype=float)
    size, names = len(value), getattr(release, "columns", ()) or tuple(map(str, range(len(value))))
    figure, axes = new_figure(width=2.6 + 1.3 * size, height=2.2 + 0.9 * size)
    image = axes.imshow(
        _correlations(value), cmap="PuOr_r", vmin=-1, vmax=1, alpha=0.6
    )  # pale enough for numbers on top
    low, high = (value, value) if release.interval is None else release.interval
    for i in range(size):
        for j in range(size):
            error = "" if release.interval is None else f"\n\u00b1 {(high[i][j] - low[i][j]) / 2:.3g}"
            axes.text(j, i, f"{value[i, j]:.4g}{error}", ha="center", va="center", fontsize=8)
    axes.set_xticks(range(size), names, fontsize=8)
    axes.set_yticks(range(size), names, fontsize=8)
    axes.grid(visible=False)
    figure.colorbar(image, ax=axes, shrink=0.8, label="as a correlation")
    axes.set_title(
        f"{release.receipt.question}\n{release.receipt.outcome.value}: paid {release.receipt.bill}",
        fontsize=9,
        loc="left",
        wrap=True,
    )
    return save(figure, path)


def _correlations(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    spread = np.sqrt(np.maximum(np.diag(value), 1e-300))
    return np.asarray(np.clip(value / np.outer(spread, spread), -1, 1))
