"""Checkpoints and accounts that go over to replaced units: what is restored, and that forgeries count for nothing."""

import json
import random
from contextlib import closing
from fractions import Fraction

import pytest
from sqlalchemy import create_engine, text

from expost.accounting import GaussianEvent, PoissonSampled, Repeat
from expost.core import (
    Adjacency,
    ApproxLoss,
    LedgerUnsound,
    PureLoss,
    Receipt,
    Unit,
    ZeroConcentratedLoss,
    approx,
    epsilon,
    zcdp,
)
from expost.ledger import EntryKind, MemoryLedger, Protected, new_key, open_ledger
from expost.ledger.chain_replay import ChainReplay
from expost.ledger.checkpoint import _write_state
from expost.ledger.ledger_entry import canonical_json

KEY = new_key()
A, BESIDE = "dataset:a", "dataset:a-replace-one"
PARTS = (f"{A}/1", f"{A}/2")
ADDED, SWAPPED = (Protected(A, each, Unit.row()) for each in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE))
EVERY = "expost.ledger.sql_ledger.CHECKPOINT_EVERY"
TRAINING = Repeat(PoissonSampled(Fraction(1, 10), GaussianEvent(4)), 9)


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(EVERY, 3)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/a.ledger"


def settle(book, hold, bill, adjacency=Adjacency.ADD_REMOVE):
    promise = hold.worst_case.promise()
    book.settle(hold, Receipt(question="q", method="m", promise=promise, bill=bill, adjacency=adjacency))


def ask(book, protected, cap, bill=None, *, account=None, **terms):
    cap = cap if not isinstance(cap, float) else PureLoss(cap)
    hold = book.hold([account or protected.account], cap, question="q", protected=protected, **terms)
    settle(book, hold, cap if bill is None else PureLoss(bill), protected.adjacency)


def ask_at_random(book, draw, kinds, running):
    """One run about added and removed rows, in stages or not, which may stay open."""
    kind, place = draw.choice(kinds), draw.choice([A, *PARTS])
    if running and draw.random() < 0.4:
        hold = running.pop()
        settle(book, hold, hold.worst_case.with_amounts({each: n / 2 for each, n in hold.worst_case.amounts().items()}))
    if kind == "staged":
        hold = book.hold([place], PureLoss(0.01), question="q", protected=ADDED, up_to=PureLoss(Fraction(1, 7)))
        hold = book.extend(hold, PureLoss(Fraction(draw.choice([2, 3]), 70)))
    elif kind == "training":
        hold = book.hold([place], ApproxLoss(1, 1e-9), question="q", protected=ADDED, event=TRAINING)
    elif kind == "rho":
        hold = book.hold([place], ZeroConcentratedLoss(Fraction(1, 10**4)), question="q", protected=ADDED)
    else:
        hold = book.hold([place], PureLoss(Fraction(draw.randint(1, 9), 300)), question="q", protected=ADDED)
    running.append(hold)


BUDGETS = {
    "pure": (epsilon(50), ["pure", "staged"]),
    "composed": (approx(20, 1e-5), ["pure", "staged", "training", "rho"]),
    "zcdp": (zcdp(9), ["pure", "staged", "rho"]),
}


