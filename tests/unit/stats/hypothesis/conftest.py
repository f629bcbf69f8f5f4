"""How often a level may be exceeded by chance."""

import math

import numpy as np
import pytest


@pytest.fixture
def keeps_level():
    """Whether p-values simulated under the null keep their levels, up to four standard errors."""

    def check(p_values, levels=(0.01, 0.05, 0.1)):
        p = np.asarray(p_values)
        return all((p <= a).mean() <= a + 4 * math.sqrt(a * (1 - a) / p.size) for a in levels)

    return check
