"""Made-up rows of given shapes, on which a model is tried before any private row is touched."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor, nn

from expost.core import InvalidRequest
from expost.torch.loss_tap import Loss

__all__ = ["made_up_numbers", "tried"]

_ROWS = 8  # enough that they are in no order that a model might bring them into


def tried(model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """A made-up batch that the model and the loss bear, with the model's outputs; rows differ if at all possible.

    ``inputs`` and ``targets`` are empty batches. Rows that are all alike would hide that a model mixes them. Whole
    numbers are tried as 0 and 1 before 0 alone: they may name entries of a short table, or classes.

    >>> example, outputs = tried(nn.Linear(2, 3), nn.CrossEntropyLoss(reduction="none"), torch.empty(0, 2), torch.empty(0).long())
    >>> example[1].tolist(), tuple(outputs.shape)
    ([0, 1, 0, 1, 0, 1, 0, 1], (8, 3))
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()  # what remembers rows in training must not remember these
    try:
        for made_up in product(_candidates(inputs), _candidates(targets)):
            try:
                with torch.no_grad():
                    outputs = model(made_up[0])
                    loss(outputs, made_up[1])
            except InvalidRequest:
                raise
            except Exception:
                continue
            return made_up, outputs
    finally:
        for module, mode in modes:
            module.training = mode
    raise InvalidRequest(
        "Expected a model, a loss and rows that fit together: shapes, types, and a loss for each row",
        do="Try the loss of the model on a made-up batch first",
    )


def made_up_numbers(like: Tensor) -> Tensor:
    """Numbers from -1 to 1 without any order.

    >>> [round(number, 1) for number in made_up_numbers(torch.zeros(5)).tolist()]
    [0.0, 1.0, -0.3, -0.9, 0.5]
    """
    return torch.sin(1.7 * torch.arange(like.numel(), device=like.device)).view(like.shape).to(like.dtype)


def _candidates(empty: Tensor) -> Iterator[Tensor]:
    shape = (_ROWS, *empty.shape[1:])
    zeros = torch.zeros(shape, dtype=empty.dtype, device=empty.device)
    if zeros.is_floating_point():
        yield made_up_numbers(zeros)
    else:
        yield (
            torch.arange(_ROWS, device=empty.device)
            .remainder(2)
            .view(-1, *[1] * (zeros.dim() - 1))
            .expand(shape)
            .clone()
        )
    yield zeros
