"""Open what callers pass as X and y: frames, Arrow tables, lists, matrices, files and datasets."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.utils.validation import column_or_1d

from expost.core import Adjacency, InvalidRequest, Unit
from expost.core.argument import check_unmasked, suggest_name
from expost.data.data_source import as_table, open_source
from expost.data.dataset import Dataset
from expost.data.description import TEXT_TERMS, Description
from expost.data.row_source import typed_column
from expost.data.text_format import is_text_file
from expost.data.untyped_table import ID, implied_types, is_frame
from expost.models.tabular.column_declaration import declare_columns, declared_types, read_description
from expost.models.tabular.column_encoding import Features
from expost.models.tabular.table_encoder import TableEncoder, list_names

__all__ = ["encode_frame", "name_matrix", "stored_names", "table_dataset"]


def table_dataset(
    X: Any,
    y: Any = None,
    *,
    columns: Any = None,
    classes: Sequence[Any] | None = None,
    unit: str | None = None,
    max_rows_per_unit: int | None = None,
    adjacency: str | Adjacency = Adjacency.ADD_REMOVE,
    rows: int | None = None,
    name: str | None = None,
    types: Mapping[str, str] | None = None,
) -> tuple[Dataset, str]:
    """Return a table as a dataset, and the name of its target.

    No cell decides a type: columns that store no type (objects, lists, CSV files) have the type that their declaration
    implies, and a cell that does not fit is missing.

    Parameters
    ----------
    X : Dataset, path, frame, Arrow table, mapping, list of rows or matrix
        The table. The columns of a matrix are named x0, x1, ...
    y : str or array
        Name of the target's column, or the targets, which are appended under a free name.
    columns : mapping, sequence, pair of numbers, path, Description, TableEncoder or None
        Declarations, as in ``read_columns``. If they name the features, other columns are not read.
    classes : sequence, optional
        The public classes, which imply the type of the target. By default it is a number.
    unit : str, optional
        Name of the column of ids; by default that of a ``Dataset``, or a row.
    max_rows_per_unit : int, optional
        The most rows of one id that count; by default that of a ``Dataset``.
    adjacency : {"add-remove", "replace-one"} or Adjacency, default "add-remove"
        Which tables are neighbors. A ``Dataset`` keeps its own.
    rows : int, optional
        The public number of rows under replace-one adjacency.
    name : str, optional
        Name of the table in ledgers.
    types : mapping of str to str, optional
        Types (integer, real, boolean, text, time) of further columns that store none, such as a list of ids.

    Returns
    -------
    tuple of Dataset and str

    Examples
    --------
    >>> table_dataset(np.zeros((2, 2)), [0, 1], columns=(0, 1))
    (Dataset(x0 real, x1 real, y real; one row, add-remove), 'y')
    """
    if y is None:
        raise InvalidRequest("Expected a target", do='Pass its column, target="income", or an array y')
    unit = None if unit == "row" else unit
    columns = read_description(columns)
    described = columns if isinstance(columns, Description) else None
    if described is not None:
        unit, max_rows_per_unit = _described_unit(described, unit, max_rows_per_unit)
    if isinstance(X, str | Path) and str(X).endswith(".toml"):
        X = Description.read(X).open()
    if isinstance(X, Dataset):
        if not isinstance(y, str):
            raise InvalidRequest("Expected the name of the target column with a Dataset", do='Pass target="income"')
        X.schema.kind(y)
        return _with_unit(X, unit, max_rows_per_unit), y
    terms: dict[str, Any] = {"adjacency": adjacency, "rows": rows, "name": name}
    if unit is not None:
        named = described is not None and described.unit.column == unit
        terms |= {
            "unit": described.unit if described is not None and named else Unit.of(unit),
            "max_rows_per_unit": max_rows_per_unit,
        }
    elif max_rows_per_unit is not None:
        raise InvalidRequest("Expected limits per unit only with an id column", do='Pass unit="the id column"')
    X, target = name_matrix(X), y if isinstance(y, str) else None
    names = stored_names(X)
    derived = () if described is None else tuple(described.derive)
    _check_names((target, unit), names, derived)
    features = [each for each in names or () if each not in (target, unit)]
    declared = {} if columns is None else declare_columns(columns, features)
    types = declared_types(declared) | dict(types or {})
    if described is not None:
        terms |= _described_facts(described, X, names)
        types |= {column: each for column, each in (described.types or {}).items() if names is None or column in names}
    kind = "real" if classes is None else implied_types({}, {"y": tuple(classes)}, None).get("y")
    if target is not None and kind is not None:
        types = {target: kind} | types
    types = {column: each for column, each in types.items() if column not in derived}
    if declared and names is not None and not derived:
        time = None if described is None else described.unit.time_column
        X = _select(X, [each for each in names if each in {*declared, target, unit, time}])
    if target is None:
        X, target = _append_target(X, y, types=types, kind=kind, unit=unit)
    dataset = Dataset(X, types=_types_for(X, types), **terms)
    dataset.schema.kind(target)
    return dataset, target


def _check_names(wanted: Sequence[str | None], names: Sequence[str] | None, derived: Sequence[str]) -> None:
    """Raise ``InvalidRequest`` for a named column that a table in memory does not have."""
    for name in wanted:
        if names is not None and name is not None and name not in (*names, *derived):
            do = suggest_name(name, names) or f"Name one of: {list_names(names)}"
            raise InvalidRequest("Expected the name of a column", got=name, do=do)


def _described_unit(described: Description, unit: str | None, most: int | None) -> tuple[str | None, int | None]:
    """Return the unit and its rows that a caller names, or else those of a description; another unit is refused."""
    own = described.unit.column
    if own is not None and unit not in (None, own):
        raise InvalidRequest(f"Expected the unit of the description, {own}", got=unit, do="Leave unit= out")
    return unit or own, described.max_rows_per_unit if most is None else most


def _described_facts(described: Description, X: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return what a description says of the table that it is used for: its columns, its neighbors, its format if it is text."""
    known = {*(names or ()), *described.derive}
    facts: dict[str, Any] = {
        name: {column: each for column, each in getattr(described, name).items() if names is None or column in known}
        for name in ("bounds", "categories")
    }
    facts |= {name: getattr(described, name) for name in ("derive", "adjacency", "rows")}
    if isinstance(X, str | Path) and (is_text_file(X) or described.widths):
        facts |= {name: getattr(described, name) for name in TEXT_TERMS}
    return facts


