"""Clipped gradients as one would write them down, a row at a time."""

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from torch import nn  # noqa: E402

from expost.torch.loss_tap import KnownLabels, LossTap  # noqa: E402
from expost.torch.model_inputs import SeveralInputs, call_model  # noqa: E402
from expost.torch.module_learner import ModuleProblem  # noqa: E402
from expost.torch.network_rows import read_rows  # noqa: E402
from expost.torch.network_training import _cross_entropy  # noqa: E402


def by_hand(model: nn.Module, inputs: Any, targets: Any, clip: float) -> Any:
    """The sum of the clipped gradients of the usual loss, flat."""
    total = 0
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for row in range(len(inputs)):
        value = _cross_entropy(model(inputs[row : row + 1]), targets[row : row + 1]).sum()
        flat = torch.cat([part.reshape(-1) for part in torch.autograd.grad(value, parameters)]).double()
        total = total + flat * min(1.0, clip / float(flat.norm()))
    return total


def table_of(model: nn.Module, inputs: Any, targets: Any, loss: Any = None) -> Any:
    """The table that a model is trained on, after its trial on synthetic rows."""
    if isinstance(loss, nn.CrossEntropyLoss):
        loss = KnownLabels(loss)
    problem = ModuleProblem(
        model, loss or _cross_entropy, 1.0, lambda parts: torch.optim.SGD(parts, lr=0.1), 0.0, torch.device("cpu")
    )
    if isinstance(inputs, SeveralInputs):
        inputs = dict(zip(inputs.names, inputs.parts, strict=True)) if inputs.names else inputs.parts
    return problem.table(read_rows((inputs, targets)))


def row_by_row(model: nn.Module, inputs: Any, targets: Any, loss: Any = None) -> Any:
    """The gradients of single rows by autograd, as if each were a batch."""
    trained, found = [part for part in model.parameters() if part.requires_grad], []
    for row in range(len(targets)):
        losses = LossTap(loss or _cross_entropy)(call_model(model, inputs[row : row + 1]), targets[row : row + 1])
        parts = torch.autograd.grad(losses.sum(), trained, allow_unused=True)
        flat = [torch.zeros_like(p) if g is None else g.to_dense() for p, g in zip(trained, parts, strict=True)]
        found.append(torch.cat([part.reshape(-1) for part in flat]))
    return torch.stack(found)


def compare(model: nn.Module, inputs: Any, targets: Any, loss: Any = None) -> None:
    """Assert that the gradient of each row is that of autograd; layers with buffers keep the mode they were given in."""
    plain = copy.deepcopy(model)
    still = [part for part in plain.modules() if not part.training and [*part.buffers(recurse=False)]]
    table = table_of(model, inputs, targets, loss)
    table.problem.set_training()
    plain.train()
    for part in still:
        part.eval()
    expected = row_by_row(plain, inputs, targets, loss)

    for row in range(len(targets)):
        alone = torch.zeros(len(targets))
        alone[row] = 1.0
        ours = table.gradients.total(inputs, targets, 1e6, weights=alone)
        assert float((ours - expected[row]).norm()) <= 1e-6 * float(expected[row].norm())
