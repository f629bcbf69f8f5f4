"""The bill of every training of a network is what others make of its event log, and the log is what ran."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from tests.unit.models.descent.event_log import Steps, by_dp_accounting, by_formula, read_steps  # noqa: E402
from torch import nn  # noqa: E402

from expost import TargetNotMet  # noqa: E402
from expost.core import Outcome, Receipt  # noqa: E402
from expost.noise.gaussian_stream import GaussianStream  # noqa: E402
from expost.torch import train  # noqa: E402

DELTA, ROWS = 1e-6, 1000
BATCHES = {"full": {}, "poisson": {"batch_size": 100}, "disjoint": {"batch_size": 125}}


def table() -> tuple["torch.Tensor", "torch.Tensor"]:
    inputs = torch.rand(ROWS, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return inputs, (inputs[:, 0] > inputs[:, 1]).long()


def receipt(batches: str, **changes: Any) -> Receipt:
    torch.manual_seed(0)
    terms = {"rows": ROWS, "steps": 16, "delta": DELTA, "learning_rate": 1.0, "simulation_seed": 1}
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    found = train(model, table(), batches=batches, **(terms | BATCHES[batches] | changes)).receipt
    assert isinstance(found, Receipt)
    return found


def check(found: Receipt, *, passes: int = 1) -> list[Steps]:
    """Both recomputations agree with the bill; with several possible stops each has its share of delta."""
    steps, share = read_steps(found.terms["events"]), found.terms.get("delta of this stop", DELTA)
    formula = by_formula(steps, share)
    sampled = any(part.rate < 1 for part in steps)

    assert 0.99 < found.epsilon / by_dp_accounting(steps, share) < 1.01
    assert (0.6 if sampled else 0.99) * formula < found.epsilon < 1.02 * formula
    assert sum(part.count for part in steps) * passes == found.terms["steps run"]
    return steps


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for every noisy sum that left."""
    left, original = [], GaussianStream.release

    def release(self: Any, sealed: Any) -> Any:
        left.append(1)
        return original(self, sealed)

    monkeypatch.setattr(GaussianStream, "release", release)
    return left


@pytest.mark.parametrize("given", [{"epsilon": 1.0}, {"noise_multiplier": 3.0}], ids=["epsilon", "noise"])
@pytest.mark.parametrize("batches", BATCHES)
def test_a_fixed_training_costs_what_others_say(batches: str, given: dict[str, Any], sums: list[int]) -> None:
    found = receipt(batches, **given)

    (steps,) = check(found, passes=8 if batches == "disjoint" else 1)  # a pass of 8 batches costs one step
    assert steps.rate == (0.1 if batches == "poisson" else 1.0)
    assert len(sums) == 16
    assert "epsilon" not in given or 0.98 < found.epsilon <= 1


@pytest.mark.parametrize("batches", BATCHES)
def test_a_training_to_a_target_costs_what_others_say_of_the_phases_it_ran(batches: str, sums: list[int]) -> None:
    eight = {"batch_size": 100} if batches == "disjoint" else {}  # of the 800 rows that are not held out
    terms = {"score": ("accuracy", 0.6), "max_epsilon": 8.0, "phases": 4, "steps": 32, "validation_share": 0.2}
    found = receipt(batches, **terms, **eight)

    assert found.outcome is Outcome.TESTED and found.rung is not None
    check(found, passes=8 if batches == "disjoint" else 1)
    ends = (8, 16, 24, 32) if batches == "disjoint" else (2, 6, 13, 32)  # whole passes, or squares of rising prices
    assert found.terms["steps run"] == ends[found.rung]
    assert len(sums) == 2 * ends[found.rung]  # gradients and, in the same event, metrics that show a plateau


def test_a_missed_target_costs_what_others_say_of_all_phases() -> None:
    with pytest.raises(TargetNotMet) as raised:
        receipt("full", score=("accuracy", 0.999), max_epsilon=1.0, phases=2, steps=8)

    check(raised.value.receipt)


def test_an_interrupted_training_is_logged_with_all_steps_of_its_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, original = [], GaussianStream.release

    def release(self: Any, sealed: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return original(self, sealed)

    monkeypatch.setattr(GaussianStream, "release", release)
    found = receipt("full", epsilon=1.0)

    (steps,) = read_steps(found.terms["events"])
    assert (steps.count, found.terms["steps run"]) == (16, 4)  # what was begun is paid for
    assert 0.99 < found.epsilon / by_formula([steps], DELTA) < 1.01


def test_a_log_with_a_tenth_less_noise_is_noticed() -> None:
    found = receipt("full", epsilon=1.0)
    (steps,) = read_steps(found.terms["events"])
    wrong = Steps(steps.count, steps.noise * 0.9, steps.rate)

    assert not 0.99 < found.epsilon / by_dp_accounting([wrong], DELTA) < 1.01
    assert not 0.99 < found.epsilon / by_formula([wrong], DELTA) < 1.01
