"""Where the package decides how much noise it draws, by family; entries say which of them their mechanism uses."""

from __future__ import annotations

from expost.audit.plant import Noise

__all__ = [
    "ABOVE_THRESHOLD",
    "CHOICES",
    "GAUSSIAN",
    "GAUSSIAN_PATH",
    "GAUSSIAN_STREAM",
    "LAPLACE",
    "PATHS",
    "PROPOSED",
    "RADIAL",
    "RECORDS",
    "REDUCED",
    "RESPONSE",
    "SMOOTH",
    "SPHERICAL",
    "TILTS",
]

_NOISE = "expost.noise."

LAPLACE = (Noise(_NOISE + "laplace_mechanism.LaplaceMechanism.scale"),)
GAUSSIAN = (Noise(_NOISE + "gaussian_mechanism.GaussianMechanism.variance", power=2),)
SPHERICAL = (Noise(_NOISE + "spherical_laplace.SphericalLaplaceMechanism.scale"),)
PATHS = (Noise(_NOISE + "jump_noise.JumpNoise.draw", argument=1),)
"""Discrete Laplace and geometric paths; the argument is the sensitivity that their scales are made of."""
GAUSSIAN_PATH = (Noise(_NOISE + "gaussian_path.GaussianPath._variance", power=2),)
GAUSSIAN_STREAM = (Noise(_NOISE + "gaussian_stream.stream_variance", power=2),)
RADIAL = (Noise(_NOISE + "radial_path.check_norm"),)
CHOICES = (
    Noise(_NOISE + "exponential_mechanism.ExponentialMechanism.rate", power=-1),
    Noise(_NOISE + "permute_and_flip.PermuteAndFlip.rate", power=-1),
    Noise(_NOISE + "noisy_max.NoisyMax.scale"),
)
RECORDS = (Noise(_NOISE + "exponential_quantile.ExponentialQuantile.rate", power=-1),)
RESPONSE = (Noise(_NOISE + "randomized_response.bernoulli_exp", power=-1, argument=0),)
SMOOTH = (Noise(_NOISE + "smooth_sensitivity.SmoothNoise.steepness"),)
PROPOSED = (Noise(_NOISE + "propose_test_release.discrete_laplace", argument=0),)
ABOVE_THRESHOLD = (
    Noise(_NOISE + "above_threshold.AboveThreshold.threshold_scale"),
    Noise(_NOISE + "above_threshold.AboveThreshold.query_scale"),
)
REDUCED = (
    *PATHS,
    Noise(_NOISE + "reduced_above_threshold.ReducedAboveThreshold.query_scale"),
    Noise(_NOISE + "renewed_threshold.RenewedThreshold.threshold_scale"),
    Noise(_NOISE + "renewed_threshold.RenewedThreshold.query_scale"),
)
TILTS = (
    Noise("expost.models.linear.tilt.LaplaceTilt.scale"),
    Noise("expost.models.linear.tilt.SphericalTilt.scale"),
    Noise("expost.models.linear.tilt.GaussianTilt.deviation"),
)
