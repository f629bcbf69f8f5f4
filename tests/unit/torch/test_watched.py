"""A network can be watched while it trains, at the price it has anyway."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from expost.core import unseal  # noqa: E402
from expost.models.descent.training_schedule import Phase  # noqa: E402
from expost.models.descent.training_watch import Watch  # noqa: E402
from expost.torch import train  # noqa: E402
from expost.torch.module_learner import ModuleProblem  # noqa: E402
from expost.torch.network_rows import read_rows  # noqa: E402


@pytest.fixture
def rows() -> tuple[Any, Any]:
    inputs = torch.linspace(-1, 1, 3000).reshape(-1, 1)
    return inputs, (inputs[:, 0] > 0).long()


@pytest.mark.parametrize("batches", ["full", "poisson"])
def test_a_watched_network_tells_its_accuracy_and_loss_at_the_same_price(rows: Any, batches: str) -> None:
    torch.manual_seed(1)
    terms: dict[str, Any] = {"rows": 3000, "epsilon": 8.0, "steps": 40, "batches": batches, "simulation_seed": 1}
    watched = train(torch.nn.Linear(1, 2), rows, progress=True, **terms).receipt
    alone = train(torch.nn.Linear(1, 2), rows, **terms).receipt

    assert watched.terms["watched"].startswith("accuracy ") and "loss" in watched.terms["watched"]
    assert "watched" not in alone.terms
    assert watched.epsilon == alone.epsilon and watched.terms["events"] == alone.terms["events"]


def test_a_loss_of_ones_own_is_not_watched(rows: Any) -> None:
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    terms: dict[str, Any] = {"rows": 3000, "epsilon": 8.0, "steps": 2, "simulation_seed": 1}

    assert "watched" not in train(torch.nn.Linear(1, 2), rows, loss=loss, progress=True, **terms).receipt.terms


def test_what_is_counted_is_the_batch_that_was_measured(rows: Any) -> None:
    """Chunk by chunk, the empty batch too; a row counts at most the height for each number."""
    inputs, labels = rows
    model = torch.nn.Linear(1, 2)
    problem = ModuleProblem(
        model=model,
        loss=torch.nn.CrossEntropyLoss(reduction="none"),
        clip=1.0,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        averaging=8.0,
        device=torch.device("cpu"),
        watched=True,
    )
    learner = problem.table(read_rows((inputs, labels))).learner(slice(None), None)

    height = Watch().height(learner.open(Phase(1, Fraction(2)), 3000.0))
    learner.start_watch(height)
    chosen = np.arange(0, 3000, 2)
    learner.measure(chosen)
    with torch.no_grad():
        right = (model(inputs[chosen]).argmax(1) == labels[chosen]).sum().item()
    assert unseal(learner.read_watch())[0] == height * (2 * right - len(chosen))
    assert np.abs(unseal(learner.read_watch())).max() <= height * len(chosen)

    learner.measure(np.arange(0))
    assert unseal(learner.read_watch()).tolist() == [0, 0]
