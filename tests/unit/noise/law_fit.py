"""Do samples of a few outcomes follow a law that was written out?"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-9


def fits(outcomes: Iterable[Any], law: Mapping[Any, float]) -> bool:
    """Pearson's chi-square at a false-alarm rate of 1e-9; rare outcomes are pooled, unknown ones refused."""
    counts = Counter(outcomes)
    if set(counts) - set(law):
        return False
    total = sum(counts.values())
    expected = np.array([float(law[outcome]) * total for outcome in law])
    observed = np.array([counts[outcome] for outcome in law], dtype=float)
    common = expected >= 20
    expected = np.append(expected[common], expected[~common].sum() + 1e-9)
    observed = np.append(observed[common], observed[~common].sum())
    if expected[-1] < 20:
        if observed[-1] > 60 + 3 * expected[-1]:
            return False
        expected, observed = expected[:-1], observed[:-1]
    statistic = ((observed - expected) ** 2 / expected).sum()
    return bool(stats.chi2.sf(statistic, max(len(expected) - 1, 1)) >= FALSE_ALARM)
