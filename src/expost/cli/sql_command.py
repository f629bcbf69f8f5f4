"""The command ``expost sql``: one statement, statements from standard input, or an interactive prompt."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from expost.cli.account_opening import open_billed_session
from expost.cli.console import Json, emit, err, out, print_price, print_release, with_options
from expost.cli.table_source import Budget, LedgerPath, Source, describe_source, parse_pairs
from expost.core import ExpostError, InvalidRequest, MissingExtra, epsilon

if TYPE_CHECKING:
    from expost.session import Session

__all__ = ["SqlOptions", "sql"]

_WORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "HAVING",
    "ORDER",
    "LIMIT",
    "JOIN",
    "LEFT",
    "USING",
    "ON",
    "AND",
    "OR",
    "NOT",
    "IN",
    "BETWEEN",
    "LIKE",
    "IS",
    "NULL",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "AS",
    "DISTINCT",
    "WITH",
    "EXPLAIN",
    "PRICE",
    "ERROR",
    "WITHIN",
    "AT",
    "CONFIDENCE",
    "MOST",
    "EPSILON",
    "DELTA",
    "FILTER",
    "COUNT(*)",
    "COUNT(",
    "SUM(",
    "AVG(",
    "MEDIAN(",
    "MODE(",
    "QUANTILE_CONT(",
    "VAR_POP(",
    "STDDEV_POP(",
    "CORR(",
    "COVAR_POP(",
    "MIN(",
    "MAX(",
    "FLOOR(",
    "ROUND(",
    "COALESCE(",
    "NULLIF(",
    "LEAST(",
    "GREATEST(",
    "CAST(",
    "EXTRACT(",
    "DATE_TRUNC(",
    "YEAR(",
    "MONTH(",
]


@dataclass(frozen=True, kw_only=True)
class SqlOptions:
    """The arguments of a statement. Each field is a command-line argument with its help."""

    source: Source
    statement: Annotated[
        str | None,
        typer.Argument(
            help="A SELECT with ERROR WITHIN 5% or WITH EPSILON 0.1; without it, a prompt or standard input."
        ),
    ] = None
    table: Annotated[
        list[str] | None,
        typer.Option(help="The description of another private table about the same ids; repeatable."),
    ] = None
    public: Annotated[
        list[str] | None,
        typer.Option(help="A public table to join, as name=file (Parquet, CSV or Arrow); repeatable."),
    ] = None
    max_rows_per_unit: Annotated[
        int | None,
        typer.Option(help="Joined rows that count per unit; default: the product of the limits of both tables."),
    ] = None
    dialect: Annotated[str, typer.Option(help="The dialect of SQL: duckdb, postgres or spark.")] = "duckdb"
    budget: Budget = None
    budget_delta: Annotated[float, typer.Option(help="The delta of that budget, if it is to have one.")] = 0.0
    ledger: LedgerPath = None
    analyst: Annotated[str | None, typer.Option(help="Charge this analyst's account too.")] = None

    @contextmanager
    def session(self, *, quiet: bool) -> Iterator[Session]:
        """Open a session about the tables; ``quiet`` if only JSON is to be printed."""
        dataset = describe_source(self.source, {})
        others = [describe_source(each, {}) for each in self.table or []]
        where = self.ledger or str(Path(self.source).with_name(f"{dataset.name}.ledger"))
        amount = None if self.budget is None else epsilon(self.budget, self.budget_delta)
        with open_billed_session(
            dataset, self.source, budget=amount, ledger=where, analyst=self.analyst, tables=others, quiet=quiet
        ) as session:
            yield session

    def terms(self) -> dict[str, Any]:
        """Return the keyword arguments of a statement."""
        named = parse_pairs("--public", self.public or [], "carriers=carriers.csv")
        tables = {name: _read_public(path) for name, path in named.items()}
        return {"dialect": self.dialect, "tables": tables, "max_rows_per_unit": self.max_rows_per_unit}


@with_options
def sql(options: SqlOptions, as_json: Json = False) -> None:
    """Ask a statement in SQL with an accuracy, or begin a prompt; see docs/sql.md for the subset.

    Example: [bold]expost sql flights.toml "SELECT carrier, COUNT(*) FROM flights GROUP BY carrier ERROR WITHIN 5%"
    --budget 1[/bold]
    """
    terms = options.terms()
    with options.session(quiet=as_json) as session:
        if options.statement is not None:
            _answer(session, options.statement, terms, as_json=as_json)
        elif sys.stdin.isatty():
            _run_prompt(session, terms, as_json=as_json)
        else:
            for text in split_statements(sys.stdin.read()):
                _answer(session, text, terms, as_json=as_json)


def _read_public(path: str) -> Any:
    """Read a public table. Everybody may see its cells, so they may decide the types of a CSV file."""
    kinds = {".parquet": ("parquet", "read_table"), ".csv": ("csv", "read_csv"), ".arrow": ("feather", "read_table")}
    module, function = kinds.get(Path(path).suffix.lower(), ("", ""))
    if not module or not Path(path).is_file():
        raise InvalidRequest("Expected a Parquet, CSV or Arrow file as a public table", got=path, do="Check the path")
    try:
        return getattr(importlib.import_module(f"pyarrow.{module}"), function)(path)
    except (OSError, ValueError):
        raise InvalidRequest("Expected a public table that can be read", got=path, do="Check the file") from None


def _answer(session: Session, text: str, terms: dict[str, Any], *, as_json: bool) -> None:
    """Ask one statement and print its table or its price."""
    found = session.sql(text, **terms)
    if hasattr(found, "receipt"):
        print_release(found, as_json=as_json)
    elif as_json:
        parts = [{"question": each.question, "sensitivity": each.sensitivity} for each in found.parts]
        emit({"price": str(found.quote), "protected": found.unit, "parts": parts})
    else:
        print_price(found, as_json=False)


def split_statements(text: str) -> list[str]:
    r"""Split a text at the semicolons that are outside quotes and comments.

    >>> split_statements("SELECT ';' ; -- a; b\nSELECT 2;")
    ["SELECT ';'", '-- a; b\nSELECT 2']
    """
    found, start, place = [], 0, 0
    while place < len(text):
        sign = text[place]
        if sign in "'\"`":
            end = text.find(sign, place + 1)
            place = len(text) if end < 0 else end
        elif text.startswith("--", place):
            end = text.find("\n", place)
            place = len(text) if end < 0 else end
        elif text.startswith("/*", place):
            end = text.find("*/", place)
            place = len(text) if end < 0 else end + 1
        elif sign == ";":
            found.append(text[start:place].strip())
            start = place + 1
        place += 1
    return [each for each in (*found, text[start:].strip()) if each]


def _run_prompt(session: Session, terms: dict[str, Any], *, as_json: bool) -> None:
    """Read statements, each ended by a semicolon, until the end of the input. Errors are printed and cost what they say."""
    try:
        toolkit = importlib.import_module("prompt_toolkit")
        completion = importlib.import_module("prompt_toolkit.completion")
        history = importlib.import_module("prompt_toolkit.history")
        filters = importlib.import_module("prompt_toolkit.filters")
    except ModuleNotFoundError:
        raise MissingExtra("sql", package="prompt_toolkit") from None
    out.print("Statements end with a semicolon. EXPLAIN PRICE shows a price. Leave with Control-D.", style="dim")
    prompt: Any = toolkit.PromptSession(
        history=history.FileHistory(str(_history_file())),
        completer=completion.WordCompleter(list_words(session, terms), ignore_case=True),
        complete_while_typing=False,
        # Return begins a new line until there is a semicolon, so that the history has whole statements.
        multiline=filters.Condition(lambda: not prompt.default_buffer.text.rstrip().endswith(";")),
        prompt_continuation="   ...> ",
    )
    while True:
        try:
            text = prompt.prompt("expost> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        for statement in split_statements(text):
            try:
                _answer(session, statement, terms, as_json=as_json)
            except ExpostError as error:
                err.print(f"[red]{error.code}[/red]: {escape(str(error))}\ncost: {escape(error.cost)}")
        out.print(f"left: {session.remaining()}", style="dim", markup=False)


def list_words(session: Session, terms: dict[str, Any]) -> list[str]:
    """Return the words that the prompt completes: of SQL, of the clauses, and the names of tables, columns and categories."""
    datasets = [session.dataset, *session.tables.values()]
    names = [name for each in datasets for name in ((each.name or "data"), *each.schema)]
    values = [
        f"'{value}'"
        for each in datasets
        for listed in each.categories.values()
        for value in listed
        if isinstance(value, str)
    ]
    return list(dict.fromkeys([*_WORDS, *names, *terms["tables"], *values]))


def _history_file() -> Path:
    """Return the file of earlier statements, which only its owner may read: they name columns and constants."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "expost"
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / "sql_history"
    place.touch(mode=0o600, exist_ok=True)
    return place
