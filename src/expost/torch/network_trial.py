"""Trial of a model on synthetic rows, before any private row is touched: are rows independent, does nothing of them stay."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from expost.core import ExpostError, InvalidRequest
from expost.torch.loss_tap import NetworkLoss
from expost.torch.row_gradients import ClippedRows, SampledGradients, SummedLayers

__all__ = ["KeptState", "find_example", "find_gradients", "kept_state", "same_state"]

_ROWS = 8  # of an example: enough that they are in no order that a model might bring them into
_TOLERANCE = 1e-3  # of comparisons: far above rounding, far below what mixing rows does
_MANY = 96  # rows of a trial: models may treat short batches otherwise
_HUGE = 1e4
_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))  # that every module has
_PLAIN = (int, float, complex, str, bytes, type(None))
_DEEPEST = 6


def find_example(
    model: nn.Module, loss: NetworkLoss, inputs: Tensor, targets: Tensor
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return a synthetic batch that the model and the loss accept, and the model's outputs; rows differ if possible.

    ``inputs`` and ``targets`` are empty batches. Equal rows would hide that a model mixes them. Integers are tried as 0
    and 1 before 0 alone: they may index a short table, or classes.

    >>> example, outputs = find_example(
    ...     nn.Linear(2, 3), nn.CrossEntropyLoss(reduction="none"), torch.empty(0, 2), torch.empty(0).long())
    >>> example[1].tolist(), tuple(outputs.shape)
    ([0, 1, 0, 1, 0, 1, 0, 1], (8, 3))
    """
    # In evaluation mode: modules that remember rows in training must not remember these.
    with _switch_mode(model, training=False):
        for synthetic in product(_synthetic_batches(inputs), _synthetic_batches(targets)):
            try:
                with torch.no_grad():
                    outputs = model(synthetic[0])
                    loss(outputs, synthetic[1])
            except InvalidRequest:
                raise
            except Exception:
                continue
            return synthetic, outputs
    raise InvalidRequest(
        "Expected a model, a loss and rows that fit together: shapes, types, and a loss for each row",
        do="Try the loss of the model on a synthetic batch first",
    )


def _synthetic_batches(empty: Tensor) -> Iterator[Tensor]:
    """Yield synthetic batches: rows that differ, then zeros."""
    shape = (_ROWS, *empty.shape[1:])
    zeros = torch.zeros(shape, dtype=empty.dtype, device=empty.device)
    if zeros.is_floating_point():
        yield _synthetic_numbers(zeros)
    else:
        turns = torch.arange(_ROWS, device=empty.device).remainder(2)
        yield turns.view(-1, *[1] * (zeros.dim() - 1)).expand(shape).clone()
    yield zeros


def _synthetic_numbers(like: Tensor) -> Tensor:
    """Return numbers from -1 to 1 without any order, shaped like a tensor."""
    return torch.sin(1.7 * torch.arange(like.numel(), device=like.device)).view(like.shape).to(like.dtype)


def find_gradients(model: nn.Module, loss: NetworkLoss, example: tuple[Tensor, Tensor]) -> ClippedRows:
    """Return the fastest correct way to compute clipped gradients, checked against plain ones on synthetic rows.

    ``example`` is a synthetic batch of the right shapes. Refuses models whose rows are not independent (batch
    normalization, missing values filled by a batch's mean), in training and in use, that use a layer twice, that
    remember rows, that fail for rows of missing or huge numbers, or whose gradients come out wrong for any other reason.
    """
    numbers = [(part, part.detach().clone()) for part in (*model.parameters(), *model.buffers())]
    try:
        with _switch_mode(model, training=True):
            gradients = _find_agreeing(model, loss, example)
        changed = not all(torch.equal(now, before) for now, before in numbers)
        # Embeddings with max_norm rescale entries when they are read: that depends on rows, without any noise.
        rescales = any(getattr(module, "max_norm", None) is not None for module in model.modules())
        if gradients is None or changed or rescales:
            raise InvalidRequest(
                "Expected a model whose rows are independent, whose layers see each row once and in its place, and which keeps"
                " nothing of them",
                do="Replace batch normalization by group normalization, share no layers, fold no places into rows, leave max_norm out;"
                " take Opacus's layers (DPLSTM, DPMultiheadAttention) for recurrent ones and for attention",
            )
        for training in (True, False):
            with _switch_mode(model, training=training):
                _check_independence(model, loss, example)
    finally:
        with torch.no_grad():  # synthetic rows leave no trace
            for now, before in numbers:
                now.copy_(before)
    return gradients


