"""Bits, exact samplers, gradual-release paths and mechanisms."""

from expost.noise.above_threshold import AboveThreshold, Crossing, ThresholdSession
from expost.noise.bernoulli import bernoulli, bernoulli_exp
from expost.noise.bits import BitSource, SeededBits, SystemBits, system_bits
from expost.noise.bitwise import bitwise_geometric, bitwise_laplace
from expost.noise.exponential_mechanism import ExponentialMechanism
from expost.noise.exponential_quantile import ExponentialQuantile
from expost.noise.gaussian import discrete_gaussian
from expost.noise.gaussian_mechanism import GaussianMechanism
from expost.noise.gaussian_path import GaussianPath
from expost.noise.geometric import geometric
from expost.noise.geometric_path import GeometricPath
from expost.noise.grid import Grid
from expost.noise.laplace import discrete_laplace
from expost.noise.laplace_mechanism import LaplaceMechanism
from expost.noise.laplace_path import DiscreteLaplacePath
from expost.noise.noisy_max import NoisyMax
from expost.noise.permute_and_flip import PermuteAndFlip
from expost.noise.propose_test_release import ProposedQuantile, StableMode
from expost.noise.radial_path import RadialLaplacePath
from expost.noise.randomized_response import RandomizedResponse
from expost.noise.reduced_above_threshold import ReducedAboveThreshold, ReducedSession
from expost.noise.smooth_sensitivity import SmoothNoise
from expost.noise.smooth_statistics import SmoothInterquartileRange, SmoothQuantile, SmoothVariance
from expost.noise.sorted_records import Bounds
from expost.noise.spherical_laplace import SphericalLaplaceMechanism, spherical_laplace
from expost.noise.uniform import uniform_below

__all__ = [
    "AboveThreshold",
    "BitSource",
    "Bounds",
    "Crossing",
    "DiscreteLaplacePath",
    "ExponentialMechanism",
    "ExponentialQuantile",
    "GaussianMechanism",
    "GaussianPath",
    "GeometricPath",
    "Grid",
    "LaplaceMechanism",
    "NoisyMax",
    "PermuteAndFlip",
    "ProposedQuantile",
    "RadialLaplacePath",
    "RandomizedResponse",
    "ReducedAboveThreshold",
    "ReducedSession",
    "SeededBits",
    "SmoothInterquartileRange",
    "SmoothNoise",
    "SmoothQuantile",
    "SmoothVariance",
    "SphericalLaplaceMechanism",
    "StableMode",
    "SystemBits",
    "ThresholdSession",
    "bernoulli",
    "bernoulli_exp",
    "bitwise_geometric",
    "bitwise_laplace",
    "discrete_gaussian",
    "discrete_laplace",
    "geometric",
    "spherical_laplace",
    "system_bits",
    "uniform_below",
]
