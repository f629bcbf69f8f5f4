"""A canary in the gradients of a PyTorch module; needs the extra ``torch``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from expost.audit.pair_attack import Pair, Sampler, repeat
from expost.audit.replay_views import stream_pair
from expost.core import ApproxGuarantee
from expost.models.descent.training_query import TrainingPlan
from expost.models.descent.training_schedule import Batches, Full, Phase, Poisson, Schedule
from expost.noise.bits import BitSource
from expost.torch.module_learner import ModuleProblem
from expost.torch.network_rows import read_rows

__all__ = ["pairs", "torch_canary_pair", "torch_step_pair"]

_FEW, _RUNS = 150, 400  # in the quick profile, and of a pair alone
_DELTA = Fraction(1, 100)  # large, so that so few runs can contradict it
_CLIP = 0.1
_PLAIN, _CANARY = [[0.01], [0.01]], [[1.0]]


def pairs() -> Sequence[Pair]:
    """Build the pairs: one step on all rows, and several steps on sampled rows."""
    return (
        torch_step_pair("what one step releases"),
        torch_canary_pair("one step on all rows", Full(4), steps=1, noise=Fraction(1), runs=_FEW),
        torch_canary_pair("sampled steps", Poisson(Fraction(1, 2), 4), steps=4, noise=Fraction(1), runs=_FEW),
    )


def torch_step_pair(name: str) -> Pair:
    """Build a pair of what one step on all rows releases, with and without the canary, many runs at once."""
    request, claim, problem = _plan_training(Full(4), steps=1, noise=Fraction(1))

    def train_on(features: list[list[float]]) -> Callable[[BitSource], Any]:
        table = request.measure(_make_tensors(features))

        def run_training(bits: BitSource) -> Any:
            nn.init.zeros_(problem.model.weight)  # type: ignore[arg-type]
            return request.climb(table, bits)

        return run_training

    return stream_pair(name, claim, train_on(_PLAIN + _CANARY), train_on(_PLAIN))


def _plan_training(
    batches: Batches, *, steps: int, noise: Fraction
) -> tuple[TrainingPlan, ApproxGuarantee, ModuleProblem]:
    """Plan the training of a module of one weight, and state what it claims."""
    schedule = Schedule(batches, (Phase(steps, noise),))
    prices = schedule.prices(_DELTA, accountant="auto" if isinstance(batches, Full) else "rdp")
    claim = prices.cap.promise()
    assert isinstance(claim, ApproxGuarantee)
    problem = ModuleProblem(
        nn.Linear(1, 1, bias=False),
        lambda outputs, targets: (outputs[:, 0] - targets).square() / 2,
        _CLIP,
        lambda weights: torch.optim.SGD(weights, lr=1.0),
        0.0,
        torch.device("cpu"),
    )
    request = TrainingPlan(
        question="audit", schedule=schedule, prices=prices, table=lambda data: problem.table(read_rows(data))
    )
    return request, claim, problem


def _make_tensors(features: list[list[float]]) -> tuple[Tensor, Tensor]:
    """Pair the features with targets of 0, and 1 for the canary."""
    return torch.tensor(features), torch.tensor([0.0, 0.0, 1.0])[: len(features)]


def torch_canary_pair(name: str, batches: Batches, *, steps: int, noise: Fraction, runs: int = _RUNS) -> Pair:
    """Build a pair of trainings of one weight, with and without a row that pulls it as hard as clipping allows."""
    request, claim, problem = _plan_training(batches, steps=steps, noise=noise)

    def sample_weights(features: list[list[float]]) -> Sampler:
        table = request.measure(_make_tensors(features))

        def run_training(bits: BitSource) -> float:
            nn.init.zeros_(problem.model.weight)  # type: ignore[arg-type]
            return float(request.climb(table, bits).value.weight.item())

        return repeat(run_training)

    return Pair(name, claim, sample_weights(_PLAIN + _CANARY), sample_weights(_PLAIN), slow=True, most_runs=runs)
