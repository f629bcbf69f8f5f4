"""A question of the page as a statement in SQL, so that it can be copied and varied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["statement_of"]

_CALLS = {
    "count": "COUNT(*)",
    "mean": "AVG({column})",
    "sum": "SUM({column})",
    "median": "MEDIAN({column})",
    "quantile": "QUANTILE({column}, {share})",
    "most-common": "MODE({column})",
    "std": "STDDEV({column})",
    "variance": "VARIANCE({column})",
    "correlation": "CORR({x}, {y})",
    "ratio": "SUM({numerator}) / SUM({denominator})",
    "count-distinct": "COUNT(DISTINCT {unit})",
}


def statement_of(statistic: str, arguments: Mapping[str, Any], *, dataset: str, unit: str | None) -> str:
    """Return a question as SQL; an empty text if SQL has no words for it. Whether it is accepted is for its price to say.

    Parameters
    ----------
    statistic : str
        The name of the statistic.
    arguments : mapping
        Its arguments, as the page sends them.
    dataset : str
        The name of the table.
    unit : str, optional
        The column with the id of the unit, if there is one.

    Examples
    --------
    >>> print(statement_of("mean", {"column": "age", "by": "city", "within": "5%"}, dataset="people", unit=None))
    SELECT "city", AVG("age")
    FROM "people"
    GROUP BY "city"
    ERROR WITHIN 5%
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    group, column = given.get("by"), given.get("column")
    if statistic == "value-counts":
        statistic, group = "count", column
    call, within = _CALLS.get(statistic), given.get("within")
    if call is None or within is None or (statistic == "count-distinct" and unit is None):
        return ""
    names = {name: _quote(given[name]) for name in ("column", "x", "y", "numerator", "denominator") if name in given}
    shown = call.format(**names, share=given.get("share"), unit=_quote(unit or ""))
    lines = [f"SELECT {f'{_quote(group)}, ' if group else ''}{shown}", f"FROM {_quote(dataset)}"]
    if given.get("where"):
        lines.append(f"WHERE {given['where']}")
    if group:
        lines.append(f"GROUP BY {_quote(group)}")
    return "\n".join([*lines, f"ERROR WITHIN {within}"])


def _quote(name: object) -> str:
    return '"' + str(name).replace('"', '""') + '"'