def _find_agreeing(model: nn.Module, loss: NetworkLoss, example: tuple[Tensor, Tensor]) -> ClippedRows | None:
    """Return gradients that agree with those taken row by row, for usual rows and rows of very different lengths."""
    inputs, stretched = example[0], example[0]
    if inputs.is_floating_point():
        lengths = torch.tensor([0.3, 5.0, 1.0, 8.0], dtype=inputs.dtype, device=inputs.device)
        stretched = inputs * lengths.repeat(len(inputs))[: len(inputs)].view(-1, *[1] * (inputs.dim() - 1))
    try:
        found = SummedLayers(model, loss) if SummedLayers.supports_model(model) else SampledGradients(model, loss)
        agrees = all(_agrees_rowwise(found, model, loss, rows, example[1]) for rows in (inputs, stretched))
    except ExpostError:
        raise
    except Exception:
        return None  # such as batch normalization of a single row; the rows are synthetic, so the message is not needed
    return found if agrees else None


def _agrees_rowwise(ours: ClippedRows, model: nn.Module, loss: NetworkLoss, inputs: Tensor, targets: Tensor) -> bool:
    """Return whether clipped sums equal those of gradients taken one row at a time."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    expected = []
    for place in range(len(inputs)):
        value = loss(model(inputs[place : place + 1]), targets[place : place + 1]).sum()
        found = torch.autograd.grad(value, parameters, allow_unused=True)
        flat = [
            torch.zeros_like(parameter) if grad is None else grad
            for parameter, grad in zip(parameters, found, strict=True)
        ]
        row = torch.cat([grad.reshape(-1) for grad in flat]).double().cpu()
        expected.append(row if bool(row.isfinite().all()) else torch.zeros_like(row))  # such a row contributes zero
    longest = max(float(row.norm()) for row in expected)
    total = ours.total(inputs, targets, longest / 2).cpu()
    limits = [min(1.0, longest / 2 / max(float(row.norm()), 1e-300)) for row in expected]
    clipped = torch.stack([row * limit for row, limit in zip(expected, limits, strict=True)])
    # Compared with the sum of norms: rows may cancel each other, their errors do not.
    return float((total - clipped.sum(0)).norm()) <= _TOLERANCE * float(clipped.norm(dim=1).sum()) + 1e-12


def _check_independence(model: nn.Module, loss: NetworkLoss, example: tuple[Tensor, Tensor]) -> None:
    """Raise unless the losses of all rows but the first ignore what the first is and whether it is there."""
    targets = _repeat_rows(example[1])
    for inputs in _trial_batches(_repeat_rows(example[0])):
        losses = _row_losses(model, loss, inputs, targets)
        before, chance = kept_state(model), torch.get_rng_state()
        floating = inputs.is_floating_point()
        firsts = (-_HUGE * inputs[3], inputs[3] * torch.nan, inputs[3] * 0) if floating else (inputs[3], inputs[4])
        others = [_row_losses(model, loss, torch.cat([row[None], inputs[1:]]), targets)[1:] for row in firsts]
        others.append(_row_losses(model, loss, inputs[1:], targets[1:]))
        alike = all(_all_close(losses[1:], found) for found in others)
        if not alike or not _all_close(losses[1:4], _row_losses(model, loss, inputs[1:4], targets[1:4])):
            raise InvalidRequest(
                "Expected a model and a loss whose rows are independent, whatever is in them",
                do="Take no numbers from a whole batch, such as its mean or its largest value",
            )
        if not torch.equal(chance, torch.get_rng_state()):
            raise InvalidRequest(
                "Expected a model that draws nothing at random but in dropout layers",
                do="Use nn.Dropout instead of functions, and leave augmentations out",
            )
        if not same_state(before, kept_state(model)):
            raise InvalidRequest(
                "Expected a model that keeps nothing of the rows it sees",
                do="Do not store inputs or activations in its attributes: they would leave with it",
            )


def _row_losses(model: nn.Module, loss: NetworkLoss, inputs: Tensor, targets: Tensor) -> Tensor:
    try:
        with torch.no_grad():
            return loss(model(inputs), targets).double()
    except InvalidRequest:
        raise
    except Exception:
        raise InvalidRequest(
            "Expected a model and a loss that accept any number of rows, and rows of missing or huge numbers",
            do="Return anything for such rows, which contribute zero: an exception would reveal them",
        ) from None


def _all_close(found: Tensor, expected: Tensor) -> bool:
    return bool(torch.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True))


def _trial_batches(usual: Tensor) -> Iterator[Tensor]:
    """Yield synthetic batches: usual rows, then some rows of missing and huge numbers, if rows are numbers."""
    if not usual.is_floating_point():
        yield usual
        return
    usual = _synthetic_numbers(usual)
    yield usual
    odd = usual.clone()
    odd[1].view(-1)[::2] = torch.nan
    odd[2] *= _HUGE
    yield odd


def _repeat_rows(example: Tensor) -> Tensor:
    return example.repeat(-(-_MANY // len(example)), *[1] * (example.dim() - 1))[:_MANY]


@contextmanager
def _switch_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Put the model in training or evaluation mode, with dropout alone switched off, during this context."""
    modes = [(module, module.training) for module in model.modules()]
    model.train(training)
    for module, _ in modes:
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@dataclass(frozen=True)
class KeptState:
    """One thing that a model keeps besides its parameters. Tensors and arrays that change in place change their version."""

    value: Any
    version: Any

    def is_same(self, other: KeptState) -> bool:
        """Return whether the thing was neither replaced nor written to."""
        if isinstance(self.value, _PLAIN) and type(self.value) is type(other.value):
            return repr(self.value) == repr(other.value)  # NaN equals NaN
        return self.value is other.value and bool(self.version == other.version)


