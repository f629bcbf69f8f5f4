"""The rows of a data set for a network, by index."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from expost.core import InvalidRequest, SingleOwner
from expost.core.argument import check_unmasked

__all__ = ["Batch", "NetworkRows", "TensorRows", "TypedRows", "read_rows"]

Batch = tuple[Tensor, Tensor]


class NetworkRows(Protocol):
    """Inputs and targets of numbered rows, which are private."""

    def __len__(self) -> int: ...

    def take_rows(self, index: NDArray[np.intp], *, spare: int = 0) -> Batch:
        """Return some rows, followed by space for ``spare`` more; no rows make a batch of length zero."""

    def empty_batch(self) -> Batch:
        """Return an empty batch, which has shapes and types only."""


class TensorRows(SingleOwner):
    """Rows held as two tensors."""

    _owned_noun: ClassVar[str] = "table of private rows"

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        super().__init__()
        if len(inputs) != len(targets):
            raise InvalidRequest("Expected one target for each row", do="Pass tensors of equal length")
        self._inputs, self._targets = inputs.detach(), targets.detach()

    def __len__(self) -> int:
        return len(self._inputs)

    def take_rows(self, index: NDArray[np.intp], *, spare: int = 0) -> Batch:
        chosen = torch.from_numpy(np.ascontiguousarray(index))
        taken = []
        for part in (self._inputs, self._targets):
            found = part.new_empty(len(chosen) + spare, *part.shape[1:])
            torch.index_select(part, 0, chosen.to(part.device), out=found[: len(chosen)])
            taken.append(found)
        return taken[0], taken[1]

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
        found = self._collate([self._dataset[int(place)] for place in index]) if len(index) else self.empty_batch()
        inputs, targets = (torch.cat([part, part.new_empty(spare, *part.shape[1:])]) for part in found)
        return inputs, targets

    def empty_batch(self) -> Batch:
        if self._empty is None:
            inputs, targets = self._collate([self._dataset[0]])
            self._empty = inputs[:0], targets[:0]
        return self._empty

    def __repr__(self) -> str:
        return "<rows of a private data set>"


class TypedRows:
    """Rows converted to given types.

    >>> rows = TypedRows(TensorRows(torch.ones(3, 2).long(), torch.ones(3)), torch.float32, torch.long)
    >>> [part.dtype for part in rows.take_rows(np.arange(2))]
    [torch.float32, torch.int64]
    """

    def __init__(self, rows: NetworkRows, *kinds: torch.dtype) -> None:
        self._rows, self._kinds = rows, kinds

    def __len__(self) -> int:
        return len(self._rows)

    def take_rows(self, index: NDArray[np.intp], *, spare: int = 0) -> Batch:
        taken = self._rows.take_rows(index, spare=spare)
        inputs, targets = (part.to(kind) for part, kind in zip(taken, self._kinds, strict=True))
        return inputs, targets

    def empty_batch(self) -> Batch:
        return self.take_rows(np.arange(0))


def read_rows(data: Any) -> NetworkRows:
    """Read a pair of arrays or tensors, a ``Dataset``, or a ``DataLoader``, whose own sampler is not used."""
    if isinstance(data, DataLoader | Dataset):
        dataset, collate = (data.dataset, data.collate_fn) if isinstance(data, DataLoader) else (data, None)
        collate = default_collate if collate is None else collate
        if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2 and collate is default_collate:
            return TensorRows(*dataset.tensors)
        return DatasetRows(dataset, collate)
    if isinstance(data, tuple | list) and len(data) == 2:
        check_unmasked(*data)
        if any(isinstance(part, list | tuple) for part in data):
            # The type of a list follows from its values: one odd cell would decide whether the table is refused.
            raise InvalidRequest("Expected arrays or tensors", got="lists", do="Pass numpy.array(values, dtype=float)")
        inputs, targets = (part if isinstance(part, Tensor) else torch.as_tensor(np.asarray(part)) for part in data)
        return TensorRows(inputs, targets)
    raise InvalidRequest(
        "Expected (inputs, targets), a torch.utils.data.Dataset or a DataLoader", do="Pass one of them"
    )
