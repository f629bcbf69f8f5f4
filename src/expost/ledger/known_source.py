"""The sources of accounts: a budget belongs to a table, so a second name for known rows is refused.

An entry of kind ``source`` records what is known of the table of an account: places, files, columns, and keyed codes of
samples of its content. All entries of an account count together, because a table grows, moves and is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from expost.core import InvalidRequest
from expost.ledger.ledger_entry import EntryKind, LedgerEntry
from expost.ledger.ledger_page import LedgerPage

__all__ = ["KnownSource", "add_source", "check_reason", "known_sources"]

_LONGEST_REASON = 500


@dataclass(frozen=True, kw_only=True)
class KnownSource:
    """What the chain knows of the table of one account.

    Parameters
    ----------
    account : str
        The account.
    columns : tuple of (str, str)
        Names and kinds of the columns, as last recorded.
    places : frozenset of str
        Paths, patterns and tables, e.g. ``file:/data/flights.parquet``.
    files : frozenset of str
        Device and inode of its files.
    codes : frozenset of str
        Keyed codes of samples of its content.
    shared : frozenset of str
        Accounts with which it may share rows, because the owner gave a reason.
    reasons : tuple of str
        The owner's reasons for another budget or another source, oldest first.

    Examples
    --------
    >>> KnownSource(account="dataset:flights", places=frozenset({"file:/data/flights.parquet"})).text
    '/data/flights.parquet'
    """

    account: str
    columns: tuple[tuple[str, str], ...] = ()
    places: frozenset[str] = frozenset()
    files: frozenset[str] = field(default=frozenset(), repr=False)
    codes: frozenset[str] = field(default=frozenset(), repr=False)
    shared: frozenset[str] = frozenset()
    reasons: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The source in a few words."""
        # The pattern of a glob stands for its files.
        shown = sorted(self.places, key=lambda place: (not place.startswith("glob:"), len(place), place))
        if not shown:
            return "a table without a place, such as one in memory"
        more = "" if len(shown) == 1 or shown[0].startswith("glob:") else f" and {len(shown) - 1} more"
        return shown[0].removeprefix("file:").removeprefix("glob:") + more

    @property
    def code(self) -> str:
        """A short keyed code of its content, empty if none is known."""
        return min(self.codes).partition(":")[2][:8] if self.codes else ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KnownSource:
        """Read what ``to_json`` wrote.

        Parameters
        ----------
        data : mapping
            A JSON object.

        Returns
        -------
        KnownSource
        """
        sets = {name: _read_texts(data[name]) for name in ("places", "files", "codes", "shared")}
        columns = tuple((str(name), str(kind)) for name, kind in data["columns"])
        return cls(account=data["account"], columns=columns, reasons=tuple(data["reasons"]), **sets)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object.

        Returns
        -------
        dict
        """
        return {
            "account": self.account,
            "columns": [list(pair) for pair in self.columns],
            "places": sorted(self.places),
            "files": sorted(self.files),
            "codes": sorted(self.codes),
            "shared": sorted(self.shared),
            "reasons": list(self.reasons),
        }

    def add_entry(self, body: Mapping[str, Any]) -> KnownSource:
        """Return what is known after one more entry; raise if it is not well formed.

        Parameters
        ----------
        body : mapping
            The content of an entry of kind ``source``.

        Returns
        -------
        KnownSource
        """
        places, files, codes = (_read_texts(body[name]) for name in ("places", "files", "codes"))
        columns = tuple((str(name), str(kind)) for name, kind in body.get("columns", self.columns))
        reasons = tuple(check_reason(body[name]) for name in ("another_budget", "rebound") if name in body)
        return replace(
            self,
            columns=columns,
            places=self.places | places,
            files=self.files | files,
            codes=self.codes | codes,
            shared=self.shared | _read_texts(body.get("shares_with", [])),
            reasons=self.reasons + reasons,
        )

    def check_alone(self, others: Iterable[KnownSource]) -> None:
        """Raise ``ValueError`` if another account has one of its places or codes and no reason was given.

        Parameters
        ----------
        others : iterable of KnownSource
            The sources of all accounts, this one included.
        """
        for other in others:
            common = self.places & other.places or self.codes & other.codes
            if other.account != self.account and common and not self.may_share(other):
                raise ValueError("two accounts of one source without a reason")

    def may_share(self, other: KnownSource) -> bool:
        """Return whether the owner gave a reason why the two accounts may pay for the same rows.

        Parameters
        ----------
        other : KnownSource
            The source of another account.

        Returns
        -------
        bool
        """
        return other.account in self.shared or self.account in other.shared


def known_sources(page: LedgerPage) -> dict[str, KnownSource]:
    """Return what the chain knows of the source of each account, before this transaction."""
    replayed = page.replayed_sources()
    if replayed is not None:
        return dict(replayed)
    found: dict[str, KnownSource] = {}
    for entry in page.all_entries():
        if entry.kind is EntryKind.SOURCE:
            add_source(found, entry)
    return found


def add_source(found: dict[str, KnownSource], entry: LedgerEntry) -> KnownSource:
    """Add what one entry records."""
    account = entry.body["account"]
    known = found[account] = found.get(account, KnownSource(account=account)).add_entry(entry.body)
    return known


def check_reason(reason: object, argument: str = "another_budget") -> str:
    """Return a reason that can be recorded, or raise ``InvalidRequest``.

    >>> check_reason("one budget per study")
    'one budget per study'
    """
    text = reason.strip() if isinstance(reason, str) else ""
    if not 0 < len(text) <= _LONGEST_REASON or not text.isprintable():
        raise InvalidRequest(
            f"Expected {argument} to be a reason of 1 to {_LONGEST_REASON} printable characters",
            got=reason,
            do="Say why; it is recorded",
        )
    return text


def _read_texts(stored: Any) -> frozenset[str]:
    if not isinstance(stored, list) or not all(isinstance(text, str) for text in stored):
        raise ValueError("not a list of texts")
    return frozenset(stored)
