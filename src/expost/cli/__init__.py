"""The command line."""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder

import typer

from expost import __version__
from expost.cli.console import fail, lost
from expost.cli.demo_command import demo
from expost.cli.evidence_commands import account, audit, reproduce
from expost.cli.fit_command import fit
from expost.cli.ledger_command import ledger
from expost.cli.query_command import price, query
from expost.cli.serve_command import serve, token
from expost.cli.sql_command import sql
from expost.cli.table_source import describe
from expost.core import ExpostError, InvalidRequest

__all__ = ["app", "main"]

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


for command in (demo, query, sql, fit, price, serve, account, audit, reproduce):
    app.command()(command)
app.add_typer(describe, name="describe")
app.add_typer(ledger, name="ledger")
app.add_typer(token, name="token")


def main() -> None:
    """Run the command line; errors print their sentence, code and cost, and set the exit code."""
    silent = sys.stdout is None
    _occupy_closed_places()
    _keep_pandas_out()
    try:
        try:
            if silent:  # a closed one would swallow a paid answer
                raise InvalidRequest(
                    "Expected a standard output that is open", do="Leave it open, or send it to a file"
                )
            app()
        except ExpostError as error:
            fail(error, as_json="--json" in sys.argv and not silent)
    except OSError as error:
        lost(error)


def _keep_pandas_out() -> None:
    """Stop PyArrow from importing pandas for a question, which needs 0.3 s and nothing of it.

    PyArrow tries on its first conversion and does without if there is none. A process that has loaded PyArrow before, such as
    one that runs tests, is left alone: it may want both.
    """
    if sys.argv[1:2] in (["query"], ["price"], ["sql"]) and not {"pyarrow", "pandas"} & sys.modules.keys():
        sys.meta_path.insert(0, _WithoutPandas())


class _WithoutPandas(MetaPathFinder):
    """Finds no pandas, as if it were not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Refuse pandas and leave all other modules to other finders."""
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def _occupy_closed_places() -> None:
    """Open the null device for each standard file that is closed: no ledger must be opened under one of their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the end of the process)
