"""The power that was measured for each entry, kept in a file of the package."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

__all__ = ["measured_on", "measured_power"]

_FILE = "power.json"


def measured_power(profile: str) -> dict[str, float]:
    """The smallest planted fault that each entry caught at this profile: the missing share of the noise, 0 for none.

    >>> measured_power("full")["noise.LaplaceMechanism"] <= 0.1
    True
    """
    found: dict[str, float] = _stored()["profiles"].get(profile, {})
    return found


def measured_on() -> str:
    """The day of the measurement.

    >>> len(measured_on())
    10
    """
    return str(_stored()["date"])


@cache
def _stored() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((resources.files("expost.audit") / _FILE).read_text())
    return stored
