"""Read what a caller declares about the columns of a table: bounds, levels, windows, and what is left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from expost.core import InvalidRequest
from expost.core.argument import suggest_name
from expost.data.canonical_cell import Kind
from expost.data.dataset import Dataset
from expost.data.description import Description
from expost.data.public_fact import split_bounds
from expost.models.tabular.column_encoding import (
    CategoryColumn,
    ColumnEncoding,
    FlagColumn,
    NumberColumn,
)
from expost.models.tabular.date_column import DateColumn
from expost.models.tabular.declared_level import is_moment, read_moment
from expost.models.tabular.private_levels import PrivateLevelColumn
from expost.models.tabular.table_encoder import TableEncoder, list_names

__all__ = [
    "Declarations",
    "declare_columns",
    "declared_target",
    "declared_types",
    "read_columns",
    "read_description",
]

Declarations = dict[str, ColumnEncoding | None]
"""What is declared about each feature, in order; None if the dataset is to supply it."""

_ENUM = b"_PL_ENUM_VALUES2"  # where polars stores the levels of an Enum, which its user has declared
_PLACEHOLDERS = {Kind.TEXT: "[...]", Kind.TIME: "(START, END)", Kind.BOOLEAN: '"boolean"'}
_MOST_SHOWN = 200
_FORMS = 'Pass (low, high) for numbers, a list of levels or "private" for categories, two dates for dates, or "boolean"'


def read_columns(columns: Any, dataset: Dataset, *, target: str, unit: str | None = None) -> TableEncoder:
    """Return the encoder of the features that are declared for a dataset. No row is read.

    Parameters
    ----------
    columns : mapping, sequence, pair of numbers, path, Description, TableEncoder or None
        A mapping from the name of each feature to ``(low, high)``, a list of levels, ``"private"`` for levels that are found
        in the rows and billed, two dates, ``"boolean"``, a ready column such as ``NumberColumn``, or None for what the dataset declares. A column that is not in it is not used.
        A list of names takes their declarations from the dataset. A list of pairs gives bounds in the order of the
        columns, and one pair ``(low, high)`` gives the same bounds to all columns. A path names a description file. By
        default every column must be declared by the dataset.
    dataset : Dataset
        The table. Its bounds and categories are used where ``columns`` has none.
    target : str
        Name of the target, which is not a feature.
    unit : str, optional
        Name of the column of ids, which is not a feature. Default: the unit of the dataset.

    Returns
    -------
    TableEncoder

    Raises
    ------
    InvalidRequest
        A column is not declared, declared twice, not in the table, or of a type that does not fit.

    Examples
    --------
    >>> people = Dataset(pa.table({"age": [41], "city": ["Rome"], "sick": [True]}), bounds={"age": (0, 120)})
    >>> read_columns({"age": None, "city": ["Rome", "Oslo"]}, people, target="sick").names_in
    ('age', 'city')
    >>> read_columns(None, people, target="sick")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a declaration of every feature, none for 'city'. Pass ...
    """
    ids = {target, unit, dataset.unit.column}
    for name in (target, unit):
        if name is not None:
            dataset.schema.kind(name)
    candidates = [name for name in dataset.schema if name not in ids]
    declared = {name: each for name, each in declare_columns(columns, candidates).items() if name not in ids}
    absent = [name for name in declared if name not in dataset.schema]
    if absent:
        guess = suggest_name(absent[0], candidates) or f"Name some of: {list_names(candidates)}"
        raise InvalidRequest(f"Expected columns of the table, not {list_names(absent)}", do=guess)
    if not declared:
        raise InvalidRequest("Expected at least one feature", do='Pass columns={"age": (0, 120), ...}')
    found = {name: each or _described(name, dataset) for name, each in declared.items()}
    undeclared = [name for name, each in found.items() if each is None]
    if undeclared:
        raise _undeclared(undeclared, found, dataset)
    ready = columns.values() if isinstance(columns, Mapping) else getattr(columns, "columns", columns)
    passed = [each for each in ready if isinstance(each, DateColumn)] if isinstance(ready, Iterable) else []
    encodings = []
    for name, each in found.items():
        assert each is not None
        each.check_kind(dataset.schema.kind(name), computed=not dataset.stores(name))
        if isinstance(each, DateColumn) and not any(each is given for given in passed):
            # A pair of dates does not say whether there are hours; the type of the column does.
            each = DateColumn(name, each.start, each.end, hours=_has_hours(name, dataset))
        encodings.append(each)
    return TableEncoder(tuple(encodings))


def declare_columns(columns: Any, names: Sequence[str]) -> Declarations:
    """Return what a caller declares, before the table's types are known.

    Parameters
    ----------
    columns : mapping, sequence, pair of numbers, path, Description, TableEncoder or None
        As in ``read_columns``.
    names : sequence of str
        The columns that can be features, in the order of the table.

    Returns
    -------
    dict
        By name, in the order of the features; None where the dataset must supply the declaration.

    Examples
    --------
    >>> declare_columns({"age": (0, 120)}, ["age", "city"])
    {'age': NumberColumn(name='age', low=0.0, high=120.0, missing=True)}
    """
    if columns is None:
        return dict.fromkeys(names)
    columns = read_description(columns)
    if isinstance(columns, Description):
        bounds, ranges = split_bounds(columns.bounds)
        found = _from_facts(bounds, columns.categories, columns.types or {})
        described = {**found, **{name: _declare_column(name, ends) for name, ends in ranges.items()}}
        return {name: each for name, each in described.items() if name != columns.unit.column}
    if isinstance(columns, TableEncoder | ColumnEncoding):
        columns = columns.columns if isinstance(columns, TableEncoder) else (columns,)
    if isinstance(columns, Mapping):
        return {name: _declare_column(name, given) for name, given in columns.items()}
    if _is_number_pair(columns):
        return {name: NumberColumn(name, *columns) for name in names}
    if isinstance(columns, Iterable) and not isinstance(columns, bytes | set | frozenset):
        return _declare_in_order(list(columns), names)
    raise InvalidRequest("Expected a declaration of columns", got=columns, do='Pass columns={"age": (0, 120), ...}')


def read_description(columns: Any) -> Any:
    """Return the description that a path names; anything else unchanged.

    >>> read_description({"age": (0, 120)})
    {'age': (0, 120)}
    """
    return Description.read(columns) if isinstance(columns, str | Path) else columns


def declared_target(columns: Any, target: str) -> Any:
    """Return what a caller declares of the target among the columns: bounds, classes or a ready column; None if nothing.

    >>> declared_target({"age": (0, 120), "pay": (0, 9)}, "pay")
    (0, 9)
    """
    columns = read_description(columns)
    if isinstance(columns, Description):
        return columns.categories.get(target) or columns.bounds.get(target)
    if isinstance(columns, Mapping):
        return columns.get(target)
    ready = getattr(columns, "columns", columns)
    if isinstance(ready, list | tuple):
        return next((each for each in ready if isinstance(each, ColumnEncoding) and each.name == target), None)
    return None


def declared_types(declared: Mapping[str, ColumnEncoding | None]) -> dict[str, str]:
    """Return the types that declarations imply, for sources that do not store types.

    Parameters
    ----------
    declared : mapping of str to ColumnEncoding or None
        What ``declare_columns`` returned.

    Returns
    -------
    dict of str to str

    Examples
    --------
    >>> declared_types({"city": CategoryColumn("city", ["Rome"]), "age": None})
    {'city': 'text'}
    """
    return {name: each.type_name for name, each in declared.items() if each is not None}


def _declare_in_order(given: list[Any], names: Sequence[str]) -> Declarations:
    """Return declarations that are given as a list: names, ready columns, or one pair for each column."""
    if given and all(isinstance(each, str | ColumnEncoding) for each in given):
        found: Declarations = {}
        for each in given:
            name = each if isinstance(each, str) else each.name
            if name in found:
                raise InvalidRequest("Expected each column to be declared once", got=name, do="Drop one of them")
            found[name] = None if isinstance(each, str) else each
        return found
    if not given or not all(_is_pair(each) for each in given):
        raise InvalidRequest(
            "Expected names, ready columns or pairs (low, high) in a list of columns",
            do='Pass columns={"age": (0, 120), ...} to mix kinds',
        )
    if len(given) != len(names):
        raise InvalidRequest(
            f"Expected one pair (low, high) for each of the {len(names)} columns",
            got=len(given),
            do="Pass one for each",
        )
    # In a list of lists [0, 1] can only be bounds; in a mapping it is a list of levels.
    return {name: _declare_column(name, tuple(pair)) for name, pair in zip(names, given, strict=True)}


def _declare_column(name: Any, given: Any) -> ColumnEncoding | None:
    """Return the declaration of one column in a mapping."""
    if given is None or isinstance(given, ColumnEncoding):
        if isinstance(given, ColumnEncoding) and given.name != name:
            raise InvalidRequest(f"Expected the declaration of {name!r}", got=given.name, do="Use one name for both")
        return given
    if isinstance(given, str):
        if given == "boolean":
            return FlagColumn(name)
        if given == "private":
            return PrivateLevelColumn(name)
        raise InvalidRequest(f"Expected a declaration of {name!r}", got=given, do=_FORMS)
    if isinstance(given, tuple):
        if len(given) == 2 and all(is_moment(end) or _spells_moment(end) for end in given):
            return DateColumn(name, *given)
        if given and all(isinstance(level, str) for level in given):
            return CategoryColumn(name, given)
        if len(given) == 2 and not any(isinstance(end, str) or end is None for end in given):
            return NumberColumn(name, *given)
        raise InvalidRequest(f"Expected two numbers or two dates in the pair of {name!r}", got=given, do=_FORMS)
    categories = getattr(given, "categories", None)  # a pandas CategoricalDtype or a polars Enum
    return CategoryColumn(name, given if categories is None else tuple(categories))


def _described(name: str, dataset: Dataset) -> ColumnEncoding | None:
    """Return what a dataset declares about a column, or None."""
    bounds, categories = ({name: fact[name]} if name in fact else {} for fact in (dataset.bounds, dataset.categories))
    kind = dataset.schema.kind(name)
    if name in dataset.time_ranges:
        return DateColumn(name, *dataset.time_ranges[name])
    if bounds and not dataset.stores(name):
        categories = {}  # a joined column of numbers brings both; nobody has chosen between them
    return _from_facts(bounds, categories, {name: kind.value}).get(name) or _stored_levels(name, dataset)


def _from_facts(
    bounds: Mapping[str, Any], categories: Mapping[str, Any], types: Mapping[str, str]
) -> dict[str, ColumnEncoding]:
    """Return the declarations of a description: bounds, categories, and columns of booleans."""
    twice = [name for name in bounds if name in categories and types.get(name) != Kind.BOOLEAN.value]
    if twice:
        raise InvalidRequest(
            f"Expected bounds or categories for {list_names(twice)}, not both",
            do=f"Choose for this model: columns={{{_quote(twice[0])}: (low, high)}} or a list of levels",
        )
    found: dict[str, ColumnEncoding] = {}
    for name in dict.fromkeys([*bounds, *categories, *types]):
        if types.get(name) == Kind.BOOLEAN.value:
            found[name] = FlagColumn(name)
        elif name in bounds:
            found[name] = NumberColumn(name, *bounds[name])
        elif name in categories:  # a missing value can be a category of a dataset; here it is the level "other"
            found[name] = CategoryColumn(name, tuple(value for value in categories[name] if value is not None))
    return found


def _stored_levels(name: str, dataset: Dataset) -> CategoryColumn | None:
    """Return the levels that the type of a column lists: those of an Enum of polars, which its user has declared.

    The categories of pandas and the dictionaries of Arrow are not used: they may have been collected from the rows.
    """
    field = dataset.stored_field(name)
    written = None if field is None else (field.metadata or {}).get(_ENUM)
    if written is None:
        return None
    levels, place = [], 0  # each level as its number of bytes, a semicolon and the bytes
    while place < len(written):
        digits, _, _ = written[place:].partition(b";")
        start = place + len(digits) + 1
        place = start + int(digits)
        levels.append(written[start:place].decode())
    return CategoryColumn(name, tuple(levels)) if levels else None


def _has_hours(name: str, dataset: Dataset) -> bool:
    """Return whether the type of a column holds a time of day."""
    field = dataset.stored_field(name)
    return field is None or not pa.types.is_date(field.type)


def _undeclared(undeclared: list[str], found: Mapping[str, ColumnEncoding | None], dataset: Dataset) -> InvalidRequest:
    """Return the error for columns without a declaration, with a template to fill in. It repeats no value."""
    kinds = {name: dataset.schema.kind(name) for name in found}
    entries = [
        f"{_quote(name)}: {'None' if each is not None else _PLACEHOLDERS.get(kinds[name], '(LOW, HIGH)')}"
        for name, each in found.items()
        if kinds[name] is not Kind.OTHER
    ]
    more = ", ..." if len(entries) > _MOST_SHOWN else ""
    notes = ["a column that is not in it is not used"]
    if any(each is not None for each in found.values()):
        notes.append("None keeps what the dataset declares")
    if any(kinds[name] is Kind.TEXT for name in undeclared):
        notes.append('texts are refused: declare levels, "private" to pay for them, or leave the column out')
    if any(kinds[name] is Kind.OTHER for name in undeclared):
        notes.append("columns of other types cannot be features")
    return InvalidRequest(
        f"Expected a declaration of every feature, none for {list_names(undeclared)}",
        do=f"Pass columns={{{', '.join(entries[:_MOST_SHOWN])}{more}}} with public values; {'; '.join(notes)}",
    )


def _quote(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _spells_moment(value: object) -> bool:
    return isinstance(value, str) and read_moment(value) is not None


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple | list | np.ndarray) and len(value) == 2


def _is_number_pair(value: Any) -> bool:
    return _is_pair(value) and all(isinstance(end, Real | Decimal) for end in value)
