"""What a step of a network depends on beside rows and noise, as a text that is the same in every process."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from expost.models.descent.fingerprint import fingerprint
from expost.torch.module_learner import ModuleProblem

__all__ = ["settings_of"]

_PLACE = re.compile(r" at 0x[0-9a-f]+")  # of an object, by which Python prints it where it knows nothing better
_PLAIN = (bool, int, float, str, type(None))


def settings_of(problem: ModuleProblem) -> str:
    """A fingerprint of layers, weights that stay, loss and optimiser; of a function its name is all that is known.

    >>> problem = ModuleProblem(nn.Linear(2, 2), nn.CrossEntropyLoss(), 1.0, torch.optim.SGD, 8.0, torch.device("cpu"))
    >>> len(settings_of(problem))
    16
    """
    weights = dict(problem.model.named_parameters())
    fixed = {name: part for name, part in weights.items() if not part.requires_grad} | dict(
        problem.model.named_buffers()
    )
    return fingerprint(
        {
            "model": _PLACE.sub("", repr(problem.model)),
            "weights": [(name, [*part.shape], str(part.dtype)) for name, part in weights.items()],
            "fixed": {name: _digest(part) for name, part in fixed.items()},
            "loss": _described(getattr(problem.loss, "_loss", problem.loss)),
            "optimizer": _optimizer(problem),
        }
    )


def _optimizer(problem: ModuleProblem) -> list[Any]:
    """Its class and numbers, from one that is made of stand-ins for the weights."""
    trained = [part for part in problem.model.parameters() if part.requires_grad]
    made = problem.optimizer([nn.Parameter(torch.zeros_like(part)) for part in trained])
    groups = [{name: _number(value) for name, value in _options(group).items()} for group in made.param_groups]
    return [type(made).__name__, groups]


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


def _number(value: Any) -> Any:
    """A number or a few of them; of anything else its type."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [_number(each) for each in value]
    return value if isinstance(value, _PLAIN) else type(value).__name__


def _described(loss: Any) -> Any:
    """The name of a function; the class and the numbers of an object."""
    name = getattr(loss, "__qualname__", None)
    if name is not None:
        return f"{loss.__module__}.{name}"
    numbers = {name: _number(value) for name, value in vars(loss).items() if not name.startswith("_")}
    weights = loss.state_dict() if isinstance(loss, nn.Module) else {}
    return [type(loss).__name__, numbers, {name: _digest(part) for name, part in weights.items()}]


def _digest(values: Tensor) -> str:
    plain = values.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(plain.numpy().tobytes()).hexdigest()
