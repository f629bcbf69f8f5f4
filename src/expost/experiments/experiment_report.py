"""Trials, averages, tables and reports of the experiments."""

from __future__ import annotations

import csv
import hashlib
import html
import importlib
import inspect
import json
import math
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from expost import __version__
from expost.core import InvalidRequest
from expost.core.table_text import html_table
from expost.experiments.fitting_methods import Point
from expost.experiments.stated_numbers import COLUMNS, StatedNumber, compare_figures, numbers_rows, summarize

__all__ = [
    "EXPERIMENTS",
    "Average",
    "KeptTrials",
    "Progress",
    "averages",
    "run_experiment",
    "run_trials",
    "write_report",
]

_FEW = 5  # below this, starting processes costs more than they save

Progress = Callable[[int, int, str], None]
"""Told how many of how many are done, and of what."""


def run_trials(
    task: Callable[..., Any],
    jobs: Sequence[tuple[Any, ...]],
    *,
    label: str,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Iterator[Any]:
    """Yield the results of ``task(*job)``, in the order in which they are done."""
    workers = workers or os.cpu_count() or 1
    if workers == 1 or len(jobs) < _FEW:
        results = (_single_threaded(task, job) for job in jobs)
    else:
        calls = (delayed(_single_threaded)(task, job) for job in jobs)
        results = Parallel(n_jobs=workers, return_as="generator_unordered")(calls)
    for done, result in enumerate(results, start=1):
        if progress is not None:
            progress(done, len(jobs), label)
        yield result


def _single_threaded(task: Callable[..., Any], job: tuple[Any, ...]) -> Any:
    """Run one job on one thread: two workers with two threads each are slower than two with one."""
    with threadpool_limits(limits=1):
        return task(*job)


@dataclass(frozen=True)
class Average:
    """One method at one tolerance over all trials."""

    table: str
    method: str
    tolerance: float
    trials: int
    epsilon: float
    epsilon_error: float
    """The standard error of the mean."""
    generation: float
    testing: float
    excess_risk: float
    authors_excess_risk: float
    norm: float
    missed: int
    """Runs that ended without saying that the target was met; they are part of the averages."""
    wrong: int
    """Runs that said so although the excess risk was above the tolerance."""


def averages(points: Iterable[Point]) -> list[Average]:
    """Average points by table, method and tolerance."""

    def key(point: Point) -> tuple[str, str, float]:
        return point.table, point.method, point.tolerance

    return [_average(list(group)) for _, group in groupby(sorted(points, key=key), key=key)]


def _average(points: Sequence[Point]) -> Average:
    first, bills = points[0], [point.epsilon for point in points]
    averaged = ("epsilon", "generation", "testing", "excess_risk", "authors_excess_risk", "norm")
    return Average(
        first.table,
        first.method,
        first.tolerance,
        len(points),
        epsilon_error=stdev(bills) / math.sqrt(len(bills)) if len(bills) > 1 else 0.0,
        missed=sum(not point.met for point in points),
        wrong=sum(point.met and point.excess_risk > point.tolerance for point in points),
        **{name: fmean(getattr(point, name) for point in points) for name in averaged},
    )


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    """Write a table for machines; numbers are not rounded."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format a table for people.

    >>> print(markdown_table(["method", "epsilon"], [["ours", 0.12345]]))
    | method | epsilon |
    | --- | --- |
    | ours | 0.123 |
    """

    def format_cell(value: object) -> str:
        if isinstance(value, float):
            return f"{value:.3g}" if math.isfinite(value) else "none"
        return str(value)

    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    return "\n".join([*lines, *("| " + " | ".join(map(format_cell, row)) + " |" for row in rows)])


class KeptTrials:
    """The points of finished trials, one file per trial, for one run with these settings."""

    def __init__(self, output: Path, *, settings: str) -> None:
        # Another version, grid or folder of data is another run: its trials are not mixed in.
        digest = hashlib.sha256(f"{__version__} {settings}".encode()).hexdigest()[:12]
        self._folder = output / f".trials-{digest}"

    def _file(self, table: str, trial: int) -> Path:
        return self._folder / f"{table.replace(' ', '-')}-{trial}.json"

    def write(self, table: str, trial: int, points: Iterable[Point]) -> None:
        """Store one trial; a file is there whole or not at all."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._file(table, trial)
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps([astuple(point) for point in points]), encoding="utf-8")
        draft.replace(file)

    def missing(self, table: str, trials: int) -> list[int]:
        """List the trials that are still to be run."""
        return [trial for trial in range(trials) if not self._file(table, trial).exists()]

    def read(self, table: str, trials: int) -> list[Point]:
        """Read all points that are kept."""
        files = [self._file(table, trial) for trial in range(trials)]
        kept = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
        return [Point(*fields) for points in kept for fields in points]

    def clear(self) -> None:
        """Remove the stored trials after a complete run."""
        shutil.rmtree(self._folder, ignore_errors=True)


EXPERIMENTS = {
    "accuracy-first": "What each method pays for the accuracy asked for (LNRWW17, Figures 1 to 4)",
    "brownian": "Laplace against Gaussian noise reduction, stopped by an oracle",
    "thresholdout": "A holdout that can be asked again and again",
    "pixeldp": "Predictions that no small change of the input can move",
}


def run_experiment(
    name: str,
    output: Path,
    *,
    data: str | Path | None = None,
    quick: bool = False,
    trials: int | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Run one experiment by its name; returns the files it wrote."""
    if name not in EXPERIMENTS:
        raise InvalidRequest(f"Expected one of {', '.join(EXPERIMENTS)}", got=name, do="Name one")
    run = importlib.import_module(f"expost.experiments.{name.replace('-', '_')}_figures").run
    options: dict[str, Any] = {"data": data, "quick": quick, "progress": progress}
    if "trials" in inspect.signature(run).parameters:
        options["trials"] = trials
    elif trials is not None:
        raise InvalidRequest("Expected --trials only where trials are counted", got=name, do="Leave it out")
    return [Path(each) for each in run(output, **options)]


def write_report(
    output: Path,
    *,
    data: str | Path | None = None,
    quick: bool = False,
    names: Sequence[str] = tuple(EXPERIMENTS),
    numbers: Sequence[StatedNumber] = (),
    clone: Path | None = None,
    progress: Progress | None = None,
) -> tuple[Path, list[StatedNumber]]:
    """Run experiments into separate folders and write ``index.html`` next to them; returns the page, and all numbers compared.

    ``numbers`` are stated numbers that were made again. With a clone, whole figures are compared with those that its docs keep.
    """
    compared, sections = list(numbers), list[str]()
    for name in names:
        written = run_experiment(name, output / name, data=data, quick=quick, progress=progress)
        if clone is not None and not quick:
            kept = [clone / "docs" / "experiments" / file.name for file in written if file.suffix == ".csv"]
            for each in filter(Path.exists, kept):
                compared += compare_figures(each, output / name / each.name)
        files = [file.relative_to(output) for file in written]
        pictures = "\n".join(f'<img src="{file}" alt="{file.stem}">' for file in files if file.suffix == ".png")
        links = ", ".join(f'<a href="{file}">{file.name}</a>' for file in files)
        about = html.escape(EXPERIMENTS[name])
        sections.append(f"<h2>{name}</h2>\n<p>{about}.</p>\n{pictures}\n<p>{links}</p>")
    if compared:
        write_csv(output / "numbers.csv", COLUMNS, numbers_rows(compared))
        sections.insert(0, _numbers_section(compared))
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    size = "quick versions" if quick else "full versions"
    facts = f"expost {__version__}, Python {platform.python_version()}, {platform.machine()}, {when}, {size}"
    page = output / "index.html"
    page.write_text(_PAGE.format(facts=html.escape(facts), sections="\n".join(sections)), encoding="utf-8")
    return page, compared


def _numbers_section(numbers: Sequence[StatedNumber]) -> str:
    """Show what moved, then what was not made, then what holds."""
    table = html_table(COLUMNS, numbers_rows(numbers))
    link = '<a href="numbers.csv">numbers.csv</a>'
    about = "A number has moved if it lies outside the spread that is stated with it. New noise is drawn in every run."
    return f"<h2>Stated numbers</h2>\n<p>{html.escape(summarize(numbers))}. {about}</p>\n{table}\n<p>{link}</p>"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>expost: numbers and figures</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}}img{{max-width:100%}}table{{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}}
td,th{{border:1px solid #ccc;padding:.2rem .5rem;text-align:left}}</style>
</head><body>
<h1>Numbers and figures</h1>
<p>{facts}. The figures are simulations with seeded noise.</p>
{sections}
</body></html>
"""
