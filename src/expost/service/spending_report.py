"""Who spent what: budgets and charges by dataset and by analyst, from the ledger."""

from __future__ import annotations

from typing import Any

from expost.service.access_token import Identity
from expost.service.curator import Curator

__all__ = ["report_spending"]


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
