"""Many writers at once: the budget is used up to the last whole question, never more."""

import json
import threading
import time

import psycopg
import pytest

from expost.core import InvalidRequest, LedgerBusy, LedgerUnsound, PureLoss, epsilon
from expost.ledger import open_ledger


def test_32_processes_spend_one_budget_exactly(drive, place):
    done = drive(place.replace("NAME", ""), "crowd", 32)

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    # Refunds let each spend cost 1/200 in the end while 1/50 must fit: 197 fit into 1, however they interleave.
    assert seen["released"] == 197
    assert seen["busy"] > 10


def test_processes_that_spend_on_parts_and_on_the_whole_use_up_every_part_and_no_more(drive, place):
    done = drive(place.replace("NAME", ""), "parts", 16)

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    # In each part its own questions and those about the whole fill the budget: 197 in all, however they interleave.
    assert seen["whole"] > 0 and seen["first"] > 0
    assert seen["whole"] + seen["first"] == seen["whole"] + seen["second"] == 197


def test_two_threads_that_open_a_new_ledger_together_begin_one_chain(place):
    place, opened = place.replace("NAME", ""), []
    threads = [threading.Thread(target=lambda: opened.append(open_ledger(place))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    heads = {ledger.history()[0].hash for ledger in opened}
    for ledger in opened:
        ledger.close()

    assert len(opened) == 4
    assert len(heads) == 1


def test_a_crash_of_the_server_loses_no_acknowledged_spend(postgres):
    server = postgres.Server()
    try:
        ledger = open_ledger(server.new_place())
        ledger.open_account("dataset:flights", epsilon(1))
        held = [ledger.hold(["dataset:flights"], PureLoss(0.125), question="count").id for _ in range(4)]
        server.crash()
        with pytest.raises(LedgerUnsound, match="the server does not answer"):
            ledger.hold(["dataset:flights"], PureLoss(0.125), question="count")
        server.start()

        assert [hold.id for hold in ledger.open_holds()] == held
        assert ledger.spent("dataset:flights") == PureLoss(0.5)
        ledger.verify()
        ledger.close()
    finally:
        server.stop()


@pytest.mark.parametrize("setting", ["synchronous_commit", "fsync", "full_page_writes"])
def test_a_server_that_may_forget_commits_is_refused(postgres, setting):
    if setting == "synchronous_commit":
        place = postgres.shared_server().new_place() + "%20-csynchronous_commit%3Doff"
        with pytest.raises(LedgerUnsound, match=f"with {setting} on"):
            open_ledger(place)
        return
    server = postgres.Server(**{setting: "off"})
    try:
        with pytest.raises(LedgerUnsound, match=f"with {setting} on"):
            open_ledger(server.new_place())
    finally:
        server.stop()


def reloaded(server, **settings):
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        for name, value in settings.items():
            connection.execute(f"ALTER SYSTEM SET {name} = {value}")
        connection.execute("SELECT pg_reload_conf()")
    time.sleep(0.5)


def test_settings_that_are_reloaded_under_an_open_ledger_lose_no_acknowledged_spend(postgres):
    server = postgres.Server()
    try:
        place = server.new_place()
        ledger = open_ledger(place)
        ledger.open_account("dataset:flights", epsilon(1000))
        reloaded(server, synchronous_commit="off", wal_writer_delay="'10s'")
        held = [ledger.hold(["dataset:flights"], PureLoss(0.125), question="count").id for _ in range(20)]
        server.crash()
        server.start()
        reloaded(server, synchronous_commit="on")

        with open_ledger(place) as again:
            assert [hold.id for hold in again.open_holds()] == held
            reloaded(server, full_page_writes="off")
            with pytest.raises(LedgerUnsound, match="with full_page_writes on"):
                again.hold(["dataset:flights"], PureLoss(0.125), question="count")
        ledger.close()
    finally:
        server.stop()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_cannot_store_every_text_is_refused(postgres, encoding):
    server = postgres.shared_server()
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE ledger_{encoding} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )

    with pytest.raises(InvalidRequest, match=f"Expected a database in UTF8, got '{encoding}'"):
        open_ledger(server.url(f"ledger_{encoding}".lower()))


def test_a_server_that_others_keep_locked_is_given_up_with_nothing_changed(postgres_place, monkeypatch):
    monkeypatch.setattr("expost.ledger.postgres_ledger.PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr("expost.ledger.sql_ledger.PATIENCE_SECONDS", 1.0)
    with open_ledger(postgres_place) as ledger:
        ledger.open_account("dataset:flights", epsilon(1))
        address = postgres_place
        with psycopg.connect(address) as other:
            other.execute("LOCK TABLE ledger_entries IN EXCLUSIVE MODE")
            with pytest.raises(LedgerBusy, match="kept it locked"):
                ledger.hold(["dataset:flights"], PureLoss(0.5), question="count")
            assert ledger.remaining("dataset:flights") == PureLoss(1)  # reading needs no lock


@pytest.mark.parametrize("wrong", ["port", "database"])
def test_a_server_that_cannot_be_used_is_refused_without_naming_the_password(postgres, wrong):
    port = 1 if wrong == "port" else postgres.shared_server().port
    database = "nowhere" if wrong == "database" else "postgres"

    with pytest.raises(LedgerUnsound, match="the server does not answer") as caught:
        open_ledger(f"postgresql://owner:hunter2@127.0.0.1:{port}/{database}")

    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
