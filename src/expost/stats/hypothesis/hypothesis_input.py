"""Public arguments of hypothesis tests: numbers, bounds, probabilities and the public size of a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency, InvalidRequest
from expost.core.argument import check_unmasked
from expost.core.rational import finite, rational, whole
from expost.data import Dataset, Kind
from expost.stats.hypothesis.private_sample import round_to_grid

__all__ = [
    "Alternative",
    "Number",
    "TableSize",
    "check_categories",
    "check_column_names",
    "check_numeric_column",
    "check_row_count",
    "check_values",
    "read_alternative",
    "read_bounds",
    "read_column_bounds",
    "read_correlation",
    "read_counts",
    "read_finite",
    "read_flag",
    "read_floats",
    "read_group_sizes",
    "read_pair",
    "read_power_epsilon",
    "read_probabilities",
    "read_public_rows",
    "read_row_count",
    "read_test_epsilon",
    "scale_deviation",
    "scale_to_width",
]

Alternative = Literal["two-sided", "greater", "less"]
Number = float | Fraction | Decimal
Floats = NDArray[np.float64]

_MOST_ROWS = 1 << 40
_MOST_COUNTED = 1 << 53  # rows of a table of counts: floats represent every count up to here
_MOST_GROUPS = 1 << 16
_LARGEST = 1e150  # squares of numbers up to here are finite
_MOST_WIDTHS = 1e9
_LEAST_EPSILON, _MOST_EPSILON = Fraction(1, 10**9), Fraction(1000)
_HELD_TYPES: dict[Kind, tuple[type, ...]] = {
    Kind.BOOLEAN: (bool,),
    Kind.INTEGER: (int,),
    Kind.REAL: (int, float),
    Kind.TEXT: (str,),
}


@dataclass(frozen=True)
class TableSize:
    """The number of rows as far as it is public, and a public guess for prices where it is not.

    >>> TableSize.of_sample(100, adjacency="replace-one").cell_sensitivity
    2
    >>> TableSize.of_sample(100, adjacency="add-remove").rows is None
    True
    """

    rows: int | None
    expected: int | None = None

    @classmethod
    def of_sample(cls, rows: int, *, adjacency: str | Adjacency, expected_rows: int | None = None) -> TableSize:
        """Return the size of a sample; its length is public only under replace-one."""
        if Adjacency.parse(adjacency).public_size:
            return cls(rows)
        return cls(None, _read_expected_rows(expected_rows))

    @classmethod
    def of_dataset(cls, dataset: Dataset, expected_rows: int | None = None) -> TableSize:
        """Return the size of a dataset whose rows are different people, since tests assume independent rows."""
        _check_single_rows(dataset)
        if not dataset.adjacency.public_size:
            return cls(None, _read_expected_rows(expected_rows))
        if dataset.rows is None:
            raise InvalidRequest(
                "Expected a public number of rows under replace-one", do="Declare rows=, or use add-remove"
            )
        return cls(dataset.rows)

    def suppose_sizes(self, groups: int, expected_sizes: object) -> tuple[int, ...]:
        """Return the sizes of private groups for which a power is computed: as guessed, or even shares of the rows.

        How many rows are in which group must not influence the price.

        >>> TableSize(100).suppose_sizes(3, None), TableSize(100).suppose_sizes(2, (70, 30))
        ((33, 33, 33), (70, 30))
        """
        if expected_sizes is None:
            return (max(self.priced_rows // groups, 1),) * groups
        sizes = read_group_sizes(expected_sizes, groups=groups, name="expected_sizes")
        if self.rows is not None and sum(sizes) > self.rows:
            raise InvalidRequest(
                f"Expected expected_sizes to sum to at most {self.rows} rows", got=sum(sizes), do="Guess smaller groups"
            )
        return tuple(sizes)

    @property
    def adjacency(self) -> Adjacency:
        """Return the adjacency under which this much is public."""
        return Adjacency.ADD_REMOVE if self.rows is None else Adjacency.REPLACE_ONE

    @property
    def cell_sensitivity(self) -> int:
        """Return how far one row moves a table of counts (L1): it enters a cell, or leaves one for another."""
        return 1 if self.rows is None else 2

    @property
    def priced_rows(self) -> int:
        """Return the number of rows for which a power is computed."""
        rows = self.expected if self.rows is None else self.rows
        if rows is None:
            raise InvalidRequest(
                "Expected a public guess of the number of rows together with power",
                do="Pass expected_rows=, or epsilon=",
            )
        return rows

    @property
    def terms(self) -> dict[str, object]:
        """Return the size as printed on a receipt."""
        if self.rows is not None:
            return {"rows": self.rows}
        return {"rows": "private"} | ({} if self.expected is None else {"rows expected": self.expected})


def _read_expected_rows(value: object) -> int | None:
    """Read a public guess of the number of rows."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidRequest("Expected expected_rows to be a positive whole number", got=value, do="Pass 1000")
    return value


