"""The commands under one name."""

from __future__ import annotations

import typer

from expost import __version__
from expost.cli.demo_command import demo
from expost.cli.evidence_commands import account, audit, reproduce
from expost.cli.fit_command import fit
from expost.cli.ledger_command import ledger
from expost.cli.query_command import price, query
from expost.cli.table_source import describe

__all__ = ["app"]

app = typer.Typer(
    name="expost",
    help="Accuracy-first differential privacy: say how accurate it must be, pay the least privacy that reaches it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Accuracy-first differential privacy."""


for command in (demo, query, fit, price, account, audit, reproduce):
    app.command()(command)
app.add_typer(describe, name="describe")
app.add_typer(ledger, name="ledger")
