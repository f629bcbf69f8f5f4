"""Bits, exact samplers, gradual-release paths and mechanisms."""

from expost.noise.bernoulli import bernoulli, bernoulli_exp
from expost.noise.bits import BitSource, SeededBits, SystemBits, system_bits
from expost.noise.bitwise import bitwise_geometric, bitwise_laplace
from expost.noise.gaussian import discrete_gaussian
from expost.noise.gaussian_path import GaussianPath
from expost.noise.geometric import geometric
from expost.noise.geometric_path import GeometricPath
from expost.noise.laplace import discrete_laplace
from expost.noise.laplace_path import DiscreteLaplacePath
from expost.noise.radial_path import RadialLaplacePath
from expost.noise.uniform import uniform_below

__all__ = [
    "BitSource",
    "DiscreteLaplacePath",
    "GaussianPath",
    "GeometricPath",
    "RadialLaplacePath",
    "SeededBits",
    "SystemBits",
    "bernoulli",
    "bernoulli_exp",
    "bitwise_geometric",
    "bitwise_laplace",
    "discrete_gaussian",
    "discrete_laplace",
    "geometric",
    "system_bits",
    "uniform_below",
]
