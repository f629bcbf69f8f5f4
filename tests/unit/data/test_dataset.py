"""A dataset is its public description."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expost.core import InvalidRequest, Sealed
from expost.data import Dataset

TABLE = pa.table({"age": [41, 17, 65], "city": ["a", "b", "a"]})


def test_the_schema_is_public_and_the_total_is_sealed() -> None:
    dataset = Dataset(TABLE)

    assert list(dataset.schema) == ["age", "city"]
    assert isinstance(dataset.total_rows(), Sealed)
    assert dataset.name is None


def test_a_file_names_its_dataset(tmp_path) -> None:
    pq.write_table(TABLE, tmp_path / "people.parquet")

    assert Dataset(tmp_path / "people.parquet").name == "people"


def test_a_missing_file_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequest, match="file that exists"):
        Dataset("nowhere.parquet")


def test_replace_one_needs_the_public_number_of_rows() -> None:
    with pytest.raises(InvalidRequest, match="public number of rows"):
        Dataset(TABLE, adjacency="replace-one")
