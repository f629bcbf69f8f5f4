"""Exact coins: of rational probability, and of probability exp(-x)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.noise.bits import BitSource, source_of
from expost.noise.enclosure import is_below, ratio
from expost.noise.parameter import Parameter, blocks
from expost.noise.uniform_reals import UniformReals

__all__ = ["bernoulli", "bernoulli_exp"]

_WORD = 32
_EXPONENT_ERROR = 2.0**-49  # relative, of a float exponent


def bernoulli(probability: object, size: object = None, *, bits: BitSource | None = None) -> Any:
    """Coins that are true with an exact rational probability, one for all or one per element.

    A 32-bit word decides unless it holds the very digits of the probability; then more are drawn.

    >>> from expost.noise.bits import SeededBits
    >>> bernoulli([0, 1, 0, 1], bits=SeededBits(1))
    array([False,  True, False,  True])
    """
    parameter = Parameter.read(probability, size, "probability", positive=False)
    if parameter.floats.size and parameter.largest() > 1:
        raise InvalidRequest("Expected a probability of at most 1", do="Pass a number from 0 to 1")
    return parameter.shaped(draw_bernoulli(parameter, source_of(bits)))


def draw_bernoulli(probability: Parameter, bits: BitSource) -> NDArray[np.bool_]:
    """One coin per element, flat."""
    floors, ceilings = np.array(
        [ratio(probability.entry(place), _WORD) for place in range(len(probability.floats))], dtype=np.int64
    ).T
    coins = np.empty(probability.count, bool)
    for part in blocks(probability.count):
        words = bits.words(part.stop - part.start, np.uint32)
        floor = probability.take(floors, part)
        coins[part] = words < floor
        for place in np.flatnonzero((words == floor) & (floor < probability.take(ceilings, part))).tolist():
            exact = partial(ratio, probability.exact(part.start + place))
            coins[part.start + place] = is_below(int(words[place]), _WORD, exact, bits)
    return coins


def bernoulli_exp(exponent: object, size: object = None, *, bits: BitSource | None = None) -> Any:
    """Coins that are true with probability exp(-exponent), the exponent an exact rational >= 0.

    The coin is -ln U > exponent for a uniform real U, decided exactly (docs/proofs/inversion-filter.md).

    >>> from expost.noise.bits import SeededBits
    >>> bool(bernoulli_exp(0, 100, bits=SeededBits(1)).all())
    True
    """
    parameter = Parameter.read(exponent, size, "exponent", positive=False)
    return parameter.shaped(draw_bernoulli_exp(parameter, source_of(bits)))


def draw_bernoulli_exp(exponent: Parameter, bits: BitSource) -> NDArray[np.bool_]:
    """One coin per element, flat."""
    coins = np.empty(exponent.count, bool)
    for part in blocks(exponent.count):
        floats = exponent.take(exponent.floats, part)
        reals = UniformReals(part.stop - part.start, bits)
        coins[part] = reals.exceed(
            floats,
            floats * _EXPONENT_ERROR,
            lambda place, start=part.start: partial(ratio, exponent.exact(start + place)),  # type: ignore[misc]
        )
    return coins
