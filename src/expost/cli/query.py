"""``expost query`` and ``expost price``: one question about a file, from the command line."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expost.cli.console import emit, out, print_release
from expost.core import InvalidRequest, epsilon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from expost.curator import Session
    from expost.data import Dataset

__all__ = ["price", "query"]

Source = Annotated[str, typer.Argument(help="A description (TOML) or a data file (Parquet, CSV, Arrow).")]
Statistic = Annotated[str, typer.Argument(help="count, sum, mean, median, histogram, ...; wrong names list all.")]
Columns = Annotated[list[str] | None, typer.Argument(help="The column or columns the statistic is about.")]
By = Annotated[list[str] | None, typer.Option(help="Group by this column of public categories; may be repeated.")]
Where = Annotated[str | None, typer.Option(help="Keep only rows for which this holds, e.g. 'age >= 65'.")]
Within = Annotated[str | None, typer.Option(help="The error allowed: a number, or a share such as 5%.")]
Epsilon = Annotated[float | None, typer.Option("--epsilon", help="A privacy level instead of an accuracy.")]
Confidence = Annotated[float, typer.Option(help="How sure the interval must be.")]
MaxEpsilon = Annotated[float | None, typer.Option(help="What it may cost at most; default: all that is left.")]
Share = Annotated[list[float] | None, typer.Option(help="Which quantile: 0.5 is the median; may be repeated.")]
Edge = Annotated[list[float] | None, typer.Option(help="A bin edge of a histogram; repeat for each edge.")]
Top = Annotated[int | None, typer.Option("-k", help="How many categories of top-k.")]
Unit = Annotated[str | None, typer.Option(help="Column of the person's id; default: one row is one person.")]
MaxRows = Annotated[int | None, typer.Option(help="Rows kept of each unit.")]
MaxGroups = Annotated[int | None, typer.Option(help="Groups kept of each unit.")]
Bounds = Annotated[list[str] | None, typer.Option(help="Public limits, as column=low:high; may be repeated.")]
Categories = Annotated[list[str] | None, typer.Option(help="Public values, as column=a,b,c; may be repeated.")]
Budget = Annotated[float | None, typer.Option(help="The dataset's budget, when its account is opened.")]
LedgerOption = Annotated[str | None, typer.Option(help="The ledger to bill; default: NAME.ledger beside the source.")]
Analyst = Annotated[str | None, typer.Option(help="Charge this analyst's account too.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def query(
    source: Source,
    statistic: Statistic,
    columns: Columns = None,
    by: By = None,
    where: Where = None,
    within: Within = None,
    level: Epsilon = None,
    confidence: Confidence = 0.95,
    max_epsilon: MaxEpsilon = None,
    share: Share = None,
    edge: Edge = None,
    top: Top = None,
    unit: Unit = None,
    max_rows: MaxRows = None,
    max_groups: MaxGroups = None,
    bounds: Bounds = None,
    categories: Categories = None,
    budget: Budget = None,
    ledger: LedgerOption = None,
    analyst: Analyst = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the answer to a PNG or SVG file.")] = None,
    as_json: Json = False,
) -> None:
    """Ask one question and pay for it from a ledger.

    Example: [bold]expost query flights.parquet count --by origin --categories origin=EWR,JFK,LGA --within 5%
    --unit tailnum --max-rows 50 --budget 1 --ledger flights.ledger[/bold]
    """
    dataset = _dataset(source, unit, max_rows, max_groups, bounds, categories)
    with _session(dataset, source, budget, ledger, analyst) as session:
        subject, terms = _terms(statistic, columns, by, where, within, level, confidence, max_epsilon, share, edge, top)
        release = session.ask(session.request(statistic, *subject, **terms))
    print_release(release, as_json=as_json)
    if plot is not None:
        release.plot(str(plot))
        out.print(f"picture: {plot}")


def price(
    source: Source,
    statistic: Statistic,
    columns: Columns = None,
    by: By = None,
    where: Where = None,
    within: Within = None,
    level: Epsilon = None,
    confidence: Confidence = 0.95,
    max_epsilon: MaxEpsilon = None,
    share: Share = None,
    edge: Edge = None,
    top: Top = None,
    unit: Unit = None,
    max_rows: MaxRows = None,
    max_groups: MaxGroups = None,
    bounds: Bounds = None,
    categories: Categories = None,
    budget: Budget = None,
    ledger: LedgerOption = None,
    analyst: Analyst = None,
    as_json: Json = False,
) -> None:
    """Say what a question would cost: the worst case, and a guess from public receipts. Nothing is spent.

    Example: [bold]expost price flights.parquet count --within 5% --budget 1[/bold]
    """
    dataset = _dataset(source, unit, max_rows, max_groups, bounds, categories)
    with _session(dataset, source, budget, ledger, analyst) as session:
        subject, terms = _terms(statistic, columns, by, where, within, level, confidence, max_epsilon, share, edge, top)
        found = session.price(statistic, *subject, **terms)
    if as_json:
        likely = None if found.likely is None else found.likely.to_json()
        emit({"question": found.question, "worst_case": found.worst_case.to_json(), "likely": likely})
    else:
        out.print(str(found))


def _terms(
    statistic: str,
    columns: list[str] | None,
    by: list[str] | None,
    where: str | None,
    within: str | None,
    level: float | None,
    confidence: float,
    max_epsilon: float | None,
    share: list[float] | None,
    edge: list[float] | None,
    top: int | None,
) -> tuple[list[Any], dict[str, Any]]:
    """What the statistic is about, and its terms: only those that were given."""
    names = list(columns or [])
    subject: list[Any] = [names] if statistic in {"covariance", "contingency-table", "summary"} else names
    if share:
        subject.append(share if statistic == "quantiles" else share[0])
    if top is not None:
        subject.append(top)
    given = {
        "by": by,
        "where": where,
        "within": None if within is None else _within(within),
        "epsilon": level,
        "max_epsilon": max_epsilon,
        "edges": edge,
    }
    return subject, {"confidence": confidence} | {name: value for name, value in given.items() if value is not None}


def _within(text: str) -> str | float:
    if text.strip().endswith("%"):
        return text
    try:
        return float(text)
    except ValueError:
        raise InvalidRequest(
            "Expected --within to be a number or a percentage", got=text, do="Pass e.g. 100 or 5%"
        ) from None


def _dataset(
    source: str,
    unit: str | None,
    max_rows: int | None,
    max_groups: int | None,
    bounds: list[str] | None,
    categories: list[str] | None,
) -> Dataset:
    from expost.data import Dataset
    from expost.data.description import Description

    said = {"unit": unit, "max_rows_per_unit": max_rows, "max_groups_per_unit": max_groups}
    given: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    if bounds:
        given["bounds"] = dict(_limits(text) for text in bounds)
    if categories:
        given["categories"] = dict(_values(text) for text in categories)
    if source.endswith(".toml"):
        return Dataset(**{**vars(Description.read(source)), **given})
    return Dataset(source, **given)


def _limits(text: str) -> tuple[str, tuple[float, float]]:
    column, _, pair = text.rpartition("=")
    low, _, high = pair.partition(":")
    try:
        return column, (float(low), float(high))
    except ValueError:
        raise InvalidRequest("Expected --bounds as column=low:high", got=text, do="Pass e.g. age=0:120") from None


def _values(text: str) -> tuple[str, list[str]]:
    column, sign, values = text.partition("=")
    if not sign or not column or not values:
        raise InvalidRequest("Expected --categories as column=a,b,c", got=text, do="Pass e.g. origin=EWR,JFK")
    return column, values.split(",")


@contextmanager
def _session(
    dataset: Dataset, source: str, budget: float | None, ledger: str | None, analyst: str | None
) -> Iterator[Session]:
    from expost.curator import Session

    where = ledger or str(Path(source).with_name(f"{dataset.name}.ledger"))
    amount = None if budget is None else epsilon(budget)
    with Session(dataset, amount, ledger=where, analyst=analyst) as session:
        yield session
