"""One budget pays for several tables about the same ids, and for joins of them."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expost import BudgetExceeded, Dataset, Session, epsilon
from expost.core import InvalidRequest
from expost.noise import SeededBits


def tables(folder: Path | None = None) -> tuple[Dataset, Dataset]:
    draw = np.random.default_rng(1)
    left = pa.table({"id": draw.integers(1000, size=5000), "paid": draw.integers(0, 100, size=5000)})
    right = pa.table({"id": np.arange(1000), "age": draw.integers(20, 80, size=1000)})
    sources: list[Any] = [left, right]
    if folder is not None:
        for number, table in enumerate((left, right)):
            pq.write_table(table, folder / f"{number}.parquet")
        sources = [folder / "0.parquet", folder / "1.parquet"]
    visits = Dataset(sources[0], name="visits", unit="id", max_rows_per_unit=20, bounds={"paid": (0, 100)})
    return visits, Dataset(sources[1], name="people", unit="id", max_rows_per_unit=1, bounds={"age": (0, 100)})


def test_one_budget_pays_for_all_tables_and_joins(tmp_path: Path) -> None:
    visits, people = tables(tmp_path)
    with Session(visits, epsilon(1), ledger=tmp_path / "l.ledger", tables=[people]) as session:
        session.count(epsilon=0.25)
        counted = session.table("people").count(epsilon=0.25)
        joined = session.view(visits.join(people, on="id", how="inner").where("age >= 50"))
        release = joined.mean("paid", epsilon=0.25)

        assert abs(counted.value - 1000) < 200 and 0 < release.value < 100
        assert session.remaining().epsilon == joined.remaining().epsilon == 0.25
        assert release.receipt.terms["tables"] == "visits, people: one id is one person in all of them"
        with pytest.raises(BudgetExceeded):
            joined.count(epsilon=0.3)
    # The account of the first table pays for the second one too: it has no other budget.
    with pytest.raises(InvalidRequest, match="'dataset:visits' pays for these rows"):
        Session(people, epsilon(1), ledger=tmp_path / "l.ledger")
    with Session(visits, ledger=tmp_path / "l.ledger", tables=[people]) as session:
        assert session.remaining().epsilon == 0.25


def test_a_table_with_a_budget_of_its_own_is_refused(tmp_path: Path) -> None:
    visits, people = tables(tmp_path)
    with Session(people, epsilon(1), ledger=tmp_path / "l.ledger"):
        pass

    with pytest.raises(InvalidRequest, match="'dataset:people' pays for these rows"):
        Session(visits, epsilon(1), ledger=tmp_path / "l.ledger", tables=[people])
    with Session(visits, epsilon(1), ledger=tmp_path / "l.ledger") as session:
        with pytest.raises(InvalidRequest, match="'dataset:people' pays for these rows"):
            session.view(visits.join(people, on="id"))
        assert session.spent().epsilon == 0


def test_answers_about_a_join_are_continued_within_a_session_only() -> None:
    visits, people = tables()
    session = Session(visits, epsilon(2), tables=[people])
    join = visits.join(people, on="id")

    first, again = session.view(join).count(epsilon=0.5), session.view(join).count(epsilon=0.5)
    other = session.view(visits.join(people, on="id")).count(epsilon=0.5)  # another choice of rows

    assert again.value == first.value and again.receipt.bill.epsilon == 0
    assert other.receipt.bill.epsilon == 0.5


def test_views_that_another_process_cannot_read_are_not_stored(tmp_path: Path) -> None:
    visits, people = tables(tmp_path)
    for _ in range(2):
        with Session(visits, epsilon(2), ledger=tmp_path / "l.ledger", tables=[people]) as session:
            assert session.view(visits.join(people, on="id")).count(epsilon=0.25).receipt.bill.epsilon == 0.25


def test_a_view_whose_address_in_memory_is_used_again_is_another_view() -> None:
    visits, people = tables()
    session = Session(visits, epsilon(50), bits=SeededBits(1), simulation=True, tables=[people])

    for _ in range(20):
        assert session.view(visits.join(people, on="id")).count(epsilon=1).receipt.bill.epsilon == 1


def test_sessions_with_tables_are_pickled_by_reference(tmp_path: Path) -> None:
    visits, people = tables(tmp_path)
    with Session(visits, epsilon(1), ledger=tmp_path / "l.ledger", tables=[people]) as session:
        written = pickle.dumps(session)
    with pickle.loads(written) as again:
        assert list(again.tables) == ["people"]


def test_wrong_tables_are_refused_in_words() -> None:
    visits, people = tables()
    unnamed = Dataset(pa.table({"id": [1]}), unit="id")
    rows = Dataset(pa.table({"id": [1]}), name="rows")
    session = Session(visits, epsilon(1), tables=[people])

    for wrong in ([unnamed], [rows], [people, people], [visits], [3]):
        with pytest.raises(InvalidRequest, match="Expected tables with names of their own"):
            Session(visits, epsilon(1), tables=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="tables to be a list"):
        Session(visits, epsilon(1), tables="people")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="Expected one of visits, people"):
        session.table("persons")
    for wrong in (rows, 3):
        with pytest.raises(InvalidRequest):
            session.view(wrong)  # type: ignore[arg-type]
    assert session.table("visits") is session and session.spent().epsilon == 0
