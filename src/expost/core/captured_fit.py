"""The query that a fit would pay for, found without paying."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

__all__ = ["FitCaptured", "capture_fit"]


class FitCaptured(Exception):
    """Ends a fit once its query is known."""


def capture_fit(
    estimator: Any, dataset: Any, *, features: Sequence[str] | None, target: str | None, **public: Any
) -> tuple[Any, Any]:
    """Return the query that a fit would pay for and the rows it would read; reads no row.

    The estimator keeps the columns that it was asked about. Pass a copy of one that must not change.
    """
    found: list[tuple[Any, Any]] = []

    def capture(query: Any, source: Any) -> NoReturn:
        found.append((query, source))
        raise FitCaptured

    with suppress(FitCaptured):
        estimator.fit_with(capture, dataset, features=features, target=target, **public)
    return found[0]
