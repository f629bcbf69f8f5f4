"""A canary in the gradients of a PyTorch module; needs the extra ``torch``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from expost.audit.entries_sgd import FEW, RUNS, plan_training
from expost.audit.pair_attack import Pair
from expost.audit.replay_views import stream_pair
from expost.core import Guarantee
from expost.models.descent.training_query import TrainingPlan
from expost.models.descent.training_schedule import Batches, Full, Poisson
from expost.noise.bits import BitSource
from expost.torch.module_learner import ModuleProblem, ModuleTable
from expost.torch.network_rows import read_rows
from expost.torch.person_batches import PersonIds

__all__ = ["pairs", "person_canary_pair", "torch_canary_pair"]

_CLIP = 0.1
_PLAIN, _CANARY = [[0.01], [0.01]], [[1.0]]


def pairs() -> Sequence[Pair]:
    """Build the pairs: one step on all rows, and several steps on sampled rows."""
    problem, request, claim = _plan_training(Full(4), steps=1, noise=Fraction(1))
    left, right = (partial(_train_module, problem, request, table) for table in _measure_tables(request))
    return (
        stream_pair("what one step releases", claim, left, right),
        torch_canary_pair("one step on all rows", Full(4), steps=1, noise=Fraction(1), runs=FEW),
        torch_canary_pair("sampled steps", Poisson(Fraction(1, 2), 4), steps=4, noise=Fraction(1), runs=FEW),
        person_canary_pair("a person of several rows", runs=FEW),
    )


def torch_canary_pair(name: str, batches: Batches, *, steps: int, noise: Fraction, runs: int = RUNS) -> Pair:
    """Build a pair of trainings of one weight, with and without a row that pulls it as hard as clipping allows."""
    problem, request, claim = _plan_training(batches, steps=steps, noise=noise)
    train_weight = partial(_train_module, problem, request)
    return Pair.repeated(name, claim, train_weight, *_measure_tables(request), most_runs=runs)


def person_canary_pair(name: str, *, runs: int = RUNS) -> Pair:
    """Build a pair of trainings with and without a person of five rows that all pull as hard as clipping allows."""
    problem, request, claim = _plan_training(Full(4), steps=1, noise=Fraction(1))
    tables = []
    for canaries in (5, 0):
        inputs = torch.tensor(_PLAIN + _CANARY * canaries)
        table = request.measure((inputs, torch.tensor([0.0, 0.0] + [1.0] * canaries)))
        ids = PersonIds.read(torch.tensor([0, 1] + [2] * canaries))
        tables.append(replace(cast(ModuleTable, table), by_person=True).with_people(ids, b"audit"))
    return Pair.repeated(name, claim, partial(_train_module, problem, request), *tables, most_runs=runs)


def _plan_training(batches: Batches, *, steps: int, noise: Fraction) -> tuple[ModuleProblem, TrainingPlan, Guarantee]:
    """Plan the training of a module of one weight, and state what it claims."""
    problem = ModuleProblem(
        nn.Linear(1, 1, bias=False),
        lambda outputs, targets: (outputs[:, 0] - targets).square() / 2,
        _CLIP,
        lambda weights: torch.optim.SGD(weights, lr=1.0),
        0.0,
        torch.device("cpu"),
    )
    request, claim = plan_training(batches, lambda data: problem.table(read_rows(data)), steps=steps, noise=noise)
    return problem, request, claim


def _measure_tables(request: TrainingPlan) -> list[Any]:
    """Measure the rows with the canary, whose target is 1, and without."""
    targets = torch.tensor([0.0, 0.0, 1.0])
    return [request.measure((torch.tensor(rows), targets[: len(rows)])) for rows in (_PLAIN + _CANARY, _PLAIN)]


def _train_module(problem: ModuleProblem, request: TrainingPlan, table: Any, bits: BitSource) -> float:
    """Train from weight 0."""
    nn.init.zeros_(problem.model.weight)  # type: ignore[arg-type]
    return float(request.climb(table, bits).value.weight.item())
