"""What is sent over a wire is what was there: values of every kind, releases and prices."""

import datetime
import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expost import Dataset, Session
from expost.core import InvalidRequest
from expost.session.wire_format import decode_price, decode_release, decode_value, encode_price, encode_release
from expost.session.wire_format import encode_value as encode

PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.fractions()
    | st.decimals(allow_nan=False)
    | st.datetimes()
    | st.dates()
    | st.timedeltas()
    | st.binary()
)
NESTED = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers() | st.just("$kind"), inner)
    ),
    max_leaves=12,
)


@given(NESTED)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    text = json.dumps(encode(value), allow_nan=False)
    back = decode_value(json.loads(text))

    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0, np.float64(1.5), np.int64(3), np.bool_(True)])
def test_odd_numbers_come_back(value: Any) -> None:
    back = decode_value(json.loads(json.dumps(encode(value), allow_nan=False)))

    assert repr(back) == repr(value.item() if isinstance(value, np.generic) else value)


def test_arrays_come_back_with_shape_and_type() -> None:
    matrix = np.array([[1.0, np.nan], [np.inf, -0.0]], dtype=np.float32)
    back = decode_value(json.loads(json.dumps(encode(matrix), allow_nan=False)))

    assert back.dtype == matrix.dtype
    np.testing.assert_array_equal(back, matrix)


def test_an_unknown_kind_is_refused_in_both_directions() -> None:
    with pytest.raises(InvalidRequest, match="kind"):
        decode_value({"$kind": "Session"})
    with pytest.raises(InvalidRequest, match="JSON"):
        encode(object())


def test_releases_and_prices_come_back() -> None:
    ages = [*range(100)] * 10
    table = pa.table({"age": ages, "pay": ages, "city": ["Rome", "Oslo"] * 500})
    bounds = {"age": (0, 99), "pay": (0, 99)}
    session = Session(Dataset(table, bounds=bounds, categories={"city": ["Oslo", "Rome"]}), budget=(100, 1e-5))
    releases = [
        session.count(within=50),
        session.mean("age", by="city", epsilon=1),
        session.covariance(["age", "pay"], epsilon=1),
        session.histogram("age", edges=[0, 50, 99], epsilon=1),
        session.most_common("city", epsilon=1),
        session.private_keys("city", epsilon=1, delta=1e-6),
        session.summary(["age"], epsilon=1),
    ]
    for release in releases:
        back = decode_release(json.loads(json.dumps(encode_release(release), allow_nan=False)))

        assert type(back) is type(release)
        assert repr(back) == repr(release)
        assert back.receipt == release.receipt
        assert back.climb == release.climb
    price = session.price("count", within=10)
    assert decode_price(json.loads(json.dumps(encode_price(price)))) == price


def test_exact_amounts_stay_exact() -> None:
    assert decode_value(encode(Fraction(1, 3))) == Fraction(1, 3)
    assert decode_value(encode(Decimal("0.10"))) == Decimal("0.10")
    assert decode_value(encode(datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC))).tzinfo is not None
