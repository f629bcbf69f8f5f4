"""PostgreSQL: writers are alone, and should the lock ever be missing the chain itself refuses the second one."""

import threading

import pytest

from expost.core import LedgerUnsound, PureLoss, epsilon
from expost.ledger import open_ledger, posting
from expost.ledger.postgres_ledger import PostgresLedger

ACCOUNT = "dataset:flights"
SIX_TENTHS = PureLoss(0.6)


class Careless(PostgresLedger):
    """A ledger without its lock, in an isolation that is known to overspend with select-then-insert."""

    level = "READ COMMITTED"

    def _start(self, connection, *, writing):
        connection.exec_driver_sql(f"SET TRANSACTION ISOLATION LEVEL {self.level}")


class Snapshot(Careless):
    level = "REPEATABLE READ"


def hold_together(ledgers, *, between):
    """Two holds that both read before either writes; what each came to."""
    outcomes = []

    def hold(ledger):
        def action(page):
            posting.find_account(page, ACCOUNT)
            between()
            return posting.take_hold(page, [ACCOUNT], SIX_TENTHS, question="q", request_id=None)

        try:
            outcomes.append(ledger._write(action))
        except Exception as error:
            outcomes.append(error)

    threads = [threading.Thread(target=hold, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes


def test_a_writer_is_serializable_and_holds_the_lock(postgres_place):
    def seen(page):
        ask = page._statements.find_row
        (level,) = ask("SHOW transaction_isolation")
        (locks,) = ask(
            "SELECT count(*) FROM pg_locks WHERE relation = 'ledger_entries'::regclass AND mode = 'ExclusiveLock'"
            " AND granted AND pid = pg_backend_pid()"
        )
        return level, locks

    with open_ledger(postgres_place) as ledger:
        assert ledger._write(seen) == ("serializable", 1)
        assert ledger._read(seen) == ("repeatable read", 0)


def test_a_second_writer_waits_until_the_first_is_done_and_then_sees_its_spend(postgres_place):
    with open_ledger(postgres_place) as first, open_ledger(postgres_place) as second:
        first.open_account(ACCOUNT, epsilon(1))
        inside, go_on, outcomes = threading.Event(), threading.Event(), []

        def slow(page):
            inside.set()
            go_on.wait(30)
            return posting.take_hold(page, [ACCOUNT], SIX_TENTHS, question="q", request_id=None)

        def quick():
            try:
                outcomes.append(second.hold([ACCOUNT], SIX_TENTHS, question="q"))
            except Exception as error:
                outcomes.append(error)

        threads = [threading.Thread(target=lambda: first._write(slow)), threading.Thread(target=quick)]
        threads[0].start()
        assert inside.wait(30)
        threads[1].start()
        threads[1].join(0.5)
        waiting = not outcomes
        go_on.set()
        for thread in threads:
            thread.join(60)

        assert waiting
        assert "Expected a worst case of at most epsilon 0.4" in str(outcomes[0])
        assert first.spent(ACCOUNT) == SIX_TENTHS


@pytest.mark.parametrize("kind", [Careless, Snapshot])
def test_without_the_lock_the_chain_lets_one_of_two_writers_through(postgres_place, kind):
    open_ledger(postgres_place).open_account(ACCOUNT, epsilon(1))
    gate, met = threading.Barrier(2), set()
    ledgers = [kind(postgres_place), kind(postgres_place)]

    def meet_once():
        """Both have read; a transaction that the server undid runs again without waiting for the other."""
        if threading.current_thread() not in met:
            met.add(threading.current_thread())
            gate.wait(30)

    outcomes = hold_together(ledgers, between=meet_once)

    assert sorted(isinstance(outcome, Exception) for outcome in outcomes) == [False, True]
    assert any(isinstance(outcome, LedgerUnsound) or "at most" in str(outcome) for outcome in outcomes)
    with open_ledger(postgres_place) as ledger:
        assert ledger.spent(ACCOUNT) == SIX_TENTHS
        ledger.verify()
    for ledger in ledgers:
        ledger.close()
