"""An analyst's way in: questions about one dataset, paid from one budget."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from types import TracebackType
from typing import Any, Self

from expost.core import Guarantee, InvalidRequest, Loss, Receipt, Release, Request, Target
from expost.core.picture import draw
from expost.curator.answer import answer
from expost.curator.price import Price, likely_cost
from expost.curator.questions import Questions
from expost.data import Dataset
from expost.ledger import Entry, Ledger, open_ledger
from expost.noise import BitSource
from expost.stats import Shelf

__all__ = ["Session"]


class Session(Questions):
    """Asks questions about a dataset and pays for them from a budget kept in a ledger.

    Every question takes an accuracy (``within=100``, ``within="5%"``) or a privacy level (``epsilon=0.1``). With an
    accuracy the answer is the most private one that reaches it; ``max_epsilon`` caps what it may cost (default: all
    that is left). The ledger is charged before an answer leaves.

    >>> import pyarrow as pa
    >>> from expost import Dataset, epsilon
    >>> people = Dataset(pa.table({"age": list(range(100)) * 50}), name="people", bounds={"age": (0, 120)})
    >>> with Session(people, epsilon(1)) as session:
    ...     release = session.count(within=100)
    >>> abs(release.value - 5000) < 1000, release.receipt.outcome.value
    (True, 'certified')
    """

    def __init__(
        self,
        dataset: Dataset,
        budget: Guarantee | None = None,
        *,
        ledger: Any = None,
        analyst: str | None = None,
        analyst_budget: Guarantee | None = None,
        bits: BitSource | None = None,
        simulation: bool = False,
    ) -> None:
        if not isinstance(dataset, Dataset):
            raise InvalidRequest("Expected an expost.Dataset", got=dataset, do="Describe the table with expost.Dataset")
        self.dataset = dataset
        self._ledger: Ledger = open_ledger(ledger)
        self._accounts = self._open_accounts(budget, analyst, analyst_budget)
        self._bits, self._simulation = bits, simulation
        self._shelf = self._open_shelf()

    def _open_accounts(
        self, budget: Guarantee | None, analyst: str | None, analyst_budget: Guarantee | None
    ) -> tuple[str, ...]:
        if self._ledger.durable and not self.dataset.name:
            raise InvalidRequest("Expected a name for a dataset in a durable ledger", do="Pass Dataset(..., name=...)")
        accounts = [f"dataset:{self.dataset.name or 'table'}"]
        budgets = [budget]
        if analyst is not None:
            accounts.append(f"analyst:{analyst}")
            budgets.append(analyst_budget)
        for account, amount in zip(accounts, budgets, strict=True):
            if amount is not None:
                self._ledger.open_account(account, amount)
            elif account not in self._ledger.accounts():
                raise InvalidRequest(f"Expected a budget for {account}", do="Pass budget=expost.epsilon(1.0)")
        self._check_unit(accounts[0])
        return tuple(accounts)

    def _check_unit(self, account: str) -> None:
        """Losses add up for one notion of a person only: an account keeps the unit its first answer had."""
        receipts = (entry.receipt for entry in self._ledger.history(account))
        first = next((receipt for receipt in receipts if receipt is not None), None)
        here = (self.dataset.adjacency, self.dataset.unit)
        if first is not None and (first.adjacency, first.unit) != here:
            raise InvalidRequest(
                f"Expected {first.unit} as the unit and {first.adjacency.value} neighbours, as in the account so far",
                got=f"{here[1]}, {here[0].value}",
                do="Describe the dataset as before, or give it another name",
            )

    def _open_shelf(self) -> Shelf | None:
        """Where gradual releases are kept between questions, if refining them can be billed.

        The bill of a refinement is the difference of two pure levels: sound where pure losses add up, that is in pure
        and (epsilon, delta) accounts, and only for accounts that paid for the first part too. So nothing is kept for
        other currencies; and only what every account of a later session has paid for is stored for it, which excludes
        simulations, tables that live in this process, and sessions that charge an analyst.
        """
        definitions = {self._ledger.budget(account).definition for account in self._accounts}
        if not definitions <= {"pure", "approx"}:
            return None
        shared = self._ledger.durable and not (self._simulation or self.dataset.in_memory or len(self._accounts) > 1)
        return Shelf(self._ledger if shared else None)

    def _shelved(self, request: Request) -> Request:
        if self._shelf is not None and hasattr(request, "on"):
            shelved: Request = request.on(self._shelf)
            return shelved
        return request

    # Questions ---------------------------------------------------------------------------------------------------

    def ask(self, request: Request, *, request_id: str | None = None) -> Release[Any]:
        """The release of any request; the named questions build the common ones.

        A question that an earlier answer already reaches is free; one that asks for more pays the difference.
        """
        return self._answer(self._shelved(request), self.dataset, request_id)

    def _answer(self, request: Request, data: Any, request_id: str | None = None) -> Release[Any]:
        return answer(
            request,
            data,
            ledger=self._ledger,
            accounts=self._accounts,
            bits=self._bits,
            simulation=self._simulation,
            request_id=request_id,
        )

    def fit(self, estimator: Any, *, features: Sequence[str], target: str) -> Any:
        """Fit an estimator of ``expost`` to columns of the dataset, paid from this session's accounts.

        The dataset must be described with a public number of rows: ``adjacency="replace-one", rows=...``.
        """
        if not hasattr(estimator, "fit_with"):
            raise InvalidRequest("Expected an estimator of expost", got=estimator, do="Pass e.g. expost.Ridge(...)")
        return estimator.fit_with(self._answer, self.dataset, features=features, target=target)

    def price(self, statistic: str | Request, *subject: Any, **terms: Any) -> Price:
        """What a question would cost: the worst case, and a guess from receipts that are public already.

        Takes a statistic's name with its terms, or a request; nothing is spent and no row is read.
        """
        request = self.request(statistic, *subject, **terms) if isinstance(statistic, str) else statistic
        request = self._shelved(request)
        request.check(self.dataset)
        within = terms.get("within")
        target = None if within is None else Target.within(within, confidence=terms.get("confidence", 0.95))
        receipts = [entry.receipt for entry in self.history() if entry.receipt is not None]
        return Price(request.question, request.worst_case, likely_cost(request, target, receipts, cap=self._left()))

    def _left(self) -> Fraction:
        left = min(self._ledger.remaining(account).amounts().get("epsilon", Fraction(1)) for account in self._accounts)
        if left <= 0:
            raise InvalidRequest("Expected something left in the budget", do="Raise the budget")
        return left

    # The books ---------------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """The ledger that is billed."""
        return self._ledger

    @property
    def accounts(self) -> Sequence[str]:
        """The accounts that every question charges."""
        return self._accounts

    def remaining(self) -> Loss:
        """What is left in the dataset's account."""
        return self._ledger.remaining(self._accounts[0])

    def spent(self) -> Loss:
        """What the dataset's account has paid or holds."""
        return self._ledger.spent(self._accounts[0])

    def history(self) -> list[Entry]:
        """Everything that touched the dataset's account, oldest first."""
        return self._ledger.history(self._accounts[0])

    def receipt(self, entry: str) -> Receipt:
        """The receipt kept under an entry's id."""
        return self._ledger.receipt(entry)

    def plot(self, path: str | None = None, **options: Any) -> Any:
        """Draw the budget over time."""
        account = self._accounts[0]
        return draw(
            "budget", self.history(), account=account, budget=self._ledger.budget(account), path=path, **options
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ledger.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A reference: where the rows and the ledger are; never rows, paths or randomness."""
        if not self._ledger.durable or self.dataset.in_memory or self._simulation:
            raise TypeError("Expected a session on a file with a durable ledger; this one lives in its process only.")
        analyst = self._accounts[1].removeprefix("analyst:") if len(self._accounts) > 1 else None
        return _reopen, (self.dataset, self._ledger.url, analyst)

    def __repr__(self) -> str:
        return f"Session({self._accounts[0]!r}, remaining {self.remaining().text(down=True)})"


def _reopen(dataset: Dataset, ledger: str, analyst: str | None) -> Session:
    return Session(dataset, ledger=ledger, analyst=analyst)
