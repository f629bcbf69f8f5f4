"""How many rows a table has, as far as that is public."""

from __future__ import annotations

from dataclasses import dataclass

from expost.core import Adjacency, InvalidRequest
from expost.data import Dataset

__all__ = ["TableSize", "fewest_rows"]


@dataclass(frozen=True)
class TableSize:
    """The public number of rows under replace-one; under add/remove none, and a public guess for prices.

    >>> TableSize.of(100, adjacency="replace-one").cell_sensitivity
    2
    >>> TableSize.of(100, adjacency="add-remove").rows is None
    True
    """

    rows: int | None
    expected: int | None

    @classmethod
    def of(cls, rows: int, *, adjacency: object, expected_rows: object = None) -> TableSize:
        """The size of a sample whose length is public only under replace-one."""
        relation = Adjacency.parse(adjacency)
        return cls(rows, None) if relation.public_size else cls(None, _whole(expected_rows))

    @classmethod
    def of_dataset(cls, dataset: Dataset, expected_rows: object = None) -> TableSize:
        """The size of a dataset; its rows must be different people, as tests take them for independent."""
        if not dataset.unit.is_row:
            raise InvalidRequest(
                "Expected rows of different people, as the test takes them for independent",
                got=str(dataset.unit),
                do="Reduce the table to one row per person first",
            )
        if not dataset.adjacency.public_size:
            return cls(None, _whole(expected_rows))
        if dataset.rows is None:
            raise InvalidRequest(
                "Expected a public number of rows under replace-one", do="Declare rows=, or use add-remove"
            )
        return cls(dataset.rows, None)

    @property
    def adjacency(self) -> Adjacency:
        """The relation under which this much is public."""
        return Adjacency.ADD_REMOVE if self.rows is None else Adjacency.REPLACE_ONE

    @property
    def cell_sensitivity(self) -> int:
        """How far one row moves a table of counts (L1): it enters a cell, or leaves one for another."""
        return 1 if self.rows is None else 2

    @property
    def priced_rows(self) -> int:
        """The number of rows that a power is computed for."""
        rows = self.expected if self.rows is None else self.rows
        if rows is None:
            raise InvalidRequest(
                "Expected a public guess of the number of rows beside power", do="Pass expected_rows=, or epsilon="
            )
        return rows

    @property
    def terms(self) -> dict[str, object]:
        """What a receipt says about the size."""
        if self.rows is not None:
            return {"rows": self.rows}
        return {"rows": "private"} | ({} if self.expected is None else {"rows expected": self.expected})


def fewest_rows(wanted: int, *, adjacency: object) -> int:
    """The fewest rows that a sample must have: none where their number is private, since a refusal would tell of it.

    >>> fewest_rows(2, adjacency="replace-one"), fewest_rows(2, adjacency="add-remove")
    (2, 0)
    """
    return wanted if Adjacency.parse(adjacency).public_size else 0


def _whole(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidRequest("Expected expected_rows to be a positive whole number", got=value, do="Pass 1000")
    return value
