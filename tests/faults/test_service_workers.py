"""Several workers of one service share a PostgreSQL database: one schema, one set of tokens, one charge per key."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.served import write_people
from typer.testing import CliRunner

from expost.cli import app
from expost.service import Curator, Identity, Role, ServiceSettings
from expost.service.service_store import RequestState, ServiceStore

ANN = Identity(Role.ANALYST, "ann", "people", "t")
COUNT = {"statistic": "count", "arguments": {"within": 200}}


def open_workers(folder: Path, place: str, count: int) -> list[Curator]:
    """Open so many curators at once on an empty database."""
    path = write_people(folder)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("people.ledger", place).replace("people.state", place), encoding="utf-8")
    settings = ServiceSettings.read(path)
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(Curator, [settings] * count))


def test_workers_that_start_at_once_on_an_empty_database_share_tokens_and_charge_a_key_once(
    tmp_path: Path, postgres_place: str
) -> None:
    workers = open_workers(tmp_path, postgres_place, 4)
    first, second = workers[:2]
    secret = first.create_token(role=Role.ANALYST, subject="ann", dataset="people", budget=(3.0, 1e-6))
    found = second.store.find_token(secret.token_id)
    assert found is not None and found.is_usable(second.now())

    def ask(worker: Curator) -> bool:
        record, new = worker.begin("people", ANN, "ask", COUNT, "one key")
        if new:
            worker.run(record, ANN)
        return new

    with ThreadPoolExecutor(len(workers)) as threads:
        drawn = list(threads.map(ask, workers))

    assert sum(drawn) == 1
    (record,) = second.store.list_requests()
    assert record.state == RequestState.DONE and record.status == 200
    assert sum(entry.receipt is not None for entry in second.ledger.history()) == 1
    assert first.ledger.spent("dataset:people") == second.ledger.spent("analyst:ann/people")

    second.revoke_token(secret.token_id)
    found = first.store.find_token(secret.token_id)
    assert found is not None and not found.is_usable(first.now())
    assert first.store.check_log()
    assert [line.action for line in first.store.read_log()] == ["create token", "ask", "revoke token"]
    for worker in workers:
        worker.close()


def test_workers_that_freeze_a_dataset_at_once_freeze_it(postgres_place: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        stores = list(threads.map(ServiceStore, [postgres_place] * 8))
        list(threads.map(lambda store: store.freeze("people"), stores))

    assert all(store.is_frozen("people") for store in stores)
    stores[0].thaw("people")
    assert not stores[1].is_frozen("people")
    for store in stores:
        store.close()


def test_several_workers_with_files_are_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["serve", str(write_people(tmp_path)), "--workers", "2"])

    assert result.exit_code != 0
    assert "PostgreSQL" in str(result.exception) + result.output


def test_a_reader_of_a_file_waits_for_no_writer(tmp_path: Path) -> None:
    store = ServiceStore(str(tmp_path / "state"))
    with store._writing() as connection:
        connection.exec_driver_sql("INSERT INTO service_frozen VALUES ('people')")
        assert not store.is_frozen("people")
    assert store.is_frozen("people")
    store.close()
