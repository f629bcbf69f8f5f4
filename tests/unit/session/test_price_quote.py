import pyarrow as pa

from expost import Dataset, Session


def test_a_price_does_not_read_the_whole_ledger(tmp_path, monkeypatch):
    table = pa.table({"age": list(range(100)) * 50})
    dataset = Dataset(table, name="people", bounds={"age": (0, 100)})
    with Session(dataset, budget=10, ledger=str(tmp_path / "a.ledger")) as session:
        session.mean("age", within=1)
        quoted = session.price("mean", "age", within=1)

        def never(*_):
            raise AssertionError("the whole chain is read")

        monkeypatch.setattr("expost.ledger.posting.read_chain", never)
        monkeypatch.setattr("expost.ledger.sql_table.SqlPage.all_entries", never)

        assert quoted.likely is not None
        assert session.price("mean", "age", within=1) == quoted
