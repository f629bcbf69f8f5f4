"""The ledger: durable holds and receipts."""

from __future__ import annotations

import hashlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from expost.accounting.privacy_event import PrivacyEvent
from expost.core import (
    Adjacency,
    Guarantee,
    GuaranteeLike,
    InvalidRequest,
    Loss,
    QuestionCap,
    Receipt,
    explain_arguments,
)
from expost.ledger import neighbour_posting, posting, secret, source_binding
from expost.ledger.anchor import write_anchor
from expost.ledger.history_page import read_history_page
from expost.ledger.known_source import KnownSource, check_reason, known_sources
from expost.ledger.ledger_account import AccountPart, check_budget, check_name, check_question_cap, is_template
from expost.ledger.ledger_entry import EntryKind, Hold, new_ticket
from expost.ledger.ledger_history import LedgerHistory
from expost.ledger.ledger_page import LedgerPage, Protected
from expost.ledger.secret import Safe
from expost.ledger.verification import Report, verify_page

if TYPE_CHECKING:
    from expost.data.source_identity import SourceIdentity

__all__ = ["Ledger", "begin_ledger"]

T = TypeVar("T")

_LONGEST_TEXT = 10_000
_LONGEST_NAME = 500  # of a request or a secret: an index of PostgreSQL takes 2,700 bytes
_BEGINNING = 1_000  # characters of a longer question that a hold repeats


