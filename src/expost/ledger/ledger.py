"""The ledger: durable holds and receipts."""

from __future__ import annotations

import hashlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import NoReturn, Self, TypeVar

from expost.core import Guarantee, InvalidRequest, Loss, Receipt
from expost.ledger import posting, secret, totals
from expost.ledger.account import checked_budget, checked_name, is_template
from expost.ledger.entry import Entry, Kind
from expost.ledger.hold import Hold, HoldState
from expost.ledger.page import Page
from expost.ledger.part import Part
from expost.ledger.protected import Protected
from expost.ledger.replay import Report, verify
from expost.ledger.safe import Safe
from expost.ledger.ticket import new_ticket

__all__ = ["Ledger"]

T = TypeVar("T")

_LONGEST_TEXT = 10_000
_LONGEST_NAME = 500  # of a request or a secret: an index of PostgreSQL takes 2,700 bytes
_BEGINNING = 1_000  # characters of a longer question that a hold repeats


class Ledger(ABC):
    """Accounts with budgets, and what was charged to them, in a record that only grows.

    A run takes a ``hold`` on its worst case before the data is touched; ``settle`` records the receipt and gives back
    what the theorem allows. A hold that is never settled stays charged for ever. Every change is an entry in a chain
    of hashes, and the totals follow from the chain.

    >>> from expost.core import PureGuarantee, PureLoss, epsilon
    >>> from expost.ledger import open_ledger
    >>> ledger = open_ledger(None)
    >>> ledger.open_account("dataset:flights", epsilon(1))
    >>> hold = ledger.hold(["dataset:flights"], PureLoss(0.5), question="count")
    >>> receipt = Receipt(question="count", method="m", promise=PureGuarantee(0.5), bill=PureLoss(0.125))
    >>> entry = ledger.settle(hold, receipt)
    >>> ledger.remaining("dataset:flights")
    PureLoss(epsilon=Fraction(7, 8))
    """

    durable: bool
    url: str | None

    def __init__(self, safe: Safe) -> None:
        self._safe = safe

    @abstractmethod
    def _write(self, action: Callable[[Page], T]) -> T:
        """Run ``action`` alone, and keep all it wrote or, if it raises, nothing."""

    @abstractmethod
    def _read(self, action: Callable[[Page], T]) -> T:
        """Run ``action`` on one consistent state."""

    def close(self) -> None:
        """Let go of files and connections; the ledger opens again when it is next used."""
        return None

    # Accounts

    def open_account(self, account: str, budget: Guarantee) -> None:
        """Open an account; again with the same budget does nothing.

        ``"window:*"`` opens a template: each account with that prefix gets the budget at its first hold.
        """
        name = checked_name(account, template=True)
        amount = checked_budget(budget)
        self._write(lambda page: posting.open_account(page, name, amount))

    def open_part(
        self, account: str, *, of: str, by: str = "parts", touching: int = 1, budget: Guarantee | None = None
    ) -> None:
        """Open an account for one of several disjoint parts of what the account ``of`` covers.

        A charge to a part counts there, and in ``of`` only as far as it raises the largest part: what ``of`` has spent
        is its own charges plus, for each ``by``, the ``touching`` largest parts. That is sound if no change of one unit
        can touch more than ``touching`` parts (docs/proofs/parallel-parts.md). Without a budget the part has that of
        ``of``. The caller vouches that the parts are disjoint; ``expost.Session.part`` sees to it by itself.

        >>> from expost.core import PureLoss, epsilon
        >>> from expost.ledger import open_ledger
        >>> ledger = open_ledger(None)
        >>> ledger.open_account("study", epsilon(1))
        >>> for region in ("dataset:north", "dataset:south"):
        ...     ledger.open_part(region, of="study")
        ...     hold = ledger.hold([region], PureLoss(0.75), question="count")
        >>> ledger.spent("study")
        PureLoss(epsilon=Fraction(3, 4))
        """
        name, part = checked_name(account), Part.checked(checked_name(of), by, touching)
        amount = None if budget is None else checked_budget(budget)
        self._write(lambda page: posting.open_part(page, name, part, amount))

    def parts(self, account: str, *, by: str | None = None) -> list[str]:
        """The accounts that are parts of this one, or those of them by one thing."""
        name = checked_name(account)
        found = self._read(lambda page: page.parts(name))
        return [one.name for one in found if by is None or (one.part is not None and one.part.by == by)]

    def whole_of(self, account: str) -> str | None:
        """The account that this one is a part of, if it is one."""
        name = checked_name(account)
        found = self._read(lambda page: page.account(name))
        return None if found is None or found.part is None else found.part.of

    def root_of(self, account: str) -> str:
        """The account of the whole table, which this one may be a part of a part of: it says whom all are about."""
        above = self.whole_of(account)
        return account if above is None else self.root_of(above)

    def change_budget(self, account: str, budget: Guarantee) -> None:
        """Give an account another budget, at least what is spent; for the owner only, and recorded.

        A template's new budget holds for accounts opened from then on; parts that had the old one get the new one.
        """
        name = checked_name(account, template=True)
        amount = checked_budget(budget)
        self._write(lambda page: posting.change_budget(page, name, amount))

    def accounts(self) -> list[str]:
        """The names of all open accounts, templates excluded."""
        return [account for account in self._names() if not is_template(account)]

    def templates(self) -> list[str]:
        """The names of all templates."""
        return [account for account in self._names() if is_template(account)]

    def budget(self, account: str) -> Guarantee:
        """The budget of an account."""
        name = checked_name(account, template=True)
        return self._read(lambda page: posting.find_account(page, name)).budget

    def spent(self, account: str) -> Loss:
        """What is charged to an account: settled bills, and open holds at their worst case."""
        name = checked_name(account, template=True)
        return self._read(lambda page: posting.find_account(page, name)).spent

    def remaining(self, account: str) -> Loss:
        """What a new hold may still ask of an account, also by the budgets of the accounts it is a part of."""
        name = checked_name(account, template=True)
        return self._read(lambda page: totals.remaining(page, posting.find_account(page, name)))

    # Holds

    def hold(
        self,
        accounts: Sequence[str],
        worst_case: Loss,
        *,
        question: str,
        request_id: str | None = None,
        protected: Protected | None = None,
    ) -> Hold:
        """Reserve the worst case in all accounts at once, or raise ``BudgetExceeded`` and reserve nothing.

        The same request id again charges nothing and returns the first hold with ``repeated`` set: do not run it.
        A question of more than 10,000 characters is kept as its beginning and a digest; its receipt has all of it.
        With ``protected`` the hold is refused if the account it names was about another unit or other neighbours
        before, and stands for this one from now on.
        """
        names = _distinct(accounts)
        if not isinstance(worst_case, Loss):
            raise InvalidRequest("Expected a worst case that is a loss", got=worst_case, do="Pass PureLoss(0.5)")
        text = _text(_shortened(question), "question")
        request = None if request_id is None else _text(_shortened(request_id, _LONGEST_NAME), "request id")
        ticket = new_ticket()
        return self._write(
            lambda page: posting.take_hold(
                page, names, worst_case, question=text, request_id=request, ticket=ticket, protected=protected
            )
        )

    def check_protected(self, protected: Protected) -> bool:
        """Refuse what contradicts the unit and neighbours of an account so far; says whether it has any."""
        return self._read(protected.check)

    def settle(self, hold: Hold, receipt: Receipt) -> str:
        """Record the receipt of a held run and give back what the theorem allows; returns the entry's id.

        Only after this returns may the answer leave. The process that took the hold settles it, or the one that took
        it over; a fork of it cannot. Settling again with the same receipt changes nothing.
        """
        _check_hold(hold)
        if not isinstance(receipt, Receipt):
            raise InvalidRequest("Expected a receipt", got=receipt, do="Pass the receipt of the run")
        return self._write(lambda page: posting.settle(page, hold, receipt)).id

    def take_over(self, hold: Hold, *, keep: Callable[[Hold], object] | None = None) -> Hold:
        """Go on with a run that was begun before: from now on this process alone can settle it.

        For runs that are written down as they go, such as a training with a checkpoint. Of several processes that have
        the same copy of a hold one can take it over; it then has a new ticket, and all copies are worth nothing.
        ``keep`` is given the new hold before the ledger is: who writes it down there can go on after any crash.

        >>> from expost.core import PureLoss, epsilon
        >>> from expost.ledger import open_ledger
        >>> ledger = open_ledger(None)
        >>> ledger.open_account("dataset:flights", epsilon(1))
        >>> copy = ledger.hold(["dataset:flights"], PureLoss(0.5), question="train")
        >>> mine = ledger.take_over(copy)
        >>> ledger.take_over(copy)
        Traceback (most recent call last):
        expost.core.errors.InvalidRequest: Expected the newest copy of this hold; its run was taken over since. Go on ...
        """
        _check_hold(hold)
        mine = replace(hold, ticket=new_ticket(), earlier=(hold.ticket, *hold.earlier))
        self._read(lambda page: posting.check_take_over(page, mine))
        if keep is not None:
            keep(mine)
        return self._write(lambda page: posting.take_over(page, mine))

    def write_off(self, hold_id: str) -> str:
        """Close a hold whose run is lost; it stays charged at its worst case. For the owner only."""
        return self._write(lambda page: posting.write_off(page, hold_id)).id

    def open_holds(self) -> list[Hold]:
        """The holds that are neither settled nor written off, oldest first."""
        return self._read(
            lambda page: [posting.read_hold(page, row) for row in page.holds() if row.state is HoldState.OPEN]
        )

    # The record

    def history(self, account: str | None = None) -> list[Entry]:
        """The entries in order; those that concern one account if it is named."""
        name = None if account is None else checked_name(account, template=True)
        entries = self._read(lambda page: list(page.entries()))
        return entries if name is None else [entry for entry in entries if name in entry.accounts]

    def receipt(self, entry_id: str) -> Receipt:
        """The receipt kept under an entry's id."""
        entry = self._read(lambda page: page.named(entry_id))
        receipt = None if entry is None else entry.receipt
        if receipt is None:
            raise InvalidRequest("Expected the id of a settled entry", got=entry_id, do="Copy it from a receipt")
        return receipt

    def verify(self, *, anchor: str | None = None) -> Report:
        """Recompute every total and the whole chain, or raise ``LedgerUnsound``.

        ``anchor`` is the id of an entry known from elsewhere, which must still be there.
        """
        return self._read(lambda page: verify(page, anchor=anchor))

    # Secrets

    def keep(self, name: str, secret_value: bytes) -> None:
        """Store a secret encrypted, e.g. the noise of a release that may be refined; the name must be new."""
        text, value = _name(name), _secret(secret_value)
        self._write(lambda page: secret.keep(page, self._safe, text, value))

    def kept(self, name: str) -> bytes | None:
        """The secret of this name, or nothing."""
        text = _name(name)
        return self._read(lambda page: secret.kept(page, self._safe, text))

    def replace(self, name: str, *, old: bytes, new: bytes) -> bool:
        """Store ``new`` only if ``old`` is what is kept now; says whether it did."""
        text, before, after = _name(name), _secret(old), _secret(new)
        return self._write(lambda page: secret.replace_secret(page, self._safe, text, old=before, new=after))

    def forget(self, name: str) -> None:
        """Delete a secret, if there is one: the release can then not be refined any more."""
        text = _name(name)
        self._write(lambda page: secret.forget(page, text))

    def _names(self) -> list[str]:
        return self._read(lambda page: [account.name for account in page.accounts()])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url or ''})"

    def __copy__(self) -> Self:
        return self  # two handles with one memory of the head would both be right; a copy adds nothing

    def __deepcopy__(self, memo: object) -> Self:
        return self