def _check_single_rows(dataset: Dataset) -> None:
    """Refuse a dataset in which one person may have several rows."""
    if not dataset.unit.is_row:
        raise InvalidRequest(
            "Expected rows of different people, because the test assumes independent rows",
            got=str(dataset.unit),
            do="Reduce the table to one row per person first",
        )


def read_public_rows(dataset: Dataset) -> int:
    """Return the public number of rows of a dataset of independent people."""
    if not dataset.adjacency.public_size or dataset.rows is None:
        raise InvalidRequest(
            "Expected a dataset with a public number of rows",
            got=dataset.adjacency.value,
            do='Declare it with adjacency="replace-one" and rows=',
        )
    _check_single_rows(dataset)
    return dataset.rows


def check_row_count(rows: int, *, fewest: int, most: int) -> int:
    """Return a number of rows that a test can handle.

    >>> check_row_count(2, fewest=3, most=100)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected between 3 and 100 rows, got 2. Bring more rows, or take a sample.
    """
    if not fewest <= rows <= most:
        raise InvalidRequest(
            f"Expected between {fewest} and {most} rows", got=rows, do="Bring more rows, or take a sample"
        )
    return rows


def check_column_names(*columns: object) -> None:
    """Refuse names of columns that are not texts."""
    for column in columns:
        if not isinstance(column, str):
            raise InvalidRequest("Expected the name of a column", got=column, do="Pass its name as a text")


def check_numeric_column(dataset: Dataset, column: str) -> None:
    """Refuse a column that does not hold numbers."""
    if not dataset.schema.kind(column).is_number:
        raise InvalidRequest("Expected a numeric column", got=column, do="Name a column of numbers")


def check_values(dataset: Dataset, column: str, values: Iterable[Any]) -> None:
    """Refuse values that a column of this kind cannot hold. Reads no rows."""
    kind = dataset.schema.kind(column)
    types = _HELD_TYPES.get(kind, ())
    for value in values:
        odd = isinstance(value, float) and not math.isfinite(value)  # NaN is a missing cell, not a value
        if odd or not isinstance(value, types) or (isinstance(value, bool) and kind is not Kind.BOOLEAN):
            raise InvalidRequest(
                f"Expected a value of a column that holds {kind.value} values",
                got=value,
                do="Pass a value of that kind",
            )


def check_categories(dataset: Dataset, column: str) -> tuple[Any, ...]:
    """Return the public categories of a column, at least two."""
    categories = tuple(dataset.categories.get(column, ()))
    if len(categories) < 2:
        raise InvalidRequest("Expected public categories of the column", got=column, do="Declare Dataset(categories=)")
    check_values(dataset, column, categories)
    return categories


def read_bounds(bounds: object) -> tuple[float, float]:
    """Read public bounds (low, high) as floats."""
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise InvalidRequest("Expected bounds=(low, high)", do="Pass the public bounds of the values")
    low, high = (float(end) if isinstance(end, int | float | np.number) else math.nan for end in bounds)
    round_to_grid([], (low, high))  # refuses bounds without a finite positive width
    return low, high


def read_column_bounds(dataset: Dataset, column: str) -> tuple[float, float]:
    """Return the public bounds of a numeric column."""
    check_numeric_column(dataset, column)
    if column not in dataset.bounds:
        raise InvalidRequest("Expected public bounds of the column", got=column, do="Declare them in Dataset(bounds=)")
    return read_bounds(tuple(dataset.bounds[column]))


def read_alternative(value: object) -> Alternative:
    """Read the alternative hypothesis."""
    match value if isinstance(value, str) else None:  # arrays compare by element
        case "two-sided" | "greater" | "less" as found:
            return found
    raise InvalidRequest(
        "Expected alternative to be 'two-sided', 'greater' or 'less'", got=value, do="Name one of them"
    )


def read_test_epsilon(epsilon: object) -> Fraction:
    """Read an epsilon that exact noise can have in any test.

    The noise of a test has a sensitivity from 1 to 2^27 (ranks of 2^24 rows in groups) and gets at least an eighth of
    epsilon. With these limits its scale is below 2^60 and its rate at most 1000, as ``check_level`` requires.
    """
    level = rational(epsilon, "epsilon")
    if not _LEAST_EPSILON <= level <= _MOST_EPSILON:
        raise InvalidRequest("Expected epsilon between 1e-9 and 1000", got=epsilon, do="Pass one between them")
    return level


