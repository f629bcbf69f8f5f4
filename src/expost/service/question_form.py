"""Questions and fits as they arrive: read from JSON, checked against what a service offers, turned into queries."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import expost.models
from expost.core import InvalidRequest, Query
from expost.data.sql_expression import parse_sql
from expost.session import Session
from expost.session.statistic_methods import STATISTICS
from expost.session.wire_format import decode_value
from expost.stats import PrivateKeys, hypothesis

__all__ = ["ESTIMATORS", "TESTS", "AskedFit", "AskedQuestion", "AskedStatement", "check_text", "parse_body"]

TESTS: dict[str, type] = {name: getattr(hypothesis, name) for name in hypothesis.__all__ if name.endswith("Test")}
"""The hypothesis tests that a service runs, under the names of their classes."""
ESTIMATORS: dict[str, type] = {
    name: getattr(expost.models, name)
    for name in (
        "Classifier",
        "HuberSVC",
        "LogisticRegression",
        "Regressor",
        "Ridge",
        "SGDClassifier",
        "SGDRegressor",
    )
}
"""The estimators that a service fits."""
_OWN = {"ledger", "account", "simulation_seed", "progress", "checkpoint", "unit", "max_rows_per_unit", "adjacency"}
_KINDS = {
    "tuple",
    "fraction",
    "time",
    "date",
    "expression",
    "PrivateKeys",
}  # of values that an argument may have besides plain ones


@dataclass(frozen=True)
class AskedQuestion:
    """A statistic or a hypothesis test by name, with its arguments."""

    statistic: str
    arguments: Mapping[str, Any]
    place: tuple[tuple[Any, ...], ...] = ()
    """Parts and windows of the table that it is about, from the outside in."""

    @classmethod
    def read(cls, data: Any) -> AskedQuestion:
        """Read ``{"statistic": "mean", "arguments": {"column": "age", "within": 3}, "place": [["part", "site", "A"]]}``."""
        _check_object(data, {"statistic", "arguments", "place"}, "question")
        name, arguments = data.get("statistic"), data.get("arguments", {})
        if not isinstance(name, str) or (name not in STATISTICS and name not in TESTS):
            known = ", ".join([*sorted(STATISTICS), *sorted(TESTS)])
            raise InvalidRequest("Expected a statistic", got=_short(name), do=f"Use one of: {known}")
        given = _read_arguments(arguments)
        clash = next((each for each in ("self", "statistic") if each in given), None)
        if clash is not None:  # they are parameters of the methods that build queries
            raise InvalidRequest(f"{name} takes no argument {clash}", do="Leave it out")
        return cls(name, given, _read_place(data.get("place", [])))

    def session(self, whole: Session) -> Session:
        """Return the session about the part of the table that is asked about."""
        return _find_place(whole, self.place)

    def build(self, session: Session) -> Query:
        """Return the query, with the cap of the accounts that pay if it has none."""
        if self.statistic in TESTS:
            query: Query = TESTS[self.statistic](**self.arguments)
            return query
        return session.build_query(self.statistic, **self.arguments)


@dataclass(frozen=True)
class AskedStatement:
    """A statement in SQL, with what its asker declares about it."""

    text: str
    terms: Mapping[str, Any]
    place: tuple[tuple[Any, ...], ...] = ()

    @classmethod
    def read(cls, data: Any) -> AskedStatement:
        """Read ``{"sql": "SELECT COUNT(*) FROM people ERROR WITHIN 5%", "dialect": "duckdb"}``."""
        _check_object(data, {"sql", "dialect", "tables", "bounds", "max_rows_per_unit", "place"}, "statement")
        text, dialect = data.get("sql"), data.get("dialect", "duckdb")
        if not isinstance(text, str) or not isinstance(dialect, str):
            raise InvalidRequest("Expected a statement as a text", do='Send {"sql": "SELECT COUNT(*) FROM people ..."}')
        terms: dict[str, Any] = {"dialect": dialect}
        if data.get("max_rows_per_unit") is not None:
            terms["max_rows_per_unit"] = _read_argument(data["max_rows_per_unit"])
        if data.get("bounds") is not None:
            terms["bounds"] = _read_arguments(data["bounds"])
        if data.get("tables") is not None:
            terms["tables"] = _read_tables(data["tables"])
        return cls(text, terms, _read_place(data.get("place", [])))

    @property
    def wants_price(self) -> bool:
        """Whether it asks for its price only."""
        return re.match(r"\s*EXPLAIN\s+PRICE\b", self.text, re.IGNORECASE) is not None

    def session(self, whole: Session) -> Session:
        """Return the session about the part of the table that is asked about."""
        return _find_place(whole, self.place)


@dataclass(frozen=True)
class AskedFit:
    """An estimator by name, with its settings and columns."""

    estimator: str
    settings: Mapping[str, Any]
    features: tuple[str, ...] | None
    target: str | None

    @classmethod
    def read(cls, data: Any) -> AskedFit:
        """Read ``{"estimator": "Regressor", "settings": {"score": ["r2", 0.8]}, "target": "pay"}``."""
        _check_object(data, {"estimator", "settings", "features", "target"}, "fit")
        name, features, target = data.get("estimator"), data.get("features"), data.get("target")
        if not isinstance(name, str) or name not in ESTIMATORS:
            raise InvalidRequest(
                "Expected an estimator", got=_short(name), do=f"Use one of: {', '.join(sorted(ESTIMATORS))}"
            )
        settings = _read_arguments(data.get("settings", {}))
        allowed = set(inspect.signature(ESTIMATORS[name]).parameters) - _OWN
        unknown = next((each for each in settings if each not in allowed), None)
        if unknown is not None:
            raise InvalidRequest(
                f"Expected settings of {name} that an analyst may choose",
                got=unknown,
                do=f"Use some of: {', '.join(sorted(allowed))}",
            )
        if isinstance(settings.get("columns"), str):  # the library would take it for the path of a file
            raise InvalidRequest("Expected a description of each column", do='Pass {"age": {"low": 0, "high": 120}}')
        texts = features is None or (isinstance(features, list) and all(isinstance(each, str) for each in features))
        if not texts or not (target is None or isinstance(target, str)):
            raise InvalidRequest("Expected names of columns", do='Pass "target": "pay" and a list of "features"')
        return cls(name, settings, None if features is None else tuple(features), target)

    def build(self) -> Any:
        """Return the unfitted estimator."""
        return ESTIMATORS[self.estimator](**self.settings)


def parse_body(body: bytes, *, depth: int) -> Any:
    """Parse the body of a request: JSON without repeated keys, NaN, or deep nesting.

    >>> parse_body(b'{"statistic": "count"}', depth=3)
    {'statistic': 'count'}
    """
    deepest = level = 0
    inside, escaped = False, False
    for byte in body:  # brackets outside of texts, before anything recursive reads them
        if inside:
            inside, escaped = not (byte == 0x22 and not escaped), byte == 0x5C and not escaped
        elif byte == 0x22:
            inside = True
        elif byte in b"[{":
            level += 1
            deepest = max(deepest, level)
        elif byte in b"]}":
            level -= 1
    if deepest > depth:
        raise InvalidRequest(f"Expected a body of at most {depth} levels", do="Send a flatter one")
    try:
        found = json.loads(body, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except InvalidRequest:
        raise
    except (ValueError, RecursionError):
        raise InvalidRequest("Expected a body in JSON", do='Send e.g. {"statistic": "count"}') from None
    check_text(json.dumps(found, ensure_ascii=False).replace("\\u0000", "\0"))
    return found


def check_text(text: str) -> None:
    """Refuse a text that cannot be stored: one with a NUL character or half of a surrogate pair."""
    if "\0" in text or any("\ud800" <= each <= "\udfff" for each in text):
        raise InvalidRequest("Expected texts without NUL characters and lone surrogates", do="Remove them")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidRequest("Expected every key once in an object", do="Remove the repeated key")
    return found


def _refuse_constant(text: str) -> Any:
    raise InvalidRequest("Expected finite numbers", got=text, do="Leave it out")


def _check_object(data: Any, known: set[str], what: str) -> None:
    if not isinstance(data, dict):
        raise InvalidRequest(f"Expected a {what} as a JSON object", do=f"Send the keys {', '.join(sorted(known))}")
    unknown = next((each for each in data if each not in known), None)
    if unknown is not None:
        raise InvalidRequest(
            f"Expected the keys {', '.join(sorted(known))} of a {what}", got=_short(unknown), do="Correct it"
        )


def _read_arguments(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict) or not all(name.isidentifier() for name in data):
        raise InvalidRequest("Expected arguments by their names", do='Send e.g. {"within": 3}')
    return {name: _read_argument(value) for name, value in data.items()}


def _find_place(whole: Session, place: tuple[tuple[Any, ...], ...]) -> Session:
    found = whole
    for kind, *words in place:
        found = found.part(*words) if kind == "part" else found.window(*words)
    return found


def _read_tables(data: Any) -> dict[str, pa.Table]:
    """Return public tables that came with a statement, as columns by their names."""
    if not isinstance(data, dict) or not all(isinstance(each, dict) for each in data.values()):
        raise InvalidRequest("Expected public tables by their names", do='Send {"sizes": {"city": ["Oslo"], "n": [7]}}')
    try:
        return {name: pa.table(_read_argument(columns)) for name, columns in data.items()}
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InvalidRequest("Expected columns of equal length and one kind", do="Correct the tables") from None


def _read_place(data: Any) -> tuple[tuple[Any, ...], ...]:
    steps = _read_argument(data) if isinstance(data, list) else None
    for step in steps if steps is not None else [None]:
        if (
            not isinstance(step, list)
            or len(step) != 3
            or step[0] not in ("part", "window")
            or not isinstance(step[1], str)
        ):
            raise InvalidRequest("Expected a place as steps", do='Send e.g. [["part", "site", "A"]]')
    return tuple(map(tuple, steps or []))


def _read_argument(value: Any) -> Any:
    """Return a plain value, or one of the few kinds that arguments may have."""
    if isinstance(value, list):
        return list(map(_read_argument, value))
    if not isinstance(value, dict):
        return value
    kind = value.get("$kind")
    if kind is None:
        if set(value) == {"low", "high"}:  # JSON has no pairs, and a list of two numbers may be two levels
            return (value["low"], value["high"])
        return {name: _read_argument(each) for name, each in value.items()}
    if kind == "float":  # how a client writes NaN and infinities, which JSON does not have
        raise InvalidRequest("Expected finite numbers", got=_short(value.get("of")), do="Leave it out")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidRequest("Expected a known kind of argument", got=_short(kind), do="Send a plain value")
    try:
        if kind == "PrivateKeys":
            return PrivateKeys(**_read_arguments({name: each for name, each in value.items() if name != "$kind"}))
        if kind == "expression":
            return parse_sql(value["of"])
        if kind == "tuple":
            return tuple(map(_read_argument, value["of"]))
        return decode_value(value)
    except InvalidRequest:
        raise
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError):
        raise InvalidRequest(f"Expected a value of kind {kind}", do="Send a plain value") from None


def _short(value: Any) -> Any:
    """Return a value that an error may repeat: what the caller typed, if it is plain."""
    return value if isinstance(value, str | int | float | bool | None) else type(value).__name__