@pytest.mark.parametrize("currency", BUDGETS)
def test_an_account_goes_over_in_a_handle_that_began_with_a_checkpoint(url, currency):
    budget, kinds = BUDGETS[currency]
    draw, running = random.Random(currency), []
    with open_ledger(url, key=KEY) as book:
        book.open_account(A, budget)
        book.open_part(PARTS, of=A, by="site")
        for _ in range(30):
            ask_at_random(book, draw, kinds, running)
            if draw.random() < 0.15:
                with open_ledger(url, key=KEY) as restored, open_ledger(url) as replayed:
                    assert restored._replay.base > 0
                    assert _write_state(restored._replay) == _write_state(replayed._replay)
                    for name, total in restored._replay.totals.items():
                        assert list(total.as_replaced.items()) == list(
                            replayed._replay.totals[name].as_replaced.items()
                        )
        for hold in running:
            book.write_off(hold.id)
        book.verify()
        entries = list(book.history())
    with open_ledger(url, key=KEY) as book:
        base = book._replay.base
        assert base > 0 and book.remaining_for(A, SWAPPED).amounts()["rho" if currency == "zcdp" else "epsilon"] > 0
        ask(book, SWAPPED, 0.01)
        ask(book, ADDED, 0.01, account=PARTS[0])
        assert book._replay.base == base  # nothing was read again
        assert book.counts(A) is Adjacency.REPLACE_ONE
        own = {name: book._read(lambda page, name=name: page.charged_account(name)) for name in (A, *PARTS)}
        book.verify()
    with open_ledger(url, key=KEY) as book:  # by a checkpoint after the account went over
        assert book._replay.base > base and book.counts(A) is Adjacency.REPLACE_ONE
        assert all(total.as_replaced is None for total in book._replay.totals.values())
        ask(book, SWAPPED, 0.01)
        ask(book, ADDED, 0.01)
        assert [entry.kind for entry in book.history()].count(EntryKind.NEIGHBOURS) == 1
        book.verify()
    # One that counts replaced rows from its first charge on comes to the same totals.
    early = MemoryLedger()
    early.open_account(A, budget)
    ask(early, SWAPPED, 0.0)
    early.open_part(PARTS, of=A, by="site")
    repeat_runs(early, entries)
    ask(early, SWAPPED, 0.01)
    ask(early, ADDED, 0.01, account=PARTS[0])
    for name, account in own.items():
        assert early._page.charged_account(name).own == account.own, name
        assert early._page.charged_account(name).spent == account.spent


def repeat_runs(book, entries):
    """Take and settle the holds of a chain in another ledger."""
    holds = {}
    for entry in entries:
        body = entry.body
        if entry.kind is EntryKind.HOLD and "extends" in body:
            holds[entry.id] = book.extend(holds[body["extends"]], PureLoss.from_json(body["worst_case"]))
        elif entry.kind is EntryKind.HOLD:
            terms = {"up_to": PureLoss.from_json(body["up_to"])} if "up_to" in body else {}
            terms |= {"event": TRAINING} if "event" in body else {}
            worst_case = PureLoss.from_json(body["worst_case"])
            holds[entry.id] = book.hold(list(body["charges"]), worst_case, question="q", protected=ADDED, **terms)
        elif entry.kind is EntryKind.SETTLE:
            settle(book, holds[body["hold"]], entry.receipt.bill)


def used_ledger(url):
    with open_ledger(url, key=KEY) as book:
        book.open_account(A, epsilon(10))
        for _ in range(4):
            ask(book, ADDED, 0.5)
        book.hold([A], PureLoss(0.25), question="q", protected=ADDED)
    with open_ledger(url, key=KEY) as book:
        assert book._replay.base > 0


def forge(url, change, *, signed=False):
    """Change the stored state of a checkpoint, with its old code or with one of the owner's key."""
    engine = create_engine(url)
    with closing(engine.connect()) as connection:
        ((stored,),) = connection.execute(text("SELECT state FROM ledger_checkpoints"))
        state = json.loads(stored)
        change(state)
        values = {"state": canonical_json(state)}
        connection.execute(text("UPDATE ledger_checkpoints SET state = :state"), values)
        if signed:
            with open_ledger(None, key=KEY) as book:
                values = {"code": book._safe.certify(values["state"])}
            connection.execute(text("UPDATE ledger_checkpoints SET code = :code"), values)
        connection.commit()
    engine.dispose()


