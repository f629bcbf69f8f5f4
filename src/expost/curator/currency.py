"""A request in the currency of the accounts that pay for it."""

from __future__ import annotations

from collections.abc import Sequence

from expost.core import Request
from expost.ledger import Ledger

__all__ = ["in_currency_of"]


def in_currency_of(request: Request, ledger: Ledger, accounts: Sequence[str]) -> Request:
    """The request as these accounts can pay for it, where it can be charged in more than one way.

    A request may have ``priced_in(definitions)``, which gives the form of itself for accounts of these definitions.
    Whether the accounts can pay for that form is the ledger's to say.
    """
    priced_in = getattr(request, "priced_in", None)
    if priced_in is None:
        return request
    found: Request = priced_in({ledger.budget(account).definition for account in accounts})
    return found
