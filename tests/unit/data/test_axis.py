"""Categories and bins put each row in one place at most."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from expost.core import InvalidRequest
from expost.data import col
from expost.data.axis import Bins, Categories, LogBins


def codes(axis, **columns) -> list[int]:
    return axis.codes(pa.record_batch(columns), {}).tolist()


def test_values_that_are_not_listed_belong_nowhere() -> None:
    assert codes(Categories.of(col("x"), ["b", "a"]), x=["a", "b", "c", None]) == [1, 0, -1, -1]
    assert codes(Categories.of(col("x"), [3, 1]), x=pa.array([1, 2, 3, None], pa.int8())) == [1, -1, 0, -1]
    assert codes(Categories.of(col("x"), [False, True]), x=[True, False, None]) == [1, 0, -1]


def test_whole_categories_close_together_or_far_apart_find_the_same_rows() -> None:
    numbers = [1.0, 2.0, 2.5, -7.0, 4.0, 9e15, float("inf"), float("-inf"), None]
    near, far = Categories.of(col("x"), [4, 2, -7]), Categories.of(col("x"), [4, 2, -7, 10**12])

    assert codes(near, x=numbers) == codes(far, x=numbers) == [-1, 1, -1, 2, 0, -1, -1, -1, -1]


def test_missing_values_have_a_place_if_they_are_listed() -> None:
    assert codes(Categories.of(col("x"), ["a", None]), x=["a", None, "b"]) == [0, 1, -1]


def test_dictionary_columns_are_what_they_encode() -> None:
    assert codes(Categories.of(col("x"), ["a", "b"]), x=pa.array(["b", "a", None]).dictionary_encode()) == [1, 0, -1]


@pytest.mark.parametrize("values", [[], ["a", "a"]])
def test_categories_are_different_and_some(values: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        Categories.of(col("x"), values)


def test_bins_agree_with_numpy() -> None:
    numbers = np.concatenate([np.random.default_rng(0).normal(size=1000), [-1.0, 0.0, 2.0]])
    edges = [-1.0, -0.5, 0.0, 0.25, 2.0]
    places = np.array(codes(Bins.of(col("x"), edges), x=numbers))

    np.testing.assert_array_equal(np.bincount(places[places >= 0], minlength=4), np.histogram(numbers, edges)[0])


def test_clamped_bins_keep_what_lies_beyond_the_ends() -> None:
    assert codes(Bins.of(col("x"), [0, 1, 2], clamped=True), x=[-9.0, 9.0, float("inf"), None]) == [0, 1, 1, -1]


@pytest.mark.parametrize("edges", [[1], [1, 1], [2, 1], [0, float("inf")], [0, float("nan")]])
def test_edges_increase_and_are_finite(edges: list[float]) -> None:
    with pytest.raises(InvalidRequest):
        Bins.of(col("x"), edges)


def test_doubling_bins_hold_their_outer_end() -> None:
    axis = LogBins(col("x"), scale=0.5, count=3)

    assert axis.labels == (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0)
    assert codes(axis, x=[0.0, 0.5, 0.51, 1.0, 1.5, 99.0, -0.1, -0.6, -7.0, float("inf"), float("-inf")]) == [
        3, 3, 4, 4, 5, 5, 2, 1, 0, 5, 0,
    ]  # fmt: skip


def test_whole_categories_beyond_the_reach_of_floats_are_told_apart() -> None:
    near = [2**53, 2**53 + 1, -(2**53) - 1, 5.0, 7, 2**70, "text"]
    batch = pa.record_batch({"id": pa.array([2**53 + 1, 2**53, -(2**53) - 1, 2**53 + 2, 5, None, 7])})

    assert Categories.of(col("id"), near).codes(batch, {}).tolist() == [1, 0, 2, -1, 3, -1, 4]
    largest = pa.record_batch({"id": pa.array([2**64 - 1, 2**64 - 2], pa.uint64())})
    assert Categories.of(col("id"), [2**64 - 2]).codes(largest, {}).tolist() == [-1, 0]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.uint64(), pa.float64()])
def test_categories_beyond_the_range_of_a_column_match_nothing(kind) -> None:
    batch = pa.record_batch({"x": pa.array([0, 1, 100, 127, None], kind)})

    assert Categories.of(col("x"), [1, -3, 100, 300]).codes(batch, {}).tolist() == [-1, 0, 2, -1, -1]
    assert Categories.of(col("x"), [1, None]).codes(batch, {}).tolist() == [-1, 0, -1, -1, 1]
    assert Categories.of(col("x"), list(range(70_000, 70_100))).codes(batch, {}).tolist() == [-1] * 5


@pytest.mark.parametrize("values", [[["a"], ["b"]], [{"a": 1}], [b"a"], []])
def test_categories_that_are_no_plain_values_are_refused(values) -> None:
    with pytest.raises(InvalidRequest):
        Categories.of(col("x"), values)


def test_dates_and_moments_of_any_time_zone_are_categories_side_by_side() -> None:
    listed = [
        datetime.date(2020, 1, 1),
        datetime.datetime(2020, 1, 2, 3),
        datetime.datetime(2020, 1, 3, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
    ]
    batch = pa.record_batch({"t": pa.array(np.array(["2020-01-03", "2020-01-02T03", "2020-01-01"], "datetime64[us]"))})

    assert Categories.of(col("t"), listed).codes(batch, {}).tolist() == [2, 1, 0]
    with pytest.raises(InvalidRequest):  # the same moment twice
        Categories.of(col("t"), [*listed, datetime.datetime(2020, 1, 3)])


@pytest.mark.parametrize("listed", [["b", "a"], ["b", None, "a"], ["zz"]])
def test_texts_in_a_dictionary_have_the_places_of_plain_texts(listed) -> None:
    plain = pa.array([b"a", b"b", None, b"c", b"\xff", b"a"] * 50, pa.binary()).view(pa.string())
    axis = Categories.of(col("x"), listed)
    indices = pa.array([0, 1, None, 2, 3, 0, 4], pa.int8())
    words = pa.array([b"a", b"b", b"c", b"\xff", None], pa.binary()).view(pa.string())

    encoded = pa.record_batch({"x": plain.dictionary_encode()})
    assert axis.codes(encoded, {}).tolist() == axis.codes(pa.record_batch({"x": plain}), {}).tolist()
    with_null = pa.record_batch({"x": pa.DictionaryArray.from_arrays(indices, words)})
    decoded = pa.record_batch({"x": words.take(indices)})
    assert axis.codes(with_null, {}).tolist() == axis.codes(decoded, {}).tolist()
