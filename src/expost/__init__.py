"""State the accuracy you need. Get the most private answer that reaches it, and a receipt for what it cost.

Names load their rooms on first use, so that ``import expost`` stays fast and light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_ROOMS = {
    "core": (
        "Adjacency",
        "BudgetExceeded",
        "EngineFailed",
        "ExpostError",
        "Guarantee",
        "InvalidRequest",
        "Ladder",
        "LedgerUnsound",
        "Loss",
        "Receipt",
        "Release",
        "Target",
        "TargetNotMet",
        "Unit",
        "approx",
        "epsilon",
        "gdp",
        "zcdp",
    ),
    "curator": ("Session",),
    "data": ("Dataset",),
    "ledger": ("open_ledger",),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}

if TYPE_CHECKING:
    from expost.core import (
        Adjacency,
        BudgetExceeded,
        EngineFailed,
        ExpostError,
        Guarantee,
        InvalidRequest,
        Ladder,
        LedgerUnsound,
        Loss,
        Receipt,
        Release,
        Target,
        TargetNotMet,
        Unit,
        approx,
        epsilon,
        gdp,
        zcdp,
    )
    from expost.curator import Session
    from expost.data import Dataset
    from expost.ledger import open_ledger

__all__ = [
    "Adjacency",
    "BudgetExceeded",
    "Dataset",
    "EngineFailed",
    "ExpostError",
    "Guarantee",
    "InvalidRequest",
    "Ladder",
    "LedgerUnsound",
    "Loss",
    "Receipt",
    "Release",
    "Session",
    "Target",
    "TargetNotMet",
    "Unit",
    "__version__",
    "approx",
    "epsilon",
    "gdp",
    "open_ledger",
    "zcdp",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
