"""scikit-learn estimators that take an accuracy and keep a receipt."""

from expost.models.classifier import HuberSVC, LogisticRegression
from expost.models.ridge import Ridge
from expost.models.saved import load_model, save_model
from expost.models.sgd import SGDClassifier, SGDRegressor
from expost.models.tuned import OneOf, fit_one_of

__all__ = [
    "HuberSVC",
    "LogisticRegression",
    "OneOf",
    "Ridge",
    "SGDClassifier",
    "SGDRegressor",
    "fit_one_of",
    "load_model",
    "save_model",
]
