"""What is refused before a training is paid for: models, devices, optimisers and data that do not fit together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, NoReturn

import torch
from torch import nn

from expost.core import ExpostError, InvalidRequest
from expost.core.mask import check_unmasked
from expost.core.rational import rational
from expost.models.descent.schedule import Schedule
from expost.models.descent.watch import Watch
from expost.noise.gaussian_stream import stream_variance
from expost.noise.gaussian_table import gaussian_table
from expost.torch.module_learner import ModuleProblem, ModuleTable
from expost.torch.rows import Rows, TypedRows, read_rows

__all__ = [
    "check_module",
    "check_noise",
    "check_optimizer",
    "checked_call",
    "checked_clip",
    "checked_public",
    "checked_table",
    "chosen_device",
]

_LEAST_CLIP = 1e-12


def check_module(model: Any) -> None:
    """Refuse what cannot be trained; the weights a training starts from are public.

    >>> check_module(nn.Linear(2, 2))
    """
    if not isinstance(model, nn.Module):
        raise InvalidRequest("Expected a torch.nn.Module", got=type(model).__name__, do="Pass a model")
    if any(nn.parameter.is_lazy(part) for part in (*model.parameters(), *model.buffers())):
        raise InvalidRequest(
            "Expected a model whose layers have their sizes", do="Run a lazy model once on made-up rows"
        )
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


def checked_clip(clip: Any) -> float:
    """A length that squares of float32 can tell from zero.

    >>> checked_clip(0.1)
    0.1
    """
    number = float(rational(clip, "clip"))
    if not _LEAST_CLIP <= number <= 1 / _LEAST_CLIP:
        raise InvalidRequest(f"Expected a clip from {_LEAST_CLIP} to {1 / _LEAST_CLIP}", got=clip, do="Scale the loss")
    return number


def check_optimizer(problem: ModuleProblem) -> None:
    """Make an optimiser once, of stand-ins for the weights, to see that it can be made."""
    stand_ins = [nn.Parameter(torch.zeros_like(part)) for part in problem.model.parameters() if part.requires_grad]
    for part in stand_ins:
        part.grad = torch.zeros_like(part)
    try:
        made = problem.optimizer(stand_ins)
        if isinstance(made, torch.optim.Optimizer):
            made.step()  # some need more than gradients
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
            "Expected rows of numbers, all of one shape, and a target for each",
            do="Pass (inputs, targets), a torch.utils.data.Dataset or a DataLoader",
        ) from None


def checked_public(table: ModuleTable, data: Any) -> Rows:
    """Public rows to test a model on, of the shapes and types of the private ones.

    Nothing of them is secret, yet errors of PyTorch are not repeated here either: one way of saying things is enough.
    """
    if isinstance(data, tuple | list):
        check_unmasked(*data)
    try:
        rows = read_rows(data)
        (inputs, targets), (known, classes) = rows.shapes(), table.rows.shapes()
        fit = inputs.shape[1:] == known.shape[1:] and targets.shape == classes.shape
        return TypedRows(rows, known.dtype, classes.dtype) if fit else _refuse_public()
    except Exception:
        _refuse_public()


def _refuse_public() -> NoReturn:
    raise InvalidRequest(
        "Expected public_validation to look like the private rows", do="Pass (inputs, labels) of the same shapes"
    ) from None


def check_noise(table: ModuleTable, schedule: Schedule) -> None:
    """Refuse noise that the lattice has no room for; no row is read."""
    learner = table.learner(slice(None), None)
    for phase in schedule.phases:
        wider = replace(phase, noise_multiplier=phase.noise_multiplier * Watch().factor(2))
        sensitivity = learner.open(wider, float(schedule.batches.expected_size))
        try:
            gaussian_table(stream_variance(Fraction(wider.noise_multiplier), sensitivity))
        except InvalidRequest:
            raise InvalidRequest(
                "Expected a noise multiplier that leaves room for rounding",
                got=float(phase.noise_multiplier),
                do="Raise epsilon, or take fewer steps",
            ) from None