class Ledger(ABC):
    """Accounts with budgets, and what was charged to them, in a record that only grows.

    A run takes a ``hold`` on its worst case before the data is touched. ``settle`` records the receipt and gives back
    what the theorem allows. A hold that is never settled stays charged for ever. Every change is an entry in a chain
    of hashes, and the totals follow from the chain. Use ``open_ledger`` to get one.

    Parameters
    ----------
    safe : Safe
        Encrypts the kept secrets.

    Examples
    --------
    >>> from expost.core import PureGuarantee, PureLoss
    >>> from expost.ledger import open_ledger
    >>> ledger = open_ledger(None)
    >>> ledger.open_account("dataset:flights", 1.0)
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
    def _write(self, action: Callable[[LedgerPage], T]) -> T:
        """Run ``action`` alone, and keep all it wrote or, if it raises, nothing."""

    @abstractmethod
    def _read(self, action: Callable[[LedgerPage], T]) -> T:
        """Run ``action`` on one consistent state."""

    def close(self) -> None:
        """Close files and connections. The ledger opens them again when it is next used."""
        return None

    # Accounts

    @explain_arguments
    def open_account(
        self, account: str, budget: GuaranteeLike, *, question_cap: float | Fraction | None = None
    ) -> None:
        """Open an account. Opening it again with the same budget does nothing.

        Parameters
        ----------
        account : str
            The name, such as ``"dataset:flights"``. ``"window:*"`` opens a template: each account with that prefix
            gets the budget at its first hold.
        budget : Guarantee, number, (epsilon, delta) pair or dict
            What may be spent; a number is a pure epsilon. See ``expost.core.as_guarantee``.
        question_cap : float, optional
            The epsilon that one question may cost if its asker names none. Default: a tenth of the budget.

        Raises
        ------
        InvalidRequest
            If the account is open with another budget.

        Examples
        --------
        >>> from expost.ledger import open_ledger
        >>> ledger = open_ledger(None)
        >>> ledger.open_account("dataset:flights", {"epsilon": 1, "delta": 1e-6})
        >>> print(ledger.budget("dataset:flights"))
        epsilon 1, delta 1e-06
        """
        name, amount = check_name(account, template=True), check_budget(budget)
        cap = check_question_cap(question_cap)
        self._write(partial(posting.open_account, name=name, budget=amount, question_cap=cap))

    @explain_arguments
    def open_part(
        self,
        account: str | Sequence[str],
        *,
        of: str,
        by: str = "parts",
        touching: int = 1,
        budget: GuaranteeLike | None = None,
        protected: Protected | None = None,
    ) -> None:
        """Open accounts for disjoint parts of what the account ``of`` covers.

        A charge to a part counts there, and in ``of`` only as far as it raises the largest part: what ``of`` has spent
        is its own charges plus, for each ``by``, the ``touching`` largest parts. That is sound if no change of one unit
        can touch more than ``touching`` parts (docs/proofs/parallel-parts.md). The caller vouches that the parts are
        disjoint; ``expost.Session.part`` ensures it.

        Parameters
        ----------
        account : str or sequence of str
            The name of the part, or the names of several, which are opened at once.
        of : str
            The account of the whole, which must be open.
        by : str, default "parts"
            What the parts differ in.
        touching : int, default 1
            How many parts one unit can touch: 1 under add-remove adjacency, 2 under replace-one.
        budget : Guarantee, number, (epsilon, delta) pair or dict, optional
            What may be spent on the part. Default: the budget of ``of``.
        protected : Protected, optional
            The unit and adjacency of all questions that the caller will ask. ``touching`` is then converted to what the
            account counts.

        Raises
        ------
        InvalidRequest
            If ``of`` is not open, or if the part is open in another form.

        Examples
        --------
        >>> from expost.core import PureLoss
        >>> from expost.ledger import open_ledger
        >>> ledger = open_ledger(None)
        >>> ledger.open_account("study", 1)
        >>> for region in ("dataset:north", "dataset:south"):
        ...     ledger.open_part(region, of="study")
        ...     hold = ledger.hold([region], PureLoss(0.75), question="count")
        >>> ledger.spent("study")
        PureLoss(epsilon=Fraction(3, 4))
        """
        names = [check_name(name) for name in ([account] if isinstance(account, str) else account)]
        part = AccountPart.check(check_name(of), by, touching)
        amount = None if budget is None else check_budget(budget)
        self._write(partial(posting.open_parts, names=names, part=part, budget=amount, protected=protected))

    def change_budget(
        self, account: str, budget: GuaranteeLike | None = None, *, question_cap: float | None = None
    ) -> None:
        """Give an account another budget or cap of a question. For the owner only; the change is recorded.

        A template's new budget holds for accounts opened from then on. Parts that had the old one get the new one.

        Parameters
        ----------
        account : str
            The account or template.
        budget : Guarantee, number, (epsilon, delta) pair or dict, optional
            The new budget, of the same definition and at least what is spent. Default: as before.
        question_cap : float, optional
            The epsilon that one question may cost if its asker names none. Default: as before.

        Raises
        ------
        InvalidRequest
            If the account is not open, or the budget is too small or of another definition.
        """
        name, cap = check_name(account, template=True), check_question_cap(question_cap)
        amount = None if budget is None else check_budget(budget)
        if amount is None and cap is None:
            raise InvalidRequest("Expected a budget or a question_cap", do="Pass at least one of them")
        self._write(partial(posting.change_budget, name=name, budget=amount, question_cap=cap))

    def parts(self, account: str, *, by: str | None = None) -> list[str]:
        """Return the accounts that are parts of this one.

        Parameters
        ----------
        account : str
            The account of the whole.
        by : str, optional
            Only the parts that differ in this.

        Returns
        -------
        list of str
            Names in order.
        """
        name = check_name(account)
        found = self._read(lambda page: page.parts_of(name))
        return [one.name for one in found if by is None or (one.part is not None and one.part.by == by)]

    def whole_of(self, account: str) -> str | None:
        """Return the account that this one is a part of, or None.

        Parameters
        ----------
        account : str
            The account of the part.

        Returns
        -------
        str or None
        """
        name = check_name(account)
        found = self._read(lambda page: page.find_account(name))
        return None if found is None or found.part is None else found.part.of

    def root_of(self, account: str) -> str:
        """Return the account of the whole table, of which this one may be a part of a part.

        Parameters
        ----------
        account : str
            The account of the part.

        Returns
        -------
        str
            The account itself if it is not a part.
        """
        above = self.whole_of(account)
        return account if above is None else self.root_of(above)

    def accounts(self) -> list[str]:
        """Return the names of all open accounts in order, templates excluded.

        Returns
        -------
        list of str
        """
        names = self._read(lambda page: [account.name for account in page.all_accounts()])
        return [name for name in names if not is_template(name)]

    def templates(self) -> list[str]:
        """Return the names of all templates in order.

        Returns
        -------
        list of str
        """
        names = self._read(lambda page: [account.name for account in page.all_accounts()])
        return [name for name in names if is_template(name)]

    def budget(self, account: str) -> Guarantee:
        """Return the budget of an account.

        Parameters
        ----------
        account : str
            The account or template.

        Returns
        -------
        Guarantee

        Raises
        ------
        InvalidRequest
            If the account is not open and no template opens it.
        """
        name = check_name(account, template=True)
        return posting.promise_of(self._read(partial(posting.find_account, name=name)).budget)

    def question_cap(self, account: str) -> QuestionCap:
        """Return the epsilon that one question may cost if its asker names none.

        Parameters
        ----------
        account : str
            The account or template.

        Returns
        -------
        QuestionCap
            A fraction with the words for a receipt.

        Raises
        ------
        InvalidRequest
            If the account is not open and no template opens it.

        Examples
        --------
        >>> from expost.ledger import open_ledger
        >>> ledger = open_ledger(None)
        >>> ledger.open_account("dataset:flights", 1)
        >>> print(ledger.question_cap("dataset:flights").note)
        epsilon 0.1, a tenth of the budget of 'dataset:flights'; max_epsilon= raises it
        """
        name = check_name(account, template=True)
        return self._read(partial(posting.find_account, name=name)).cap_of_question()

    def spent(self, account: str) -> Loss:
        """Return what is charged to an account: settled bills, and open holds at their worst case.

        In an (epsilon, delta) account this is what the accountant proves of all runs together, which is less than the
        sum of their bills once there are many of them.

        Parameters
        ----------
        account : str
            The account or template.

        Returns
        -------
        Loss

        Raises
        ------
        InvalidRequest
            If the account is not open and no template opens it.
        """
        name = check_name(account, template=True)

        def find_total(page: LedgerPage) -> Loss:
            found = posting.find_account(page, name)
            owed = neighbour_posting.read_owed(page, neighbour_posting.lineage_of(page, name)[-1])
            return found.rule.shown((found if owed is None else owed[name]).spent)

        return self._read(find_total)

    def remaining(self, account: str) -> Loss:
        """Return what a new hold may still charge, also by the budgets of the accounts this one is a part of.

        It prints rounded down, so never as more than there is.

        Parameters
        ----------
        account : str
            The account or template.

        Returns
        -------
        Loss

        Raises
        ------
        InvalidRequest
            If the account is not open and no template opens it.
        """
        name = check_name(account, template=True)
        return self._read(lambda page: posting.remaining_budget(page, posting.find_account(page, name))).as_balance()

    def counts(self, account: str) -> Adjacency | None:
        """Return what an account counts: units that are added and removed, or units that are replaced.

        It is the adjacency of the first question. An account that counts added and removed units goes over to replaced
        ones, once and for ever, when a question needs it.

        Parameters
        ----------
        account : str
            The account.

        Returns
        -------
        Adjacency or None
            None if no question was asked so far.

        Examples
        --------
        >>> from expost.ledger import open_ledger
        >>> ledger = open_ledger(None)
        >>> ledger.open_account("dataset:flights", 1)
        >>> print(ledger.counts("dataset:flights"))
        None
        """
        name = check_name(account, template=True)
        return self._read(partial(neighbour_posting.counted_by, name=name))

    def remaining_for(self, account: str, protected: Protected) -> Loss:
        """Return what one more question about this unit and adjacency may cost, in the question's own terms.

        In an account that counts replaced units that is about half of ``remaining`` for a question about added and
        removed ones. Where the question would make the account go over, it is what is left then.

        Parameters
        ----------
        account : str
            The account that pays.
        protected : Protected
            The unit and adjacency of the question.

        Returns
        -------
        Loss
        """
        name = check_name(account)

        def find_left(page: LedgerPage) -> Loss:
            left = posting.remaining_budget(page, posting.find_account(page, name))
            return neighbour_posting.left_for_run(page, name, protected, left)

        return self._read(find_left)

    def budget_use(
        self,
        accounts: Sequence[str],
        worst_case: Loss,
        *,
        protected: Protected | None = None,
        before: Fraction = Fraction(0),
    ) -> Fraction | None:
        """Return the part of the budget that would be used after a charge; of several accounts, the largest.

        It compares losses of different definitions: the better one leaves more of the budget.

        Parameters
        ----------
        accounts : sequence of str
            The accounts that would pay.
        worst_case : Loss
            What would be charged.
        protected : Protected, optional
            The unit and adjacency of the loss.
        before : Fraction, default 0
            What these accounts paid before for the release that the run refines.

        Returns
        -------
        Fraction or None
            A number from 0 to 1. None if an account would refuse the charge.

        Examples
        --------
        >>> from expost.core import PureLoss
        >>> from expost.ledger import open_ledger
        >>> ledger = open_ledger(None)
        >>> ledger.open_account("dataset:flights", 1)
        >>> ledger.budget_use(["dataset:flights"], PureLoss(0.25))
        Fraction(1, 4)
        """
        names = [check_name(account) for account in accounts]
        terms: dict[str, Any] = {"worst_case": worst_case, "protected": protected, "before": before}
        return self._read(partial(posting.budget_use, names=names, **terms))

    def explain_change(self, protected: Protected) -> str | None:
        """Return how a question about this unit and adjacency would change its account, in words.

        Parameters
        ----------
        protected : Protected
            The unit and adjacency of the question.

        Returns
        -------
        str or None
            None if the account stays as it is.
        """
        return self._read(partial(neighbour_posting.explain_change, protected=protected))

    # Sources

    @explain_arguments
    def bind_source(
        self,
        account: str,
        source: SourceIdentity,
        *,
        budget: GuaranteeLike | None = None,
        question_cap: float | Fraction | None = None,
        another_budget: str | None = None,
        rebound: str | None = None,
    ) -> None:
        """Record which table an account pays for. ``expost.Session`` does it.

        A budget belongs to a table, not to its name: the source of another account is refused, by path, file or
        content. So is another source under the name of this account; a table that grew or was rewritten in its place is
        the same one. Sources are compared within this ledger.

        Parameters
        ----------
        account : str
            The account, such as ``"dataset:flights"``.
        source : SourceIdentity
            What ``Dataset.source_identity`` returned.
        budget : Guarantee, number, (epsilon, delta) pair or dict, optional
            Open the account with this budget first, in the same step.
        question_cap : float or Fraction, optional
            The epsilon that one question may cost if its asker names none, with a budget. Default: a tenth of the budget.
        another_budget : str, optional
            The owner's reason why rows that another account pays for get another budget. It is recorded.
        rebound : str, optional
            The owner's reason why the account pays for another source from now on. It is recorded.

        Raises
        ------
        InvalidRequest
            If the account is not open, or the source is refused. Nothing is recorded then.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost import Dataset
        >>> from expost.ledger import open_ledger
        >>> ledger, people = open_ledger(None), Dataset(pa.table({"age": [41, 17]})).source_identity()
        >>> ledger.bind_source("dataset:people", people, budget=1)
        >>> ledger.bind_source("dataset:persons", people, budget=1)
        Traceback (most recent call last):
        expost.core.errors.InvalidRequest: Cannot charge 'dataset:persons' because 'dataset:people' pays for these ...
        """
        name, amount = check_name(account), None if budget is None else check_budget(budget)
        terms: dict[str, Any] = {"safe": self._safe, "account": name, "source": source}
        reasons: dict[str, Any] = {
            argument: None if reason is None else check_reason(reason, argument)
            for argument, reason in (("another_budget", another_budget), ("rebound", rebound))
        }
        plain = budget is None and another_budget is None and rebound is None
        if not (plain and self._read(partial(source_binding.is_bound, **terms))):
            cap = check_question_cap(question_cap)
            self._write(partial(source_binding.bind_source, **terms, **reasons, budget=amount, question_cap=cap))

    def sources(self) -> dict[str, KnownSource]:
        """Return what is known of the table of each account.

        Returns
        -------
        dict of str to KnownSource
            By account; accounts that were not used yet, and those of analysts, have none.
        """
        return self._read(known_sources)

    # Holds

    def hold(
        self,
        accounts: Sequence[str],
        worst_case: Loss,
        *,
        question: str,
        request_id: str | None = None,
        protected: Protected | None = None,
        event: PrivacyEvent | None = None,
        before: Fraction = Fraction(0),
        up_to: Loss | None = None,
    ) -> Hold:
        """Reserve the worst case in all accounts at once, or raise ``BudgetExceeded`` and reserve nothing.

        Parameters
        ----------
        accounts : sequence of str
            The accounts to charge, each once.
        worst_case : Loss
            The most that the run can cost.
        question : str
            The question in public words. Of more than 10,000 characters the beginning and a digest are kept; the
            receipt has all of it.
        request_id : str, optional
            The caller's own id. The same id again charges nothing and returns the first hold with ``repeated`` set:
            do not run it.
        protected : Protected, optional
            The unit and adjacency of the loss. The hold is refused if the account it names was about another unit. An
            account that counts replaced units charges a loss about added and removed ones for a replaced one, and an
            account that counts added and removed ones goes over if the loss is about replaced ones.
        event : PrivacyEvent, optional
            What may run, such as the steps of a training, where that is known in more detail than the worst case. An
            account that adds up steps is charged for them.
        before : Fraction, default 0
            What these accounts paid before for the release that the run refines; the worst case is what it adds.
        up_to : Loss, optional
            The most that ``extend`` may make of this hold. It must fit in every account now; it is not reserved.

        Returns
        -------
        Hold

        Raises
        ------
        BudgetExceeded
            If the worst case does not fit in every account.
        InvalidRequest
            If an account is not open or was taken over, the request id belongs to another question, or an account must
            go over to replaced units while questions run on it.
        LedgerBusy
            If others kept the ledger locked. Nothing is charged.
        """
        names = []
        if isinstance(accounts, Sequence) and not isinstance(accounts, str):
            names = [check_name(account) for account in accounts]
        if not names or len(set(names)) != len(names):
            raise InvalidRequest(
                "Expected a list of different account names",
                got=accounts,
                do='Pass e.g. ["dataset:flights", "analyst:ann"]',
            )
        if not isinstance(worst_case, Loss):
            raise InvalidRequest("Expected a worst case that is a loss", got=worst_case, do="Pass PureLoss(0.5)")
        if up_to is not None and event is not None:
            raise InvalidRequest("Expected steps or stages, not both", do="Leave out up_to, or the event")
        text = _check_text(_shorten_text(question, _LONGEST_TEXT), "question")
        request = None if request_id is None else _check_text(_shorten_text(request_id, _LONGEST_NAME), "request id")

        terms: dict[str, Any] = {"question": text, "request_id": request, "protected": protected}
        terms |= {"event": event, "before": before, "up_to": up_to}
        return self._write(partial(posting.take_hold, names=names, worst_case=worst_case, **terms))

    def extend(self, hold: Hold, worst_case: Loss) -> Hold:
        """Replace an open hold by one with a larger worst case, or raise ``BudgetExceeded`` and leave it as it is.

        A run with a public ladder reserves a stage at a time: call this before anything above the held worst case is
        drawn. What is not reserved yet stays free for other runs.

        Parameters
        ----------
        hold : Hold
            What ``hold`` or the last ``extend`` of this run returned.
        worst_case : Loss
            The most that the run can cost from now on, all of it: at least what is held.

        Returns
        -------
        Hold
            The hold to settle. The old one is closed.

        Raises
        ------
        BudgetExceeded
            If the worst case does not fit in every account. The old hold stays open.
        InvalidRequest
            If the hold is closed or of another process, or the worst case is smaller.
        LedgerBusy
            If others kept the ledger locked. The old hold stays open.

        Examples
        --------
        >>> from expost.core import PureLoss
        >>> from expost.ledger import open_ledger
        >>> ledger = open_ledger(None)
        >>> ledger.open_account("dataset:flights", 1)
        >>> stage = ledger.hold(["dataset:flights"], PureLoss(0.125), question="count", up_to=PureLoss(0.5))
        >>> stage = ledger.extend(stage, PureLoss(0.25))
        >>> ledger.spent("dataset:flights")
        PureLoss(epsilon=Fraction(1, 4))
        """
        if not isinstance(hold, Hold):
            raise InvalidRequest("Expected a hold", got=hold, do="Pass what the ledger's hold() gave")
        if not isinstance(worst_case, Loss):
            raise InvalidRequest("Expected a worst case that is a loss", got=worst_case, do="Pass PureLoss(0.5)")
        return self._write(partial(posting.extend_hold, hold=hold, worst_case=worst_case))

    def check_protected(self, protected: Protected) -> bool:
        """Refuse what contradicts the unit of an account so far.

        Accounts that earlier versions of the command line kept for the other adjacency, under names such as
        ``dataset:flights-replace-one``, are joined to it here, unless questions are running on them.

        Parameters
        ----------
        protected : Protected
            The account with the unit to compare.

        Returns
        -------
        bool
            Whether the account has any so far.

        Raises
        ------
        InvalidRequest
            If the account is about another unit, or another account took it over.
        """

        def check(page: LedgerPage) -> tuple[bool, bool]:
            neighbour_posting.check_not_closed(page, [protected.account])
            known = protected.check(page)
            return known, bool(neighbour_posting.find_separate(page, protected))

        known, separate = self._read(check)
        if separate:
            self._write(partial(neighbour_posting.join_separate_accounts, protected=protected, strict=False))
        return known

    def settle(self, hold: Hold, receipt: Receipt, *, outcome: PrivacyEvent | None = None) -> str:
        """Record the receipt of a held run and give back what the theorem allows.

        Only after this returns may the answer leave. The process that took the hold settles it, or the one that took
        it over; a fork of it cannot. Settling again with the same receipt changes nothing.

        Parameters
        ----------
        hold : Hold
            What ``hold`` or ``take_over`` returned.
        receipt : Receipt
            The receipt of the run. Its bill must be within the worst case.
        outcome : PrivacyEvent, optional
            What did run of the event that was held, such as the steps until a training stopped.

        Returns
        -------
        str
            The id of the entry.

        Raises
        ------
        LedgerUnsound
            If the hold is closed or belongs to another process, or the bill exceeds it. The worst case stays charged.
        LedgerBusy
            If others kept the ledger locked. The hold is as before; settle again.
        """
        if not isinstance(hold, Hold):
            raise InvalidRequest("Expected a hold", got=hold, do="Pass what the ledger's hold() gave")
        if not isinstance(receipt, Receipt):
            raise InvalidRequest("Expected a receipt", got=receipt, do="Pass the receipt of the run")
        return self._write(partial(posting.settle_hold, hold=hold, receipt=receipt, outcome=outcome)).id

    def take_over(self, hold: Hold, *, keep: Callable[[Hold], object] | None = None) -> Hold:
        """Continue a run that was begun before: from now on this process alone can settle it.

        For runs that are saved as they go, such as a training with a checkpoint. Of several processes that have the
        same copy of a hold one can take it over. It then has a new ticket, and all copies are worthless.

        Parameters
        ----------
        hold : Hold
            A copy of the hold.
        keep : callable, optional
            Called with the new hold before the ledger is changed. Save it there to be able to continue after any crash.

        Returns
        -------
        Hold
            The hold with its new ticket.

        Raises
        ------
        InvalidRequest
            If the hold is closed, or was taken over since the copy was made.

        Examples
        --------
        >>> from expost.core import PureLoss
        >>> from expost.ledger import open_ledger
        >>> ledger = open_ledger(None)
        >>> ledger.open_account("dataset:flights", 1)
        >>> copy = ledger.hold(["dataset:flights"], PureLoss(0.5), question="train")
        >>> mine = ledger.take_over(copy)
        >>> ledger.take_over(copy)
        Traceback (most recent call last):
        expost.core.errors.InvalidRequest: Expected the newest copy of this hold; its run was taken over since. ...
        """
        if not isinstance(hold, Hold):
            raise InvalidRequest("Expected a hold", got=hold, do="Pass what the ledger's hold() gave")
        mine = replace(hold, ticket=new_ticket(), earlier=(hold.ticket, *hold.earlier))
        self._read(partial(posting.check_take_over, hold=mine))
        if keep is not None:
            keep(mine)
        return self._write(partial(posting.take_over_hold, hold=mine))

    def write_off(self, hold_id: str) -> str:
        """Close a hold whose run is lost. It stays charged at its worst case. For the owner only.

        Parameters
        ----------
        hold_id : str
            The id of an open hold.

        Returns
        -------
        str
            The id of the entry.

        Raises
        ------
        InvalidRequest
            If there is no such hold, or it is settled.
        """
        return self._write(partial(posting.write_off_hold, hold_id=hold_id)).id

    def open_holds(self) -> list[Hold]:
        """Return the holds that are neither settled nor written off, oldest first.

        Returns
        -------
        list of Hold
            For reading only: they have no ticket.
        """
        return self._read(posting.open_holds)

    # The record

    def history(
        self, account: str | None = None, *, last: int | None = None, before: str | None = None
    ) -> LedgerHistory:
        """Return the entries in order, as a list that prints as a table.

        Without ``last`` the whole chain is read and checked. A page takes the same time however long the ledger is.

        Parameters
        ----------
        account : str, optional
            Only the entries that concern this account.
        last : int, optional
            Only so many of the newest entries.
        before : str, optional
            With ``last``: the newest entries before the one with this id, such as the first of the page that was read.

        Returns
        -------
        LedgerHistory

        Raises
        ------
        InvalidRequest
            If ``last`` is not a positive number, or ``before`` is not the id of an entry.

        Examples
        --------
        >>> from expost.ledger import open_ledger
        >>> ledger = open_ledger(None)
        >>> for name in ("dataset:a", "dataset:b", "dataset:c"):
        ...     ledger.open_account(name, 1)
        >>> page = ledger.history(last=2)
        >>> [entry.accounts for entry in ledger.history(last=2, before=page[0].id)]
        [(), ('dataset:a',)]
        """
        name = None if account is None else check_name(account, template=True)
        if last is None:
            if before is not None:
                raise InvalidRequest("Expected last together with before", do="Pass e.g. last=50")
            entries = self._read(posting.read_chain)
            return LedgerHistory(entry for entry in entries if name is None or name in entry.accounts)
        if isinstance(last, bool) or not isinstance(last, int) or last < 1:
            raise InvalidRequest("Expected last to be a positive whole number", got=last, do="Pass e.g. last=50")
        return LedgerHistory(self._read(lambda page: read_history_page(page, name, last=last, before=before)))

    def receipt(self, entry_id: str) -> Receipt:
        """Return the receipt kept under an entry's id.

        Parameters
        ----------
        entry_id : str
            What ``settle`` returned.

        Returns
        -------
        Receipt

        Raises
        ------
        InvalidRequest
            If no such entry keeps a receipt.
        """
        entry = self._read(lambda page: page.named_entry(entry_id))
        receipt = None if entry is None else entry.receipt
        if receipt is None:
            raise InvalidRequest("Expected the id of a settled entry", got=entry_id, do="Copy it from a receipt")
        return receipt

    def verify(self, *, anchor: str | None = None) -> Report:
        """Recompute every total and the whole chain.

        Parameters
        ----------
        anchor : str, optional
            What ``anchor`` returned earlier, or the id of an entry known from elsewhere: it must still be there.

        Returns
        -------
        Report

        Raises
        ------
        LedgerUnsound
            If anything does not add up.
        """
        return self._read(partial(verify_page, anchor=anchor, safe=self._safe))

    def anchor(self) -> str:
        """Return a note of the newest entry, to be kept outside of the ledger and passed to a later ``verify``.

        With the owner's key it has a code that nobody else can make.

        Returns
        -------
        str
            The id of the entry and, with a key, the code.

        Examples
        --------
        >>> from expost.ledger import open_ledger
        >>> ledger = open_ledger(None)
        >>> ledger.verify(anchor=ledger.anchor()).entries
        1
        """
        return self._read(lambda page: write_anchor(page, self._safe))

    # Secrets

    def keep(self, name: str, secret_value: bytes) -> None:
        """Store a secret encrypted, e.g. the noise of a release that may be refined.

        Parameters
        ----------
        name : str
            A name that keeps nothing yet.
        secret_value : bytes
            What to encrypt.

        Raises
        ------
        InvalidRequest
            If the name is taken or the ledger was opened without a key.
        """
        text, value = _check_text(name, "name", _LONGEST_NAME), _check_secret(secret_value)
        self._write(partial(secret.keep_secret, safe=self._safe, name=text, secret=value))

    def kept(self, name: str) -> bytes | None:
        """Return the secret of this name, or None.

        Parameters
        ----------
        name : str
            The name it was kept under.

        Returns
        -------
        bytes or None
        """
        text = _check_text(name, "name", _LONGEST_NAME)
        return self._read(lambda page: secret.read_secret(page, self._safe, text))

    def replace(self, name: str, *, old: bytes, new: bytes) -> bool:
        """Store ``new`` only if ``old`` is what is kept now.

        Parameters
        ----------
        name : str
            The name of the secret.
        old : bytes
            What must be kept now.
        new : bytes
            What to keep instead.

        Returns
        -------
        bool
            Whether it was replaced.
        """
        text, before, after = _check_text(name, "name", _LONGEST_NAME), _check_secret(old), _check_secret(new)
        return self._write(lambda page: secret.replace_secret(page, self._safe, text, old=before, new=after))

    def forget(self, name: str) -> None:
        """Delete a secret, if there is one. The release can then not be refined any more.

        Parameters
        ----------
        name : str
            The name of the secret.
        """
        text = _check_text(name, "name", _LONGEST_NAME)
        self._write(lambda page: secret.forget_secret(page, text))

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


def begin_ledger(page: LedgerPage) -> None:
    """Write the first entry of a new ledger."""
    if page.last_entry() is None:
        page.post(EntryKind.BEGIN, {"format": 1, "ledger": uuid.uuid4().hex})


def _shorten_text(text: str, longest: int) -> str:
    """Return the text, or the beginning and a digest of a very long one. Different texts stay different."""
    if not isinstance(text, str) or len(text) <= longest:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[: min(_BEGINNING, longest // 2)]}... ({len(text)} characters, SHA-256 {digest})"


def _check_text(value: object, what: str, longest: int = _LONGEST_TEXT) -> str:
    """Return a text that every database can store: no lone surrogate, which is half a character, and no zero."""
    try:
        fits = isinstance(value, str) and 1 <= len(value) <= longest and b"\x00" not in value.encode()
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise InvalidRequest(f"Expected a {what} of 1 to {longest} characters", got=value, do=f"Pass a {what}")
    return str(value)


def _check_secret(value: object) -> bytes:
    """Return a secret in bytes. A wrong value is not repeated in the message."""
    if not isinstance(value, bytes):
        raise InvalidRequest("Expected a secret in bytes", got=type(value).__name__, do="Encode it first")
    return value
