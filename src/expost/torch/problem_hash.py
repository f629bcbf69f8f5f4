"""A hash of everything that a network's training depends on besides rows and noise."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import torch
from torch import Tensor, nn

from expost.models.descent.training_checkpoint import hash_settings
from expost.torch.loss_tap import KnownLabels
from expost.torch.module_learner import ModuleProblem

__all__ = ["hash_problem", "make_stand_in"]

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in the default text of an object: it differs between processes
_PLAIN = (bool, int, float, str, type(None))


def make_stand_in(problem: ModuleProblem) -> Any:
    """Make an optimizer of stand-ins for the weights, with gradients of zero."""
    stand_ins = [nn.Parameter(torch.zeros_like(part)) for part in problem.model.parameters() if part.requires_grad]
    for part in stand_ins:
        part.grad = torch.zeros_like(part)
    return problem.optimizer(stand_ins)


def hash_problem(problem: ModuleProblem) -> str:
    """Return a hash of layers, fixed weights, loss and optimizer, stable across processes.

    It covers what a step depends on besides rows and noise. Of a function only the name is known.
    """
    weights = dict(problem.model.named_parameters())
    fixed: dict[str, Tensor] = {name: part for name, part in weights.items() if not part.requires_grad}
    fixed |= dict(problem.model.named_buffers())
    made = make_stand_in(problem)
    groups = [
        {name: _describe_value(value) for name, value in group.items() if name != "params"}
        for group in made.param_groups
    ]
    settings = {
        "model": _ADDRESS.sub("", repr(problem.model)),
        "weights": [(name, [*part.shape], str(part.dtype)) for name, part in weights.items()],
        "fixed": {name: _hash_tensor(part) for name, part in fixed.items()},
        "loss": _describe_loss(problem.loss.inner if isinstance(problem.loss, KnownLabels) else problem.loss),
        "optimizer": [type(made).__name__, groups],
    }
    if problem.scheduler is not None:
        scheduled = problem.scheduler(made)
        numbers = {name: _describe_value(value) for name, value in scheduled.state_dict().items()}
        settings["scheduler"] = [type(scheduled).__name__, numbers]
    return hash_settings(settings)


def _describe_value(value: Any) -> Any:
    """Return a number or several; of anything else its type."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [_describe_value(each) for each in value]
    return value if isinstance(value, _PLAIN) else type(value).__name__


def _describe_loss(loss: Any) -> Any:
    """Return the name of a function; the class and the numbers of an object."""
    name = getattr(loss, "__qualname__", None)
    if name is not None:
        return f"{loss.__module__}.{name}"
    numbers = {name: _describe_value(value) for name, value in vars(loss).items() if not name.startswith("_")}
    weights = loss.state_dict() if isinstance(loss, nn.Module) else {}
    return [type(loss).__name__, numbers, {name: _hash_tensor(part) for name, part in weights.items()}]


def _hash_tensor(values: Tensor) -> str:
    plain = values.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(plain.numpy().tobytes()).hexdigest()
