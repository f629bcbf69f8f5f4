"""scikit-learn estimators that take an accuracy and keep a receipt, with the algorithms behind them."""

from expost.models.descent.sgd_estimator import SGDClassifier, SGDRegressor
from expost.models.linear.linear_classifier import HuberSVC, LogisticRegression
from expost.models.linear.ridge import Ridge
from expost.models.model_choice import OneOf, fit_one_of
from expost.models.saved_model import load_model, save_model

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
