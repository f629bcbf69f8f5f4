"""A model on trial: whether rows are independent in it and nothing of them stays, before any private row is touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from expost.core import ExpostError, InvalidRequest
from expost.torch.kept import kept_by, same_kept
from expost.torch.loss_tap import Loss
from expost.torch.row_gradients import ClippedRows, SampledGradients, SummedLayers

__all__ = ["clipped_rows"]

_TOLERANCE = 1e-3  # of comparisons: far above rounding, far below what mixing rows does
_MANY = 96  # rows of a trial: models may treat short batches otherwise
_HUGE = 1e4


def clipped_rows(model: nn.Module, loss: Loss, example: tuple[Tensor, Tensor]) -> ClippedRows:
    """The fastest way that is right for this model, checked against plain gradients on made-up rows.

    ``example`` is a made-up batch of the right shapes. It refuses models whose rows are not independent (batch
    normalisation, missing values filled by a batch's mean), in training and in use, that use a layer twice, that
    remember rows, that do not bear rows of missing or huge numbers, or that this way would get wrong for any other reason.
    """
    numbers = [(part, part.detach().clone()) for part in (*model.parameters(), *model.buffers())]
    try:
        with _training(model, True):
            right = _is_right(model, loss, example)
        if right is None or not all(torch.equal(now, before) for now, before in numbers) or _renormalises(model):
            raise InvalidRequest(
                "Expected a model whose rows are independent, whose layers see each row once and in its place, and which keeps"
                " nothing of them",
                do="Replace batch normalisation by group normalisation, share no layers, fold no places into rows, leave max_norm out;"
                " take Opacus's layers (DPLSTM, DPMultiheadAttention) for recurrent ones and for attention",
            )
        for training in (True, False):
            with _training(model, training):
                _check_alone(model, loss, example)
    finally:
        with torch.no_grad():  # made-up rows leave no trace
            for now, before in numbers:
                now.copy_(before)
    return right


def _renormalises(model: nn.Module) -> bool:
    """Whether looking a row up changes the table: by how long the row's entries are, without any noise."""
    return any(getattr(module, "max_norm", None) is not None for module in model.modules())


def _is_right(model: nn.Module, loss: Loss, example: tuple[Tensor, Tensor]) -> ClippedRows | None:
    """A way that agrees with gradients taken row by row: of usual rows, and of rows of very different lengths."""
    found: ClippedRows | None = None
    try:
        found = SummedLayers(model, loss) if SummedLayers.supports(model) else SampledGradients(model, loss)
        agrees = all(_agrees(found, model, loss, inputs, example[1]) for inputs in (example[0], _stretched(example[0])))
    except ExpostError:
        raise
    except Exception:
        return None  # such as batch normalisation of a single row; the rows are made up, so the message is not needed
    return found if agrees else None


def _agrees(ours: ClippedRows, model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> bool:
    expected, longest = _row_by_row(model, loss, inputs, targets)
    total = ours.total(inputs, targets, longest / 2).cpu()
    limits = [min(1.0, longest / 2 / max(float(row.norm()), 1e-300)) for row in expected]
    clipped = torch.stack([row * limit for row, limit in zip(expected, limits, strict=True)])
    # Rows may cancel each other, their errors do not.
    return float((total - clipped.sum(0)).norm()) <= _TOLERANCE * float(clipped.norm(dim=1).sum()) + 1e-12


def _stretched(example: Tensor) -> Tensor:
    if not example.is_floating_point():
        return example
    lengths = torch.tensor([0.3, 5.0, 1.0, 8.0], dtype=example.dtype, device=example.device)
    return example * lengths.repeat(len(example))[: len(example)].view(-1, *[1] * (example.dim() - 1))


def _row_by_row(model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> tuple[list[Tensor], float]:
    """Gradients one row at a time, and the longest of their norms."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rows = []
    for place in range(len(inputs)):
        value = loss(model(inputs[place : place + 1]), targets[place : place + 1]).sum()
        found = torch.autograd.grad(value, parameters, allow_unused=True)
        flat = [
            torch.zeros_like(parameter) if grad is None else grad
            for parameter, grad in zip(parameters, found, strict=True)
        ]
        row = torch.cat([grad.reshape(-1) for grad in flat]).double().cpu()
        rows.append(row if bool(row.isfinite().all()) else torch.zeros_like(row))  # it counts for nothing
    return rows, max(float(row.norm()) for row in rows)


def _check_alone(model: nn.Module, loss: Loss, example: tuple[Tensor, Tensor]) -> None:
    """The losses of all rows but the first must not care what the first is, or whether it is there."""
    targets = _repeated(example[1])
    for inputs in _batches(example[0]):
        losses = _losses(model, loss, inputs, targets)
        before, chance = kept_by(model), torch.get_rng_state()
        others = [_losses(model, loss, changed, targets)[1:] for changed in _changed(inputs)]
        others.append(_losses(model, loss, inputs[1:], targets[1:]))
        alike = all(_close(losses[1:], found) for found in others)
        if not alike or not _close(losses[1:4], _losses(model, loss, inputs[1:4], targets[1:4])):
            raise InvalidRequest(
                "Expected a model and a loss whose rows are independent, whatever is in them",
                do="Take no numbers from a whole batch, such as its mean or its largest value",
            )
        if not torch.equal(chance, torch.get_rng_state()):
            raise InvalidRequest(
                "Expected a model that draws nothing at random but in dropout layers",
                do="Use nn.Dropout instead of functions, and leave augmentations out",
            )
        if not same_kept(before, kept_by(model)):
            raise InvalidRequest(
                "Expected a model that keeps nothing of the rows it sees",
                do="Do not store inputs or activations in its attributes: they would leave with it",
            )


def _losses(model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> Tensor:
    try:
        with torch.no_grad():
            return loss(model(inputs), targets).double()
    except InvalidRequest:
        raise
    except Exception:
        raise InvalidRequest(
            "Expected a model and a loss that bear any number of rows, and rows of missing or huge numbers",
            do="Let them answer anything for such rows, which count for nothing: one that stops the training is told by that",
        ) from None


def _close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)


def _batches(example: Tensor) -> Iterator[Tensor]:
    """Made-up batches: usual rows, and among them rows of missing and huge numbers, if rows are of numbers."""
    usual = _repeated(example)
    if not usual.is_floating_point():
        yield usual
        return
    usual = torch.sin(1.7 * torch.arange(usual.numel(), device=usual.device)).view(usual.shape).to(usual.dtype)
    yield usual
    odd = usual.clone()
    odd[1].view(-1)[::2] = torch.nan
    odd[2] *= _HUGE
    yield odd


def _changed(inputs: Tensor) -> Iterator[Tensor]:
    """The batch with other first rows."""
    floating = inputs.is_floating_point()
    for row in (-_HUGE * inputs[3], inputs[3] * torch.nan, inputs[3] * 0) if floating else (inputs[3], inputs[4]):
        yield torch.cat([row[None], inputs[1:]])


def _repeated(example: Tensor) -> Tensor:
    return example.repeat(-(-_MANY // len(example)), *[1] * (example.dim() - 1))[:_MANY]


@contextmanager
def _training(model: nn.Module, training: bool) -> Iterator[None]:
    """The model in training or in use, with dropout alone switched off."""
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
