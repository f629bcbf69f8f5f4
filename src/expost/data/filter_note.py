"""Say which constants of a filter are none of the public categories of their column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from expost.core.argument import suggest_name
from expost.data.canonical_cell import Kind, constant_kind
from expost.data.expression import ColumnName, Expression, Literal, Operation

__all__ = ["describe_unlisted"]

_COMPARISONS = frozenset({"=", "<>", "IN"})
_MOST_SHOWN = 3


def describe_unlisted(condition: Expression, categories: Mapping[str, Sequence[Any]]) -> str:
    """Return a sentence about constants that are compared with a column and are none of its categories.

    Constants are texts and numbers, where categories are of the same kind. Such a filter is allowed, because rows may hold values that are not listed, but most often it is a slip that would be
    paid for. The sentence follows from the filter and the description, which are public. It is empty if nothing is to be said.

    Parameters
    ----------
    condition : Expression
        The filter.
    categories : mapping of str to sequence
        The public categories by column.

    Examples
    --------
    >>> from expost.data import col
    >>> describe_unlisted(col("city") == "oslo", {"city": ["Oslo", "Rome"]})
    "'oslo' is none of the categories of city. Did you mean 'Oslo'?"
    """
    found = dict.fromkeys(
        (name, value) for name, value in _list_comparisons(condition) if _is_unlisted(value, categories.get(name, ()))
    )
    sentences = []
    for name, value in found:
        hint = suggest_name(value, [each for each in categories[name] if isinstance(each, str)])
        sentences.append(f"{Literal(value)!r} is none of the categories of {name}. {hint}".rstrip())
    more = [f"So are {len(sentences) - _MOST_SHOWN} more constants."] if len(sentences) > _MOST_SHOWN else []
    return " ".join(sentences[:_MOST_SHOWN] + more)


def _is_unlisted(value: Any, listed: Sequence[Any]) -> bool:
    """Return whether categories of its kind lack a text or a number. Times can be written in several ways, so they are not told."""
    kind = constant_kind(value)
    same = [each for each in listed if constant_kind(each) is kind]
    return kind in (Kind.TEXT, Kind.REAL) and bool(same) and value not in same


def _list_comparisons(expression: Expression) -> Iterator[tuple[str, Any]]:
    """Yield each column with each constant that it is compared with."""
    if isinstance(expression, Operation) and expression.name in _COMPARISONS:
        columns = [each.name for each in expression.arguments if isinstance(each, ColumnName)]
        constants = [
            each.value for each in expression.arguments if isinstance(each, Literal) and each.value is not None
        ]
        yield from ((name, value) for name in columns for value in constants)
    for part in expression.parts():
        yield from _list_comparisons(part)
