"""All experiments in one folder, with a page that leads to them."""

from __future__ import annotations

import html
import importlib
import inspect
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from expost import __version__
from expost.core import InvalidRequest
from expost.experiments.trials import Progress

__all__ = ["EXPERIMENTS", "run_experiment", "write_report"]

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
    """Run one experiment by its name; returns the files it wrote.

    >>> run_experiment("no-such", Path("."))
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected one of accuracy-first, brownian, thresholdout, pixeldp, got 'no-such'. Name one.
    """
    if name not in EXPERIMENTS:
        raise InvalidRequest(f"Expected one of {', '.join(EXPERIMENTS)}", got=name, do="Name one")
    run = importlib.import_module(f"expost.experiments.{name.replace('-', '_')}").run
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
    progress: Progress | None = None,
) -> Path:
    """Run experiments into folders of their own and write ``index.html`` beside them; returns the page."""
    sections = []
    for name in names:
        files = run_experiment(name, output / name, data=data, quick=quick, progress=progress)
        sections.append(_section(name, [file.relative_to(output) for file in files]))
    page = output / "index.html"
    page.write_text(_PAGE.format(facts=html.escape(_facts(quick)), sections="\n".join(sections)), encoding="utf-8")
    return page


def _facts(quick: bool) -> str:
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    size = "quick versions" if quick else "full versions"
    return f"expost {__version__}, Python {platform.python_version()}, {platform.machine()}, {when}, {size}"


def _section(name: str, files: Sequence[Path]) -> str:
    pictures = "\n".join(f'<img src="{file}" alt="{file.stem}">' for file in files if file.suffix == ".png")
    links = ", ".join(f'<a href="{file}">{file.name}</a>' for file in files)
    return f"<h2>{name}</h2>\n<p>{html.escape(EXPERIMENTS[name])}.</p>\n{pictures}\n<p>{links}</p>"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>expost: experiments</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}}img{{max-width:100%}}</style>
</head><body>
<h1>Experiments</h1>
<p>{facts}. All of this is simulation with seeded noise.</p>
{sections}
</body></html>
"""
