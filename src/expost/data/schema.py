"""The public shape of a table: names and kinds of its columns."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from expost.core import InvalidRequest

__all__ = ["Kind", "Schema"]


class Kind(enum.Enum):
    """What a column holds, as far as questions care.

    >>> Kind.of(pa.int16())
    <Kind.INTEGER: 'integer'>
    """

    INTEGER = "integer"
    REAL = "real"
    BOOLEAN = "boolean"
    TEXT = "text"
    TIME = "time"
    OTHER = "other"

    @property
    def is_number(self) -> bool:
        """Whether values can be clamped and summed."""
        return self in (Kind.INTEGER, Kind.REAL, Kind.BOOLEAN)

    @classmethod
    def of(cls, arrow: pa.DataType) -> Kind:
        """Return the kind of an Arrow type; an encoded column is of the kind that it encodes."""
        if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
            return cls.of(arrow.value_type)
        for kind, tests in _TESTS.items():
            if any(test(arrow) for test in tests):
                return kind
        return cls.OTHER


_TESTS = {
    Kind.BOOLEAN: (pa.types.is_boolean,),
    Kind.INTEGER: (pa.types.is_integer,),
    Kind.REAL: (pa.types.is_floating, pa.types.is_decimal),
    Kind.TEXT: (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    Kind.TIME: (pa.types.is_date, pa.types.is_timestamp),
}


@dataclass(frozen=True, slots=True)
class Schema:
    """Column names and kinds, in file order; public by declaration.

    >>> schema = Schema.of(pa.schema({"age": pa.int8(), "city": pa.string()}))
    >>> print(schema)
    age integer, city text
    """

    kinds: Mapping[str, Kind]

    @classmethod
    def of(cls, arrow: pa.Schema) -> Schema:
        """The schema of an Arrow schema."""
        if len(set(arrow.names)) != len(arrow.names):
            raise InvalidRequest("Expected column names without repeats", do="Rename the repeated columns")
        return cls({field.name: Kind.of(field.type) for field in arrow})

    def kind(self, column: str) -> Kind:
        """The kind of a column; an unknown name is refused."""
        if column not in self.kinds:
            raise InvalidRequest("Expected the name of a column", got=column, do="See dataset.schema for the names")
        return self.kinds[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds)

    def __contains__(self, column: object) -> bool:
        return column in self.kinds

    def __str__(self) -> str:
        return ", ".join(f"{name} {kind.value}" for name, kind in self.kinds.items())
