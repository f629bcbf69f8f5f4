"""Inputs of a model: one tensor, several in a row, or several by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from expost.core import InvalidRequest

__all__ = ["ModelInputs", "SeveralInputs", "call_model", "input_parts", "map_inputs", "pack_inputs", "read_inputs"]


class SeveralInputs:
    """Several tensors with one entry per row each, which a model takes as arguments, or by name.

    >>> rows = SeveralInputs((torch.ones(3, 2), torch.zeros(3)))
    >>> len(rows), len(rows[:2]), rows.device
    (3, 2, device(type='cpu'))
    """

    def __init__(self, parts: Sequence[Tensor], names: Sequence[str] | None = None) -> None:
        if not parts or any(part.dim() == 0 or len(part) != len(parts[0]) for part in parts):
            raise InvalidRequest("Expected inputs of equal length", do="Pass one entry per row in each of them")
        self.parts = tuple(parts)
        self.names = None if names is None else tuple(names)

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, rows: Any) -> SeveralInputs:
        return SeveralInputs([part[rows] for part in self.parts], self.names)

    @property
    def device(self) -> torch.device:
        return self.parts[0].device

    def __repr__(self) -> str:
        return "<several inputs of private rows>"


ModelInputs = Tensor | SeveralInputs
"""What a model is given for a batch."""


def input_parts(inputs: ModelInputs) -> tuple[Tensor, ...]:
    """Return the tensors of a batch's inputs."""
    return inputs.parts if isinstance(inputs, SeveralInputs) else (inputs,)


def pack_inputs(parts: Sequence[Tensor], like: ModelInputs) -> ModelInputs:
    """Return tensors in the form of other inputs."""
    return SeveralInputs(parts, like.names) if isinstance(like, SeveralInputs) else parts[0]


def map_inputs(change: Callable[..., Tensor], *inputs: ModelInputs) -> ModelInputs:
    """Return the inputs after a change of each tensor; of several inputs, tensors of the same place go together.

    >>> map_inputs(torch.add, torch.ones(2), torch.ones(2)).tolist()
    [2.0, 2.0]
    """
    places = zip(*(input_parts(each) for each in inputs), strict=True)
    return pack_inputs([change(*parts) for parts in places], inputs[0])


def call_model(model: Callable[..., Any], inputs: ModelInputs) -> Any:
    """Return the outputs of a model for a batch; of an object or a mapping with ``logits``, those.

    >>> call_model(lambda left, right: left - right, SeveralInputs((torch.ones(1), torch.ones(1)), ("left", "right")))
    tensor([0.])
    """
    if not isinstance(inputs, SeveralInputs):
        outputs = model(inputs)
    elif inputs.names is None:
        outputs = model(*inputs.parts)
    else:
        outputs = model(**dict(zip(inputs.names, inputs.parts, strict=True)))
    if isinstance(outputs, Mapping):
        return outputs.get("logits", outputs)
    return outputs if isinstance(outputs, Tensor) else getattr(outputs, "logits", outputs)


def read_inputs(given: Any) -> ModelInputs:
    """Return inputs as they came from a caller or a collate function: a tensor, a sequence or a mapping of tensors."""
    if isinstance(given, Tensor | SeveralInputs):
        return given
    if isinstance(given, Mapping) and given and all(isinstance(part, Tensor) for part in given.values()):
        return SeveralInputs([*given.values()], [*map(str, given)])
    if isinstance(given, tuple | list) and given and all(isinstance(part, Tensor) for part in given):
        return SeveralInputs(given)
    raise InvalidRequest(
        "Expected inputs to be a tensor, several in a tuple, or several by name",
        got=type(given).__name__,
        do="Pass (inputs, targets), ((one, two), targets) or ({'one': one, 'two': two}, targets)",
    )
