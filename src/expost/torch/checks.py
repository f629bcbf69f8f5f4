"""What is refused before a training is paid for: models, devices, optimisers and data that do not fit together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from expost.core import ExpostError, InvalidRequest
from expost.torch.module_learner import ModuleProblem, ModuleTable
from expost.torch.rows import read_rows

__all__ = [
    "check_module",
    "check_optimizer",
    "checked_call",
    "checked_table",
    "chosen_device",
]


def check_module(model: Any) -> None:
    """Refuse what cannot be trained; the weights a training starts from are public.

    >>> check_module(nn.Linear(2, 2))
    """
    if not isinstance(model, nn.Module):
        raise InvalidRequest("Expected a torch.nn.Module", got=type(model).__name__, do="Pass a model")
    trained = [part for part in model.parameters() if part.requires_grad]
    if not trained:
        raise InvalidRequest("Expected a model with weights to train", do="Set requires_grad on some of them")
    if not all(bool(part.isfinite().all()) for part in model.parameters()):
        raise InvalidRequest("Expected finite weights", do="Initialise the model anew")


def chosen_device(model: nn.Module, device: Any) -> torch.device:
    """The device asked for, or the model's own.

    >>> chosen_device(nn.Linear(2, 2), None)
    device(type='cpu')
    """
    if device is None:
        return next(model.parameters()).device
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError):
        raise InvalidRequest("Expected a device that this PyTorch has", got=device, do='Pass "cpu"') from None
    return place


def checked_call(given: Any, name: str) -> Callable[..., Any]:
    """Something that can be called.

    >>> checked_call(len, "loss") is len
    True
    """
    if not callable(given):
        raise InvalidRequest(
            f"Expected {name} to be a function", got=type(given).__name__, do="Pass one, or leave it out"
        )
    return given  # type: ignore[no-any-return]


def check_optimizer(problem: ModuleProblem) -> None:
    """Make an optimiser once, of stand-ins for the weights, to see that it can be made."""
    stand_ins = [nn.Parameter(torch.zeros_like(part)) for part in problem.model.parameters() if part.requires_grad]
    try:
        made = problem.optimizer(stand_ins)
    except Exception:
        raise InvalidRequest(
            "Expected optimizer to make an optimiser of a list of parameters",
            do="Pass lambda parameters: torch.optim.SGD(parameters, lr=0.5)",
        ) from None
    if not isinstance(made, torch.optim.Optimizer):
        raise InvalidRequest(
            "Expected optimizer to make a torch.optim.Optimizer",
            got=type(made).__name__,
            do="Pass lambda parameters: torch.optim.SGD(parameters, lr=0.5)",
        )


def checked_table(problem: ModuleProblem, data: Any) -> ModuleTable:
    """The rows with the way their gradients are computed, tried on made-up rows of their shapes.

    Errors of PyTorch itself are not repeated: they could show what is in the rows.
    """
    try:
        return problem.table(read_rows(data))
    except ExpostError:
        raise
    except Exception:
        raise InvalidRequest(
            "Expected a model, a loss and rows that fit together: shapes, types, and a loss for each row",
            do="Try the loss of the model on a made-up batch first",
        ) from None
