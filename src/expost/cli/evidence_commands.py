"""The commands ``expost account``, ``expost audit`` and ``expost reproduce``."""

from __future__ import annotations

import math
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from expost.cli.console import PICTURES, Json, emit, err, new_file, new_folder, out, print_table
from expost.core import InvalidRequest
from expost.core.rational import decimal_text, rational

__all__ = ["account", "audit", "reproduce"]


def account(
    gaussian: Annotated[float, typer.Option(help="Noise multiplier of each step: noise over sensitivity.")],
    delta: Annotated[float, typer.Option(help="Probability with which epsilon may be exceeded.")],
    sampling: Annotated[float, typer.Option(help="Poisson sampling rate of each step; 1 for all rows.")] = 1.0,
    steps: Annotated[int, typer.Option(help="Number of steps.", min=0)] = 1,
    plot: Annotated[Path | None, typer.Option(help="Draw the trade-off curve to a PNG or SVG file.")] = None,
    as_json: Json = False,
) -> None:
    """Price Gaussian steps in every currency and print the smallest epsilon.

    Example: [bold]expost account --gaussian 1.1 --sampling 0.01 --steps 10000 --delta 1e-5[/bold]
    """
    from expost.accounting import GaussianEvent, PoissonSampled, Repeat, account_report, plot_tradeoff
    from expost.accounting import account as account_of

    new_file(plot, kinds=PICTURES)
    if not 0 < delta < 1:
        raise InvalidRequest("Expected a delta between 0 and 1", got=delta, do="Pass e.g. --delta 1e-5")
    report = account_report(gaussian=gaussian, delta=delta, sampling=sampling, steps=steps)
    if as_json:
        emit(report)
    else:
        out.print(f"[bold]epsilon {_up(report['epsilon'])}[/bold] at delta {delta:g} ({report['adjacency']})")
        costs = ((name, _up(value)) for name, value in report["currencies"].items())
        print_table("by currency", ("currency", "epsilon"), costs)
        out.print(report["meaning"])
    if plot is not None:
        step = GaussianEvent(rational(gaussian, "gaussian"))
        rate = rational(sampling, "sampling")
        plan = Repeat(step if rate == 1 else PoissonSampled(rate, step), steps)
        plot_tradeoff(account_of(plan).tradeoff(), path=str(plot))
        (err if as_json else out).print(f"picture: {plot}")


def _up(value: float) -> str:
    """Format a cost, rounded up."""
    return decimal_text(Fraction(str(value))) if math.isfinite(value) else "inf"


def audit(
    profile: Annotated[
        str, typer.Option(help="quick (about a minute), long (about half an hour) or full (hours, for releases).")
    ] = "quick",
    long: Annotated[
        bool, typer.Option("--long", help="A million runs per side where runs come in batches, and planted faults.")
    ] = False,
    only: Annotated[
        str | None, typer.Option(help="Part of the names of the mechanisms to attack, such as Laplace.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Fresh randomness instead of the fixed seed.")] = False,
    as_json: Json = False,
) -> None:
    """Attack every mechanism on its worst neighbours and compare the largest loss found with its claim.

    With [bold]--long[/bold] the faults that each attack is known to detect are planted again: its noise is made too
    small, and the attack must notice.

    Example: [bold]expost audit --long --only noise.Laplace[/bold]
    """
    from expost.audit.audit_registry import all_entries
    from expost.audit.audit_table import AuditVerdict, audit_table, profile_of, read_power

    profile = _choose_profile(profile, long)
    profile_of(profile)
    entries = [entry for entry in all_entries() if (only or "").lower() in entry.short_name.lower()]
    if not entries:
        raise InvalidRequest("Expected part of a mechanism's name", got=only, do="Leave --only out for all of them")

    with Progress(console=err, transient=True) as bar:
        task = bar.add_task("attacking", total=None)

        def progress(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=f"attacking {name}")

        rows = audit_table(profile, progress, entries=entries, seed=None if fresh else 0, plant=profile == "long")
    broken = [row for row in rows if row.verdict is AuditVerdict.VIOLATED]
    if as_json:
        emit([asdict(row) | {"verdict": row.verdict.value} for row in rows])
    else:
        columns = ("mechanism", "claim", "bound found", "pairs", "samples", "smallest fault it catches", "verdict")
        # The bound names the claim too, so a narrow terminal shows what matters without breaking words.
        shown = range(len(columns)) if out.width >= 140 else (0, 2, 5, 6)
        print_table("audit", tuple(columns[k] for k in shown), (tuple(row.text[k] for k in shown) for row in rows))
        weak = [row for row in rows if row.verdict in (AuditVerdict.WEAK, AuditVerdict.SILENT)]
        counts = (
            f"mechanisms attacked: {len(rows)}; violations found: {len(broken)}; weak or silent attacks: {len(weak)}"
        )
        out.print(counts)
        when = "in this run" if profile == "long" else read_power()["date"]
        out.print(f"smallest faults: measured by planting them, {when}")
    if broken:
        raise typer.Exit(1)


