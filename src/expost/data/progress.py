"""A sign of life on long scans: that it runs and for how long, never how much there is."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

__all__ = ["with_progress"]

T = TypeVar("T")

_PATIENCE = 2.0  # seconds before anything is shown


def with_progress(items: Iterable[T], *, patience: float = _PATIENCE) -> Iterator[T]:
    """The items as they come; on a terminal a spinner and the elapsed time once this takes long.

    No count and no share is shown, because the number of rows may be private. Ctrl-C ends the scan as usual; what the
    ledger holds for it stays charged.

    >>> list(with_progress([1, 2]))
    [1, 2]
    """
    started, quiet = time.monotonic(), not sys.stderr.isatty()
    with ExitStack() as stack:
        for item in items:
            if not quiet and time.monotonic() - started > patience:
                _show(stack)
                quiet = True
            yield item


def _show(stack: ExitStack) -> None:
    """Start a spinner that vanishes with the scan; rich is loaded when it is first needed."""
    rich: Any = importlib.import_module("rich.progress")
    console: Any = importlib.import_module("rich.console").Console(stderr=True)
    columns = rich.SpinnerColumn(), rich.TextColumn("{task.description}"), rich.TimeElapsedColumn()
    bar = stack.enter_context(rich.Progress(*columns, console=console, transient=True))
    bar.add_task("reading rows", total=None)
