"""A budget over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from expost.core import Guarantee, InvalidRequest
from expost.plots.style import BLUE, ORANGE, RED, new_figure, save

__all__ = ["draw_budget"]


def draw_budget(entries: Sequence[Any], *, account: str, budget: Guarantee, path: str | Path | None = None) -> Figure:
    """What an account had spent after each entry, against its budget; holds are shown as they are taken.

    >>> from expost.core import epsilon
    >>> draw_budget([], account="dataset:flights", budget=epsilon(1))
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected entries that charge the account. Ask a question first.
    """
    charged = [entry for entry in entries if account in entry.spent]
    if not charged:
        raise InvalidRequest("Expected entries that charge the account", do="Ask a question first")
    name, total = next(iter(budget.amounts().items()))
    when = _places([datetime.fromisoformat(entry.at) for entry in charged])
    spent = [float(entry.spent[account].amounts()[name]) for entry in charged]
    figure, axes = new_figure()
    axes.step(when, spent, where="post", color=BLUE, marker=".", label="spent (open holds at their worst case)")
    axes.axhline(float(total), color=RED, linestyle="--", label=f"budget: {budget}")
    settled = [index for index, entry in enumerate(charged) if entry.kind.value == "settle"]
    axes.plot(
        [when[index] for index in settled], [spent[index] for index in settled], "o", color=ORANGE, label="settled"
    )
    axes.set_ylim(0, max(float(total), *spent) * 1.08)
    axes.set_xlim(min(when), max(when) + timedelta(minutes=1))
    axes.set_xlabel("time of the entry")
    axes.set_ylabel(name)
    axes.set_title(f"{account}: {spent[-1]:.4g} of {float(total):.4g} spent", fontsize=10, loc="left")
    ticks = AutoDateLocator(maxticks=7)
    axes.xaxis.set_major_locator(ticks)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(ticks))
    figure.legend(fontsize=8, loc="outside lower center", ncols=3, frameon=False)
    return save(figure, path)


def _places(minutes: Sequence[datetime]) -> list[datetime]:
    """Where entries are drawn: those of one minute in their order, spread over it. The ledger keeps no seconds."""
    counts, seen = Counter(minutes), Counter[datetime]()
    places = []
    for minute in minutes:
        places.append(minute + timedelta(minutes=seen[minute] / counts[minute]))
        seen[minute] += 1
    return places
