"""``expost audit``: attack every mechanism of the package."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.progress import Progress

from expost.cli.console import emit, err, out, print_table

__all__ = ["audit"]


def audit(
    profile: Annotated[str, typer.Option(help="quick (about a minute) or full (for releases).")] = "quick",
    fresh: Annotated[bool, typer.Option("--fresh", help="Fresh randomness instead of the fixed seed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Attack every mechanism on its worst neighbours and report the largest loss found against its claim.

    Example: [bold]expost audit --profile quick[/bold]
    """
    from expost.audit.measured import measured_on
    from expost.audit.table import Verdict, audit_table

    with Progress(console=err, transient=True) as bar:
        task = bar.add_task("attacking", total=None)

        def progress(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=f"attacking {name}")

        rows = audit_table(profile, progress, seed=None if fresh else 0)
    broken = [row for row in rows if row.verdict is Verdict.VIOLATED]
    if as_json:
        emit([asdict(row) | {"verdict": row.verdict.value} for row in rows])
    else:
        columns = ("mechanism", "claim", "bound found", "pairs", "samples", "smallest fault it catches", "verdict")
        print_table("audit", columns, (row.text for row in rows))
        weak = [row for row in rows if row.verdict in (Verdict.WEAK, Verdict.SILENT)]
        out.print(
            f"{len(rows)} mechanisms attacked, {len(broken)} violations found, {len(weak)} attacks weak or silent"
        )
        out.print(f"smallest faults: measured by planting them, {measured_on()}")
    if broken:
        raise typer.Exit(1)
