"""A table whose file its owner replaces while the service runs."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.served import Served, write_people


@pytest.fixture
def served(tmp_path) -> Served:
    return Served(write_people(tmp_path))


def ask_count(served: Served) -> float:
    given = served.ask("ann", "count", epsilon=0.5)
    assert given.status_code == 200, given.text
    return given.json()["release"]["value"]


def test_a_grown_table_is_opened_again_and_keeps_its_account(served: Served, tmp_path) -> None:
    first = ask_count(served)
    table = pq.read_table(tmp_path / "people.parquet")
    pq.write_table(pa.concat_tables([table, table]), tmp_path / "people.parquet")
    second = ask_count(served)

    assert abs(first - 4000) < 100 and abs(second - 8000) < 100
    assert served.curator.ledger.spent("dataset:people").epsilon == pytest.approx(1.0, rel=0.2)


def test_a_table_that_is_broken_meanwhile_is_refused_without_its_path(served: Served, tmp_path) -> None:
    (tmp_path / "people.parquet").write_bytes(b"no table")
    given = served.ask("ann", "count", epsilon=0.5)

    assert given.status_code == 503 and given.json()["error"]["code"] == "table_changed"
    assert str(tmp_path) not in given.text and "parquet" not in given.text
    assert served.curator.ledger.spent("dataset:people").epsilon == 0