def encode_frame(X: Any, encoder: TableEncoder, names: Sequence[str] | None = None) -> Features:
    """Return the features of rows that the caller may see, one line per row, in their order.

    Parameters
    ----------
    X : path, frame, Arrow table, mapping, list of rows or matrix
        The table, not a ``Dataset``, whose rows are private. The order of named columns is free, and other columns are ignored. A matrix has the features in the
        order of the fit.
    encoder : TableEncoder
        How rows become features.
    names : sequence of str, optional
        The columns of a matrix, in the order of the fit. Default: those of the encoder.

    Returns
    -------
    array of float32, shape (rows, width)

    Examples
    --------
    >>> from expost.models.tabular.column_encoding import FlagColumn
    >>> encode_frame({"spare": ["x"], "member": [1]}, TableEncoder((FlagColumn("member"),))).tolist()
    [[1.0]]
    """
    if isinstance(X, Dataset):
        raise InvalidRequest(
            "Expected rows that the caller may see, such as a data frame: a Dataset is private",
            do="Pass the rows to predict",
        )
    X = name_matrix(X, names or encoder.names_in)
    parts = [encoder.encode(batch) for batch in _read_batches(X, encoder)]
    return np.concatenate([np.zeros((0, encoder.width), np.float32), *parts])


def _read_batches(X: Any, encoder: TableEncoder) -> Iterator[pa.RecordBatch]:
    """Read the columns that an encoder needs, after checking names and types."""
    names = stored_names(X)
    missing = [name for name in encoder.names_in if names is not None and name not in names]
    if missing:
        raise InvalidRequest(f"Expected the columns {list_names(missing)} in the table", do="Add them")
    if names is not None:
        X = _select(X, list(encoder.names_in))
    declared = declared_types({column.name: column for column in encoder.columns})
    engine, _ = open_source(X, types=_types_for(X, declared))
    encoder.check_schema(engine.schema)
    return engine.batches(list(encoder.names_in))


