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
    """One step on all rows, several on sampled ones."""
    return (
        torch_step_pair("what one step releases"),
        torch_canary_pair("one step on all rows", Full(4), steps=1, noise=Fraction(1), runs=_FEW),
        torch_canary_pair("sampled steps", Poisson(Fraction(1, 2), 4), steps=4, noise=Fraction(1), runs=_FEW),
    )


def torch_step_pair(name: str) -> Pair:
    """Return what one step on all rows releases, with and without the canary, many runs at once."""
    request, claim, problem = _training(Full(4), steps=1, noise=Fraction(1))

    def trained(features: list[list[float]]) -> Callable[[BitSource], Any]:
        table = request.measure(_data(features))

        def run(bits: BitSource) -> Any:
            nn.init.zeros_(problem.model.weight)  # type: ignore[arg-type]
            return request.climb(table, bits)

        return run

    return stream_pair(name, claim, trained(_PLAIN + _CANARY), trained(_PLAIN))


def _training(batches: Batches, *, steps: int, noise: Fraction) -> tuple[TrainingPlan, ApproxGuarantee, ModuleProblem]:
    schedule = Schedule(batches, (Phase(steps, noise),))
    prices = schedule.prices(_DELTA, accountant="auto" if isinstance(batches, Full) else "rdp")
    claim = prices.cap.promise()
    assert isinstance(claim, ApproxGuarantee)
    problem = _problem()
    request = TrainingPlan(
        question="audit", schedule=schedule, prices=prices, table=lambda data: problem.table(read_rows(data))
    )
    return request, claim, problem


def _data(features: list[list[float]]) -> tuple[Tensor, Tensor]:
    return torch.tensor(features), torch.tensor([0.0, 0.0, 1.0])[: len(features)]


def torch_canary_pair(name: str, batches: Batches, *, steps: int, noise: Fraction, runs: int = _RUNS) -> Pair:
    """Return a module of one weight with and without a row that pulls it as hard as clipping allows."""
    request, claim, problem = _training(batches, steps=steps, noise=noise)

    def trained(features: list[list[float]]) -> Sampler:
        table = request.measure(_data(features))

        def run(bits: BitSource) -> float:
            nn.init.zeros_(problem.model.weight)  # type: ignore[arg-type]
            return float(request.climb(table, bits).value.weight.item())

        return repeat(run)

    return Pair(name, claim, trained(_PLAIN + _CANARY), trained(_PLAIN), slow=True, most_runs=runs)


def _problem() -> ModuleProblem:
    return ModuleProblem(
        nn.Linear(1, 1, bias=False),
        _squared,
        _CLIP,
        lambda weights: torch.optim.SGD(weights, lr=1.0),
        0.0,
        torch.device("cpu"),
    )


def _squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).square() / 2
