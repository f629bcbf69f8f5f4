"""``expost reproduce``: the papers' figures, from your data or from made-up ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from expost.cli.console import err, new_folder, out

__all__ = ["reproduce"]


def reproduce(
    experiment: Annotated[str, typer.Argument(help="accuracy-first, brownian, thresholdout, pixeldp, or all.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of data sets; else EXPOST_DATA; made-up data without either.")
    ] = None,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Download KDD Cup 99 through scikit-learn if it is not in that folder.")
    ] = False,
    trials: Annotated[int | None, typer.Option(help="Trials a point, where trials are counted.", min=1)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version, in seconds.")] = False,
    output: Annotated[Path, typer.Option(help="Folder for figures, tables and summaries.")] = Path("reproduced"),
) -> None:
    """Draw a paper's figures again, with this package's methods beside the published ones.

    Example: [bold]expost reproduce accuracy-first --quick --output /tmp/figures[/bold]
    """
    from expost.experiments.report import EXPERIMENTS, run_experiment, write_report

    if fetch:
        from expost.experiments.fetched import fetch_kdd

        data = fetch_kdd(data)
    if experiment in (*EXPERIMENTS, "all"):
        new_folder(output)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(experiment, total=None)

        def progress(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=name)

        if experiment == "all":
            files = [write_report(output, data=data, quick=quick, progress=progress)]
        else:
            files = run_experiment(experiment, output, data=data, quick=quick, trials=trials, progress=progress)
    for file in files:
        out.print(str(file))