def _with_unit(dataset: Dataset, unit: str | None, max_rows_per_unit: int | None) -> Dataset:
    """Return a view of a dataset with the unit that a caller names; a dataset that has another one is refused."""
    if unit is None and max_rows_per_unit is None:
        return dataset
    own = dataset.unit
    if unit is not None and not own.is_row and own.column != unit:
        raise InvalidRequest(f"Expected the unit of the dataset, {own.column}", got=unit, do="Leave unit= out")
    if unit is None and own.is_row:
        raise InvalidRequest("Expected limits per unit only with an id column", do='Pass unit="the id column"')
    limit = dataset.max_rows_per_unit if max_rows_per_unit is None else max_rows_per_unit
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | np.integer) or limit < 1):
        raise InvalidRequest(
            "Expected max_rows_per_unit to be a whole number >= 1", got=limit, do="Pass a positive one"
        )
    view = copy.copy(dataset)
    if unit is not None and own.is_row:
        dataset.expression(unit)
        # The public number of rows is not that of units.
        view.unit, view.rows = Unit.of(unit), None
        view._read_ids_again(unit)
    view.max_rows_per_unit = None if limit is None else int(limit)
    return view


def name_matrix(X: Any, names: Sequence[str] | None = None) -> Any:
    """Return a matrix as a mapping of named columns; anything else unchanged."""
    check_unmasked(X)
    if hasattr(X, "tocsr"):
        X = X.toarray()
    if _is_array_like(X):
        X = np.asarray(X)
    nested = isinstance(X, list | tuple) and not any(map(_is_row_mapping, X[:1]))
    if not isinstance(X, np.ndarray) and not nested:
        return X
    try:
        matrix = X if isinstance(X, np.ndarray) else np.array([list(row) for row in X], dtype=object)
    except (TypeError, ValueError):  # rows that are not lists, or of several lengths
        matrix = np.empty(0)
    if matrix.dtype.kind == "c":
        raise InvalidRequest(
            "Expected real numbers: Complex data not supported", do="Pass the real and imaginary parts as columns"
        )
    if matrix.ndim != 2 or matrix.dtype.kind not in "biufOU":
        raise InvalidRequest("Expected a table of rows and columns", do="Reshape your data to (rows, columns)")
    if not matrix.shape[1]:
        raise InvalidRequest(
            "Expected at least one column, got 0 feature(s) (shape=(, 0)) while a minimum of 1 is required",
            do="Pass a table with columns",
        )
    if names is not None and len(names) != matrix.shape[1]:
        raise InvalidRequest(f"Expected {len(names)} columns", got=matrix.shape[1], do="Pass the columns of the fit")
    return {name: matrix[:, place] for place, name in enumerate(names or [f"x{k}" for k in range(matrix.shape[1])])}


def _is_array_like(X: Any) -> bool:
    """Return whether an object converts itself to an array and has no columns of its own."""
    if isinstance(X, np.ndarray) or not hasattr(X, "__array__"):
        return False
    return not any(hasattr(X, name) for name in ("columns", "column_names", "__arrow_c_stream__"))


def _is_row_mapping(row: object) -> bool:
    return isinstance(row, Mapping)


def stored_names(X: Any) -> tuple[str, ...] | None:
    """Return the names of a table in memory, None if it is a file or the like, whose names its engine knows."""
    if isinstance(X, Mapping):
        return tuple(X)
    if isinstance(X, list | tuple):  # rows as mappings; their columns are those that are declared
        return None
    if isinstance(X, pa.Table | pa.RecordBatch):
        return tuple(X.column_names)
    if hasattr(X, "project") and hasattr(
        X, "to_arrow_reader"
    ):  # a DuckDB relation, whose engine selects columns itself
        return None
    if hasattr(X, "__arrow_c_stream__") or is_frame(X):
        columns = getattr(X, "columns", None)
        return None if columns is None or callable(columns) else tuple(map(str, columns))
    return None