def begin(page: Page) -> None:
    """Write the first entry of a new ledger."""
    if page.last() is None:
        page.post(Kind.BEGIN, {"format": 1, "ledger": uuid.uuid4().hex})


def _distinct(accounts: Sequence[str]) -> list[str]:
    if isinstance(accounts, str) or not isinstance(accounts, Sequence) or not accounts:
        _refuse_accounts(accounts)
    names = [checked_name(account) for account in accounts]
    if len(set(names)) != len(names):
        _refuse_accounts(accounts)
    return names


def _refuse_accounts(accounts: object) -> NoReturn:
    raise InvalidRequest(
        "Expected a list of different account names", got=accounts, do='Pass e.g. ["dataset:flights", "analyst:ann"]'
    )


def _check_hold(hold: object) -> None:
    if not isinstance(hold, Hold):
        raise InvalidRequest("Expected a hold", got=hold, do="Pass what the ledger's hold() gave")


def _shortened(text: str, longest: int = _LONGEST_TEXT) -> str:
    """The text, or of a very long one the beginning and a digest: the same for the same text alone."""
    if not isinstance(text, str) or len(text) <= longest:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[: min(_BEGINNING, longest // 2)]}... ({len(text)} characters, SHA-256 {digest})"


def _text(value: object, what: str, longest: int = _LONGEST_TEXT) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= longest or not _is_plain(value):
        raise InvalidRequest(f"Expected a {what} of 1 to {longest} characters", got=value, do=f"Pass a {what}")
    return value


def _is_plain(text: str) -> bool:
    """Whether every database can store it: half of a surrogate pair is no character, and zero ends a text."""
    try:
        return b"\x00" not in text.encode()
    except UnicodeEncodeError:
        return False


def _name(value: object) -> str:
    return _text(value, "name", _LONGEST_NAME)


def _secret(value: object) -> bytes:
    if not isinstance(value, bytes):
        # Its value must not be repeated in a message.
        raise InvalidRequest("Expected a secret in bytes", got=type(value).__name__, do="Encode it first")
    return value
