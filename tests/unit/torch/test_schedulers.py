"""The usual optimizers and schedulers work, continue from checkpoints, and follow public numbers."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from torch import nn, optim  # noqa: E402

from expost import InvalidRequest, TargetNotMet  # noqa: E402
from expost.models.descent.training_schedule import Phase  # noqa: E402
from expost.torch import train  # noqa: E402
from expost.torch.module_learner import ModuleProblem  # noqa: E402
from expost.torch.network_defaults import usual_batch_size, usual_rate, usual_steps  # noqa: E402
from expost.torch.network_rows import read_rows  # noqa: E402
from expost.torch.network_training import _cross_entropy  # noqa: E402
from expost.torch.problem_hash import hash_problem  # noqa: E402

OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda parts: optim.SGD(parts, lr=0.1, momentum=0.9),
    "plain SGD": lambda parts: optim.SGD(parts, lr=0.1),
    "Adam": lambda parts: optim.Adam(parts, lr=0.01),
    "AdamW": lambda parts: optim.AdamW(parts, lr=0.01, weight_decay=0.1),
    "RMSprop": lambda parts: optim.RMSprop(parts, lr=0.01, momentum=0.5),
    "Adagrad": lambda parts: optim.Adagrad(parts, lr=0.1),
    "NAdam": lambda parts: optim.NAdam(parts, lr=0.01),
}
SCHEDULERS: dict[str, Any] = {
    "none": None,
    "StepLR": lambda made: optim.lr_scheduler.StepLR(made, 2),
    "CosineAnnealingLR": lambda made: optim.lr_scheduler.CosineAnnealingLR(made, 6),
    "ExponentialLR": lambda made: optim.lr_scheduler.ExponentialLR(made, 0.9),
    "LambdaLR": lambda made: optim.lr_scheduler.LambdaLR(made, lambda step: 1 / (1 + step)),
    "SequentialLR": lambda made: optim.lr_scheduler.SequentialLR(
        made,
        [optim.lr_scheduler.LinearLR(made, 0.1, total_iters=2), optim.lr_scheduler.ExponentialLR(made, 0.8)],
        milestones=[2],
    ),
}


def rows(count: int = 200) -> tuple[Any, Any]:
    inputs = torch.linspace(-1, 1, 2 * count).reshape(count, 2)
    return inputs, (inputs[:, 0] > 0).long()


def learner_of(optimizer: Any, scheduler: Any) -> Any:
    torch.manual_seed(0)
    problem = ModuleProblem(
        nn.Linear(2, 2), _cross_entropy, 1.0, optimizer, 8.0, torch.device("cpu"), scheduler=scheduler
    )
    learner = problem.table(read_rows(rows())).learner(slice(None), None)
    learner.open(Phase(1, Fraction(2)), 5.0)
    return learner


@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_restored_training_continues_as_if_nothing_had_happened(optimizer: Any, scheduler: Any) -> None:
    noises = [np.random.default_rng(step).integers(-(2**22), 2**22, 6) for step in range(6)]
    straight, first, second = (learner_of(optimizer, scheduler) for _ in range(3))
    for noise in noises:
        straight.take_step(noise)
    for noise in noises[:3]:
        first.take_step(noise)

    second.restore_state(first.copy_state())
    for noise in noises[3:]:
        second.take_step(noise)

    for one, two in zip(straight.build_result().parameters(), second.build_result().parameters(), strict=True):
        assert torch.allclose(one, two)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_network_learns_with_the_usual_optimizers(name: str) -> None:
    inputs, labels = rows(2000)
    release = train(
        nn.Linear(2, 2),
        (inputs, labels),
        rows=2000,
        epsilon=4.0,
        steps=60,
        batches="full",
        optimizer=OPTIMIZERS[name],
        simulation_seed=0,
    )

    assert float((release.value(inputs).argmax(1) == labels).float().mean()) > 0.85


def test_a_scheduler_is_stepped_after_every_step() -> None:
    rates: list[float] = []

    class Logged(optim.lr_scheduler.StepLR):
        def step(self, *given: Any) -> None:
            super().step(*given)
            rates.append(self.optimizer.param_groups[0]["lr"])

    inputs, labels = rows()
    terms: dict[str, Any] = {"rows": 200, "epsilon": 2.0, "steps": 4, "learning_rate": 1.0, "simulation_seed": 0}
    train(nn.Linear(2, 2), (inputs, labels), scheduler=lambda made: Logged(made, 2, gamma=0.5), **terms)

    assert rates[-4:] == [1.0, 0.5, 0.5, 0.25]


WRONG: dict[str, Any] = {
    "a word": "cosine",
    "nothing": lambda made: None,
    "plateau": lambda made: optim.lr_scheduler.ReduceLROnPlateau(made),
    "too short": lambda made: optim.lr_scheduler.OneCycleLR(made, 1.0, total_steps=3),
    "an error": lambda made: 1 / 0,
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_schedulers_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="Expected"):
        train(nn.Linear(2, 2), rows(), rows=200, epsilon=2.0, steps=4, scheduler=WRONG[name])


def test_a_scheduler_is_part_of_the_settings() -> None:
    names = {
        hash_problem(
            ModuleProblem(
                nn.Linear(2, 2),
                _cross_entropy,
                1.0,
                OPTIMIZERS["SGD"],
                8.0,
                torch.device("cpu"),
                scheduler=scheduler,
            )
        )
        for scheduler in (None, *(lambda made, at=at: optim.lr_scheduler.StepLR(made, at) for at in (1, 2, 2)))
    }

    assert len(names) == 3


def test_usual_settings_follow_from_public_numbers() -> None:
    assert [usual_batch_size(count) for count in (1, 500, 60_000, 10**6)] == [1, 500, 1024, 4000]
    assert usual_steps(60_000, 1024) == 586
    rates = [usual_rate(clip=0.1, noise_multiplier=z, batch_size=1024, weights=26_010) for z in (0.1, 1.0, 2.0, 8.0)]
    assert rates == sorted(rates, reverse=True) and rates[0] <= 16.0
    assert usual_rate(clip=1.0, noise_multiplier=2.0, batch_size=1024, weights=26_010) == pytest.approx(rates[2] / 10)


@pytest.mark.parametrize("count", [60, np.int64(60), np.uint16(60)])
def test_usual_steps_do_not_depend_on_the_type_of_the_number_of_rows(count: Any) -> None:
    inputs, labels = rows(60)
    release = train(nn.Linear(2, 2), (inputs, labels), rows=count, noise_multiplier=20.0, simulation_seed=0)

    assert release.receipt.terms["steps run"] == 300


def test_usual_settings_are_in_the_receipt_and_learn() -> None:
    inputs, labels = rows(4000)
    release = train(nn.Linear(2, 2), (inputs, labels), rows=4000, epsilon=2.0, steps=40, simulation_seed=0)

    assert release.receipt.terms["clip"] == 0.1
    assert release.receipt.terms["expected batch size"] == 1024
    assert float((release.value(inputs).argmax(1) == labels).float().mean()) > 0.9


@pytest.mark.parametrize(
    ("terms", "hint"),
    [
        ({}, "rows held out passes from about 0.9"),
        ({"learning_rate": 1e-6}, "Leave clip, learning_rate and optimizer out"),
        ({"max_epsilon": 0.01}, "too few to test"),
    ],
)
def test_a_miss_says_what_to_change(terms: dict[str, Any], hint: str) -> None:
    torch.manual_seed(0)
    inputs, labels = rows(4000)
    labels = (torch.arange(4000) % 2).long()  # nothing to learn
    settings = {"rows": 4000, "score": ("accuracy", 0.9), "max_epsilon": 4.0, "steps": 8, "simulation_seed": 0} | terms

    with pytest.raises(TargetNotMet, match=hint) as caught:
        train(nn.Linear(2, 2), (inputs, labels), **settings)

    assert "more steps (now " in str(caught.value)
    assert caught.value.release.value is not None
