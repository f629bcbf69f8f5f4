"""State the accuracy you need. Get the most private answer that reaches it, and a receipt for what it cost.

Names load their packages on first use, so that ``import expost`` stays fast and light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_PACKAGES = {
    "accounting": ("account",),
    "client": ("connect", "connect_async"),
    "core": (
        "Adjacency",
        "BudgetExceeded",
        "EngineFailed",
        "ExpostError",
        "Guarantee",
        "InvalidRequest",
        "Ladder",
        "LedgerBusy",
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
    "session": ("Session",),
    "data": ("Dataset", "col", "when"),
    "holdout": ("ReusableHoldout",),
    "ledger": ("open_ledger",),
    "models": (
        "Classifier",
        "HuberSVC",
        "LogisticRegression",
        "OneOf",
        "Regressor",
        "PCA",
        "Pipeline",
        "Ridge",
        "SGDClassifier",
        "SGDRegressor",
        "SelectKBest",
        "StandardScaler",
        "check_pipeline",
        "fit_one_of",
        "load_model",
        "save_model",
    ),
    "robustness": ("certify", "individual_fairness"),
    "stats": ("PrivateKeys",),
    "stats.hypothesis": ("AdaptiveTester",),
}
_HOME = {name: package for package, names in _PACKAGES.items() for name in names}

if TYPE_CHECKING:
    __version__: str
    from expost.accounting import account
    from expost.client import connect, connect_async
    from expost.core import (
        Adjacency,
        BudgetExceeded,
        EngineFailed,
        ExpostError,
        Guarantee,
        InvalidRequest,
        Ladder,
        LedgerBusy,
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
    from expost.data import Dataset, col, when
    from expost.holdout import ReusableHoldout
    from expost.ledger import open_ledger
    from expost.models import (
        PCA,
        Classifier,
        HuberSVC,
        LogisticRegression,
        OneOf,
        Pipeline,
        Regressor,
        Ridge,
        SelectKBest,
        SGDClassifier,
        SGDRegressor,
        StandardScaler,
        check_pipeline,
        fit_one_of,
        load_model,
        save_model,
    )
    from expost.robustness import certify, individual_fairness
    from expost.session import Session
    from expost.stats import PrivateKeys
    from expost.stats.hypothesis import AdaptiveTester

__all__ = [
    "AdaptiveTester",
    "Adjacency",
    "BudgetExceeded",
    "Classifier",
    "Dataset",
    "EngineFailed",
    "ExpostError",
    "Guarantee",
    "HuberSVC",
    "InvalidRequest",
    "Ladder",
    "LedgerBusy",
    "LedgerUnsound",
    "LogisticRegression",
    "Loss",
    "OneOf",
    "PCA",
    "Pipeline",
    "PrivateKeys",
    "Receipt",
    "Regressor",
    "Release",
    "ReusableHoldout",
    "Ridge",
    "SGDClassifier",
    "SGDRegressor",
    "SelectKBest",
    "Session",
    "StandardScaler",
    "Target",
    "TargetNotMet",
    "Unit",
    "__version__",
    "account",
    "approx",
    "certify",
    "check_pipeline",
    "col",
    "connect",
    "connect_async",
    "epsilon",
    "fit_one_of",
    "gdp",
    "individual_fairness",
    "load_model",
    "open_ledger",
    "save_model",
    "when",
    "zcdp",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # Imported here: it takes longer than the rest of this module.
        return importlib.import_module("importlib.metadata").version(__name__)
    if name in _PACKAGES:  # messages name classes such as expost.stats.Count
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}", name=name, obj=importlib.import_module(__name__)
    )


def __dir__() -> list[str]:
    return sorted(__all__)
