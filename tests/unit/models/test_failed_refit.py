"""A fit that is refused or interrupted leaves an estimator as it was: the earlier model still predicts the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expost

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 1, (600, 2))
Y = (X[:, 0] > 0.5).astype(int)
BOX, WIDER = [(0, 1)] * 2, [(0, 9)] * 2
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "classifier": (expost.Classifier(epsilon=1, classes=[0, 1], columns=BOX), {"classes": [1, 0], "columns": WIDER}),
    "regressor": (expost.Regressor(epsilon=1, target_bounds=(0, 1), columns=BOX), {"target_bounds": (0, 50)}),
    "logistic": (
        expost.LogisticRegression(epsilon=1, classes=(0, 1), bounds=BOX),
        {"classes": (1, 0), "bounds": WIDER},
    ),
    "huber": (expost.HuberSVC(epsilon=1, classes=(0, 1), bounds=BOX), {"classes": (1, 0), "bounds": WIDER}),
    "ridge": (expost.Ridge(epsilon=1, bounds=BOX, target_bounds=(0, 1)), {"bounds": WIDER}),
    "sgd": (
        expost.SGDClassifier(epsilon=1, classes=(0, 1), bounds=BOX, rows=600),
        {"classes": (1, 0), "bounds": WIDER},
    ),
    "scaler": (expost.StandardScaler(epsilon=1, bounds=BOX), {"bounds": WIDER}),
    "components": (expost.PCA(1, epsilon=1, bounds=BOX), {"bounds": WIDER}),
    "choice": (expost.SelectKBest(1, epsilon=1, bounds=BOX, classes=(0, 1)), {"bounds": WIDER}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_refused_refit_changes_no_prediction(name: str, tmp_path: Path) -> None:
    model, changed = MODELS[name]
    model.set_params(simulation_seed=1).fit(X, Y)
    use = model.predict if hasattr(model, "predict") else model.transform
    before, known = use(X), set(vars(model))
    ledger = str(tmp_path / "people.ledger")
    expost.open_ledger(ledger).open_account("dataset:table", expost.approx(0.001, 1e-5))

    with pytest.raises(expost.BudgetExceeded):
        model.set_params(ledger=ledger, simulation_seed=None, **changed).fit(X, Y)

    assert np.array_equal(use(X), before)
    assert set(vars(model)) == known


def test_an_interrupted_first_fit_leaves_an_estimator_unfitted(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    model = expost.Classifier(epsilon=1, classes=[0, 1], columns=BOX)
    before = dict(vars(model))
    monkeypatch.setattr("expost.models.tabular.table_run.measure_profile", interrupted)

    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)

    assert vars(model) == before


def test_a_missed_target_is_kept_because_it_was_paid_for() -> None:
    model = expost.Classifier(
        score=("accuracy", 0.999), max_epsilon=0.03, classes=[0, 1], columns=BOX, simulation_seed=1
    )

    with pytest.raises(expost.TargetNotMet):
        model.fit(X, Y)

    assert model.predict(X).shape == (600,)