FORGERIES = {
    "a lower total": lambda state: state["replaced"]["totals"].update({A: {"epsilon": "1/10"}}),
    "a total without a price": lambda state: state["replaced"]["totals"].update({A: None}),
    "a larger hold": lambda state: [held.update({A: {"epsilon": "5"}}) for held in state["replaced"]["holds"].values()],
    "a hold left out": lambda state: state["replaced"].update(holds={}),
    "gone over": lambda state: state["neighbours"]["replaced"].append(A),
    "another adjacency": lambda state: state["neighbours"]["stated"][A].update(adjacency="replace-one"),
    "nothing stated": lambda state: state["neighbours"].update(stated={}),
    "closed": lambda state: state["neighbours"]["closed"].update({A: "dataset:b"}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_state_of_adjacencies_is_never_served(url, forgery):
    used_ledger(url)
    forge(url, FORGERIES[forgery])

    with open_ledger(url, key=KEY) as book:
        assert book._replay.base == -1  # the chain was read
        book.write_off(book.open_holds()[0].id)
        ask(book, SWAPPED, 0.5)
        assert book.spent(A) == PureLoss(5) and book.counts(A) is Adjacency.REPLACE_ONE
        book.verify()


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_state_of_adjacencies_that_does_not_follow_from_the_chain_fails_the_verification(url, forgery):
    used_ledger(url)
    with open_ledger(url, key=KEY) as book:
        forge(url, FORGERIES[forgery], signed=True)  # by the owner, or by a fault of ours
        with pytest.raises(LedgerUnsound, match="checkpoint does not follow"):
            book.verify()


def test_costs_that_another_machine_rounded_otherwise_agree_with_the_chain(url):
    with open_ledger(url, key=KEY) as book:
        book.open_account(A, approx(10, 1e-5))
        for _ in range(4):
            ask(book, ADDED, 0.5)

        def change(state):
            costs = state["replaced"]["totals"][A]
            costs["cost 3"] = str(int(costs["cost 3"]) + 1)

        forge(url, change, signed=True)
        book.verify()


@pytest.mark.parametrize("other", ["reader", "writer"])
def test_an_account_in_another_currency_is_joined_by_reading_the_chain_again(url, other):
    with open_ledger(url, key=KEY) as book:
        book.open_account(A, approx(10, 1e-5))
        book.open_account(BESIDE, epsilon(10))
        for _ in range(4):
            ask(book, ADDED, 0.25)
        for _ in range(4):
            ask(book, Protected(BESIDE, Adjacency.REPLACE_ONE, Unit.row()), 0.25, 0.125)
    expected = 4 * 0.5 + 4 * 0.125
    with open_ledger(url, key=KEY) as book, open_ledger(url, key=KEY) as second:
        assert book._replay.base > 0 and second._replay.base > 0
        book.check_protected(ADDED)
        found = second if other == "reader" else book
        assert found._read(lambda page: page.charged_account(A)).own.epsilon == expected
        assert found._replay.base == -1
        ask(found, ADDED, 0.25)
        found.verify()
    with open_ledger(url, key=KEY) as book:
        assert book._read(lambda page: page.charged_account(A)).own.epsilon == expected + 0.5
        book.verify()


def test_an_opening_that_meets_such_a_join_after_the_checkpoint_reads_the_whole_chain(url, monkeypatch):
    with open_ledger(url, key=KEY) as book:
        book.open_account(A, approx(10, 1e-5))
        book.open_account(BESIDE, epsilon(10))
        for _ in range(4):
            ask(book, ADDED, 0.25)
        ask(book, Protected(BESIDE, Adjacency.REPLACE_ONE, Unit.row()), 0.25)
        monkeypatch.setattr(EVERY, 10**6)
        book.check_protected(ADDED)

    with open_ledger(url, key=KEY) as book:
        assert book._replay.base == -1
        assert book._read(lambda page: page.charged_account(A)).own.epsilon == 2.25
        monkeypatch.setattr(EVERY, 1)
        ask(book, ADDED, 0.25)
    with open_ledger(url, key=KEY) as book:
        assert book._replay.base > 0 and book.counts(A) is Adjacency.REPLACE_ONE
        book.verify()


def test_an_old_entry_that_was_edited_is_not_read_for_a_join(url):
    with open_ledger(url, key=KEY) as book:
        book.open_account(A, approx(10, 1e-5))
        book.open_account(BESIDE, epsilon(10))
        for _ in range(4):
            ask(book, ADDED, 0.25)
        for _ in range(4):
            ask(book, Protected(BESIDE, Adjacency.REPLACE_ONE, Unit.row()), 0.25)
    engine = create_engine(url)
    with closing(engine.connect()) as connection:
        connection.execute(text("DROP TRIGGER ledger_no_update"))
        connection.execute(text("UPDATE ledger_entries SET text = replace(text, '1/4', '1/8') WHERE sequence = 12"))
        connection.execute(
            text(
                "CREATE TRIGGER ledger_no_update BEFORE UPDATE ON ledger_entries"
                " BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END"
            )
        )
        connection.commit()
    engine.dispose()

    with open_ledger(url, key=KEY) as book, pytest.raises(LedgerUnsound):
        book.check_protected(ADDED)


def test_a_replay_keeps_no_list_of_past_runs():
    book = MemoryLedger()
    book.open_account(A, epsilon(100))
    for _ in range(20):
        ask(book, ADDED, 0.125)
    replay = ChainReplay()
    for entry in book.history():
        replay.add_entry(entry)

    assert not replay.reserved and not replay._separate
    assert replay.totals[A].as_replaced == {"epsilon": 5} and replay.totals[A].own == {"epsilon": Fraction(5, 2)}
