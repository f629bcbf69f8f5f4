"""Rows that name entries which a model's tables do not have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

__all__ = ["known_entries"]


@contextmanager
def known_entries(model: nn.Module) -> Iterator[None]:
    """For a while, an entry that an embedding does not have stands for its last or first one.

    PyTorch would stop, and so tell that such a row is there.

    >>> import torch
    >>> table = nn.Embedding(3, 2)
    >>> with known_entries(table):
    ...     bool((table(torch.tensor([7])) == table(torch.tensor([2]))).all())
    True
    """
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)]
    handles = [table.register_forward_pre_hook(_bounded) for table in tables]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _bounded(module: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    return (given[0].clamp(0, module.num_embeddings - 1), *given[1:])