def _select(X: Any, names: list[str]) -> Any:
    """Return the named columns of a table in memory."""
    if isinstance(X, Mapping):
        return {name: X[name] for name in names}
    if isinstance(X, pa.Table | pa.RecordBatch):
        return X if len(set(X.column_names)) < len(X.column_names) else X.select(names)
    if is_frame(X):
        texts = [str(name) for name in X.columns]
        return X if len(set(texts)) < len(texts) else X.iloc[:, [texts.index(name) for name in names]]
    return X.select(names) if hasattr(X, "select") else X


def _types_for(X: Any, types: Mapping[str, str]) -> dict[str, str] | None:
    """Return declared types for the columns that store none; a stored type is checked instead of being overruled."""
    if isinstance(X, str | Path):
        return dict(types) if types and is_text_file(X) else None
    if is_frame(X):
        untyped = {str(name) for name, dtype in zip(X.columns, X.dtypes, strict=True) if _is_untyped(dtype)}
    elif isinstance(X, Mapping):
        untyped = {name for name, values in X.items() if _stores_no_type(values)}
    elif isinstance(X, list | tuple):
        untyped = set(types)
    else:
        return None
    found = {name: kind for name, kind in types.items() if name in untyped}
    return found or None


def _stores_no_type(values: Any) -> bool:
    return isinstance(values, list | tuple) or _is_untyped(getattr(values, "dtype", None))


def _is_untyped(dtype: object) -> bool:
    """Return whether one odd cell can turn a column of numbers or texts into one of this dtype."""
    categories = getattr(dtype, "categories", None)  # of pandas, whose own dtype follows from the cells
    stored = dtype if categories is None else getattr(categories, "dtype", None)
    return isinstance(stored, np.dtype) and stored.kind in "Oc"


def _append_target(
    X: Any, y: Any, *, types: Mapping[str, str], kind: str | None, unit: str | None
) -> tuple[pa.Table, str]:
    """Return a table in memory with an array of targets as its last column, and the name of that column."""
    if stored_names(X) is None and not isinstance(X, list | tuple):
        raise InvalidRequest(
            "Expected the name of the target column with a file or a database", do='Pass target="income"'
        )
    if is_frame(X) or isinstance(X, Mapping | list | tuple):
        engine, _ = open_source(X, types=_types_for(X, types), implied=None if unit is None else {unit: ID})
        table = pa.Table.from_batches(engine.batches(engine.schema.names), engine.schema)
    else:
        table = pa.Table.from_batches([X]) if isinstance(X, pa.RecordBatch) else as_table(X)
    named = getattr(y, "name", None)
    target, free = _read_target(y, kind), named if isinstance(named, str) and named else "y"
    while free in table.column_names:
        free += "_"
    if len(target) != table.num_rows:
        raise InvalidRequest("Expected one target for each row", do="Pass a vector as long as the table")
    return table.append_column(free, target), free


def _read_target(y: Any, kind: str | None) -> pa.Array:
    """Read an array of targets as a canonical column."""
    check_unmasked(y)
    typed = typed_column(y)
    if typed is not None:
        return typed
    y = np.asarray(y) if _is_array_like(y) and not hasattr(y, "dtype") else y
    if getattr(y, "ndim", 1) == 2 and y.shape[1] == 1:
        y = column_or_1d(y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y), warn=True)
    if not isinstance(y, list | tuple) and getattr(y, "ndim", 0) != 1:
        raise InvalidRequest("Expected one column of targets", do="Pass one target per row")
    engine, _ = open_source({"y": y}, types={"y": kind or "text"} if _stores_no_type(y) else None)
    return pa.Table.from_batches(engine.batches(["y"]), engine.schema).column("y").combine_chunks()
