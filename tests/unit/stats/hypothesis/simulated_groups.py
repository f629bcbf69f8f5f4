"""Many tables of groups at once, released under the noise of a test."""

from fractions import Fraction

import numpy as np

from expost.core import Adjacency
from expost.noise import SeededBits, sample_laplace
from expost.stats.hypothesis.group_means import GroupShares, NoisyGroups
from expost.stats.hypothesis.private_sample import GRID

SPREAD_STRENGTHS = [("0.5", True), ("5", True), ("5", False), ("50", True)]
"""Strengths, and whether the sizes are public, at which groups that spread differently are simulated."""


def of_unequal_spreads(rng, sizes, spreads, strength, *, public_sizes, runs):
    """Groups of one mean and these spreads, under each relation by which their sizes are public or private."""
    for adjacency in [Adjacency.REPLACE_ONE] if public_sizes else Adjacency:
        groups, _ = simulated(
            lambda shape: rng.normal(0.5, 0.04, shape),
            sizes,
            strength,
            public_sizes=public_sizes,
            runs=runs,
            spreads=spreads,
            adjacency=adjacency,
        )
        yield groups


def simulated(
    law,
    sizes,
    strength,
    *,
    public_sizes,
    runs,
    shifts=None,
    spreads=None,
    noise=1,
    adjacency=Adjacency.REPLACE_ONE,
    equal_spread=False,
):
    """Released totals and the exact values behind them, one row a run.

    ``shifts`` move the groups' means; ``spreads`` are factors on their distance from the middle.
    """
    rows, moved = (sum(sizes), 2) if adjacency.public_size else (None, 1)
    shares = GroupShares.for_groups(
        Fraction(strength),
        rows=rows,
        public_sizes=sizes if public_sizes else None,
        adjacency=adjacency,
        equal_spread=equal_spread,
    )
    moves, factors = (
        [0.0] * len(sizes) if shifts is None else shifts,
        [1.0] * len(sizes) if spreads is None else spreads,
    )
    values = [
        np.clip((law((runs, size)) - 0.5) * factor + move, -0.5, 0.5)
        for size, move, factor in zip(sizes, moves, factors, strict=True)
    ]
    sums = np.stack([value.sum(1) for value in values], axis=1)
    sums = sums + sample_laplace(noise * moved * GRID / 2 / shares.sums, sums.shape, bits=SeededBits(1)) / GRID
    counts = np.broadcast_to(np.array(sizes, float), sums.shape)
    if shares.sizes is not None:
        counts = counts + sample_laplace(noise * moved / shares.sizes, sums.shape, bits=SeededBits(2))
    squares = None
    if shares.squares is not None:
        squares = np.stack([(value**2).sum(1) for value in values], axis=1)
        squares = squares.sum(1) if equal_spread else squares
        scale = noise * GRID * Fraction(shares.square_scale)
        squares = squares + sample_laplace(scale, squares.shape, bits=SeededBits(3)) / GRID
    return NoisyGroups.under_shares(sums, counts, squares, shares), values