def read_power_epsilon(epsilon: Any, *, endless: float | None = None) -> float:
    """Read the epsilon of a power function; values from ``endless`` on, infinity included, count as ``endless``."""
    if endless is None:
        return float(read_test_epsilon(epsilon))
    if _is_number(epsilon) and epsilon >= endless:
        return endless
    return float(rational(epsilon, "epsilon"))


def read_row_count(value: object, name: str = "rows", *, fewest: int = 1, most: int = _MOST_ROWS) -> int:
    """Read a number of rows."""
    return whole(value, name, least=fewest, most=most, do=f"Pass e.g. {min(1000, most)}")


def read_group_sizes(value: object, *, groups: int | None = None, name: str = "sizes") -> list[int]:
    """Read the numbers of rows of two or more groups."""
    given: list[Any] = list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else []
    if not 2 <= len(given) <= _MOST_GROUPS or groups not in (None, len(given)):
        number = "of at least two groups" if groups is None else f"of {groups} groups"
        raise InvalidRequest(f"Expected the sizes {number}", do=f"Pass e.g. {name}=(100, 100)")
    return [read_row_count(each, "each size") for each in given]


def read_finite(value: Any, name: str) -> float:
    """Read a finite number of either sign."""
    found = finite(value, name, do="Pass e.g. 0.5")
    if abs(found) > _LARGEST:
        raise InvalidRequest(f"Expected {name} to be a finite number", got=value, do="Pass e.g. 0.5")
    return found


def read_correlation(value: Any) -> float:
    """Read a correlation between -1 and 1, both excluded."""
    if not _is_number(value) or not -1 < value < 1:
        raise InvalidRequest("Expected a correlation between -1 and 1", got=value, do="Pass one inside")
    return float(value)


def _is_number(value: object) -> bool:
    """Return whether a value is a real number, booleans excluded."""
    return isinstance(value, Real) and not isinstance(value, bool)


def read_pair(value: object, name: str) -> tuple[Any, Any]:
    """Read one item for each of two columns."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidRequest(f"Expected {name} of both columns", do="Pass a pair")
    return value[0], value[1]


def read_flag(value: object, name: str) -> bool:
    """Read True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidRequest(f"Expected {name} to be True or False", got=value, do="Pass one of them")
    return bool(value)


def scale_to_width(value: object, name: str, width: float) -> float:
    """Convert a number to widths of the bounds, clipped at a billion widths."""
    return float(np.clip(read_finite(value, name) / width, -_MOST_WIDTHS, _MOST_WIDTHS))


def scale_deviation(value: object, width: float) -> float:
    """Convert a standard deviation to widths of the bounds."""
    return scale_to_width(rational(value, "deviation"), "deviation", width)


def read_floats(values: Any) -> Floats:
    """Read public numbers as floats; anything else yields an empty array, which callers reject.

    >>> read_floats(["a"]).shape
    (0, 0)
    """
    check_unmasked(values)
    try:
        given = np.asarray(values)
        return np.empty((0, 0)) if given.dtype.kind == "c" else given.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.empty((0, 0))


def read_probabilities(values: Sequence[Any] | NDArray[Any], *, dimensions: int = 1) -> Floats:
    """Read positive probabilities that sum to 1."""
    chances = read_floats(values)
    if chances.ndim != dimensions or chances.size < 2 or not (chances > 0).all() or abs(chances.sum() - 1) > 1e-6:
        raise InvalidRequest("Expected positive probabilities that sum to 1", do="Pass one for each category")
    total: Floats = chances / chances.sum()
    return total


def read_counts(values: Any, *, dimensions: int, adjacency: str | Adjacency) -> NDArray[np.int64]:
    """Read a table of exact counts. Where the number of rows is public, at least one row is needed."""
    # With a private number of rows an empty table is accepted: refusing it would reveal that it is empty.
    fewest = 1 if Adjacency.parse(adjacency).public_size else 0
    check_unmasked(values)
    try:
        counts = np.asarray(values)
    except (TypeError, ValueError, OverflowError):  # such as lists of different lengths
        counts = np.empty(0)
    if (
        counts.ndim != dimensions
        or any(length < 2 for length in counts.shape)
        or counts.dtype.kind not in "iu"
        or counts.min() < 0
        or not fewest <= counts.sum(dtype=float) <= _MOST_COUNTED
    ):
        raise InvalidRequest(f"Expected a table of counts with {dimensions} axis or axes", do="Pass whole numbers")
    return counts.astype(np.int64)
