"""Many tables of groups at once, released under the noise of a test."""

from fractions import Fraction

import numpy as np

from expost.core import Adjacency
from expost.noise import SeededBits, discrete_laplace
from expost.stats.hypothesis.groups import GRID, NoisyGroups, Shares


def simulated(law, sizes, strength, *, public_sizes, runs, shifts=None, noise=1, adjacency=Adjacency.REPLACE_ONE):
    """Released totals and the exact values behind them, one row a run; ``shifts`` move the groups' means."""
    rows, moved = (sum(sizes), 2) if adjacency.public_size else (None, 1)
    shares = Shares.of(Fraction(strength), rows=rows, public_sizes=public_sizes, adjacency=adjacency)
    moves = [0.0] * len(sizes) if shifts is None else shifts
    values = [np.clip(law((runs, size)) + move, 0, 1) - 0.5 for size, move in zip(sizes, moves, strict=True)]
    sums = np.stack([value.sum(1) for value in values], axis=1)
    sums = sums + discrete_laplace(noise * moved * GRID / 2 / shares.sums, sums.shape, bits=SeededBits(1)) / GRID
    counts = np.broadcast_to(np.array(sizes, float), sums.shape)
    if shares.sizes is not None:
        counts = counts + discrete_laplace(noise * moved / shares.sizes, sums.shape, bits=SeededBits(2))
    squares = None
    if shares.squares is not None:
        exact = sum((value**2).sum(1) for value in values)
        squares = exact + discrete_laplace(noise * (1 << 18) / shares.squares, runs, bits=SeededBits(3)) / (1 << 20)
    return NoisyGroups.of(sums, counts, squares, shares), values
