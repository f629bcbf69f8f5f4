"""The base of the private transformers: reading tables and bounds, paying for a fit, and keeping what was released."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from expost.core import Adjacency, InvalidRequest, Query, Release, explain_arguments, share_parameters
from expost.core.rational import probability, rational
from expost.data import Dataset
from expost.data.canonical_cell import float_cells
from expost.data.row_source import ChunkFunction, RowSource, cut_spans, plain_numbers, read_rows
from expost.models.estimator import (
    FITTED_ROWS,
    PREDICTED_ROWS,
    PrivateEstimator,
    limit_threads,
    pay_for_query,
    read_column_bounds,
    read_feature_names,
    remember_columns,
)
from expost.models.preparation.column_moments import BoundedColumns

__all__ = ["TRANSFORMED_ROWS", "PrivateTransformer"]

T = TypeVar("T")

TRANSFORMED_ROWS = PREDICTED_ROWS | {
    "y": "array or str, optional\nIgnored, unless the transformer needs targets; with a ``Dataset``, a column's name.",
    "input_features": "array of str, optional\nThe names of the columns. Default: those of the fit.",
    "target": "str, optional\nThe target column, for a transformer that needs targets.",
}
"""Parameters of methods that transform, for ``share_parameters``."""

_NAMED = 3  # columns that a template shows


@dataclass(frozen=True)
class _ColumnReader:
    """Reads a batch as chunks of features and, if there is one, the target."""

    names: tuple[str, ...]
    target: str | None
    code: Callable[[Any], Any]

    def __call__(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, Any]]:
        table = np.column_stack([float_cells(batch.column(name)) for name in self.names])
        coded = None if self.target is None else self.code(batch.column(self.target))
        for start, stop in cut_spans(len(table), len(self.names)):
            yield table[start:stop], None if coded is None else coded[start:stop]


@dataclass(frozen=True)
class _OfColumns(Generic[T]):
    """A function of chunks as a function of the batches that they are read from."""

    read: _ColumnReader
    function: ChunkFunction[T]

    def __call__(self, batch: pa.RecordBatch) -> T:
        return self.function((features, target, None) for features, target in self.read(batch))


class PrivateTransformer(TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Base of the private transformers. Parameters that they share are described here.

    A fit releases a few numbers about the table, once, and charges the ledger for them. Everything else is computed from
    the released numbers and the public bounds.

    Parameters
    ----------
    epsilon : float
        The privacy level of the fit. It is charged as it is given.
    bounds : (low, high), sequence of pairs or mapping of str to pair, optional
        Public bounds of the columns: one pair for all of them, one per column, or by name. They must not be computed from
        the rows. Default: the bounds of the ``Dataset``. Values outside are moved to the nearest bound.
    delta : float, default 0.0
        With a delta above 0 the noise is Gaussian, which is smaller for many columns; the bill is then (epsilon, delta).
    """

    epsilon: Any
    bounds: Any
    delta: Any = 0.0
    _fitted_columns: BoundedColumns
    _needs_target = False

    # Fitting ----------------------------------------------------------------------------------------------------------

    @share_parameters(FITTED_ROWS, TRANSFORMED_ROWS)
    @explain_arguments
    def fit(self, X: Any, y: Any = None) -> Self:
        """Release what the transformer needs to know of the table, and charge the ledger.

        Raises
        ------
        InvalidRequest, BudgetExceeded
            Before the data is touched; nothing is spent.
        EngineFailed
            The data source failed; the worst case stays charged.
        """
        account = self._account_of(X)
        source, adjacency = self._open_table(X, y)
        query = self._build_query(source, adjacency, self._read_columns(source, X))
        terms = self._payment_terms(account) | {"adjacency": adjacency}
        return self._keep_fit(query, pay_for_query(query, source, **terms))

    @share_parameters(FITTED_ROWS, TRANSFORMED_ROWS)
    def fit_with(
        self,
        pay: Callable[[Query, RowSource], Release[Any]],
        dataset: Dataset,
        *,
        features: Sequence[str],
        target: str | None = None,
    ) -> Self:
        """Fit to columns of a dataset and let the caller pay. Call ``Session.fit`` instead."""
        if self.ledger is not None:
            raise InvalidRequest("Expected no ledger together with a session", do="Leave it out: the session pays")
        source, adjacency = self._open_table(dataset, target, read_feature_names(features))
        query = self._build_query(source, adjacency, self._read_columns(source, dataset))
        with limit_threads():
            release = pay(query, source)
        return self._keep_fit(query, release)

    def _keep_fit(self, query: Any, release: Release[Any]) -> Self:
        self._fitted_columns, self.release_ = query.columns, release
        self._keep_release(release.value)
        return self

    def _build_query(self, source: RowSource, adjacency: Adjacency, columns: BoundedColumns) -> Any:
        """Return the query, which is its own plan and keeps ``columns``."""
        raise NotImplementedError

    def _count_outputs(self, width: int) -> int:
        """Return the number of columns that a table of this width becomes; known before the fit."""
        return width

    def _keep_release(self, value: Any) -> None:
        """Set the fitted attributes."""
        raise NotImplementedError

    @property
    def _bill_adjacency(self) -> Adjacency:
        return Adjacency.ADD_REMOVE

    # Reading ----------------------------------------------------------------------------------------------------------

    def _read_levels(self) -> tuple[Fraction, Fraction]:
        """Return epsilon and delta."""
        if self.epsilon is None:
            raise InvalidRequest("Expected an epsilon to spend", do=f"Pass {type(self).__name__}(epsilon=0.1, ...)")
        is_pure = self.delta is None or (isinstance(self.delta, int | float) and self.delta == 0)
        delta = Fraction(0) if is_pure else probability(self.delta, "delta")
        return rational(self.epsilon, "epsilon"), delta

    def _open_table(
        self, X: Any, y: Any = None, features: tuple[str, ...] | None = None
    ) -> tuple[RowSource, Adjacency]:
        """Return the rows and what the table's neighbours are. Shapes are checked; values are private."""
        if isinstance(X, Dataset):
            source = self._open_dataset(X, y, features)
            remember_columns(self, source.names, source.width)
            return source, X.adjacency
        matrix = self._read_matrix(X)
        target = self._read_target(y)
        if target is not None and len(target) != matrix.shape[0]:
            raise InvalidRequest("Expected one target for each row", do="Pass a vector as long as the table")
        return read_rows(matrix, target, names=self._fitted_names), Adjacency.ADD_REMOVE

    def _read_matrix(self, X: Any, *, fitting: bool = True) -> Any:
        matrix = super()._read_matrix(X, fitting=fitting)
        if hasattr(matrix, "tocsr"):
            raise InvalidRequest(
                "Expected a dense table: columns are centered, which fills a sparse one", do="Pass X.toarray()"
            )
        return matrix

    def _read_target(self, y: Any) -> Any:
        """Return the target of each row as numbers or codes; None where none is needed."""
        return None

    def _target_code(self) -> Callable[[Any], Any]:
        """Return how a canonical column of targets becomes numbers or codes: a function that can be pickled."""
        return plain_numbers

    def _open_dataset(self, dataset: Dataset, target: Any, features: tuple[str, ...] | None) -> RowSource:
        """Open the rows of a dataset; nothing is read yet."""
        if not dataset.unit.is_row:
            raise InvalidRequest(
                f"{type(self).__name__} protects single rows, and the dataset protects a person with several",
                got=str(dataset.unit),
                do='Describe the dataset with unit="row" if each person has one row, or leave out this step',
            )
        if dataset.filtered and dataset.adjacency.public_size:
            raise InvalidRequest(
                "Expected the whole dataset: the number of rows of a part is private under replace-one adjacency",
                do='Describe the dataset with adjacency="add-remove"',
            )
        if self._needs_target and not isinstance(target, str):
            raise InvalidRequest(
                "Expected the name of the target column with a Dataset", got=target, do="Name the column"
            )
        numeric = tuple(name for name in dataset.schema if dataset.schema.kind(name).is_number and name != target)
        names = features or numeric
        for name in names:
            if name == target or not dataset.schema.kind(name).is_number:
                raise InvalidRequest("Expected features that are numbers, target excluded", got=name, do="Leave it out")
        if not names:
            raise InvalidRequest("Expected at least one column of numbers", do="Name the features")
        wanted, rows = [*names, target] if self._needs_target else list(names), dataset.rows or 1
        if self._needs_target:
            dataset.schema.kind(target)

        cut = _ColumnReader(names, target if self._needs_target else None, self._target_code())

        def read() -> Iterator[tuple[Any, Any]]:
            # Under add/remove a limit would let a new row push another one out, so that two of them change.
            left: float = rows if dataset.adjacency.public_size else math.inf
            for batch in dataset.batches(wanted):
                kept = int(min(batch.num_rows, left))
                yield from cut(batch.slice(0, kept))
                left -= kept

        def reduce(function: ChunkFunction[T], merge: Callable[[T, T], T], secret: bytes) -> T:
            return dataset.reduce(_OfColumns(cut, function), merge, wanted)

        return RowSource(rows, len(names), names, read, reduce=reduce, distributed=dataset.distributed)

    def _read_columns(self, source: RowSource, X: Any) -> BoundedColumns:
        """Return the public bounds of the columns; raise with a template if some are missing."""
        bounds, names = self.bounds, source.names
        if bounds is None and isinstance(X, Dataset) and names is not None:
            known: Mapping[str, Any] = X.bounds
            unbounded = [name for name in names if name not in known]
            bounds = None if unbounded else {name: known[name] for name in names}
            names_left: Sequence[str] = unbounded
        else:
            names_left = names or ()
        if bounds is None:
            shown = [f'"{name}": (low, high)' for name in names_left[:_NAMED]] or ["(low, high)"]
            more = ", ..." if len(names_left) > _NAMED or not names_left else ""
            template = f"{{{', '.join(shown)}{more}}}" if names_left else "[(low, high), ...]"
            raise InvalidRequest(
                "Expected public bounds for every column: they cannot be read off private rows",
                do=f"Pass bounds={template}, or one (low, high) for all columns",
            )
        lows, highs = read_column_bounds(bounds, source.width, names)
        assert lows is not None and highs is not None
        return BoundedColumns(lows, highs)

    # Transforming -----------------------------------------------------------------------------------------------------

    @share_parameters(TRANSFORMED_ROWS)
    @explain_arguments
    def transform(self, X: Any) -> Any:
        """Transform rows that the caller may see. Nothing is charged: only released numbers are used."""
        check_is_fitted(self, "release_")
        return self._transform_matrix(self._read_matrix(X, fitting=False))

    def _transform_matrix(self, matrix: Any) -> Any:
        """Transform a matrix of numbers whose columns are those of the fit."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.target_tags.required = self._needs_target
        tags.transformer_tags.preserves_dtype = []
        return tags
