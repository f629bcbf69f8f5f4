"""A loss that lets its own side see what it was computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from expost.core import InvalidRequest
from expost.torch.row_gradients import Loss

__all__ = ["KnownLabels", "LossTap"]

Onlooker = Callable[[Tensor, Tensor, Tensor], None]


class LossTap:
    """The same loss; outputs, targets and losses are shown to an onlooker who keeps them sealed.

    So what is watched needs no second pass through the model.

    >>> import torch
    >>> tap, seen = LossTap(lambda outputs, targets: outputs.sum(1)), []
    >>> with tap.shown_to(lambda outputs, targets, losses: seen.append(losses.tolist())):
    ...     _ = tap(torch.ones(2, 3), torch.zeros(2))
    >>> seen
    [[3.0, 3.0]]
    """

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        self._onlooker: Onlooker | None = None

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = self._loss(outputs, targets)
        if losses.shape != outputs.shape[:1]:
            raise InvalidRequest("Expected one loss a row", do='Pass a loss without reduction: reduction="none"')
        if self._onlooker is not None:
            self._onlooker(outputs.detach(), targets, losses.detach())
        return losses

    @contextmanager
    def shown_to(self, onlooker: Onlooker | None) -> Iterator[None]:
        """While this lasts, what the loss sees is shown, if somebody looks on."""
        self._onlooker = onlooker
        try:
            yield
        finally:
            self._onlooker = None


class KnownLabels:
    """A loss of class numbers in which a row whose label is no class counts for nothing, instead of stopping the training.

    >>> from torch import nn, tensor, zeros
    >>> KnownLabels(nn.CrossEntropyLoss(reduction="none"))(zeros(2, 3), tensor([1, 7])).tolist()
    [1.0986123085021973, 0.0]
    """

    def __init__(self, loss: Loss) -> None:
        self._loss = loss

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if targets.is_floating_point() or targets.dim() != 1:
            return self._loss(outputs, targets)
        # Whether or not there is such a row: a shorter way for batches without one would take another time.
        known = (targets >= 0) & (targets < outputs.shape[1])
        losses = self._loss(outputs, torch.where(known, targets, 0))
        return torch.where(known, losses, 0.0) if losses.shape == known.shape else losses
