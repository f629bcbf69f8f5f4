"""Losses of networks: one per row, with known derivatives, and visible to what counts metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from expost.core import InvalidRequest

__all__ = ["KnownLabels", "LossTap", "NetworkLoss"]

NetworkLoss = Callable[[Any, Tensor], Tensor]
"""Maps the model's outputs and the targets of a batch to one loss per row, or several, of which the mean counts."""

Observer = Callable[[Tensor, Tensor, Tensor], None]


class LossTap:
    """A loss that shows outputs, targets and losses to an observer, which keeps them sealed.

    So metrics need no second pass through the model.

    >>> import torch
    >>> tap, seen = LossTap(lambda outputs, targets: outputs.sum(1)), []
    >>> with tap.shown_to(lambda outputs, targets, losses: seen.append(losses.tolist())):
    ...     _ = tap(torch.ones(2, 3), torch.zeros(2))
    >>> seen
    [[3.0, 3.0]]
    """

    def __init__(self, loss: NetworkLoss) -> None:
        self._loss = loss
        self._observer: Observer | None = None

    def __call__(self, outputs: Any, targets: Tensor) -> Tensor:
        losses = self.row_losses(outputs, targets)
        self.show_rows(outputs, targets, losses)
        return losses

    def row_losses(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the losses without showing them; of several losses of a row, as of an image's pixels, the mean."""
        losses = self._loss(outputs, targets)
        if losses.dim() == 0 or len(losses) != len(targets):
            raise InvalidRequest("Expected one loss per row", do='Pass a loss without reduction: reduction="none"')
        return losses if losses.dim() == 1 else losses.flatten(1).mean(1)

    def show_rows(self, outputs: Any, targets: Tensor, losses: Tensor) -> None:
        """Show outputs, targets and losses to the observer, if there is one."""
        if self._observer is not None:
            self._observer(outputs.detach(), targets, losses.detach())

    def output_errors(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the derivatives of the rows' losses by their outputs.

        Plain cross-entropy is differentiated in closed form, which takes a quarter of the time of autograd.
        """
        outputs = outputs.detach()
        if isinstance(self._loss, KnownLabels) and self._loss.is_plain(outputs, targets):
            if self._observer is not None:
                self(outputs, targets)
            return self._loss.output_errors(outputs, targets)
        with torch.enable_grad():
            losses = self(outputs.requires_grad_(), targets)
        return torch.autograd.grad(losses, outputs, torch.ones_like(losses))[0]

    @contextmanager
    def shown_to(self, observer: Observer | None) -> Iterator[None]:
        """Show what the loss sees to an observer, if there is one, during this context."""
        self._observer = observer
        try:
            yield
        finally:
            self._observer = None


class KnownLabels:
    """A loss of class indices in which a row with an unknown label contributes zero instead of raising.

    Raising would reveal that such a row exists.

    >>> from torch import nn, tensor, zeros
    >>> KnownLabels(nn.CrossEntropyLoss(reduction="none"))(zeros(2, 3), tensor([1, 7])).tolist()
    [1.0986123085021973, 0.0]
    """

    def __init__(self, loss: NetworkLoss) -> None:
        self._loss = loss
        entropy: Any = loss
        self._has_defaults = type(loss) is nn.CrossEntropyLoss and (
            (entropy.weight, entropy.ignore_index, entropy.label_smoothing, entropy.reduction)
            == (None, -100, 0.0, "none")
        )

    @property
    def inner(self) -> NetworkLoss:
        return self._loss

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if targets.is_floating_point() or targets.dim() != outputs.dim() - 1:
            return self._loss(outputs, targets)
        # The same operations whether or not there is such a row: a shortcut would show in the running time.
        known = (targets >= 0) & (targets < outputs.shape[1])
        losses = self._loss(outputs, torch.where(known, targets, 0))
        return torch.where(known, losses, 0.0) if losses.shape == known.shape else losses

    def is_plain(self, outputs: Tensor, targets: Tensor) -> bool:
        """Return whether this is cross-entropy with default settings of one class index per row."""
        # Half precision is left to autograd, whose intermediate roundings differ.
        kinds = outputs.dtype in (torch.float32, torch.float64) and not targets.is_floating_point()
        return self._has_defaults and kinds and (outputs.dim(), targets.dim()) == (2, 1)

    def output_errors(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the derivatives of a plain loss: probabilities minus the indicator of the label; zeros if it is unknown.

        >>> from torch import tensor, zeros
        >>> KnownLabels(nn.CrossEntropyLoss(reduction="none")).output_errors(zeros(2, 2), tensor([1, 7])).tolist()
        [[0.5, -0.5], [0.0, 0.0]]
        """
        right = (torch.arange(outputs.shape[1], device=outputs.device) == targets[:, None]).to(outputs.dtype)
        return outputs.softmax(1).mul_(right.sum(1, keepdim=True)).sub_(right)
