"""Stability of predictions: certified radii, and similar treatment of similar people."""

from expost.robustness.certificate import (
    Certificates,
    analytic_pixeldp_radius,
    certify,
    laplace_radius,
    pixeldp_l1_radius,
    pixeldp_radius,
    smoothing_radius,
)
from expost.robustness.fairness import (
    FairnessReport,
    FairPredictor,
    individual_fairness,
    smoothing_bound,
    treatment_bound,
)

__all__ = [
    "Certificates",
    "FairPredictor",
    "FairnessReport",
    "analytic_pixeldp_radius",
    "certify",
    "individual_fairness",
    "laplace_radius",
    "pixeldp_l1_radius",
    "pixeldp_radius",
    "smoothing_bound",
    "smoothing_radius",
    "treatment_bound",
]
