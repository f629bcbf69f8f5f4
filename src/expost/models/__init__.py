"""scikit-learn estimators that take an accuracy and keep a receipt, with the algorithms behind them."""

from expost.models.descent.sgd_estimator import SGDClassifier, SGDRegressor
from expost.models.linear.linear_classifier import HuberSVC, LogisticRegression
from expost.models.linear.ridge import Ridge
from expost.models.model_choice import OneOf, fit_one_of
from expost.models.preparation.feature_selection import SelectKBest
from expost.models.preparation.pipeline_leak import check_pipeline
from expost.models.preparation.principal_components import PCA
from expost.models.preparation.private_pipeline import Pipeline
from expost.models.preparation.standard_scaler import StandardScaler
from expost.models.saved_model import load_model, save_model
from expost.models.tabular.table_classifier import Classifier
from expost.models.tabular.table_regressor import Regressor

__all__ = [
    "Classifier",
    "HuberSVC",
    "LogisticRegression",
    "OneOf",
    "Regressor",
    "PCA",
    "Pipeline",
    "Ridge",
    "SGDClassifier",
    "SGDRegressor",
    "SelectKBest",
    "StandardScaler",
    "check_pipeline",
    "fit_one_of",
    "load_model",
    "save_model",
]
