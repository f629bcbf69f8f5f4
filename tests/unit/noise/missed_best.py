"""How often a choice misses the best score by more than it said."""

from typing import Any

import numpy as np

from expost.core import Norm, Sensitivity
from expost.noise import SeededBits

FAILURE_PROBABILITY = 0.05


def seldom_missed(mechanism: Any, scores: Any, *, runs: int) -> bool:
    """Whether at most one choice in 20 is worse than the best score by more than the shortfall stated for that many."""
    values, sensitivity = np.asarray(scores), Sensitivity(1, Norm.LINF)
    found = mechanism.simulate(values, sensitivity, runs=runs, bits=SeededBits(2))
    stated = mechanism.shortfall(sensitivity, FAILURE_PROBABILITY, candidates=len(values))
    return bool(np.mean(values.max() - values[found] > stated) <= FAILURE_PROBABILITY)
