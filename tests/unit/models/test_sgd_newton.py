"""The estimators with Newton steps: the same bill, fewer steps, clear refusals."""

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from expost import InvalidRequest, open_ledger
from expost.accounting import GaussianEvent, Repeat
from expost.core import approx
from expost.models.descent.sgd_estimator import SGDClassifier, SGDRegressor
from expost.models.descent.training_schedule import Full, Phase, Schedule

LENGTHS = np.array([1.0, 1.0, 0.2, 0.1])


def table(rows: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 4)) * LENGTHS
    scores = x @ [1.0, -1.0, 6.0, 10.0]
    labels = (rng.random(rows) < 1 / (1 + np.exp(-scores))).astype(int)
    return x, labels, np.clip(scores / 8, -1, 1)


def terms(**changes: Any) -> dict[str, Any]:
    return {"epsilon": 2.0, "rows": 4000, "feature_bound": 3.0, "steps": 8, "simulation_seed": 1} | changes


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_at_equal_epsilon_and_few_steps_newton_is_closer_than_gradient_descent(seed: int) -> None:
    x, labels, targets = table()
    losses, errors, bills = [], [], []
    for solver in ("gradient", "newton"):
        model = SGDClassifier(classes=[0, 1], solver=solver, **terms(simulation_seed=seed)).fit(x, labels)
        scores = model.decision_function(x)
        losses.append(float(np.mean(np.logaddexp(0, scores) - labels * scores)))
        line = SGDRegressor(solver=solver, target_bounds=1.0, **terms(simulation_seed=seed)).fit(x, targets)
        errors.append(float(np.sqrt(np.mean((line.predict(x) - targets) ** 2))))
        bills.append((model.receipt_.bill, line.receipt_.bill))

    assert bills[0] == bills[1]
    assert losses[1] < losses[0] - 0.05
    assert errors[1] < 0.5 * errors[0]


def test_the_receipt_tells_the_solver_and_an_accountant_finds_the_same_price() -> None:
    x, labels, _ = table()
    model = SGDClassifier(classes=[0, 1], solver="newton", **terms(epsilon=None, noise_multiplier=20)).fit(x, labels)
    receipt = model.receipt_
    again = Schedule(Full(4000), (Phase(8, Fraction(20)),)).prices(Fraction(1, 10**6))

    assert (receipt.terms["solver"], receipt.terms["momentum"]) == ("newton", 0.0)
    assert json.loads(receipt.terms["events"]) == Repeat(GaussianEvent(Fraction(20)), 8).to_json()
    assert receipt.bill == again.cap == model.price(4).cap


def test_newton_steps_are_billed_to_a_ledger(tmp_path: Any) -> None:
    path = str(tmp_path / "rows.ledger")
    with open_ledger(path) as ledger:
        ledger.open_account("dataset:table", approx(3, 1e-5))
    x, _, targets = table()
    model = SGDRegressor(solver="newton", ledger=path, target_bounds=1.0, **terms(simulation_seed=None)).fit(x, targets)

    with open_ledger(path) as ledger:
        left = ledger.remaining("dataset:table")
    # Steps are added up at Renyi orders, which prove a little more than the exact price of one training.
    assert 0.75 * (3 - float(model.receipt_.bill.epsilon)) < float(left.epsilon) < 3


def test_huber_loss_has_newton_steps_too() -> None:
    x, _, targets = table()
    model = SGDRegressor(solver="newton", loss="huber", target_bounds=1.0, **terms(epsilon=8.0, steps=15)).fit(
        x, targets
    )

    assert np.sqrt(np.mean((model.predict(x) - targets) ** 2)) < 0.5 * targets.std()


def test_newton_steps_learn_three_classes() -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (6000, 2))
    labels = np.argmax(np.column_stack([x[:, 0], x[:, 1], -x.sum(axis=1)]), axis=1)
    model = SGDClassifier(solver="newton", classes=[0, 1, 2], rows=6000, feature_bound=1.5, epsilon=2.0).fit(x, labels)

    assert model.score(x, labels) > 0.9


def test_unknown_solvers_are_refused_before_anything_is_paid() -> None:
    x, labels, _ = table(100)
    with pytest.raises(InvalidRequest, match="gradient or newton"):
        SGDClassifier(classes=[0, 1], solver="lbfgs", **terms()).fit(x, labels)
    with pytest.raises(InvalidRequest, match="at most 512 columns"):
        SGDRegressor(solver="newton", target_bounds=1.0, **terms()).fit(np.zeros((5, 600)), np.zeros(5))


def test_fewer_newton_steps_than_gradient_steps_are_taken_if_nobody_says() -> None:
    x, labels, _ = table(300)
    for solver, steps in (("gradient", 100), ("newton", 40)):
        model = SGDClassifier(classes=[0, 1], solver=solver, **terms(steps=None)).fit(x, labels)
        assert model.receipt_.terms["steps run"] == steps
        assert model.receipt_.bill == model.price().cap
    aimed = SGDClassifier(classes=[0, 1], solver="newton", score=("accuracy", 0.9), **terms(steps=None, epsilon=None))
    assert aimed._build_order(4, None).steps == 100
