"""Rows that name entries which a model's tables do not have."""

from __future__ import annotations

from typing import Any

from torch import nn

__all__ = ["with_known_entries"]


def with_known_entries(model: nn.Module) -> nn.Module:
    """The model, in which an entry that an embedding does not have stands for its last or first one from now on.

    PyTorch would stop, and so tell that such a row is there.

    >>> import torch
    >>> table = with_known_entries(nn.Embedding(3, 2))
    >>> bool((table(torch.tensor([7])) == table(torch.tensor([2]))).all())
    True
    """
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.register_forward_pre_hook(_bounded)
    return model


def _bounded(module: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    return (given[0].clamp(0, module.num_embeddings - 1), *given[1:])
