"""A short name for the public settings of a training, by which a checkpoint knows its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["fingerprint"]

_LETTERS = 16  # 64 bits: settings are told apart, nobody is kept out


def fingerprint(settings: Mapping[str, Any]) -> str:
    """The same for equal settings, in any process; another one for others. Values are JSON or texts of their own.

    >>> fingerprint({"classes": [0, 1]}) == fingerprint({"classes": [1, 0]})
    False
    """
    text = json.dumps(settings, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:_LETTERS]
