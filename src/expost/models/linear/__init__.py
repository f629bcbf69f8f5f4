"""Linear models that are as private as their accuracy allows: ridge, logistic regression, Huber support vectors."""

from expost.models.linear.classifier_fit import TiltedClassifier
from expost.models.linear.counted_fit import CountedFit
from expost.models.linear.fit_neighbours import ADDED_ROWS, REPLACED_ROWS, FitNeighbours
from expost.models.linear.linear_fit import Aim, LinearModel, Problem
from expost.models.linear.output_perturbation import GradientFit, OutputFit
from expost.models.linear.paper_fit import Doubling, NoiseReduction, PaperFit, TheoryInversion
from expost.models.linear.piloted_ridge import PilotedRidge
from expost.models.linear.ridge_moments import AdaptiveRidge, CertifiedRidge, GaussianRidge
from expost.models.linear.ridge_objective import ResidualCheck, TiltedRidge
from expost.models.linear.tested_score import MonotoneFit, TestedFit
from expost.models.linear.tilted_risk import TiltedRisk

__all__ = [
    "ADDED_ROWS",
    "REPLACED_ROWS",
    "AdaptiveRidge",
    "Aim",
    "CertifiedRidge",
    "CountedFit",
    "Doubling",
    "FitNeighbours",
    "GaussianRidge",
    "GradientFit",
    "LinearModel",
    "MonotoneFit",
    "NoiseReduction",
    "OutputFit",
    "PaperFit",
    "PilotedRidge",
    "Problem",
    "ResidualCheck",
    "TestedFit",
    "TheoryInversion",
    "TiltedClassifier",
    "TiltedRidge",
    "TiltedRisk",
]
