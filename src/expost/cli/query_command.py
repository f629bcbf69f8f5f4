"""The commands ``expost query`` and ``expost price``: one question about a table."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.markup import escape

from expost.cli.account_opening import open_billed_session
from expost.cli.console import (
    PICTURES,
    Json,
    err,
    kept_apart,
    new_file,
    out,
    print_price,
    print_release,
    print_table,
    with_options,
)
from expost.cli.table_source import Budget, LedgerPath, Source, describe_source, limits_of, parse_pairs, typed_value
from expost.core import ExpostError, InvalidRequest, epsilon

if TYPE_CHECKING:
    from expost.data import Dataset
    from expost.session import Session

__all__ = ["QueryOptions", "price", "query"]


def _list_statistics(wanted: bool) -> None:
    """Print the name of every statistic with its first sentence, then exit."""
    if not wanted:
        return
    from expost.session.statistic_methods import STATISTICS

    rows = [(name, (inspect.getdoc(kind) or "").splitlines()[0]) for name, kind in sorted(STATISTICS.items())]
    print_table("statistics", ("name", "what it releases"), rows)
    raise typer.Exit


@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """The arguments of a question. Each field is a command-line argument with its help."""

    source: Source
    statistic: Annotated[
        str, typer.Argument(help="One of count, sum, mean, median, histogram, ... (expost query --list prints all).")
    ]
    columns: Annotated[
        list[str] | None,
        typer.Argument(
            help="The column or columns the statistic is about, then its numbers, e.g. age 0.9 of quantile."
        ),
    ] = None
    names: Annotated[
        bool, typer.Option("--list", callback=_list_statistics, is_eager=True, help="Print all statistics and exit.")
    ] = False
    by: Annotated[
        list[str] | None,
        typer.Option(help="Group by this column of public categories, or by e.g. 'month(when)'; repeatable."),
    ] = None
    where: Annotated[str | None, typer.Option(help="Keep only rows for which this holds, e.g. 'age >= 65'.")] = None
    within: Annotated[
        str | None, typer.Option(help="Largest error, in units of the answer, or a share such as 5%.")
    ] = None
    rank_within: Annotated[
        float | None, typer.Option(help="Largest error of a quantile in ranks, as a share of the rows.")
    ] = None
    level: Annotated[float | None, typer.Option("--epsilon", help="A privacy level instead of an accuracy.")] = None
    confidence: Annotated[float | None, typer.Option(help="Confidence level of the interval; default: 0.95.")] = None
    max_epsilon: Annotated[
        float | None,
        typer.Option(help="Largest cost; default: what the account allows one question, a tenth of its budget."),
    ] = None
    delta: Annotated[
        float | None, typer.Option(help="Probability that a rare key is revealed (private-key statistics only).")
    ] = None
    share: Annotated[list[float] | None, typer.Option(help="Which quantile: 0.5 is the median; repeatable.")] = None
    edge: Annotated[list[float] | None, typer.Option(help="A bin edge of a histogram; repeat for each edge.")] = None
    bins: Annotated[int | None, typer.Option(help="Number of equal bins between the column's bounds.")] = None
    every: Annotated[
        str | None,
        typer.Option(help="Length of the periods of a time column: hour, day, week, month, quarter or year."),
    ] = None
    weight: Annotated[str | None, typer.Option(help="The column of the weights of a mean.")] = None
    top: Annotated[int | None, typer.Option("-k", help="How many categories of top-k.")] = None
    part: Annotated[
        list[str] | None, typer.Option(help="Ask about a disjoint part, as column=value, from its own account.")
    ] = None
    window: Annotated[
        str | None, typer.Option(help="Ask about the time window of a day, or of two: 2013-01-07:2013-01-20.")
    ] = None
    unit: Annotated[str | None, typer.Option(help="Column of the person's id; default: one row is one person.")] = None
    per: Annotated[str | None, typer.Option(help="Protect a person within a day, week or month of --time.")] = None
    time: Annotated[str | None, typer.Option(help="The time column of --per.")] = None
    max_rows_per_unit: Annotated[int | None, typer.Option(help="Rows kept per unit.")] = None
    max_groups_per_unit: Annotated[int | None, typer.Option(help="Groups kept per unit.")] = None
    max_rows_per_group: Annotated[int | None, typer.Option(help="Rows kept per unit in each group.")] = None
    adjacency: Annotated[
        str | None,
        typer.Option(
            help="Protect an added or removed row or id (add-remove), or a replaced one (replace-one), "
            "from the same account: once it counts replaced ones, an added or removed one counts twice."
        ),
    ] = None
    rows: Annotated[int | None, typer.Option(help="The public number of rows, with --adjacency replace-one.")] = None
    bounds: Annotated[
        list[str] | None,
        typer.Option(help="Public limits, as column=low:high, of times column=2024-01-01:2024-12-31; repeatable."),
    ] = None
    categories: Annotated[list[str] | None, typer.Option(help="Public values, as column=a,b,c; repeatable.")] = None
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", help="Type of a column of a CSV file, e.g. age=integer or day=time:%d/%m/%Y; repeatable."
        ),
    ] = None
    missing: Annotated[
        list[str] | None,
        typer.Option(help="A cell of a CSV file that is a missing value; repeatable; default: NA, NaN, null."),
    ] = None
    separator: Annotated[str | None, typer.Option(help="The character between the cells of a CSV file.")] = None
    decimal: Annotated[str | None, typer.Option(help="The decimal separator of a CSV file: . or ,")] = None
    encoding: Annotated[str | None, typer.Option(help="The encoding of a CSV file, e.g. utf-16 or latin-1.")] = None
    widths: Annotated[
        list[str] | None,
        typer.Option("--width", help="A column of a fixed-width file and its width, e.g. age=3; repeat in order."),
    ] = None
    budget: Budget = None
    budget_delta: Annotated[float, typer.Option(help="The delta of that budget, if it is to have one.")] = 0.0
    ledger: LedgerPath = None
    analyst: Annotated[str | None, typer.Option(help="Charge this analyst's account too.")] = None

    def dataset(self) -> Dataset:
        """Open the table with its public description and the options given."""
        limits = ("max_rows_per_unit", "max_groups_per_unit", "max_rows_per_group")
        described = (*limits, "adjacency", "rows", "missing", "separator", "decimal", "encoding")
        given = {name: getattr(self, name) for name in described if getattr(self, name) is not None}
        if self.types:
            given["types"] = parse_pairs("--type", self.types, "age=integer")
        if self.widths:
            widths = parse_pairs("--width", self.widths, "age=3")
            given["widths"] = {column: _parse_number(width, "--width", int) for column, width in widths.items()}
        if self.bounds:
            given["bounds"] = dict(limits_of("--bounds", text, days=True) for text in self.bounds)
        if self.categories:
            given["categories"] = dict(_parse_categories(text) for text in self.categories)
        return describe_source(self.source, given, unit=self.unit, per=self.per, time=self.time)

    @contextmanager
    def session(self, *, quiet: bool = False) -> Iterator[Session]:
        """Open a session about the table, or about the part named; ``quiet`` if only JSON is to be printed."""
        from expost.session.statistic_methods import check_statistic

        check_statistic(self.statistic)  # before an account is opened
        dataset = self.dataset()
        where = self.ledger or str(Path(self.source).with_name(f"{dataset.name}.ledger"))
        amount = None if self.budget is None else epsilon(self.budget, self.budget_delta)
        with open_billed_session(
            dataset, self.source, budget=amount, ledger=where, analyst=self.analyst, quiet=quiet
        ) as whole:
            session = whole
            for text in self.part or []:
                session = session.part(*_parse_part(session, text))
            if self.window is not None:
                first, _, last = self.window.partition(":")
                session = session.window(first, last or None)
            yield session

    def subject(self) -> list[Any]:
        """List the positional arguments of the statistic."""
        subject = _read_words(self.statistic, self.columns or [])
        if self.share:
            subject.append(self.share if self.statistic == "quantiles" else self.share[0])
        return subject if self.top is None else [*subject, self.top]

    def terms(self) -> dict[str, Any]:
        """List the keyword arguments that were given."""
        plain = ("by", "where", "rank_within", "confidence", "max_epsilon", "delta", "bins", "every", "weight")
        given = {name: getattr(self, name) for name in plain} | {"epsilon": self.level, "edges": self.edge}
        given["within"] = None if self.within is None else _parse_within(self.within)
        return {name: value for name, value in given.items() if value is not None and value != []}


def _read_words(statistic: str, words: list[str]) -> list[Any]:
    """Read words as the positional arguments of a statistic: a list of columns, or columns and numbers by their types."""
    from expost.session.statistic_methods import STATISTICS
    from expost.stats.query_terms import Column, KeyColumns

    kind: Any = STATISTICS.get(statistic)
    if kind is None:
        return list(words)
    hints = get_type_hints(kind)
    types = [(name, hints.get(name)) for name in inspect.signature(kind).parameters]
    if types and types[0][1] == Sequence[Column]:
        return [words]
    if types and types[0][1] == KeyColumns and len(words) > 1:
        return [words]
    return [_parse_number(word, *types[place]) if place < len(types) else word for place, word in enumerate(words)]


def _parse_number(word: str, name: str, kind: Any) -> Any:
    """Parse a word for an argument that is a number; other words are columns."""
    if kind not in (int, float):
        return word
    try:
        return kind(word)
    except ValueError:
        sort = "whole number" if kind is int else "number"
        raise InvalidRequest(f"Expected {name} to be a {sort}", got=word, do="Pass e.g. 10") from None


def _parse_within(text: str) -> str | float:
    if text.strip().endswith("%"):
        return text
    try:
        return float(text)
    except ValueError:
        wanted = "Expected --within to be a number or a percentage"
        raise InvalidRequest(wanted, got=text, do="Pass e.g. 100 or 5%") from None


def _parse_categories(text: str) -> tuple[str, list[str]]:
    column, sign, values = text.partition("=")
    if not sign or not column or not values:
        raise InvalidRequest("Expected --categories as column=a,b,c", got=text, do="Pass e.g. origin=EWR,JFK")
    return column, values.split(",")


def _parse_part(session: Session, text: str) -> tuple[str, Any]:
    """Parse column=value into the column and one of its public categories."""
    column, sign, value = text.partition("=")
    if not sign or not column or not value:
        raise InvalidRequest("Expected --part as column=value", got=text, do="Pass e.g. site=A")
    known = session.dataset.axis(column).values
    shown = next((each for each in known if str(each) == value), None)
    return column, typed_value(session.dataset, column, value) if shown is None else shown


@with_options
def query(
    question: QueryOptions,
    plot: Annotated[Path | None, typer.Option(help="Draw the answer to a PNG or SVG file.")] = None,
    as_json: Json = False,
) -> None:
    """Ask one question and pay for it from a ledger.

    Example: [bold]expost query flights.parquet count --by origin --categories origin=EWR,JFK,LGA --within 5%
    --unit tailnum --max-rows-per-unit 50 --budget 1 --ledger flights.ledger[/bold]
    """
    new_file(plot, kinds=PICTURES)
    kept_apart(plot, question.source, question.ledger or question.source)
    with question.session(quiet=as_json) as session:
        release = session.ask(session.build_query(question.statistic, *question.subject(), **question.terms()))
    print_release(release, as_json=as_json)
    if plot is not None:
        try:
            release.plot(str(plot))
        except ExpostError as error:  # the answer is paid for and printed; only the picture failed
            err.print(f"no picture: {escape(str(error))}")
            raise SystemExit(error.exit_code) from None
        (err if as_json else out).print(f"picture: {plot}")


@with_options
def price(
    question: QueryOptions,
    expect: Annotated[
        float | None,
        typer.Option(help="Your own guess for a forecast: the count or the sum, or for a mean the number of rows."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print what a question would cost: the worst case, and a forecast from public receipts. Nothing is spent.

    Example: [bold]expost price flights.parquet count --within 5% --expect 30000 --budget 1[/bold]
    """
    guess: dict[str, Any] = {} if expect is None else {"expect": expect}
    with question.session(quiet=as_json) as session:
        found = session.price(question.statistic, *question.subject(), **question.terms(), **guess)
    print_price(found, as_json=as_json)
