"""Makes docs/benchmarks.md and its pictures from what the benchmarks kept as JSON; measures nothing.

A section is a list of tables, each made by one function from the numbers of one benchmark. A cell that was measured is a ``Measured``:
its value and the range in which a new measurement has not moved. ``stated_numbers`` lists these cells, so that the page and
``expost reproduce all`` cannot disagree.
"""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expost.core.table_text import markdown_table

BEYOND = 1.25
"""A median of runs has moved if it is this many times beyond the least or the most of the stated runs, and not within ``RATIO`` of their median."""
RATIO = 1.6
"""A level, a mean or a ratio of processor times has moved if it is this many times larger or smaller."""
CLOCK = 4.0
"""The same for ratios of times by the clock, which depend on what else the machine does."""


@dataclass(frozen=True)
class Measured:
    """A number of the page, and the range within which a new measurement of it has not moved."""

    value: float
    low: float
    high: float
    text: str

    @classmethod
    def of_runs(cls, runs: Sequence[float], digits: int = 3) -> Measured:
        """Return the median of runs, shown with the least and the most."""
        middle, least, most = statistics.median(runs), min(runs), max(runs)
        spread = f" ({plain(least, digits - 1)} to {plain(most, digits - 1)})" if least < most else ""
        low, high = min(least / BEYOND, middle / RATIO), max(most * BEYOND, middle * RATIO)
        return cls(middle, low, high, f"{plain(middle, digits)}{spread}")

    @classmethod
    def ratio(cls, value: float, digits: int = 2, factor: float = RATIO) -> Measured:
        """Return a ratio, a level of a grid or a mean: numbers that move by a factor."""
        ends = sorted((value / factor, value * factor))
        return cls(value, ends[0], ends[1], plain(value, digits))

    @classmethod
    def clock(cls, value: float, digits: int = 2) -> Measured:
        """Return a ratio of times by the clock."""
        return cls.ratio(value, digits, CLOCK)

    @classmethod
    def within(cls, value: float, allowed: float, digits: int = 3) -> Measured:
        """Return a number that moves by an amount."""
        return cls(value, value - allowed, value + allowed, f"{value:.{digits}f}")

    def __str__(self) -> str:
        return self.text


def plain(value: float, digits: int = 2) -> str:
    """Return a number without powers of ten in its text.

    >>> plain(12345.6), plain(0.0123), plain(3.0)
    ('12,346', '0.012', '3')
    """
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


@dataclass(frozen=True)
class Table:
    """One table: the line that says what to see in it, and its rows, whose first cells name them."""

    reading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Part:
    """What a section shows of one benchmark; ``picture`` draws its numbers to a file."""

    benchmark: str
    make: Callable[[Any], Table | None]
    picture: Callable[[Any, Path], None] | None = None
    picture_name: str = ""
    picture_text: str = ""


@dataclass(frozen=True)
class Section:
    """A heading, what it is about, and its parts."""

    title: str
    about: str
    parts: Sequence[Part]


HEAD = """# Benchmarks

Made by `scripts/bench` from the JSON files that are named under each table; what the benchmarks printed is in these files too. A row is one
task. Epsilons are medians, with the least and the most of the runs in brackets, and what is paid includes failed runs. An *oracle* knows
the exact answer: the least epsilon at which the same method reaches the target in nine of ten runs. Other libraries are judged
like the oracle, which favours them. Times depend on the machine and on what else it does, so compare ratios within a table. No timing is a test.

`expost reproduce all` in a clone measures all of it again and says which number moved: a median of runs that left its range by
more than a quarter, a level or ratio of processor times that changed by more than 1.6 times, a ratio of times by the clock by more than 4.
"""
MISSING = "Not measured yet: run `scripts/bench {}`.\n"


def make_part(part: Part, result: dict[str, Any] | None) -> tuple[Table | None, str]:
    """Return the table of a part, or why there is none."""
    if result is None:
        return None, MISSING.format(part.benchmark)
    if "failed" in result:
        return None, f"Not measured: {result['failed']}.\n"
    try:
        return part.make(result["numbers"]), ""
    except (KeyError, TypeError, IndexError):
        return None, f"Measured in an older form. Run `{result['command']}` again.\n"


