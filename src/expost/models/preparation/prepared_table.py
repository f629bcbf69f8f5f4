"""A view of a dataset whose features are transformed row by row, by numbers that are released while a plan runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from expost.data import Dataset, Kind
from expost.data.canonical_cell import float_cells
from expost.data.engines.engine import ROWS_PER_BATCH, Engine
from expost.data.source_identity import SourceIdentity

__all__ = ["PreparedEngine", "prepare_dataset"]

_TYPES = {
    Kind.INTEGER: pa.int64(),
    Kind.REAL: pa.float64(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.TEXT: pa.large_string(),
    Kind.TIME: pa.timestamp("us"),
}


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

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        wanted = [*self._features] if self._target is None else [*self._features, self._target]
        for whole in self._dataset.batches(wanted):
            for start in range(0, whole.num_rows, rows_per_batch):
                batch = whole.slice(start, rows_per_batch)
                rows = self._transform(np.column_stack([float_cells(batch.column(name)) for name in self._features]))
                # Contiguous columns: Arrow takes them without a copy.
                made = {name: pa.array(np.ascontiguousarray(rows[:, place])) for place, name in enumerate(self._names)}
                if self._target is not None:
                    made[self._target] = batch.column(self._target)
                arrays = [made[name] for name in columns]
                schema = pa.schema([(name, made[name].type) for name in columns])
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

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
