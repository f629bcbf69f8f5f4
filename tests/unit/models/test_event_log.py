"""The bill of every kind of training by SGD estimators is what others make of its event log, and the log is what ran."""

from typing import Any

import numpy as np
import pytest
from tests.unit.models.descent.event_log import by_dp_accounting, by_formula, read_steps

from expost.core import Outcome, Receipt
from expost.models.descent.sgd_estimator import SGDClassifier, SGDRegressor
from expost.noise.gaussian_stream import GaussianStream

DELTA = 1e-6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(4000, 3))
Y = (X[:, 0] > X[:, 1]).astype(int)
BATCHES = {"full": {}, "poisson": {"batch_size": 400}, "disjoint": {"batch_size": 500}}


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The noise multiplier of every sum that left, in order."""
    seen: list[float] = []
    original, made = GaussianStream.release, GaussianStream.__init__

    def init(self: Any, noise_multiplier: Any, *args: Any, **terms: Any) -> None:
        made(self, noise_multiplier, *args, **terms)
        self._told = float(noise_multiplier)

    def release(self: Any, sealed: Any) -> Any:
        seen.append(self._told)
        return original(self, sealed)

    monkeypatch.setattr(GaussianStream, "__init__", init)
    monkeypatch.setattr(GaussianStream, "release", release)
    return seen


def receipt(batches: str, **changes: Any) -> Receipt:
    terms = {"classes": [0, 1], "rows": 4000, "feature_bound": 3.0, "steps": 24, "delta": DELTA, "simulation_seed": 1}
    model = SGDClassifier(batches=batches, **(terms | BATCHES[batches] | changes)).fit(X, Y)
    return model.receipt_


def check(found: Receipt, *, passes: int = 1) -> None:
    """Both recomputations agree with the bill; with several possible stops each has its share of delta."""
    steps, share = read_steps(found.terms["events"]), found.terms.get("delta of this stop", DELTA)
    other, formula = by_dp_accounting(steps, share), by_formula(steps, share)
    sampled = any(part.rate < 1 for part in steps)

    assert 0.99 < found.epsilon / other < 1.01
    assert found.epsilon < 1.02 * formula
    assert found.epsilon > (0.7 if sampled else 0.99) * formula
    assert sum(part.count for part in steps) * passes == found.terms["steps run"]


@pytest.mark.parametrize("solver", ["gradient", "newton"])
@pytest.mark.parametrize("batches", BATCHES)
def test_a_fixed_training_costs_what_others_say(batches: str, solver: str, released: list[float]) -> None:
    for given in ({"epsilon": 1.0}, {"noise_multiplier": 3.0}):
        released.clear()
        found = receipt(batches, solver=solver, **given)
        check(found, passes=8 if batches == "disjoint" else 1)  # 8 batches make a pass, which costs one step
        (steps,) = read_steps(found.terms["events"])
        assert released == [steps.noise] * 24


@pytest.mark.parametrize("solver", ["gradient", "newton"])
@pytest.mark.parametrize("batches", BATCHES)
def test_a_training_to_a_target_costs_what_others_say_of_the_phases_it_ran(
    batches: str, solver: str, released: list[float]
) -> None:
    eight = {"batch_size": 400} if batches == "disjoint" else {}  # of the 3200 rows that are not held out
    found = receipt(batches, solver=solver, score=("accuracy", 0.8), max_epsilon=4.0, phases=3, **eight)

    assert found.outcome is Outcome.TESTED and found.rung is not None and found.rung < 2
    check(found, passes=8 if batches == "disjoint" else 1)
    logged = [part.noise for part in read_steps(found.terms["events"]) for _ in range(part.count)]
    assert sorted(set(released)) == sorted(set(logged))


def test_a_regression_by_newton_steps_costs_what_others_say() -> None:
    model = SGDRegressor(
        solver="newton",
        epsilon=0.7,
        rows=4000,
        feature_bound=3.0,
        steps=10,
        delta=DELTA,
        simulation_seed=1,
        target_bounds=1.0,
    )

    check(model.fit(X, X[:, 0] / 4).receipt_)


def test_renyi_prices_agree_with_the_formula_closely() -> None:
    found = receipt("poisson", noise_multiplier=2.0, accountant="rdp")

    assert 0.97 < found.epsilon / by_formula(read_steps(found.terms["events"]), DELTA) < 1.01


def test_a_log_with_a_tenth_less_noise_or_fewer_steps_is_noticed() -> None:
    found = receipt("full", epsilon=1.0)
    (steps,) = read_steps(found.terms["events"])
    for count, noise in ((steps.count, steps.noise * 0.9), (steps.count * 9 // 10, steps.noise)):
        wrong = type(steps)(count, noise, steps.rate)
        assert not 0.99 < found.epsilon / by_dp_accounting([wrong], DELTA) < 1.01
        assert not 0.99 < found.epsilon / by_formula([wrong], DELTA) < 1.01
