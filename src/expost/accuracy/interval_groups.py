"""Many groups at once: a small independent look decides who needs how much of the failure budget.

The bill of a grouped climb is its highest rung, which the smallest group sets. If every group had the same part of
the failure probability, that group would pay for the number of groups; here a first, much noisier release of its own
(the scout, a few percent of the bill) tells roughly how large the groups are, and the budget goes to the small ones.
Because the scout's noise is independent of the climb's, the parts are constants as far as the climb is concerned, and
the failures of the groups add up to the budget whatever the scout says (docs/proofs/stopped-relative-error.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

__all__ = ["SCOUT_SHARE", "FailureParts", "failure_parts", "least_rate", "predicted_rate", "split_cap"]

Floats = NDArray[np.float64]

SCOUT_SHARE = Fraction(1, 16)
"""What the scout may cost, as a part of what the climb is expected to cost."""

_FLOOR = 0.05  # part of the budget that is shared evenly, so that a group the scout misjudged is not starved
_COARSE = (0.01, 0.005, 0.002, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
_PARTS = np.array(
    [0.95, 0.85, 0.7, 0.6, 0.5, 0.4, 0.33, 0.25, 0.2, 0.16, 0.125, 0.1, 0.08, 0.06, 0.04, 0.03, 0.02, *_COARSE]
)


@dataclass(frozen=True)
class FailureParts:
    """The part of the failure probability of each group; together at most 1."""

    parts: Floats

    def level(self, group: int, failure_probability: Fraction) -> Fraction:
        """The failure probability of one group."""
        return Fraction(str(self.parts[group])) * failure_probability


def split_cap(cap: Fraction) -> tuple[Fraction, Fraction]:
    """What scout and climb may cost, together the cap.

    >>> split_cap(Fraction(17))
    (Fraction(1, 1), Fraction(16, 1))
    """
    scout = cap * SCOUT_SHARE / (1 + SCOUT_SHARE)
    return scout, cap - scout


def least_rate(counts: Floats, share: float, failure: float) -> float:
    """What ``predicted_rate`` is at least: the rate that the smallest count needs for itself.

    >>> counts = np.array([30.0, 400.0])
    >>> least_rate(counts, 0.05, 0.05) <= predicted_rate(counts, 0.05, 0.05)
    True
    """
    # 2 exp(-rate margin) / (1 + exp(-rate)) <= failure implies rate >= log(1 / failure) / margin.
    return math.log(1 / failure) / float(np.floor(share * max(float(counts.min()), 0.0)) + 1.0)


def predicted_rate(counts: Floats, share: float, failure: float) -> float:
    """The rate (epsilon over sensitivity) at which counts like these would all be within the share of them.

    Infinite counts stand for groups that are given up; where all of them are, no rate is needed.
    """
    if not np.isfinite(counts).any():
        return 0.0
    margins = np.floor(share * np.maximum(counts, 0.0)) + 1.0  # noise this large, and no smaller, is too much
    low, high = 0.0, math.log(2 * len(counts) / failure) / float(margins.min())
    for _ in range(60):
        middle = (low + high) / 2
        enough = float(_failures(margins, middle).sum()) <= failure
        low, high = (low, middle) if enough else (middle, high)
    return high


def failure_parts(counts: Floats, share: float, failure: float) -> FailureParts:
    """Parts for groups of about these sizes: what each would fail with at one common rate, on a short list of levels.

    Groups that are given up (infinite counts) get a small even part; where all of them are, the budget is shared evenly.

    >>> failure_parts(np.array([30.0, 400.0]), 0.05, 0.05).parts.tolist()
    [0.95, 0.02]
    """
    if not np.isfinite(counts).any():
        return FailureParts(_listed(np.full(len(counts), 1 / len(counts))))
    margins = np.floor(share * np.maximum(counts, 0.0)) + 1.0
    wanted = _failures(margins, predicted_rate(counts, share, failure))
    mixed = (1 - _FLOOR) * wanted / wanted.sum() + _FLOOR / len(counts)
    return FailureParts(_listed(mixed))


def _failures(margins: Floats, rate: float) -> Floats:
    """P(|noise| >= margin) of discrete Laplace noise."""
    return np.asarray(2 * np.exp(-rate * margins) / (1 + math.exp(-rate)))


def _listed(parts: Floats) -> Floats:
    """Each part rounded down to the list, so that few rules need calibrating."""
    place = np.searchsorted(-_PARTS, -parts)
    fine = place < len(_PARTS)
    listed = _PARTS[np.minimum(place, len(_PARTS) - 1)]
    return np.where(fine, listed, np.minimum(parts, _PARTS[-1]))
