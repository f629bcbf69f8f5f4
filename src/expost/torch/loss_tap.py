"""A loss that lets its own side see what it was computed from, and knows its derivative."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from expost.core import InvalidRequest

__all__ = ["KnownLabels", "Loss", "LossTap"]

Loss = Callable[[Tensor, Tensor], Tensor]
"""From the model's outputs and the targets of a batch to one loss a row."""

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

    def errors(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The derivatives of the rows' losses by their outputs; the usual one in closed form, which takes a quarter of the time."""
        outputs = outputs.detach()
        if isinstance(self._loss, KnownLabels) and self._loss.is_plain(outputs, targets):
            if self._onlooker is not None:
                self(outputs, targets)
            return self._loss.errors(outputs, targets)
        with torch.enable_grad():
            losses = self(outputs.requires_grad_(), targets)
        return torch.autograd.grad(losses, outputs, torch.ones_like(losses))[0]

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
        self._loss, self._without_settings = loss, _is_without_settings(loss)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if targets.is_floating_point() or targets.dim() != 1:
            return self._loss(outputs, targets)
        # Whether or not there is such a row: a shorter way for batches without one would take another time.
        known = (targets >= 0) & (targets < outputs.shape[1])
        losses = self._loss(outputs, torch.where(known, targets, 0))
        return torch.where(known, losses, 0.0) if losses.shape == known.shape else losses

    def is_plain(self, outputs: Tensor, targets: Tensor) -> bool:
        """Whether this is the cross-entropy of one class number a row, as it is without settings."""
        # Half precision is left to autograd, whose roundings on the way are its own.
        kinds = outputs.dtype in (torch.float32, torch.float64) and not targets.is_floating_point()
        return self._without_settings and kinds and (outputs.dim(), targets.dim()) == (2, 1)

    def errors(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The derivatives of a plain loss: the probability of each class, less one for the right one; zeros if there is none.

        >>> from torch import tensor, zeros
        >>> KnownLabels(nn.CrossEntropyLoss(reduction="none")).errors(zeros(2, 2), tensor([1, 7])).tolist()
        [[0.5, -0.5], [0.0, 0.0]]
        """
        right = (torch.arange(outputs.shape[1], device=outputs.device) == targets[:, None]).to(outputs.dtype)
        return outputs.softmax(1).mul_(right.sum(1, keepdim=True)).sub_(right)


def _is_without_settings(loss: Loss) -> bool:
    if type(loss) is not nn.CrossEntropyLoss:
        return False
    return (loss.weight, loss.ignore_index, loss.label_smoothing, loss.reduction) == (None, -100, 0.0, "none")
