"""Models that are as private as their accuracy allows: ridge, logistic regression, Huber support vectors."""

from expost.models.linear.adaptive_ridge import AdaptiveRidge
from expost.models.linear.aim import Aim
from expost.models.linear.certified_ridge import CertifiedRidge
from expost.models.linear.classification import TiltedClassifier
from expost.models.linear.doubling import Doubling
from expost.models.linear.gaussian_ridge import GaussianRidge
from expost.models.linear.gradient_fit import GradientFit
from expost.models.linear.model import LinearModel
from expost.models.linear.monotone_fit import MonotoneFit
from expost.models.linear.noise_reduction import NoiseReduction
from expost.models.linear.objective import TiltedRisk
from expost.models.linear.output_fit import OutputFit
from expost.models.linear.paper_fit import PaperFit
from expost.models.linear.problem import Problem
from expost.models.linear.residual_check import ResidualCheck
from expost.models.linear.tested_fit import TestedFit
from expost.models.linear.theory import TheoryInversion
from expost.models.linear.tilted_ridge import TiltedRidge

__all__ = [
    "AdaptiveRidge",
    "Aim",
    "CertifiedRidge",
    "Doubling",
    "GaussianRidge",
    "GradientFit",
    "LinearModel",
    "MonotoneFit",
    "NoiseReduction",
    "OutputFit",
    "PaperFit",
    "Problem",
    "ResidualCheck",
    "TestedFit",
    "TheoryInversion",
    "TiltedClassifier",
    "TiltedRidge",
    "TiltedRisk",
]
