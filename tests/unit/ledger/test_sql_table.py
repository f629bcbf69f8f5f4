import pytest
from sqlalchemy import create_engine, insert, inspect, select

from expost.core import InvalidRequest, LedgerUnsound, PureLoss, Receipt, epsilon
from expost.ledger import open_ledger, sql_table
from expost.ledger.ledger_entry import EntryKind, LedgerEntry, canonical_json
from expost.ledger.sql_table import MIGRATIONS


def test_the_steps_lead_to_the_declared_tables(tmp_path):
    open_ledger(tmp_path / "a.ledger").close()
    engine = create_engine(f"sqlite:///{tmp_path}/a.ledger")
    tables = inspect(engine)

    for table in sql_table.MIGRATIONS.metadata.tables.values():
        assert [column["name"] for column in tables.get_columns(table.name)] == [column.name for column in table.c]
    engine.dispose()


def test_each_step_is_recorded_and_applied_once(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/a.db")
    with engine.begin() as connection:
        sql_table.migrate_tables(connection)
        sql_table.migrate_tables(connection)
        applied = list(connection.scalars(select(MIGRATIONS.c.name)))

        assert applied == [step.__name__ for step in sql_table.STEPS]
        assert sql_table.is_current(connection)
    engine.dispose()


def test_an_older_ledger_gets_the_steps_it_lacks(tmp_path, monkeypatch):
    steps = sql_table.STEPS
    engine = create_engine(f"sqlite:///{tmp_path}/a.db")
    with engine.begin() as connection:
        monkeypatch.setattr(sql_table, "STEPS", steps[:2])
        sql_table.migrate_tables(connection)
        monkeypatch.setattr(sql_table, "STEPS", steps)
        assert not sql_table.is_current(connection)
        sql_table.migrate_tables(connection)

        assert sql_table.is_current(connection)
    engine.dispose()


def test_a_ledger_with_unknown_steps_is_refused(tmp_path, monkeypatch):
    engine = create_engine(f"sqlite:///{tmp_path}/a.db")
    with engine.begin() as connection:
        sql_table.migrate_tables(connection)
        monkeypatch.setattr(sql_table, "STEPS", sql_table.STEPS[:2])

        with pytest.raises(InvalidRequest, match="this version can read"):
            sql_table.migrate_tables(connection)
    engine.dispose()


def test_a_ledger_from_before_there_were_parts_is_opened_with_its_totals(tmp_path, monkeypatch):
    budget, nothing = epsilon(1), PureLoss(0)
    begin = LedgerEntry.follow(None, EntryKind.BEGIN, {"format": 1, "ledger": "old"})
    body = {
        "account": "dataset:a",
        "budget": budget.to_json(),
        "template": None,
        "spent": {"dataset:a": nothing.to_json()},
    }
    opened = LedgerEntry.follow(begin, EntryKind.OPEN, body)
    engine = create_engine(f"sqlite:///{tmp_path}/a.ledger")
    with engine.begin() as connection, monkeypatch.context() as patch:
        patch.setattr(sql_table, "STEPS", sql_table.STEPS[:5])
        sql_table.migrate_tables(connection)
        connection.exec_driver_sql("PRAGMA application_id = 1163415636")
        for entry in (begin, opened):
            row = {name: getattr(entry, name) for name in ("sequence", "at", "text", "previous", "hash")}
            connection.execute(insert(sql_table.ENTRIES), row | {"kind": entry.kind.value})
        connection.exec_driver_sql(
            "INSERT INTO ledger_accounts VALUES (?, ?, ?, 0, 1)",
            ("dataset:a", canonical_json(budget.to_json()), canonical_json(nothing.to_json())),
        )
    engine.dispose()

    with open_ledger(tmp_path / "a.ledger", create=False) as ledger:
        ledger.open_part("part", of="dataset:a")
        ledger.hold(["part"], PureLoss(0.5), question="q")

        assert ledger.spent("dataset:a") == PureLoss(0.5)
        assert ledger.verify().entries == 4


def test_a_hold_from_before_holds_had_owners_can_be_taken_over_and_settled(tmp_path, monkeypatch):
    monkeypatch.setattr(sql_table, "STEPS", sql_table.STEPS[:6])
    monkeypatch.setattr("expost.ledger.posting.new_ticket", lambda: "0123456789abcdef" * 2)
    with open_ledger(tmp_path / "a.ledger") as old:
        old.open_account("dataset:a", epsilon(1))
        hold = old.hold(["dataset:a"], PureLoss(0.5), question="q")
    monkeypatch.undo()
    receipt = Receipt(question="q", method="m", promise=epsilon(0.5), bill=PureLoss(0.25))

    with open_ledger(tmp_path / "a.ledger", create=False) as ledger:
        with pytest.raises(LedgerUnsound, match="process that took this hold"):
            ledger.settle(hold, receipt)
        ledger.settle(ledger.take_over(hold), receipt)

        assert ledger.spent("dataset:a") == PureLoss(0.25)
        ledger.verify()


def test_a_file_that_is_no_ledger_is_not_made_one_by_opening_what_exists(tmp_path):
    (tmp_path / "a.ledger").touch()

    with pytest.raises(InvalidRequest, match="Expected a ledger that exists"):
        open_ledger(tmp_path / "a.ledger", create=False)