def _choose_profile(profile: str, long: bool) -> str:
    """Return the profile's name; ``--long`` is short for ``--profile long``."""
    if long and profile not in ("quick", "long"):
        raise InvalidRequest("Expected one profile", got=f"--long --profile {profile}", do="Leave one of the two out")
    return "long" if long else profile


def reproduce(
    experiment: Annotated[
        str, typer.Argument(help="accuracy-first, brownian, thresholdout, pixeldp, numbers, or all.")
    ],
    data: Annotated[
        Path | None, typer.Option(help="Folder of data sets. Default: EXPOST_DATA, else generated data.")
    ] = None,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Download KDD Cup 99 through scikit-learn if it is not in that folder.")
    ] = False,
    trials: Annotated[int | None, typer.Option(help="Trials per point.", min=1)] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version: seconds, for all of it a minute or two.")
    ] = False,
    clone: Annotated[
        Path | None,
        typer.Option(help="Clone of the project, whose benchmarks are run too. Default: the current folder."),
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for figures, tables and summaries.")] = Path("reproduced"),
) -> None:
    """Draw a paper's figures again, or make the numbers of the README and the docs again and say which moved.

    [bold]numbers[/bold] makes the stated numbers again, [bold]all[/bold] the figures too; both write one report and end with 1 if a number
    moved by more than its stated spread. Numbers of the benchmarks need a clone of the project and, without --quick, hours.

    Example: [bold]expost reproduce all --quick --output /tmp/figures[/bold]
    """
    from expost.experiments.experiment_report import EXPERIMENTS, run_experiment, write_report
    from expost.experiments.stated_numbers import Verdict, find_clone, remake_numbers, summarize

    whole = experiment in ("all", "numbers")
    if clone is not None and not whole:
        raise InvalidRequest("Expected --clone only for numbers", got=experiment, do="Leave it out, or name all")
    if trials is not None and whole:
        raise InvalidRequest(
            "Expected --trials only for one experiment", got=experiment, do="Leave it out, or name one"
        )
    where = find_clone(clone) if whole else None
    if fetch:
        from expost.experiments.experiment_data import fetch_kdd

        data = fetch_kdd(data)
    if whole or experiment in EXPERIMENTS:
        new_folder(output)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    moved = False
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(experiment, total=None)

        def progress(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=name)

        if whole:
            numbers = remake_numbers(clone=where, quick=quick, progress=progress)
            names = tuple(EXPERIMENTS) if experiment == "all" else ()
            page, numbers = write_report(
                output, data=data, quick=quick, names=names, numbers=numbers, clone=where, progress=progress
            )
            files = [page]
        else:
            files = run_experiment(experiment, output, data=data, quick=quick, trials=trials, progress=progress)
    if whole:
        strayed = [each for each in numbers if each.verdict is Verdict.MOVED]
        for each in strayed:
            out.print(
                f"moved: {each.page}, {each.text}: stated {each.value:.4g} ({each.low:.4g} to {each.high:.4g}), now {each.found:.4g}",
                markup=False,
            )
        out.print(summarize(numbers))
        if where is None:
            out.print("no clone of the project here: numbers of the benchmarks are not made again")
        moved = bool(strayed)
    for file in files:
        out.print(str(file))
    if moved:
        raise typer.Exit(1)
