"""Per-sample gradients of unusual layers, from Opacus."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from expost.core import MissingExtra

try:
    from opacus.grad_sample import GradSampleModule
except ModuleNotFoundError:
    raise MissingExtra("torch", package="opacus") from None

__all__ = ["per_sample"]

_TERMS = {"batch_first": True, "loss_reduction": "sum"}  # the loss is a sum over rows, so nothing is rescaled


@contextmanager
def per_sample(model: nn.Module) -> Iterator[Any]:
    """The model with hooks that keep a gradient a row, for a while."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")  # the first layer's input needs none
        wrapped = GradSampleModule(model, **_TERMS)
        try:
            yield wrapped
        finally:
            wrapped._close()
