"""The public set that encoded rows lie in: bounds column by column, and which features are 0 or 1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.models.tabular.column_encoding import CategoryColumn, NumberColumn
from expost.models.tabular.table_encoder import TableEncoder

__all__ = ["EncodedShape"]

_TOLERANCE = 1 + 1e-9  # relative, for sums of magnitudes in floats


@dataclass(frozen=True)
class EncodedShape:
    """What is public about every encoded row, column by column of the table.

    ``widths`` are the numbers of features of the columns, ``lengths`` the largest sums of magnitudes of a column's
    features, ``squared_length`` is the largest squared Euclidean length of a row. ``exclusive`` says of which columns at
    most one feature differs from zero, ``indicators`` which features are 0 or 1.

    >>> from expost.models.tabular.column_encoding import CategoryColumn, NumberColumn
    >>> shape = EncodedShape.of(TableEncoder((NumberColumn("age", 0, 100), CategoryColumn("color", ["red"]))))
    >>> shape.widths, shape.absolute_length, shape.exclusive
    ((2, 2), 2.0, (True, True))
    """

    widths: tuple[int, ...]
    lengths: tuple[float, ...]
    squared_length: float
    exclusive: tuple[bool, ...]
    indicators: tuple[bool, ...]

    @classmethod
    def of(cls, encoder: TableEncoder) -> EncodedShape:
        """Return the shape of the rows that an encoder makes."""
        columns = encoder.columns
        indicators = [
            isinstance(column, CategoryColumn) or (isinstance(column, NumberColumn) and place > 0)
            for column in columns
            for place in range(column.width)
        ]
        return cls(
            tuple(column.width for column in columns),
            tuple(column.absolute_length for column in columns),
            encoder.squared_length,
            tuple(isinstance(column, CategoryColumn | NumberColumn) for column in columns),
            tuple(indicators),
        )

    @property
    def width(self) -> int:
        """Return the number of features."""
        return sum(self.widths)

    @property
    def absolute_length(self) -> float:
        """Return the largest sum of magnitudes of a row's features."""
        return float(sum(self.lengths))

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """Return the place of each column's first feature."""
        return np.concatenate([[0], np.cumsum(self.widths)[:-1]]).astype(np.intp)

    def contains(self, features: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which rows lie in the set. All do that the encoder made; NaN lies outside.

        Sensitivities rest on it, so rows outside must be left out.
        """
        sums = np.add.reduceat(np.abs(np.asarray(features, np.float64)), self.starts, axis=1)
        return np.asarray((sums <= np.array(self.lengths) * _TOLERANCE).all(axis=1), bool)
