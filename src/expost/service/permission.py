"""Who may do what: one table for every route. What is not in it is refused."""

from __future__ import annotations

from expost.service.access_token import Identity, Role

__all__ = ["ACTIONS", "is_allowed"]

_ALL = frozenset(Role)
_ASKERS = frozenset({Role.OWNER, Role.ANALYST})
_WATCHERS = frozenset({Role.OWNER, Role.AUDITOR})
_OWNER = frozenset({Role.OWNER})

ACTIONS: dict[str, frozenset[Role]] = {
    "see datasets": _ALL,
    "see own budget": _ALL,
    "price": _ASKERS,
    "ask": _ASKERS,
    "fit": _ASKERS,
    "see own releases": _ASKERS,
    "see own jobs": _ASKERS,
    "change own tokens": frozenset({Role.ANALYST, Role.AUDITOR}),
    "see spending": _WATCHERS,
    "see audit log": _WATCHERS,
    "verify ledger": _WATCHERS,
    "export ledger": _WATCHERS,
    "see tokens": _OWNER,
    "change tokens": _OWNER,
    "see approvals": _OWNER,
    "decide approvals": _OWNER,
    "freeze datasets": _OWNER,
    "change limits": _OWNER,
    "back up ledger": _OWNER,
}
"""The roles that may take each action. An action about a dataset needs a token for that dataset, too."""


def is_allowed(identity: Identity, action: str, dataset: str | None = None) -> bool:
    """Return whether someone may take an action, about a dataset if one is named.

    >>> ann = Identity(Role.ANALYST, "ann", "flights", "1")
    >>> is_allowed(ann, "ask", "flights"), is_allowed(ann, "ask", "patients"), is_allowed(ann, "change tokens")
    (True, False, False)
    """
    if identity.role not in ACTIONS.get(action, frozenset()):
        return False
    return dataset is None or identity.dataset is None or identity.dataset == dataset
