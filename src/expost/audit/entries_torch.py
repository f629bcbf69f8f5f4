"""Attacks on the training of PyTorch modules, where torch is installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Sequence

from expost.audit.audit_registry import AuditEntry
from expost.audit.pair_attack import Pair
from expost.audit.planted_fault import GAUSSIAN_STREAM

__all__ = ["entries"]


def entries() -> Iterable[AuditEntry]:
    """List one entry, or none without the extra."""
    return (
        (AuditEntry("expost.torch.train", _module_pairs, noise=GAUSSIAN_STREAM),)
        if importlib.util.find_spec("torch")
        else ()
    )


def _module_pairs() -> Sequence[Pair]:
    # Loaded on demand, because importing torch takes seconds.
    found: Sequence[Pair] = importlib.import_module("expost.audit.torch_canary").pairs()
    return found
