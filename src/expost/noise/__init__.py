"""Bits, exact samplers, gradual-release paths and mechanisms."""

from expost.noise.bernoulli import bernoulli, bernoulli_exp
from expost.noise.bits import BitSource, SeededBits, SystemBits, system_bits
from expost.noise.gaussian import discrete_gaussian
from expost.noise.geometric import geometric
from expost.noise.laplace import discrete_laplace
from expost.noise.laplace_path import DiscreteLaplacePath
from expost.noise.uniform import uniform_below

__all__ = [
    "BitSource",
    "DiscreteLaplacePath",
    "SeededBits",
    "SystemBits",
    "bernoulli",
    "bernoulli_exp",
    "discrete_gaussian",
    "discrete_laplace",
    "geometric",
    "system_bits",
    "uniform_below",
]
