"""Clipped gradients as one would write them down, a row at a time."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from torch import nn  # noqa: E402

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
