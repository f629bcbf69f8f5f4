"""The accounts that commands are charged to: who may open one, and a session that is billed to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from expost.cli.console import err
from expost.core import Guarantee, InvalidRequest
from expost.ledger.neighbour_record import separate_names
from expost.ledger.opening import open_existing_ledger
from expost.ledger.source_binding import missing_account

if TYPE_CHECKING:
    from expost.data import Dataset
    from expost.session import Session

__all__ = ["open_billed_session"]

_JOINED = "the separate account that an earlier version opened for this table is joined to this one"


@contextmanager
def open_billed_session(
    dataset: Dataset,
    source: str,
    *,
    budget: Guarantee | None,
    ledger: str,
    analyst: str | None = None,
    tables: Sequence[Dataset] = (),
    quiet: bool = False,
) -> Iterator[Session]:
    """Open a session about a table that is billed to its account in a ledger.

    A budget opens the account of a new ledger, which is printed unless ``quiet``. In a ledger that has accounts only its
    owner opens another one, with ``expost ledger budget``.
    """
    from expost.session import Session

    account, (accounts, bound) = f"dataset:{dataset.name}", _list_accounts(ledger)
    if account not in accounts and accounts:
        raise missing_account(account, ledger)
    if account not in accounts and budget is None:
        raise InvalidRequest(
            f"Expected a budget for {account}, which is not in the ledger", do="Pass --budget 1 to open it"
        )
    # The account that earlier versions kept for the other adjacency is this table's own.
    has_twin = not set(separate_names(account)).isdisjoint(accounts)
    reason = _JOINED if has_twin and account not in bound else None
    with Session(dataset, budget, ledger=ledger, analyst=analyst, tables=tables, another_budget=reason) as session:
        if account not in accounts and not quiet:
            place = "" if "://" in ledger else f" in {ledger}"
            err.print(f"opened account {account}{place} with a budget of {budget}", style="dim", markup=False)
        elif account not in bound and not quiet:
            table = "this table" if "://" in source else source  # the address of a server may have a password
            err.print(f"account {account} pays for {table} from now on", style="dim", markup=False)
        yield session


def _list_accounts(ledger: str) -> tuple[list[str], list[str]]:
    """Return the accounts of a ledger and those whose source is known, none if it does not exist."""
    found = open_existing_ledger(ledger)
    if found is None:
        return [], []
    with found:
        return found.accounts(), list(found.sources())
