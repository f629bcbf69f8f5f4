"""``expost demo``: an accuracy-first release end to end, on made-up data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from expost.cli.console import out, print_receipt
from expost.core import MissingExtra, epsilon

__all__ = ["demo"]


def demo(
    output: Annotated[Path, typer.Option(help="Folder for the ledger and the pictures.")] = Path("demo-output"),
    rows: Annotated[int, typer.Option(help="Rows of made-up data.", min=1000)] = 100_000,
) -> None:
    """Release an answer to an accuracy target and show what it cost.

    Example: [bold]expost demo --output /tmp/demo[/bold]
    """
    from expost.curator import Session
    from expost.data import Dataset
    from expost.experiments.generated import CARRIERS, ORIGINS, generated_flights

    output.mkdir(parents=True, exist_ok=True)
    flights = Dataset(
        generated_flights(rows),
        name="demo-flights",
        bounds={"arr_delay": (-60, 300), "distance": (0, 5000)},
        categories={"carrier": CARRIERS, "origin": ORIGINS},
    )
    ledger = output / "demo.ledger"
    out.print(f"[bold]{rows:,} made-up flights.[/bold] How many are there, within 1 %, at 95 % confidence?\n")
    with Session(flights, epsilon(1000), ledger=ledger) as session:
        release = session.count(within="1%", max_epsilon=1)
        low, high = release.interval or (None, None)
        out.print(f"  answer    [bold]{release.value}[/bold], surely (95 %) between {low} and {high}")
        print_receipt(release.receipt)
        out.print(f"\n  left in the ledger {ledger}: {session.remaining()}")
    _draw(release, output / "climb.png")


def _draw(release: object, path: Path) -> None:
    try:
        release.plot(str(path))  # type: ignore[attr-defined]
    except MissingExtra as error:
        out.print(f"  no picture: {error}")
    else:
        out.print(f"  picture of the climb: {path}")
