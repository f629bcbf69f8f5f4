"""A view of a dataset whose features are transformed row by row, by numbers that are released while a plan runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from expost.data import Dataset, Kind
from expost.data.canonical_cell import float_cells
from expost.data.engines.engine import ROWS_PER_BATCH, Engine
from expost.data.source_identity import SourceIdentity

__all__ = ["PreparedEngine", "prepare_dataset"]

T = TypeVar("T")

_TYPES = {
    Kind.INTEGER: pa.int64(),
    Kind.REAL: pa.float64(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.TEXT: pa.large_string(),
    Kind.TIME: pa.timestamp("us"),
}


@dataclass(frozen=True)
class _Preparation:
    """Transforms the features of a batch, and keeps its target."""

    features: tuple[str, ...]
    target: str | None
    names: tuple[str, ...]
    transform: Callable[[Any], Any]
    columns: tuple[str, ...]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = self.transform(np.column_stack([float_cells(batch.column(name)) for name in self.features]))
        # Contiguous columns: Arrow takes them without a copy.
        made = {name: pa.array(np.ascontiguousarray(rows[:, place])) for place, name in enumerate(self.names)}
        if self.target is not None:
            made[self.target] = batch.column(self.target)
        return pa.RecordBatch.from_arrays(
            [made[name] for name in self.columns], schema=pa.schema([(name, made[name].type) for name in self.columns])
        )


@dataclass(frozen=True)
class _OfPrepared(Generic[T]):
    """A function of transformed batches as a function of the batches themselves."""

    prepare: _Preparation
    function: Callable[[pa.RecordBatch], T]

    def __call__(self, batch: pa.RecordBatch) -> T:
        return self.function(self.prepare(batch))


class PreparedEngine(Engine):
    """Reads a dataset through a transformer. Nothing can be read before the transformer is fitted."""

    def __init__(
        self,
        dataset: Dataset,
        features: Sequence[str],
        target: str | None,
        *,
        names: Sequence[str],
        transform: Callable[[Any], Any],
    ) -> None:
        self._dataset, self._features, self._target = dataset, tuple(features), target
        self._names, self._transform = tuple(names), transform
        fields = [pa.field(name, pa.float64()) for name in self._names]
        if target is not None:
            fields.append(pa.field(target, _TYPES.get(dataset.schema.kind(target), pa.null())))
        self._schema = pa.schema(fields)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def distributed(self) -> bool:  # type: ignore[override]
        """Whether rows lie elsewhere, where they are transformed."""
        return self._dataset.distributed

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        make = self._prepare(columns)
        for whole in self._dataset.batches(self._wanted):
            for start in range(0, whole.num_rows, rows_per_batch):
                yield make(whole.slice(start, rows_per_batch))

    def reduce(self, function: Callable[[pa.RecordBatch], T], merge: Callable[[T, T], T], columns: Sequence[str]) -> T:
        return self._dataset.reduce(_OfPrepared(self._prepare(columns), function), merge, self._wanted)

    @property
    def _wanted(self) -> list[str]:
        return [*self._features] if self._target is None else [*self._features, self._target]

    def _prepare(self, columns: Sequence[str]) -> _Preparation:
        return _Preparation(self._features, self._target, self._names, self._transform, tuple(columns))

    def identity(self) -> SourceIdentity:
        return SourceIdentity.of_schema(self._schema)


def prepare_dataset(
    dataset: Dataset, features: Sequence[str], target: str | None, *, names: Sequence[str], transform: Any
) -> Dataset:
    """Return the view of a dataset in which ``names`` are what ``transform`` makes of ``features``."""
    engine = PreparedEngine(dataset, features, target, names=names, transform=transform)
    rows = dataset.rows if dataset.adjacency.public_size else None
    # The bounds of the features are those of other numbers now; what is known of the target stays true.
    bounds, categories = (
        {name: known[name] for name in known if name == target} for known in (dataset.bounds, dataset.categories)
    )
    return Dataset(
        engine, name=dataset.name, adjacency=dataset.adjacency, rows=rows, bounds=bounds, categories=categories
    )
