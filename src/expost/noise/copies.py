"""Many copies of a sealed answer, for simulations that run one release many times at once."""

from __future__ import annotations

import numpy as np

from expost.core import Sealed, unseal

__all__ = ["sealed_copies"]


def sealed_copies(sealed: Sealed, copies: int) -> Sealed:
    """The same sealed numbers over and over, under the sensitivity of one copy.

    For simulations only: noise that is drawn for each coordinate alone (Laplace, Gaussian) makes independent releases
    of it. Published together they would cost as much as all the copies do.

    >>> from expost.core import Sensitivity
    >>> from expost.noise import DiscreteLaplacePath, SeededBits
    >>> many = sealed_copies(Sealed(7, Sensitivity(1)), 1000)
    >>> abs(float(DiscreteLaplacePath(many, [1.0], bits=SeededBits(1)).at(0).mean()) - 7) < 0.3
    True
    """
    return Sealed(np.tile(np.atleast_1d(np.asarray(unseal(sealed))), copies), sealed.sensitivity)
