"""What ``expost ledger show`` prints of the table of each account."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from expost.ledger import Ledger, Protected
from expost.ledger.known_source import KnownSource

__all__ = ["AccountTable", "account_tables"]


@dataclass(frozen=True, kw_only=True)
class AccountTable:
    """The source, unit and adjacency of an account, as far as they are known."""

    account: str
    source: KnownSource | None
    protected: Protected | None

    @property
    def cells(self) -> tuple[str, ...]:
        """One line of the table."""
        unit = "not asked yet" if self.protected is None else str(self.protected.unit)
        adjacency = "not asked yet" if self.protected is None else self.protected.adjacency.value
        columns = "" if self.source is None else ", ".join(name for name, _ in self.source.columns)
        text, code = ("not used yet", "") if self.source is None else (self.source.text, self.source.code)
        return self.account, text, unit, adjacency, columns, code

    @property
    def reasons(self) -> tuple[str, ...]:
        """The owner's reasons for another budget or another source."""
        return () if self.source is None else self.source.reasons

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object. Codes of content are shown in short form only."""
        found: dict[str, Any] = {"account": self.account}
        if self.source is not None:
            found |= {
                "places": sorted(self.source.places),
                "columns": dict(self.source.columns),
                "code": self.source.code,
                "reasons": list(self.source.reasons),
                "shares_with": sorted(self.source.shared),
            }
        if self.protected is not None:
            stated = self.protected.to_json()
            found |= {"unit": stated["unit"], "adjacency": stated["adjacency"]}
        return found


def account_tables(ledger: Ledger) -> dict[str, AccountTable]:
    """Return what the ledger knows of the table of each account that pays for one."""
    sources, stated = ledger.sources(), dict[str, Protected]()
    for entry in ledger.history():
        protected = entry.body.get("protected")
        if protected is not None:
            stated[protected["account"]] = Protected.from_json(protected)
    names = [name for name in ledger.accounts() if name in sources or name in stated or name.startswith("dataset:")]
    return {
        name: AccountTable(account=name, source=sources.get(name), protected=stated.get(name))
        for name in names
        if ledger.whole_of(name) is None
    }
