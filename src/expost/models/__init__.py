"""scikit-learn estimators that take an accuracy and keep a receipt."""

from expost.models.classifier import HuberSVC, LogisticRegression
from expost.models.ridge import Ridge

__all__ = ["HuberSVC", "LogisticRegression", "Ridge"]
