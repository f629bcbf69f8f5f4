"""What a fit of a table costs when it fails, is interrupted or is one of several: the ledger has all of it."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expost
from expost.noise.gaussian_stream import GaussianStream

RNG = np.random.default_rng(5)
AGE = RNG.uniform(18, 80, 2_000)
TABLE = {"age": AGE, "old": AGE + RNG.normal(0, 9, 2_000) > 50, "pay": AGE + RNG.normal(0, 5, 2_000)}
COLUMNS = {"age": (18, 80), "pay": (0, 100)}
MODELS: dict[str, Callable[..., Any]] = {
    "old": lambda **more: expost.Classifier(columns={"age": (18, 80)}, **more),
    "pay": lambda **more: expost.Regressor(columns=COLUMNS, **more),
}
SCORES = {"old": ("accuracy", 0.99), "pay": ("r2", 0.99)}


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    path = str(tmp_path / "people.ledger")
    expost.open_ledger(path).open_account("dataset:table", expost.approx(5, 1e-4))
    return path


def spent(ledger: str) -> float:
    return float(expost.open_ledger(ledger).spent("dataset:table").epsilon)


def fail_at(monkeypatch: pytest.MonkeyPatch, call: int, error: BaseException) -> None:
    """Let one release of noisy numbers fail."""
    original, calls = GaussianStream.release, []

    def release(self: Any, *arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise error
        return original(self, *arguments, **named)

    monkeypatch.setattr(GaussianStream, "release", release)


@pytest.mark.parametrize("target", MODELS)
@pytest.mark.parametrize("error", [OSError("disk: row 17 is Ann"), KeyboardInterrupt()])
def test_a_fit_that_fails_after_the_hold_stays_charged_in_full(
    target: str, error: BaseException, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(monkeypatch, 2, error)
    model = MODELS[target](score=SCORES[target], max_epsilon=0.5, ledger=ledger)

    with pytest.raises((expost.ExpostError, KeyboardInterrupt)) as failed:
        model.fit(TABLE, target=target)

    assert "Ann" not in str(failed.value)
    assert spent(ledger) > 0.4  # the cap of the request, at the delta of the account; the first rung costs a twentieth
    assert not hasattr(model, "release_")


@pytest.mark.parametrize("target", MODELS)
def test_a_training_that_is_interrupted_later_keeps_its_model_and_pays_for_the_rung_it_was_in(
    target: str, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(monkeypatch, 40, KeyboardInterrupt())
    model = MODELS[target](score=SCORES[target], max_epsilon=0.5, ledger=ledger)

    with pytest.raises(expost.TargetNotMet) as missed:
        model.fit(TABLE, target=target)

    assert missed.value.receipt.rung >= 1
    assert missed.value.receipt.terms["ended"] == "stopped by the caller"
    assert model.predict({"age": [20.0, 70.0]}).shape == (2,)
    assert 0 < float(missed.value.receipt.epsilon) < 0.4


def test_the_fits_of_a_session_add_up_to_what_it_has_spent() -> None:
    session = expost.Session(expost.Dataset(TABLE, name="people"), expost.approx(5, 1e-4))
    fits = [session.fit(MODELS[target](epsilon=0.2), target=target).receipt_ for target in MODELS]
    fits.append(session.fit(MODELS["old"](epsilon=0.1), target="old").receipt_)

    with pytest.raises(expost.TargetNotMet) as missed:
        session.fit(MODELS["old"](score=("accuracy", 0.999), max_epsilon=0.3), target="old")
    bills = [*fits, missed.value.receipt]

    together = sum(float(each.epsilon) for each in bills)
    # Gaussian events compose to less than the sum of their epsilons, and to more than the largest.
    assert max(float(each.epsilon) for each in bills) < float(session.spent().epsilon) <= together + 1e-9
    left = float(session.remaining().epsilon) + float(session.spent().epsilon)
    assert math.isclose(left, 5, rel_tol=0.01)