def page_text(results: dict[str, Any], sections: Sequence[Section]) -> str:
    """Return the page."""
    lines = [HEAD, overview(results, sections)]
    for section in sections:
        lines.append(f"## {section.title}\n\n{section.about}\n")
        shown: list[str] = []
        missing = dict.fromkeys(part.benchmark for part in section.parts if part.benchmark not in results)
        for place, part in enumerate(section.parts):
            result = results.get(part.benchmark)
            table, why = make_part(part, result)
            if table is not None and part.picture is not None:
                lines.append(f"![{part.picture_text}]({part.picture_name})\n")
            if table is not None:
                lines += [f"{table.reading}\n", markdown_table(table.columns, table.rows) + "\n"]
            elif result is not None and why and why not in shown:
                shown.append(why)
                lines.append(why)
            last = place + 1 == len(section.parts) or section.parts[place + 1].benchmark != part.benchmark
            if last and result is not None:
                lines.append(where_line(part.benchmark, result))
        if missing:
            lines.append(MISSING.format(" ".join(missing)))
    return "\n".join(lines)


def overview(results: dict[str, Any], sections: Sequence[Section]) -> str:
    """Return a table of the sections with what each says."""
    rows = []
    for section in sections:
        link = section.title.lower().replace(" ", "-").replace(",", "").replace("'", "")
        names = dict.fromkeys(part.benchmark for part in section.parts)
        when = sorted({results[name]["machine"]["when"] for name in names if name in results})
        days = " to ".join(dict.fromkeys((when[0], when[-1]))) if when else "not yet"
        rows.append([f"[{section.title}](#{link})", ", ".join(f"`{name}.py`" for name in names), days])
    lines = ["| section | benchmarks | measured |", "| --- | --- | --- |"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def where_line(name: str, result: dict[str, Any]) -> str:
    """Return the line below a table: command, date, machine, versions, and the file with everything."""
    machine = result["machine"]
    versions = machine["versions"]
    named = ", ".join(f"{each} {versions[each]}" for each in ("expost", "numpy", "scikit-learn") if each in versions)
    commit = f" at {machine['commit']}" if machine.get("commit") else ""
    return (
        f"`{result['command']}` · {machine['when']} · {machine['cores']} cores of {machine['processor']}, load {machine['load']} · "
        f"Python {machine['python']}, {named}{commit} · [everything](benchmarks/{name}.json)\n"
    )


def stated_numbers(results: dict[str, Any], sections: Sequence[Section]) -> list[dict[str, Any]]:
    """Return every measured number of the page: benchmark, what it is, value, range, and the command that makes it."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for section in sections:
        for part in section.parts:
            table, _ = make_part(part, results.get(part.benchmark))
            for row in table.rows if table else ():
                for column, cell in zip(table.columns if table else (), row, strict=True):
                    if isinstance(cell, Measured):
                        what = f"{row[0]}: {column}"
                        found.setdefault(
                            (part.benchmark, what),
                            {
                                "benchmark": part.benchmark,
                                "what": what,
                                "value": cell.value,
                                "low": cell.low,
                                "high": cell.high,
                                "command": results[part.benchmark]["command"],
                                "words": shlex.split(results[part.benchmark].get("words") or ""),
                            },
                        )
    return list(found.values())


def write_page(page: Path, results: dict[str, Any], *, pictures: bool = True) -> None:
    """Write the page, and its pictures next to it."""
    from benchmarks.sections import SECTIONS

    (page.parent / "benchmarks").mkdir(parents=True, exist_ok=True)
    page.write_text(page_text(results, SECTIONS), encoding="utf-8")
    for section in SECTIONS:
        for part in section.parts:
            result = results.get(part.benchmark)
            if pictures and part.picture is not None and make_part(part, result)[0] is not None and result:
                part.picture(result["numbers"], page.parent / part.picture_name)
