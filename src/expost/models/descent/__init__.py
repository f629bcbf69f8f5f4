"""Private gradient descent: the estimators ``SGDClassifier`` and ``SGDRegressor`` and their algorithm."""
