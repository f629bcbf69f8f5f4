"""The rows of a data set for a network, by index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from expost.core import InvalidRequest, SingleOwner
from expost.core.argument import check_unmasked
from expost.torch.model_inputs import ModelInputs, SeveralInputs, input_parts, map_inputs, pack_inputs, read_inputs

__all__ = ["Batch", "NetworkRows", "TensorRows", "TypedRows", "read_rows"]

Batch = tuple[ModelInputs, Tensor]


class NetworkRows(Protocol):
    """Inputs and targets of numbered rows, which are private."""

    def __len__(self) -> int: ...

    def take_rows(self, index: NDArray[np.intp], *, spare: int = 0) -> Batch:
        """Return some rows, followed by space for ``spare`` more; no rows make a batch of length zero."""

    def empty_batch(self) -> Batch:
        """Return an empty batch, which has shapes and types only."""


class TensorRows(SingleOwner):
    """Rows held as tensors: of the inputs, one or several, and of the targets."""

    _owned_noun: ClassVar[str] = "table of private rows"

    def __init__(self, inputs: ModelInputs, targets: Tensor) -> None:
        super().__init__()
        if len(inputs) != len(targets):
            raise InvalidRequest("Expected one target for each row", do="Pass tensors of equal length")
        self._inputs, self._targets = map_inputs(Tensor.detach, inputs), targets.detach()

    def __len__(self) -> int:
        return len(self._targets)

    def take_rows(self, index: NDArray[np.intp], *, spare: int = 0) -> Batch:
        chosen = torch.from_numpy(np.ascontiguousarray(index))
        taken = []
        for part in (*input_parts(self._inputs), self._targets):
            found = part.new_empty(len(chosen) + spare, *part.shape[1:])
            torch.index_select(part, 0, chosen.to(part.device), out=found[: len(chosen)])
            taken.append(found)
        return pack_inputs(taken[:-1], self._inputs), taken[-1]

    def empty_batch(self) -> Batch:
        return self._inputs[:0], self._targets[:0]

    def __repr__(self) -> str:
        return "<rows of a private table>"


class DatasetRows:
    """Rows of a map-style data set, fetched one by one and joined by a collate function."""

    def __init__(self, dataset: Any, collate: Any) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise InvalidRequest("Expected a data set with numbered rows", do="Pass tensors or a map-style Dataset")
        self._dataset, self._collate = dataset, collate
        self._empty: Batch | None = None

    def __len__(self) -> int:
        return len(self._dataset)

    def take_rows(self, index: NDArray[np.intp], *, spare: int = 0) -> Batch:
        inputs, targets = self._join_rows(index) if len(index) else self.empty_batch()

        def lengthen(part: Tensor) -> Tensor:
            return torch.cat([part, part.new_empty(spare, *part.shape[1:])])

        return map_inputs(lengthen, inputs), lengthen(targets)

    def empty_batch(self) -> Batch:
        if self._empty is None:
            inputs, targets = self._join_rows(np.zeros(1, np.intp))
            self._empty = inputs[:0], targets[:0]
        return self._empty

    def _join_rows(self, index: NDArray[np.intp]) -> Batch:
        return _split_targets(self._collate([self._dataset[int(place)] for place in index]))

    def __repr__(self) -> str:
        return "<rows of a private data set>"


class TypedRows:
    """Rows converted to the types of an empty batch.

    >>> wanted = (torch.ones(0, 2), torch.ones(0).long())
    >>> rows = TypedRows(TensorRows(torch.ones(3, 2).long(), torch.ones(3)), wanted)
    >>> [part.dtype for part in rows.take_rows(np.arange(2))]
    [torch.float32, torch.int64]
    """

    def __init__(self, rows: NetworkRows, like: Batch) -> None:
        self._rows, self._like = rows, like

    def __len__(self) -> int:
        return len(self._rows)

    def take_rows(self, index: NDArray[np.intp], *, spare: int = 0) -> Batch:
        inputs, targets = self._rows.take_rows(index, spare=spare)
        typed = map_inputs(lambda part, like: part.to(like.dtype), inputs, self._like[0])
        return typed, targets.to(self._like[1].dtype)

    def empty_batch(self) -> Batch:
        return self.take_rows(np.arange(0))


def read_rows(data: Any) -> NetworkRows:
    """Read a pair of arrays or tensors, a ``Dataset``, or a ``DataLoader``, whose own sampler is not used.

    Several inputs are a tuple, or a mapping from the names of the model's arguments. The last entry of a data set's row is
    its target, the others are its inputs.
    """
    if isinstance(data, DataLoader | Dataset):
        dataset, collate = (data.dataset, data.collate_fn) if isinstance(data, DataLoader) else (data, None)
        collate = default_collate if collate is None else collate
        if isinstance(dataset, TensorDataset) and len(dataset.tensors) >= 2 and collate is default_collate:
            return TensorRows(*_split_targets(dataset.tensors))
        return DatasetRows(dataset, collate)
    if isinstance(data, tuple | list) and len(data) == 2:
        inputs, targets = data
        if isinstance(inputs, Mapping):
            return TensorRows(
                SeveralInputs([*map(_to_tensor, inputs.values())], [*map(str, inputs)]), _to_tensor(targets)
            )
        if isinstance(inputs, tuple) and inputs and all(isinstance(part, Tensor | np.ndarray) for part in inputs):
            return TensorRows(SeveralInputs([*map(_to_tensor, inputs)]), _to_tensor(targets))
        return TensorRows(_to_tensor(inputs), _to_tensor(targets))
    raise InvalidRequest(
        "Expected (inputs, targets), a torch.utils.data.Dataset or a DataLoader",
        do="Pass one of them; several inputs are a tuple or a dictionary: ((one, two), targets)",
    )


def _to_tensor(part: Any) -> Tensor:
    check_unmasked(part)
    if isinstance(part, list | tuple):
        # The type of a list follows from its values: one odd cell would decide whether the table is refused.
        raise InvalidRequest("Expected arrays or tensors", got="lists", do="Pass numpy.array(values, dtype=float)")
    return part if isinstance(part, Tensor) else torch.as_tensor(np.asarray(part))


def _split_targets(found: Any) -> Batch:
    """Return the inputs and the targets of a collated batch."""
    if not isinstance(found, tuple | list) or len(found) < 2 or not isinstance(found[-1], Tensor):
        raise InvalidRequest("Expected rows of inputs and a target", do="Let the data set return (inputs, target)")
    return read_inputs(found[0] if len(found) == 2 else tuple(found[:-1])), found[-1]
