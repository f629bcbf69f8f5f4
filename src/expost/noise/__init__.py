"""Bits, exact samplers, gradual-release paths and mechanisms."""

from expost.noise.bits import BitSource, SeededBits, SystemBits, system_bits
from expost.noise.geometric import geometric
from expost.noise.laplace import discrete_laplace
from expost.noise.laplace_path import DiscreteLaplacePath

__all__ = [
    "BitSource",
    "DiscreteLaplacePath",
    "SeededBits",
    "SystemBits",
    "discrete_laplace",
    "geometric",
    "system_bits",
]
