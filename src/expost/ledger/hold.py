"""A worst case that is reserved until its run is billed."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from expost.core import Loss

__all__ = ["Hold", "HoldState"]


class HoldState(enum.Enum):
    """Where a hold stands.

    >>> HoldState("open")
    <HoldState.OPEN: 'open'>
    """

    OPEN = "open"
    SETTLED = "settled"
    WRITTEN_OFF = "written off"


@dataclass(frozen=True)
class Hold:
    """The right to run one question once; charged at its worst case until settled.

    ``repeated`` is true when a request id was seen before: the first caller has the right to run, this one has not,
    because a second run draws new noise and is a second release. ``ticket`` tells the two apart, and names the one
    process that may settle. ``earlier`` are the tickets before it, while a change of hands is under way.

    >>> from expost.core import PureLoss
    >>> Hold("3-9f86d081884c7d65", ("dataset:flights",), PureLoss(1), "count", ticket="t").repeated
    False
    """

    id: str
    accounts: tuple[str, ...]
    worst_case: Loss
    question: str
    request_id: str | None = None
    ticket: str = field(default="", repr=False)
    repeated: bool = False
    state: HoldState = HoldState.OPEN
    closed_by: str | None = None
    earlier: tuple[str, ...] = field(default=(), repr=False)
