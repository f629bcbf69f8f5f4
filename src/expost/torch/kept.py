"""What a model keeps besides its parameters: attributes and buffers, in which rows could leave with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

__all__ = ["Kept", "kept_by", "same_kept"]

_PYTORCHS = frozenset(vars(nn.Module()))  # attributes that every module has
_PLAIN = (int, float, complex, str, bytes, type(None))
_DEEPEST = 6


@dataclass(frozen=True)
class Kept:
    """One thing that a model keeps; tensors and arrays may change in place, which shows in their version."""

    value: Any
    version: Any

    def same(self, other: Kept) -> bool:
        """Whether nothing was put in its place, or written into it."""
        if isinstance(self.value, _PLAIN) and type(self.value) is type(other.value):
            return repr(self.value) == repr(other.value)  # nan is nan
        return self.value is other.value and bool(self.version == other.version)


def kept_by(model: nn.Module) -> list[Kept]:
    """Everything at hand in the attributes of a model's modules, and its buffers.

    >>> model = nn.Linear(2, 2)
    >>> before = kept_by(model)
    >>> model.seen = [1.0]
    >>> same_kept(before, kept_by(model))
    False
    """
    attributes = [value for module in model.modules() for name, value in vars(module).items() if name not in _PYTORCHS]
    return [kept for value in (*attributes, *model.buffers()) for kept in _walked(value, _DEEPEST)]


def same_kept(before: list[Kept], after: list[Kept]) -> bool:
    """Whether a model keeps what it kept before, and nothing else."""
    return len(before) == len(after) and all(a.same(b) for a, b in zip(before, after, strict=True))


def _walked(value: Any, depth: int) -> Iterator[Kept]:
    yield Kept(value, _version(value))
    if not depth or isinstance(value, (*_PLAIN, Tensor, np.ndarray, nn.Module, type)):
        return
    for part in _parts(value):
        yield from _walked(part, depth - 1)


def _version(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value._version
    return value.tobytes() if isinstance(value, np.ndarray) else None


def _parts(value: Any) -> Collection[Any]:
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, Collection):
        return value
    return getattr(value, "__dict__", {}).values()
