"""What a person sees while a model trains: public and already private numbers only."""

from __future__ import annotations

import importlib
from fractions import Fraction
from typing import Any, Protocol, Self

__all__ = ["Progress", "Quiet", "RichProgress"]


class Progress(Protocol):
    """Told how far training is and what it has cost."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def advance(self, step: int, steps: int, epsilon: Fraction, news: str) -> None:
        """A step is done; ``epsilon`` is charged by now, ``news`` is what the last private test said."""
        ...


class Quiet:
    """Shows nothing.

    >>> with Quiet() as progress:
    ...     progress.advance(1, 10, Fraction(1), "")
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def advance(self, step: int, steps: int, epsilon: Fraction, news: str) -> None:
        """Show nothing."""
        return None


class RichProgress:
    """A bar with the epsilon charged so far and the last answer of the private test.

    >>> with RichProgress(quiet=True) as progress:
    ...     progress.advance(1, 10, Fraction(1, 2), "below 0.95")
    """

    def __init__(self, *, quiet: bool = False) -> None:
        # Loaded on demand: most trainings show nothing.
        rich: Any = importlib.import_module("rich.progress")
        self._bar = rich.Progress(
            rich.TextColumn("training"),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TextColumn("epsilon {task.fields[epsilon]}  {task.fields[news]}"),
            rich.TimeRemainingColumn(),
            disable=quiet,
        )
        self._task = self._bar.add_task("training", total=None, epsilon="0", news="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, step: int, steps: int, epsilon: Fraction, news: str) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=step, total=steps, epsilon=f"{float(epsilon):.3g}", news=news)
