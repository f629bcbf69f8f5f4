"""Random bits, exact samplers, gradual-release paths, mechanisms and private tests."""

from expost.noise.above_threshold import AboveThreshold, Crossing, ThresholdSession
from expost.noise.bits import BitSource, SeededBits, SystemBits, system_bits
from expost.noise.coin import sample_bernoulli, sample_bernoulli_exp, sample_uniform
from expost.noise.exponential_quantile import ExponentialQuantile, LatticeBounds
from expost.noise.gaussian_path import GaussianPath
from expost.noise.laplace_path import DiscreteLaplacePath, GeometricPath
from expost.noise.lattice import Grid
from expost.noise.lattice_sampler import sample_gaussian, sample_geometric, sample_laplace
from expost.noise.mechanism import GaussianMechanism, LaplaceMechanism, RandomizedResponse
from expost.noise.propose_test_release import ProposedQuantile, StableMode
from expost.noise.rising_threshold import ReducedAboveThreshold, RisingSession
from expost.noise.selection_mechanism import ExponentialMechanism, NoisyMax, PermuteAndFlip
from expost.noise.smooth_sensitivity import SmoothInterquartileRange, SmoothNoise, SmoothQuantile, SmoothVariance
from expost.noise.spherical_noise import RadialLaplacePath, SphericalLaplaceMechanism, sample_spherical_laplace
from expost.noise.top_selection import TopSelection

__all__ = [
    "AboveThreshold",
    "BitSource",
    "Crossing",
    "DiscreteLaplacePath",
    "ExponentialMechanism",
    "ExponentialQuantile",
    "GaussianMechanism",
    "GaussianPath",
    "GeometricPath",
    "Grid",
    "LaplaceMechanism",
    "LatticeBounds",
    "NoisyMax",
    "PermuteAndFlip",
    "ProposedQuantile",
    "RadialLaplacePath",
    "RandomizedResponse",
    "ReducedAboveThreshold",
    "RisingSession",
    "SeededBits",
    "SmoothInterquartileRange",
    "SmoothNoise",
    "SmoothQuantile",
    "SmoothVariance",
    "SphericalLaplaceMechanism",
    "StableMode",
    "SystemBits",
    "ThresholdSession",
    "TopSelection",
    "sample_bernoulli",
    "sample_bernoulli_exp",
    "sample_gaussian",
    "sample_geometric",
    "sample_laplace",
    "sample_spherical_laplace",
    "sample_uniform",
    "system_bits",
]
