"""Who spent what: budgets and charges by dataset and by analyst, from the ledger."""

from __future__ import annotations

from typing import Any

from expost.service.access_token import Identity
from expost.service.curator import Curator

__all__ = ["balance_facts", "report_spending"]


def balance_facts(curator: Curator, dataset: str, identity: Identity) -> dict[str, Any]:
    """Return what is left for someone of a dataset: as a text, and as the share that is spent, in percent."""
    session = curator.session(dataset, identity)
    shares = []
    for account in session.accounts:
        whole, left = curator.ledger.budget(account).amounts(), curator.ledger.remaining(account).amounts()
        shares += [1 - float(left[name] / amount) for name, amount in whole.items() if amount and name != "delta"]
    spent = max(shares, default=0.0)
    left_text = str(session.remaining().as_balance(None))
    return {"left": left_text, "percent": round(100 * spent, 1), "empty": spent >= 1}


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
