import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from expost import Dataset, LogisticRegression, Session, SGDClassifier
from expost.core import InvalidRequest, approx, epsilon
from expost.ledger import MemoryLedger, open_ledger
from expost.ledger.opening import open_ledger_for


def test_a_path_and_its_url_name_one_ledger(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    address = f"sqlite:///{tmp_path}/flights.ledger"
    names = ["flights.ledger", "sqlite:///flights.ledger", address, tmp_path / "flights.ledger"]
    ledgers = [open_ledger(name) for name in names]

    assert {ledger.url for ledger in ledgers} == {address}
    assert len({ledger.history()[0].hash for ledger in ledgers}) == 1
    for ledger in ledgers:
        ledger.close()


def test_nothing_names_a_ledger_in_memory_and_a_ledger_names_itself():
    ledger = open_ledger()

    assert isinstance(ledger, MemoryLedger)
    assert open_ledger(ledger) is ledger


@pytest.mark.parametrize("where", ["", ":memory:", "sqlite://", "sqlite:///", "mysql://user:secret@host/db", "a\x00b"])
def test_other_places_are_refused_without_repeating_a_password(where):
    with pytest.raises(InvalidRequest, match="in a file or in PostgreSQL") as caught:
        open_ledger(where)

    assert "secret" not in str(caught.value)


def test_the_room_loads_no_database_library_until_one_is_used(tmp_path):
    code = (
        "import sys; from expost.ledger import open_ledger; open_ledger(None);"
        "assert not {'sqlalchemy', 'psycopg'} & set(sys.modules);"
        f"open_ledger({str(tmp_path / 'a.ledger')!r}).close();"
        "assert 'sqlalchemy' in sys.modules and 'psycopg' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_ledger_that_is_not_there_is_created_only_when_asked(tmp_path):
    with pytest.raises(InvalidRequest, match="ledger file that exists"):
        open_ledger(tmp_path / "a b?c#d%20.ledger", create=False)
    assert list(tmp_path.iterdir()) == []

    open_ledger(tmp_path / "a b?c#d%20.ledger").close()
    open_ledger(tmp_path / "a b?c#d%20.ledger", create=False).close()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["a b?c#d%20.ledger"]


def test_an_empty_database_is_no_ledger_unless_one_is_created(tmp_path):
    (tmp_path / "a.ledger").touch()

    with pytest.raises(InvalidRequest, match="Expected a ledger that exists"):
        open_ledger(tmp_path / "a.ledger", create=False)


def test_a_training_without_a_ledger_gets_an_account_of_just_its_price():
    ledger = open_ledger_for(None, "dataset:table", promise=approx(0.5, 1e-6))

    assert isinstance(ledger, MemoryLedger)
    assert ledger.budget("dataset:table") == approx(0.5, 1e-6)


@pytest.mark.parametrize(("promise", "budget"), [(epsilon(1), "1.0"), (approx(1, 1e-6), "(1.0, 1e-6)")])
def test_an_account_that_is_not_in_the_ledger_is_refused_with_the_call_that_opens_it(tmp_path, promise, budget):
    where = tmp_path / "flights.ledger"
    with pytest.raises(InvalidRequest, match="Expected the account 'dataset:flights' in the ledger") as caught:
        open_ledger_for(where, "dataset:flights", promise=promise)
    assert f"open_account('dataset:flights', {budget})" in str(caught.value)

    with open_ledger(where) as ledger:
        ledger.open_account("dataset:flights", epsilon(3))
    with open_ledger_for(where, "dataset:flights", promise=promise) as ledger:
        assert ledger.budget("dataset:flights") == epsilon(3)


@pytest.mark.parametrize("where", [open_ledger(None), 5, b"flights.ledger"])
def test_a_training_is_paid_from_a_place_and_not_from_a_copy_of_a_ledger(where):
    with pytest.raises(InvalidRequest, match="path or a URL"):
        open_ledger_for(where, "dataset:flights", promise=epsilon(1))


def test_nothing_is_created_where_an_account_must_be_there_already(tmp_path):
    place = tmp_path / "new.ledger"
    people = Dataset(pa.table({"x": [1.0]}), name="people")
    rows, labels = np.zeros((4, 1)), [0, 1, 0, 1]
    refused = [
        lambda: open_ledger_for(place, "dataset:table", promise=epsilon(1)),
        lambda: Session(people, ledger=place),
        lambda: Session(people, epsilon(1), ledger=place, analyst="ann"),
        lambda: Session(people, ledger=place, analyst="ann", analyst_budget=epsilon(1)),
        lambda: LogisticRegression(epsilon=1, classes=[0, 1], ledger=str(place), feature_bound=1.0).fit(rows, labels),
        lambda: SGDClassifier(
            epsilon=1, classes=[0, 1], rows=4, batches="full", ledger=str(place), feature_bound=1.0
        ).fit(rows, labels),
    ]
    for call in refused:
        with pytest.raises(InvalidRequest, match=r"the account .* in the ledger|a budget for"):
            call()
        assert list(tmp_path.iterdir()) == []

    with Session(people, epsilon(1), ledger=place, analyst="ann", analyst_budget=epsilon(2)) as session:
        assert place.exists() and set(session.ledger.accounts()) == {"dataset:people", "analyst:ann"}
    with Session(people, ledger=place, analyst="ann") as session:
        assert session.remaining().epsilon == 1
    with pytest.raises(InvalidRequest, match="the account 'analyst:bob' in the ledger"):
        Session(people, ledger=place, analyst="bob")
