"""The questions that the page offers: their words, their fields, and how a form becomes a question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from expost.core import InvalidRequest

__all__ = ["FORECAST", "MENU", "MenuLine", "menu_for", "question_of", "read_number"]


@dataclass(frozen=True)
class MenuLine:
    """One statistic of the menu.

    Parameters
    ----------
    statistic : str
        Its name under /v1.
    text : str
        The question in words.
    fields : mapping, optional
        The fields of the form that it needs, and the arguments that they fill.
    columns : str, default ""
        Which columns it can be about: number, category or time; empty if it needs none.
    expects : str, default ""
        What its price can be forecast from: the size of the answer, or the number of rows; empty if it cannot be.
    example : str, default "5%"
        An accuracy to begin with.
    """

    statistic: str
    text: str
    fields: Mapping[str, str]
    columns: str = ""
    expects: str = ""
    example: str = "5%"


_COLUMN = {"column": "column"}
MENU = (
    MenuLine("count", "How many rows? (count)", {}, expects="answer"),
    MenuLine("mean", "What is the mean?", _COLUMN, "number", "rows"),
    MenuLine("sum", "What is the sum?", _COLUMN, "number", "answer"),
    MenuLine("median", "What is the median?", _COLUMN, "number"),
    MenuLine(
        "quantile",
        "Which value is exceeded by a share of the rows? (quantile)",
        {"column": "column", "share": "share"},
        "number",
    ),
    MenuLine("histogram", "How are values distributed? (histogram)", _COLUMN | {"bins": "bins"}, "number", "answer"),
    MenuLine("value-counts", "How frequent is each value? (value counts)", _COLUMN, "category", "answer"),
    MenuLine("most-common", "Which value is the most frequent?", _COLUMN, "category", example="50"),
    MenuLine(
        "count-over-time",
        "How many rows in each period? (count over time)",
        {"column": "column", "every": "every"},
        "time",
        "answer",
    ),
    MenuLine(
        "ratio",
        "How much of one column per another? (ratio)",
        {"column": "numerator", "other": "denominator"},
        "number",
    ),
    MenuLine(
        "correlation",
        "Do two columns move together? (correlation)",
        {"column": "x", "other": "y"},
        "number",
        example="0.2",
    ),
    MenuLine("std", "How far do values spread? (standard deviation)", _COLUMN, "number"),
    MenuLine("variance", "What is the variance?", _COLUMN, "number"),
    MenuLine("count-distinct", "How many different people? (count distinct)", {}, expects="answer"),
)
FORECAST = {line.statistic: line.expects for line in MENU if line.expects}
"""The statistics whose price is forecast from a guess, and what the guess is about."""
_FIELDS = {line.statistic: line.fields for line in MENU}
_KIND = {"number": "bounds", "category": "categories", "time": "time_range"}


def menu_for(columns: list[dict[str, Any]]) -> list[MenuLine]:
    """Return the statistics that a table's public description can answer.

    >>> [line.statistic for line in menu_for([])]
    ['count', 'count-distinct']
    """

    def fits(line: MenuLine) -> bool:
        usable = [each for each in columns if line.columns and each[_KIND[line.columns]]]
        return not line.columns or len(usable) > ("other" in line.fields)

    return [line for line in MENU if fits(line)]


def question_of(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the question of a form, as the routes under /v1 take it.

    >>> question_of({"statistic": "mean", "column": "age", "within": "3", "bins": "7"})
    {'statistic': 'mean', 'arguments': {'column': 'age', 'within': 3.0}}
    """
    statistic = form.get("statistic", "")
    fields = _FIELDS.get(statistic, _COLUMN)
    given: dict[str, Any] = {name: form[field] for field, name in fields.items() if form.get(field)}
    if "share" in given:
        given["share"] = read_number(given["share"], "the quantile")
    if "bins" in given:
        given["bins"] = int(read_number(given["bins"], "the number of bins"))
    given |= {name: form[name] for name in ("by", "where") if form.get(name)}
    within = form.get("within", "")
    given["within"] = within if within.endswith("%") else read_number(within, "the accuracy")
    return {"statistic": statistic, "arguments": given}


def read_number(text: str, what: str) -> float:
    """Return the number that somebody typed into a form."""
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not abs(found) < float("inf"):
        raise InvalidRequest(f"Expected {what} as a number", got=text, do="Write e.g. 10, or 5% of the answer")
    return found
