"""Who spent what: budgets and charges by dataset and by analyst, from the ledger."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from expost.service.access_token import Identity
from expost.service.curator import Curator

__all__ = ["Spending", "balance_facts", "report_spending", "trace_spending"]


def balance_facts(curator: Curator, dataset: str, identity: Identity) -> dict[str, Any]:
    """Return what is left for someone of a dataset: as a text, and as the share that is spent, in percent."""
    ledger, found = curator.ledger, []
    for account in curator.session(dataset, identity).accounts:
        left, name = ledger.remaining(account), next(iter(ledger.budget(account).amounts()))
        whole = ledger.budget(account).amounts()[name]
        found.append((left.amounts()[name], 1 - float(left.amounts()[name] / whole) if whole else 1.0, left))
    # Budgets of several definitions are not compared exactly; their epsilons show which one ends first.
    _, spent, left = min(found, key=lambda each: each[0])
    return {"left": str(left.as_balance(None)), "percent": round(100 * spent, 1), "empty": spent >= 1}


_MOST_LINES = 6


@dataclass(frozen=True)
class Spending:
    """What was paid for a dataset after each charge: in all, by the analysts who spent most, and by parts of the table."""

    lines: dict[str, list[float]]
    parts: list[tuple[str, float]]
    times: list[datetime.datetime]
    """The minutes of the charges."""


def trace_spending(curator: Curator, dataset: str) -> Spending:
    """Return what was paid for a dataset over time, as sums of bills in epsilon."""
    ledger, whole = curator.ledger, f"dataset:{dataset}"
    parts = ledger.parts(whole)
    entries = {each.id: each for account in (whole, *parts) for each in ledger.history(account) if each.receipt}
    ordered = sorted(entries.values(), key=lambda each: each.sequence)
    payers = [_analyst_of(each.accounts, dataset) for each in ordered]
    bills = [float(each.receipt.bill.amounts().get("epsilon", 0)) if each.receipt else 0.0 for each in ordered]
    sums = {name: sum(b for payer, b in zip(payers, bills, strict=True) if payer == name) for name in set(payers)}
    shown = sorted(sums, key=lambda name: (-sums[name], name))[:_MOST_LINES]
    lines = {"all together": list(itertools.accumulate(bills))}
    for name in shown:
        own = (bill if payer == name else 0.0 for payer, bill in zip(payers, bills, strict=True))
        lines[name] = list(itertools.accumulate(own))
    spent = [(name.removeprefix(f"{whole}/"), ledger.spent(name).amounts().get("epsilon")) for name in parts]
    times = [datetime.datetime.fromisoformat(each.at[:16]) for each in ordered]
    return Spending(lines, [(name, float(amount)) for name, amount in spent if amount], times)


def _analyst_of(accounts: Sequence[str], dataset: str) -> str:
    own = (name for name in accounts if name.startswith("analyst:") and name.endswith(f"/{dataset}"))
    return next((name.removeprefix("analyst:").removesuffix(f"/{dataset}") for name in own), "owner")


def report_spending(curator: Curator, identity: Identity) -> dict[str, Any]:
    """Return budgets, charges and what is left of every account that this identity may see."""
    ledger, found = curator.ledger, []
    for account in ledger.accounts():
        kind, _, rest = account.partition(":")
        analyst, _, dataset = rest.rpartition("/") if kind == "analyst" else ("", "", rest)
        if kind not in ("dataset", "analyst") or identity.dataset not in (None, dataset):
            continue
        if curator.settings.dataset(dataset) is None:
            continue
        spent, left, budget = ledger.spent(account), ledger.remaining(account), ledger.budget(account)
        amounts = {"spent": spent.amounts(), "budget": budget.amounts()}
        share = {
            name: float(amounts["spent"][name] / whole) if whole else 0.0 for name, whole in amounts["budget"].items()
        }
        found.append(
            {
                "account": account,
                "dataset": dataset,
                "analyst": analyst or None,
                "budget": str(budget),
                "spent": str(spent),
                "left": str(left),
                "share": max(share.values(), default=0.0),
            }
        )
    return {"accounts": found}
