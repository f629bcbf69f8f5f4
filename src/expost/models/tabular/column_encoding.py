"""Turn one column of a table into features between -1 and 1, by public declarations only.

Each kind of column reads a cell into one number (``read_cells``) and writes that number as features (``write_features``).
Both depend on the cell and on the declaration, never on another row. No cell is refused: a cell that does not fit its
declaration is missing, clipped to a bound, or the level "other". The squared Euclidean length of the features of a cell is
at most ``squared_length``, exactly, for the float32 numbers that are written.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.core import InvalidRequest
from expost.data.canonical_cell import Kind, canonical_column, constant_kind, float_cells
from expost.data.expression import col
from expost.data.table_schema import check_categories
from expost.data.value_place import find_places
from expost.models.estimator import is_interval
from expost.models.tabular.declared_level import level_from_json, level_to_json, read_levels, show_level

__all__ = [
    "CategoryColumn",
    "Cells",
    "ColumnEncoding",
    "Features",
    "FlagColumn",
    "NumberColumn",
    "set_fields",
    "wrong_kind",
]

Cells = NDArray[Any]
Features = NDArray[np.float32]


@dataclass(frozen=True)
class ColumnEncoding(ABC):
    """How one column becomes features. The subclasses are the kinds of columns.

    Parameters
    ----------
    name : str
        Name of the column.

    Examples
    --------
    >>> isinstance(FlagColumn("member"), ColumnEncoding)
    True
    """

    name: str
    _kinds: ClassVar[dict[str, type[ColumnEncoding]]] = {}
    _kind: ClassVar[str]

    def __init_subclass__(cls, kind: str, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls._kind = kind
        ColumnEncoding._kinds[kind] = cls

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidRequest("Expected the name of a column", got=self.name, do="Name columns by texts")

    @property
    @abstractmethod
    def names_out(self) -> tuple[str, ...]:
        """Names of the features."""

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.names_out)

    @property
    def squared_length(self) -> float:
        """The largest squared Euclidean length of the features of one cell."""
        return 1.0

    @property
    def absolute_length(self) -> float:
        """The largest sum of magnitudes of the features of one cell."""
        return 1.0

    @property
    @abstractmethod
    def declared(self) -> Any:
        """What a caller writes in ``columns`` to declare this column."""

    @property
    @abstractmethod
    def type_name(self) -> str:
        """The type that a source without types is read as: integer, real, boolean, text or time."""

    @abstractmethod
    def check_kind(self, kind: Kind, *, computed: bool = False) -> None:
        """Raise if a column of this kind cannot be encoded. The types of columns are public.

        Parameters
        ----------
        kind : Kind
            Kind of the table's column.
        computed : bool, default False
            True if the column is computed by an expression, so that its numbers are floats.
        """

    @abstractmethod
    def read_cells(self, column: pa.Array) -> Cells:
        """Read each cell of a canonical column into one number, from which its features follow.

        Parameters
        ----------
        column : pyarrow.Array
            A canonical column of a kind that ``check_kind`` accepts.
        """

    @abstractmethod
    def write_features(self, cells: Cells, out: Features) -> None:
        """Write the features of cells into a table of zeros.

        Parameters
        ----------
        cells : array
            What ``read_cells`` returned.
        out : array of float32, shape (rows, width)
            Zeros; the features are written into it.
        """

    def encode(self, column: pa.Array | pa.ChunkedArray) -> Features:
        """Return the features of a column, one line per cell.

        Parameters
        ----------
        column : pyarrow.Array or ChunkedArray
            A column of any type whose kind fits. A column of nulls without a type is missing throughout.

        Examples
        --------
        >>> NumberColumn("age", 0, 100).encode(pa.array([0, 75, None, 500])).tolist()
        [[-1.0, 0.0], [0.5, 0.0], [0.0, 1.0], [1.0, 0.0]]
        """
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if not pa.types.is_null(whole.type):
            self.check_kind(Kind.of(whole.type))
        cells = self.read_cells(self.fit_type(canonical_column(whole)))
        out = np.zeros((len(cells), self.width), np.float32)
        self.write_features(cells, out)
        return out

    def fit_type(self, column: pa.Array) -> pa.Array:
        """Return a canonical column; one of nulls without a type gets the type that is declared here.

        Parameters
        ----------
        column : pyarrow.Array
            A canonical column.
        """
        return column.cast(_NULLS[self.type_name]) if pa.types.is_null(column.type) else column

    def to_json(self) -> dict[str, Any]:
        """Return the declaration as values that JSON can hold."""
        return {"kind": self._kind, "name": self.name, **self._json_fields()}

    @abstractmethod
    def _json_fields(self) -> dict[str, Any]: ...

    @classmethod
    @abstractmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> Self: ...

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ColumnEncoding:
        """Return the column of a document that ``to_json`` made.

        Parameters
        ----------
        document : mapping
            The declaration. Raises ``ValueError``, ``KeyError`` or ``TypeError`` if it is damaged.

        Examples
        --------
        >>> ColumnEncoding.from_json(FlagColumn("member").to_json())
        FlagColumn(name='member')
        """
        return cls._kinds[document["kind"]]._from_fields(document)


@dataclass(frozen=True)
class NumberColumn(ColumnEncoding, kind="number"):
    """Numbers with public bounds, scaled so that the bounds become -1 and 1.

    Numbers beyond a bound, infinite ones included, are moved to it. A missing number becomes 0, the middle of the bounds,
    and 1 in a second feature.

    Parameters
    ----------
    name : str
        Name of the column.
    low : float
        Public lower bound, in the column's units.
    high : float
        Public upper bound, in the column's units.
    missing : bool, default True
        Whether a second feature marks missing numbers.

    Examples
    --------
    >>> NumberColumn("age", 0, 100).names_out
    ('age', 'age=missing')
    >>> NumberColumn("age", 100, 0)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected bounds of 'age' with low below high, got 100, 0. ...
    """

    low: float
    high: float
    missing: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        given: tuple[Any, Any] = (self.low, self.high)
        ends = [float(end) if isinstance(end, Decimal) else end for end in given]
        if not is_interval(ends):
            raise InvalidRequest(
                f"Expected bounds of {self.name!r} with low below high",
                got=f"{self.low}, {self.high}",
                do="Pass public numbers (low, high) that hold whatever the data",
            )
        if not isinstance(self.missing, bool):
            raise InvalidRequest("Expected missing to be True or False", got=self.missing, do="Pass one of them")
        set_fields(self, low=float(ends[0]) + 0.0, high=float(ends[1]) + 0.0)

    @property
    def names_out(self) -> tuple[str, ...]:
        return (self.name, f"{self.name}=missing") if self.missing else (self.name,)

    @property
    def type_name(self) -> str:
        return "real"

    def check_kind(self, kind: Kind, *, computed: bool = False) -> None:
        if not kind.is_number:
            raise wrong_kind(self.name, "numbers (bounds are declared)", kind)

    def read_cells(self, column: pa.Array) -> Cells:
        # the scaled number, NaN if missing
        numbers = float_cells(column)
        with np.errstate(all="ignore"):  # a warning would reveal that a row has a huge number
            scaled = np.clip(numbers, self.low, self.high)
            scaled -= self.low
            scaled *= 2.0 / (self.high - self.low)
            scaled -= 1.0
            # Again after rounding, so that no number leaves [-1, 1].
            np.clip(scaled, -1.0, 1.0, out=scaled)
            return scaled.astype(np.float32)

    def write_features(self, cells: Cells, out: Features) -> None:
        missing = np.isnan(cells)
        out[:, 0] = np.where(missing, np.float32(0), cells)
        if self.missing:
            out[:, 1] = missing

    @property
    def declared(self) -> Any:
        return (self.low, self.high)

    def _json_fields(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "missing": self.missing}

    @classmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["name"], fields["low"], fields["high"], missing=fields["missing"])


@dataclass(frozen=True)
class CategoryColumn(ColumnEncoding, kind="category"):
    """Values of a public list, one feature each, and a last feature for every other value and for missing cells.

    Parameters
    ----------
    name : str
        Name of the column.
    levels : sequence of texts, numbers, booleans or dates
        The public values, of one kind. 1, 1.0 and True are the same level.

    Examples
    --------
    >>> color = CategoryColumn("color", ["red", "blue"])
    >>> color.names_out
    ("color='red'", "color='blue'", 'color=other')
    >>> color.encode(pa.array(["blue", "green", None])).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    """

    levels: tuple[Any, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, levels=read_levels(self.name, self.levels))

    @cached_property
    def names_out(self) -> tuple[str, ...]:
        return (*(f"{self.name}={show_level(level)}" for level in self.levels), f"{self.name}=other")

    @property
    def width(self) -> int:
        return len(self.levels) + 1

    @cached_property
    def type_name(self) -> str:
        kinds = {constant_kind(level) for level in self.levels}
        return (Kind.BOOLEAN if kinds == {Kind.BOOLEAN} else self._family).value

    @property
    def _family(self) -> Kind:
        found = constant_kind(self.levels[0])
        assert found is not None
        return found.family

    def check_kind(self, kind: Kind, *, computed: bool = False) -> None:
        if kind.family is not self._family:
            raise wrong_kind(self.name, f"values like its levels ({_PLURAL[self._family]})", kind)
        # A large whole number as a level needs a stored column of integers.
        check_categories(_computed(self.name) if computed else col(self.name), self.levels, kind)

    def read_cells(self, column: pa.Array) -> Cells:
        # the place among the levels, or their number for any other cell
        places = find_places(column, self.levels).astype(np.int32, copy=True)
        places[places < 0] = len(self.levels)
        return places

    def write_features(self, cells: Cells, out: Features) -> None:
        out[np.arange(len(cells)), cells] = 1

    @property
    def declared(self) -> Any:
        return list(self.levels)

    def _json_fields(self) -> dict[str, Any]:
        return {"levels": [level_to_json(level) for level in self.levels]}

    @classmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["name"], tuple(level_from_json(level) for level in fields["levels"]))


@dataclass(frozen=True)
class FlagColumn(ColumnEncoding, kind="flag"):
    """Booleans: 1 for true, -1 for false, 0 for missing. In a column of numbers 1 is true and 0 is false.

    Parameters
    ----------
    name : str
        Name of the column.

    Examples
    --------
    >>> FlagColumn("member").encode(pa.array([True, False, None])).tolist()
    [[1.0], [-1.0], [0.0]]
    """

    @property
    def names_out(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def type_name(self) -> str:
        return "boolean"

    def check_kind(self, kind: Kind, *, computed: bool = False) -> None:
        if not kind.is_number:
            raise wrong_kind(self.name, "booleans", kind)

    def read_cells(self, column: pa.Array) -> Cells:
        numbers = float_cells(column)
        signs: NDArray[np.int8] = (numbers == 1).astype(np.int8) - (numbers == 0).astype(np.int8)
        return signs

    def write_features(self, cells: Cells, out: Features) -> None:
        out[:, 0] = cells

    @property
    def declared(self) -> Any:
        return "boolean"

    def _json_fields(self) -> dict[str, Any]:
        return {}

    @classmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["name"])


_NULLS: dict[str, pa.DataType] = {
    "real": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.large_string(),
    "time": pa.timestamp("us"),
}
_PLURAL = {
    Kind.REAL: "numbers",
    Kind.INTEGER: "numbers",
    Kind.BOOLEAN: "booleans",
    Kind.TEXT: "texts",
    Kind.TIME: "times",
    Kind.OTHER: "a type that cannot be a feature",
}


def wrong_kind(name: str, wanted: str, kind: Kind) -> InvalidRequest:
    """Return the error for a column whose type does not fit its declaration."""
    hints = {
        Kind.TEXT: f"Declare its levels: columns={{{json.dumps(name, ensure_ascii=False)}: [...]}}, or leave it out",
        Kind.TIME: "Declare a window of two dates, or leave it out",
        Kind.OTHER: "Leave it out",
    }
    do = hints.get(kind, "Declare bounds (low, high), a list of numbers as levels, or leave it out")
    return InvalidRequest(f"Expected {wanted} in {name!r}", got=f"a column of {_PLURAL[kind]}", do=do)


def _computed(name: str) -> Any:
    """Return an expression that is not a stored column, for ``check_categories``."""
    return -col(name)


def set_fields(column: ColumnEncoding, **fields: Any) -> None:
    """Replace fields of a frozen column by their normal form, while it is made."""
    for name, value in fields.items():
        object.__setattr__(column, name, value)
