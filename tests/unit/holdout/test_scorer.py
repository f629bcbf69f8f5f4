import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.tree import DecisionTreeClassifier

from expost.core import BudgetExceeded
from expost.holdout import ReusableHoldout
from expost.noise import SeededBits


def sample(rows, seed):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, 4))
    return features, (features[:, 0] + rng.normal(size=rows) > 0).astype(int)


def opened(**changes):
    arguments = {"tolerance": 0.2, "failure_probability": 0.05, "max_queries": 40, "budget": 4, "variant": "improved"}
    return ReusableHoldout(sample(2000, 1), sample(30_000, 2), bits=SeededBits(1), **(arguments | changes))


def test_a_grid_search_uses_the_holdout_and_picks_the_better_model():
    holdout = opened()
    search = GridSearchCV(LogisticRegression(), {"C": [1e-6, 1.0]}, scoring=holdout.scorer(), cv=2)

    search.fit(*sample(1000, 3))

    assert holdout.queries_left == 40 - 4
    assert 0.6 < search.best_score_ < 0.85


def test_an_overfitted_fold_is_corrected():
    holdout = opened()
    features, labels = sample(400, 4)
    tree = DecisionTreeClassifier().fit(features, labels)

    score = holdout.scorer()(tree, features, labels)

    assert tree.score(features, labels) == 1.0
    assert score < 0.8
    assert holdout.hits_left == 3


def test_cloning_a_search_keeps_one_budget():
    holdout = opened()
    search = clone(GridSearchCV(LogisticRegression(), {"C": [1.0]}, scoring=holdout.scorer(), cv=2))
    search.fit(*sample(500, 3))
    cross_val_score(LogisticRegression(), *sample(500, 5), scoring=holdout.scorer(), cv=2)

    assert holdout.queries_left == 40 - 4


def test_parallel_workers_are_refused():
    with pytest.raises(TypeError, match="n_jobs=1"):
        pickle.dumps(opened().scorer())


def test_a_spent_budget_stops_the_search():
    holdout = opened(max_queries=3)

    with pytest.raises(BudgetExceeded):
        cross_val_score(LogisticRegression(), *sample(500, 5), scoring=holdout.scorer(), cv=5, error_score="raise")


def test_any_row_metric_may_be_used():
    features, labels = sample(1000, 6)
    model = LogisticRegression().fit(features, labels)

    def one_minus_error(truth, predicted):
        return 1 - np.abs(truth - predicted)

    assert opened().scorer(one_minus_error)(model, features, labels) == pytest.approx(
        model.score(features, labels), abs=1e-9
    )
