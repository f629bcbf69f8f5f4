"""Questions, prices and releases as JSON: what a service sends and a client reads back, without loss."""

from __future__ import annotations

import base64
import datetime
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from expost.core import InvalidRequest, Loss, Receipt, Release
from expost.core.release import Step
from expost.session.price_quote import PriceQuote
from expost.stats.hypothesis import HypothesisVerdict
from expost.stats.statement_release import StatementRelease
from expost.stats.table_release import AnswerRelease, Group, GroupRelease, Groups, HistogramRelease, MatrixRelease

__all__ = ["decode_price", "decode_release", "decode_value", "encode_price", "encode_release", "encode_value"]

_KIND = "$kind"
_RECORDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        AnswerRelease,
        Group,
        GroupRelease,
        Groups,
        HistogramRelease,
        HypothesisVerdict,
        MatrixRelease,
        Release,
        StatementRelease,
        Step,
    )
}


def encode_value(value: Any) -> Any:
    """Return a value as JSON values. Those that JSON does not have are objects that name their kind.

    >>> encode_value((1, Fraction(1, 3)))
    {'$kind': 'tuple', 'of': [1, {'$kind': 'fraction', 'of': '1/3'}]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _tag("float", repr(float(value)))
    if isinstance(value, list):
        return list(map(encode_value, value))
    record = type(value).__name__
    if _RECORDS.get(record) is type(value):
        return {_KIND: record, **{each.name: encode_value(getattr(value, each.name)) for each in _stored(type(value))}}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and key != _KIND for key in value):
            return {key: encode_value(item) for key, item in value.items()}
        return _tag("map", [[encode_value(key), encode_value(item)] for key, item in value.items()])
    for name, (kind, write, _) in _SCALARS.items():
        if isinstance(value, kind):
            return _tag(name, write(value))
    if isinstance(value, np.generic):
        return encode_value(value.item())
    raise InvalidRequest("Expected a value that JSON can state", got=value, do="Ask for another statistic")


def decode_value(data: Any) -> Any:
    """Return the value that ``encode_value`` wrote.

    >>> decode_value({"$kind": "tuple", "of": [1, {"$kind": "fraction", "of": "1/3"}]})
    (1, Fraction(1, 3))
    """
    if isinstance(data, list):
        return list(map(decode_value, data))
    if not isinstance(data, dict):
        return data
    kind = data.get(_KIND)
    if kind is None:
        return {key: decode_value(item) for key, item in data.items()}
    if kind in _SCALARS:
        return _SCALARS[kind][2](data["of"])
    if kind == "float":
        return float(data["of"])
    if kind == "map":
        return {decode_value(key): decode_value(item) for key, item in data["of"]}
    if kind in _RECORDS:
        return _RECORDS[kind](**{name: decode_value(item) for name, item in data.items() if name != _KIND})
    raise InvalidRequest("Expected a known kind of value", got=kind, do="Update the package on this machine")


def encode_release(release: Release[Any]) -> dict[str, Any]:
    """Return a release as JSON values, its receipt included."""
    encoded: dict[str, Any] = encode_value(release)
    return encoded


def decode_release(data: Mapping[str, Any]) -> Release[Any]:
    """Return the release that ``encode_release`` wrote."""
    release = decode_value(dict(data))
    if not isinstance(release, Release):
        raise InvalidRequest("Expected a release", do="Ask the service for one")
    return release


def encode_price(price: PriceQuote) -> dict[str, Any]:
    """Return a price as JSON values."""
    return {
        "question": price.question,
        "worst_case": price.worst_case.to_json(),
        "likely": None if price.likely is None else price.likely.to_json(),
        "above_cap": price.above_cap,
        "account_note": price.account_note,
        "worst_case_text": str(price.worst_case),
        "margin": price.margin,
        "supposed": price.supposed,
        "noise": price.noise,
        "filter_note": price.filter_note,
        "text": str(price),
    }


def decode_price(data: Mapping[str, Any]) -> PriceQuote:
    """Return the price that ``encode_price`` wrote."""
    likely = data["likely"]
    return PriceQuote(
        data["question"],
        Loss.from_json(data["worst_case"]),
        None if likely is None else Loss.from_json(likely),
        above_cap=data["above_cap"],
        account_note=data["account_note"],
        margin=data.get("margin", ""),
        supposed=data.get("supposed", ""),
        noise=data.get("noise", ""),
        filter_note=data.get("filter_note", ""),
    )


def _tag(kind: str, content: Any) -> dict[str, Any]:
    return {_KIND: kind, "of": content}


def _stored(kind: type) -> list[Any]:
    return [each for each in fields(kind) if each.init]


def _write_array(array: Any) -> dict[str, Any]:
    return {"type": array.dtype.str, "shape": list(array.shape), "values": encode_value(array.ravel().tolist())}


def _read_array(data: Mapping[str, Any]) -> Any:
    return np.array(decode_value(data["values"]), dtype=data["type"]).reshape(data["shape"])


_SCALARS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tuple": (tuple, lambda value: list(map(encode_value, value)), lambda data: tuple(map(decode_value, data))),
    "fraction": (Fraction, str, Fraction),
    "decimal": (Decimal, str, Decimal),
    "time": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "duration": (
        datetime.timedelta,
        lambda value: value // datetime.timedelta(microseconds=1),
        lambda data: datetime.timedelta(microseconds=data),
    ),
    "bytes": (bytes, lambda value: base64.b64encode(value).decode(), base64.b64decode),
    "array": (np.ndarray, _write_array, _read_array),
    "receipt": (Receipt, Receipt.to_dict, Receipt.from_dict),
}
