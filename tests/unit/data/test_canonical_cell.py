"""Invalid UTF-8 is a missing value of its own row, in every query and from every source."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import expost
from expost import Dataset, Session, approx
from expost.core import InvalidRequest, unseal
from expost.data.canonical_cell import drop_invalid_text

BAD = [b"\xff\xfe\xfd", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80"]
CITIES = {"city": ["Rome", "Oslo"]}
KINDS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]


def texts(values: list[bytes | None], kind: pa.DataType = pa.string()) -> pa.Array:
    """An array that nobody has checked, as a Parquet reader hands it out."""
    plain = pa.array(values, pa.binary()).view(pa.string())
    if not pa.types.is_dictionary(kind):
        return pa.array(values, pa.binary_view()).view(kind) if kind == pa.string_view() else plain.cast(kind)
    encoded = pa.array(values, pa.binary()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.cast(pa.int8()), encoded.dictionary.view(pa.string()))


def table(*, bad: bool, kind: pa.DataType = pa.string()) -> pa.Table:
    cities = [b"Rome"] * 60 + [b"Oslo"] * 40 + ([BAD[0]] if bad else [])
    return pa.table({"city": texts(cities, kind), "x": np.arange(len(cities)) % 2 * 1.0})


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("bad", BAD)
def test_a_text_that_is_none_is_missing_and_no_other_is_touched(kind, bad) -> None:
    values = [b"Rome", None, bad, b"", "Zürich".encode(), bad, b"Rome"]

    column = drop_invalid_text(texts(values, kind))

    assert column.to_pylist() == ["Rome", None, None, "", "Zürich", None, "Rome"]
    assert column.type == kind
    assert drop_invalid_text(column) is column
    assert drop_invalid_text(texts(values, kind).slice(2, 3)).to_pylist() == [None, "", "Zürich"]
    numbers = pa.array(range(7))
    assert drop_invalid_text(numbers) is numbers


@pytest.fixture(params=["memory", "dictionary", "parquet", "arrow"])
def people(request, tmp_path):
    def opened(*, bad: bool) -> Dataset:
        rows = table(bad=bad, kind=KINDS[-1] if request.param == "dictionary" else pa.string())
        if request.param == "parquet":
            pq.write_table(rows, tmp_path / f"{bad}.parquet")
            return Dataset(tmp_path / f"{bad}.parquet", name="people", categories=CITIES)
        if request.param == "arrow":
            with pa.ipc.new_file(str(tmp_path / f"{bad}.arrow"), rows.schema) as writer:
                writer.write_table(rows)
            return Dataset(tmp_path / f"{bad}.arrow", name="people", categories=CITIES)
        return Dataset(rows, name="people", categories=CITIES)

    return opened


QUESTIONS = {
    "private keys": lambda s: s.private_keys("city", epsilon=40, delta=1e-3),
    "count by private keys": lambda s: s.count_by_private_keys("city", epsilon=40, delta=1e-3),
    "count by": lambda s: s.count(by="city", epsilon=40),
    "where": lambda s: s.count(where="upper(city) = 'ROME' or contains(city, 'o') or length(city) = 3", epsilon=40),
    "in": lambda s: s.count(where="city in ('Rome', 'Oslo')", epsilon=40),
    "number": lambda s: s.count(where="number(city) > 3", epsilon=40),
    "quantile by": lambda s: sorted(s.quantile("x", 0.5, by="city", bounds=(0, 1), epsilon=40).value),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_no_question_tells_that_there_is_such_a_text(people, question) -> None:
    answers = [question(Session(people(bad=bad), approx(100, 1e-2))) for bad in (False, True)]

    assert str(getattr(answers[0], "value", answers[0])) == str(getattr(answers[1], "value", answers[1]))


def test_such_a_row_counts_like_any_other(people) -> None:
    without, found = people(bad=False), people(bad=True)

    assert unseal(found.measure_rows())[0] == unseal(without.measure_rows())[0] + 1
    assert unseal(found.where("city is null").measure_rows())[0] == 1


def test_an_id_that_is_no_text_is_nobody(people) -> None:
    for bad in (False, True):
        session = Session(Dataset(people(bad=bad)._engine, name="p", unit="city", max_rows_per_unit=9), approx(99, 0.1))
        assert session.count(epsilon=400 / 9).value == pytest.approx(18, abs=3)


def test_a_join_by_such_a_key_finds_nothing(people) -> None:
    public = pa.table({"city": texts([b"Rome", BAD[0]]), "note": texts([b"\xff", b"b"])})

    joined = people(bad=True).join(public, on="city")

    assert unseal(joined.where("note is null").measure_rows())[0] == 101


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bad", [False, True])
def test_a_model_is_fitted_to_labels_of_which_one_is_no_text(bad) -> None:
    rows = np.linspace(0, 1, 2000)
    labels = [b"yes" if x > 0.5 else b"no" for x in rows]
    labels[-1] = BAD[0] if bad else labels[-1]
    dataset = Dataset(pa.table({"x": rows, "y": texts(labels)}), name="p", adjacency="replace-one", rows=2000)
    model = expost.LogisticRegression(epsilon=5, classes=("no", "yes"), bounds=[(0, 1)], feature_bound=1.0)

    Session(dataset, approx(20, 1e-3)).fit(model, features=["x"], target="y")

    assert list(model.predict([[1.0], [0.0]])) == ["yes", "no"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_fitted_to_an_arrow_array_of_labels_of_which_one_is_no_text(kind) -> None:
    rows = np.linspace(0, 1, 2000)
    labels = texts([b"yes" if x > 0.5 else b"no" for x in rows[:-1]] + [BAD[0]], kind)
    column = pa.table({"y": labels})["y"]
    for model in (
        expost.LogisticRegression(epsilon=20, classes=("no", "yes"), feature_bound=1.0),
        expost.SGDClassifier(epsilon=20, classes=("no", "yes"), rows=2000, batches="full", steps=20, feature_bound=1.0),
    ):
        for given in (labels, column):
            assert (model.fit(rows[:, None] - 0.5, given).predict([[-0.5], [0.5]]) == ["no", "yes"]).all()


def test_a_column_of_texts_is_no_feature_whatever_it_holds() -> None:
    for cities in ([b"1", b"2"], [b"1", BAD[0]]):
        with pytest.raises(InvalidRequest, match="not of objects or text, got 'city'"):
            expost.Ridge(epsilon=1, feature_bound=1.0, target_bounds=1.0).fit(
                pa.table({"city": texts(cities)}), [0.0, 1.0]
            )
