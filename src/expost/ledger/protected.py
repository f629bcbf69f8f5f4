"""Whom the losses of an account are about: its unit and its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from expost.core import Adjacency, InvalidRequest, Unit
from expost.core.adjacency import Window
from expost.ledger.account import checked_name
from expost.ledger.entry import Entry, Kind, canonical
from expost.ledger.page import Page

__all__ = ["Protected"]


@dataclass(frozen=True, slots=True)
class Protected:
    """The unit and the neighbours that an account keeps from its first hold on.

    Losses add up for one notion of a person only. A hold that states its own is refused, in the transaction that would
    take it, where an earlier one of the account stated another: so of two sessions that describe a table differently
    only one can ever hold, however their questions overlap.

    >>> Protected("dataset:people", Adjacency.ADD_REMOVE, Unit.row()).to_json()["adjacency"]
    'add-remove'
    """

    account: str
    adjacency: Adjacency
    unit: Unit

    def __post_init__(self) -> None:
        # In another spelling of the account its past would not be found.
        object.__setattr__(self, "account", checked_name(self.account))

    @classmethod
    def first(cls, page: Page, account: str) -> Self | None:
        """What the oldest hold or receipt of an account says, if any does; the rest of the record is not read."""
        word = canonical(account)  # a line that does not even contain the name need not be parsed
        lines = (entry for entry in page.entries() if entry.kind in (Kind.HOLD, Kind.SETTLE) and word in entry.text)
        return next((found for found in (cls._stated(entry, account) for entry in lines) if found is not None), None)

    @classmethod
    def _stated(cls, entry: Entry, account: str) -> Self | None:
        if account not in entry.accounts:
            return None
        stated = entry.body.get("protected") or {}
        if entry.kind is Kind.SETTLE:
            stated = entry.body["receipt"] | {"account": account}
        return cls.from_json(stated) if stated.get("account") == account else None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """What ``to_json`` wrote, or a receipt says."""
        unit = data["unit"]
        window = None if unit["window"] is None else Window(unit["window"])
        return cls(data["account"], Adjacency(data["adjacency"]), Unit(unit["column"], unit["time_column"], window))

    def to_json(self) -> dict[str, Any]:
        """A JSON object; unit and neighbours as a receipt spells them."""
        window = None if self.unit.window is None else self.unit.window.value
        unit = {"column": self.unit.column, "time_column": self.unit.time_column, "window": window}
        return {"account": self.account, "adjacency": self.adjacency.value, "unit": unit}

    def check(self, page: Page) -> bool:
        """Refuse what an earlier hold or receipt of the account contradicts; says whether there is one."""
        before = self.first(page, self.account)
        if before is not None and before != self:
            raise InvalidRequest(
                f"Expected {before.unit} as the unit and {before.adjacency.value} neighbours, as in the account so far",
                got=f"{self.unit}, {self.adjacency.value}",
                do="Describe the dataset as before, or give it another name",
            )
        return before is not None
