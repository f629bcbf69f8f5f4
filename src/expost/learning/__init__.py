"""Models that are as private as their accuracy allows: ridge, logistic regression, Huber support vectors."""

from expost.learning.adaptive_ridge import AdaptiveRidge
from expost.learning.aim import Aim
from expost.learning.certified_ridge import CertifiedRidge
from expost.learning.classification import TiltedClassifier
from expost.learning.doubling import Doubling
from expost.learning.gaussian_ridge import GaussianRidge
from expost.learning.gradient_fit import GradientFit
from expost.learning.model import LinearModel
from expost.learning.monotone_fit import MonotoneFit
from expost.learning.noise_reduction import NoiseReduction
from expost.learning.objective import TiltedRisk
from expost.learning.output_fit import OutputFit
from expost.learning.paper_fit import PaperFit
from expost.learning.problem import Problem
from expost.learning.residual_check import ResidualCheck
from expost.learning.tested_fit import TestedFit
from expost.learning.theory import TheoryInversion
from expost.learning.tilted_ridge import TiltedRidge

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
