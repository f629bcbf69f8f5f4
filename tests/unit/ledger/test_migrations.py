import pytest
from sqlalchemy import create_engine, inspect, select

from expost.core import InvalidRequest
from expost.ledger import migrations, open_ledger, schema
from expost.ledger.schema import MIGRATIONS


def test_the_steps_lead_to_the_declared_tables(tmp_path):
    open_ledger(tmp_path / "a.ledger").close()
    engine = create_engine(f"sqlite:///{tmp_path}/a.ledger")
    tables = inspect(engine)

    for table in (getattr(schema, name) for name in schema.__all__):
        assert [column["name"] for column in tables.get_columns(table.name)] == [column.name for column in table.c]
    engine.dispose()


def test_each_step_is_recorded_and_applied_once(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/a.db")
    with engine.begin() as connection:
        migrations.migrate(connection)
        migrations.migrate(connection)
        applied = list(connection.scalars(select(MIGRATIONS.c.name)))

        assert applied == [step.__name__ for step in migrations.STEPS]
        assert migrations.is_current(connection)
    engine.dispose()


def test_an_older_ledger_gets_the_steps_it_lacks(tmp_path, monkeypatch):
    steps = migrations.STEPS
    engine = create_engine(f"sqlite:///{tmp_path}/a.db")
    with engine.begin() as connection:
        monkeypatch.setattr(migrations, "STEPS", steps[:2])
        migrations.migrate(connection)
        monkeypatch.setattr(migrations, "STEPS", steps)
        assert not migrations.is_current(connection)
        migrations.migrate(connection)

        assert migrations.is_current(connection)
    engine.dispose()


def test_a_ledger_with_unknown_steps_is_refused(tmp_path, monkeypatch):
    engine = create_engine(f"sqlite:///{tmp_path}/a.db")
    with engine.begin() as connection:
        migrations.migrate(connection)
        monkeypatch.setattr(migrations, "STEPS", migrations.STEPS[:2])

        with pytest.raises(InvalidRequest, match="this version can read"):
            migrations.migrate(connection)
    engine.dispose()
