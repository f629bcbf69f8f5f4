import importlib.util

import pytest

from expost.core import InvalidRequest, MissingExtra
from expost.ledger.postgres_ledger import PostgresLedger


def test_a_missing_driver_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(MissingExtra, match=r'pip install "expost\[postgres\]"'):
        PostgresLedger("postgresql://host/database")


def test_a_url_that_is_none_is_refused_without_repeating_it():
    with pytest.raises(InvalidRequest, match="URL of a PostgreSQL database") as caught:
        PostgresLedger("postgresql://owner:hunter2@host:port/database")

    assert "hunter2" not in str(caught.value)


def test_a_handle_does_not_show_the_password():
    ledger = PostgresLedger.__new__(PostgresLedger)
    ledger.url = "postgresql://owner:hunter2@host/database"

    assert repr(ledger) == "PostgresLedger(postgresql://owner:***@host/database)"
