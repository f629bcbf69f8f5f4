"""The analyst of DFHPRR15s, who picks features by looking at the holdout, simulated without ever making the data.

Rows are normal vectors with a label; z = label * feature is N(shift, 1). All the analyst ever looks at are the means of
z over a sample, which are N(shift, 1/n), and the share of rows in which a sum of signed features is positive. Given the
means, the sum over a block of m features is, row by row, the sum of the signed means plus sqrt(m) (h - mean of h) with h
standard normal. So a sample of 10,000 rows and 10,000 features costs 10,000 means and one normal number per row and
block, and its law is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Draw", "Selection", "Setting", "accuracies", "select"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """How much data, and how many features carry how much signal."""

    rows: int = 10_000
    features: int = 10_000
    informative: int = 0
    counts: tuple[int, ...] = (0, 10, 20, 30, 45, 70, 100, 150, 200, 250, 300, 400, 500)

    @property
    def unit(self) -> float:
        """One standard error of a mean."""
        return 1 / float(np.sqrt(self.rows))

    @property
    def shifts(self) -> Floats:
        """The true means: 6 standard errors for informative features (DFHPRR15s), else 0."""
        return np.where(np.arange(self.features) < self.informative, 6 * self.unit, 0.0)


@dataclass(frozen=True)
class Draw:
    """The means of all features on the training and the holdout sample."""

    training: Floats
    holdout: Floats

    @classmethod
    def of(cls, setting: Setting, rng: np.random.Generator) -> Draw:
        """One draw of both samples."""
        noise = rng.normal(0.0, setting.unit, (2, setting.features))
        return cls(setting.shifts + noise[0], setting.shifts + noise[1])


@dataclass(frozen=True)
class Selection:
    """Features in the order in which the analyst takes them, with their signs."""

    features: NDArray[np.intp]
    signs: Floats


def select(setting: Setting, training: Floats, answers: Floats) -> Selection:
    """Features whose training mean and holdout answer agree beyond one standard error, largest training mean first."""
    unit = setting.unit
    agree = ((training > unit) & (answers > unit)) | ((training < -unit) & (answers < -unit))
    ranked = np.flatnonzero(agree)[np.argsort(-np.abs(training[agree]), kind="stable")]
    chosen = ranked[: setting.counts[-1]]
    return Selection(chosen, np.sign(training[chosen]))


def accuracies(
    setting: Setting, selection: Selection, means: Floats | None, rng: np.random.Generator
) -> NDArray[np.int64]:
    """How many rows of a sample the vote of the first k features gets right, for each k; one half of them for k = 0.

    ``means`` are the sample's own means of all features; without them the sample is fresh.
    """
    right = np.empty(len(setting.counts), np.int64)
    votes, before = np.zeros(setting.rows), 0
    for place, count in enumerate(setting.counts):
        block = slice(before, min(count, len(selection.features)))
        features, signs = selection.features[block], selection.signs[block]
        noise = rng.standard_normal(setting.rows)
        if means is not None:
            noise -= noise.mean()
        centre = (setting.shifts if means is None else means)[features] @ signs
        votes += centre + np.sqrt(len(features)) * noise
        right[place] = setting.rows // 2 if len(selection.features) == 0 or count == 0 else np.count_nonzero(votes > 0)
        before = max(before, block.stop)
    return right