def kept_state(model: nn.Module) -> list[KeptState]:
    """Return everything in the attributes of a model's modules, and its buffers: there rows could leave with it.

    >>> model = nn.Linear(2, 2)
    >>> before = kept_state(model)
    >>> model.seen = [1.0]
    >>> same_state(before, kept_state(model))
    False
    """
    attributes = [
        value for module in model.modules() for name, value in vars(module).items() if name not in _MODULE_ATTRIBUTES
    ]
    return [kept for value in (*attributes, *model.buffers()) for kept in _walk_parts(value, _DEEPEST)]


def same_state(before: list[KeptState], after: list[KeptState]) -> bool:
    """Return whether a model keeps what it kept before, and nothing else."""
    return len(before) == len(after) and all(a.is_same(b) for a, b in zip(before, after, strict=True))


def _walk_parts(value: Any, depth: int) -> Iterator[KeptState]:
    """Yield a thing and its parts, down to a depth."""
    version = (
        value._version if isinstance(value, Tensor) else value.tobytes() if isinstance(value, np.ndarray) else None
    )
    yield KeptState(value, version)
    if not depth or isinstance(value, (*_PLAIN, Tensor, np.ndarray, nn.Module, type)):
        return
    parts: Collection[Any]
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, Collection):
        parts = value
    else:
        parts = getattr(value, "__dict__", {}).values()
    for part in parts:
        yield from _walk_parts(part, depth - 1)
