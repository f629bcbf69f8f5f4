"""``expost query`` and ``expost price``: one question about a file, from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from expost.cli.console import PICTURES, err, kept_apart, new_file, out, print_price, print_release
from expost.cli.question import Question, asking
from expost.core import ExpostError, Release

__all__ = ["price", "query"]

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@asking
def query(
    question: Question,
    plot: Annotated[Path | None, typer.Option(help="Draw the answer to a PNG or SVG file.")] = None,
    as_json: Json = False,
) -> None:
    """Ask one question and pay for it from a ledger.

    Example: [bold]expost query flights.parquet count --by origin --categories origin=EWR,JFK,LGA --within 5%
    --unit tailnum --max-rows 50 --budget 1 --ledger flights.ledger[/bold]
    """
    new_file(plot, kinds=PICTURES)
    kept_apart(plot, question.source, question.ledger or question.source)
    with question.session() as session:
        release = session.ask(session.request(question.statistic, *question.subject(), **question.terms()))
    print_release(release, as_json=as_json)
    if plot is not None:
        _draw(release, plot, err if as_json else out)


@asking
def price(question: Question, as_json: Json = False) -> None:
    """Say what a question would cost: the worst case, and a guess from public receipts. Nothing is spent.

    Example: [bold]expost price flights.parquet count --within 5% --budget 1[/bold]
    """
    with question.session() as session:
        found = session.price(question.statistic, *question.subject(), **question.terms())
    print_price(found, as_json=as_json)


def _draw(release: Release[Any], plot: Path, console: Console) -> None:
    try:
        release.plot(str(plot))
    except ExpostError as error:  # the answer is printed and paid for, whatever becomes of its picture
        err.print(f"no picture: {escape(str(error))}")
        raise SystemExit(error.exit_code) from None
    console.print(f"picture: {plot}")
