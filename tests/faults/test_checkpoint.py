"""Checkpoints of the owner's key: what they save, and that nobody else can make them count for anything."""

import importlib.util
import json
import random
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from expost.core import Adjacency, InvalidRequest, LedgerUnsound, PureLoss, Receipt, Unit, approx, epsilon
from expost.ledger import Protected, new_key, open_ledger
from expost.ledger.chain_replay import MILESTONE, ChainReplay
from expost.ledger.checkpoint import _write_state
from expost.ledger.ledger_entry import EntryKind, LedgerEntry, canonical_json

KEY, OTHER_KEY = new_key(), new_key()
HALF = PureLoss(0.5)
RECEIPT = Receipt(question="count", method="m", promise=HALF.promise(), bill=PureLoss(0.25))


def load_tamper_tests():
    """The intruder and the list of tamperings of the tests beside this one."""
    path = Path(__file__).with_name("test_tamper.py")
    spec = importlib.util.spec_from_file_location("expost_tests_tamper_cases", path)
    module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
    if not hasattr(module, "TAMPERINGS"):
        spec.loader.exec_module(module)
    return module


TAMPER = load_tamper_tests()


EVERY = "expost.ledger.sql_ledger.CHECKPOINT_EVERY"


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """A checkpoint after every few entries."""
    monkeypatch.setattr(EVERY, 3)


def settle_one(ledger, account="dataset:flights", **terms):
    hold = ledger.hold([account], HALF, question="count", **terms)
    return hold, ledger.settle(hold, RECEIPT)


@pytest.fixture
def url(place, monkeypatch, often):
    """The ledger of the tests of tampering, with a checkpoint after entry 15 and two entries more."""
    url = place.replace("NAME", "")
    monkeypatch.setattr(EVERY, 10**6)
    with open_ledger(url, key=KEY) as ledger:
        ledger.open_account("dataset:flights", epsilon(10))  # entry 1
        for _ in range(3):  # entries 2 to 7
            settle_one(ledger)
        ledger.hold(["dataset:flights"], HALF, question="count", request_id="r-1")  # entry 8
        ledger.keep("path:1", b"rung 1")  # entry 9
        ledger.keep("path:2", b"rung 2")  # entry 10
        ledger.open_account("analyst:ann", epsilon(1))  # entry 11
        ledger.open_part("flights/site=A", of="dataset:flights", by="site")  # entry 12
        ledger.hold(["flights/site=A"], HALF, question="count")  # entry 13
        settle_one(ledger, request_id="r-2")  # entries 14 and 15
        monkeypatch.setattr(EVERY, 1)
        hold = ledger.hold(["dataset:flights"], HALF, question="count")  # entry 16; the checkpoint is after 15
        monkeypatch.setattr(EVERY, 3)
        ledger.settle(hold, RECEIPT)  # entry 17
    return url


@pytest.fixture
def intruder(url):
    intruder = TAMPER.Intruder(url)
    yield intruder
    intruder.close()


def ask(url, statement, **values):
    """Rows of the database as anybody may read them."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with closing(engine.connect()) as connection:
        rows = [tuple(row) for row in connection.execute(text(statement), values)]
    engine.dispose()
    return rows


def entries_replayed(monkeypatch, url, key):
    """How many entries an opening reads, and what it comes to."""
    count, add = [], ChainReplay.add_entry
    with monkeypatch.context() as patch:
        patch.setattr(ChainReplay, "add_entry", lambda self, entry: (count.append(1), add(self, entry))[1])
        with open_ledger(url, key=key) as ledger:
            return len(count), ledger.spent("dataset:flights")


def test_an_opening_with_the_key_reads_only_the_entries_after_the_checkpoint(url, monkeypatch):
    assert ask(url, "SELECT sequence FROM ledger_checkpoints") == [(15,)]

    assert entries_replayed(monkeypatch, url, KEY) == (2, PureLoss(2.25))
    assert entries_replayed(monkeypatch, url, None) == (18, PureLoss(2.25))
    assert entries_replayed(monkeypatch, url, OTHER_KEY) == (18, PureLoss(2.25))


def test_a_handle_without_the_key_writes_no_checkpoint(sqlite_place):
    url = sqlite_place.replace("NAME", "")
    with open_ledger(url) as ledger:
        ledger.open_account("dataset:flights", epsilon(10))
        for _ in range(5):
            settle_one(ledger)

    assert ask(url, "SELECT count(*) FROM ledger_checkpoints") == [(0,)]


def extend_a_hold(ledger, draw, state):
    for hold in draw.sample(state, k=len(state)):
        if "up_to" in ledger._read(lambda page, hold=hold: page.named_entry(hold.id)).body:
            state.remove(hold)
            state.append(ledger.extend(hold, PureLoss(draw.choice([hold.worst_case.epsilon, 1]))))
            return


def change_a_secret(ledger, draw, kind):
    secrets = ledger._read(lambda page: [row.name for row in page.all_secrets()])
    if kind == "k":
        ledger.keep(f"path:{draw.random()}", b"rung")
    elif secrets and kind == "r":
        ledger.replace(draw.choice(secrets), old=b"rung", new=b"rung")
    elif secrets:
        ledger.forget(draw.choice(secrets))


def act_at_random(ledger, draw, names, state):
    """One random operation of every kind that a ledger has."""
    kind = draw.choice("hhhheesssswtkrfbop")
    account = draw.choice(names)
    worst = PureLoss(draw.choice([0.125, 0.25, 1 / 3]))
    if kind == "h":
        chosen = draw.sample(names, k=min(draw.choice([1, 1, 2, 3]), len(names)))
        request = draw.choice([None, f"request {draw.random()}"])
        root = ledger.root_of(chosen[0])
        about = Protected(root, Adjacency.ADD_REMOVE, Unit.row()) if root in chosen else None
        most = draw.choice([None, PureLoss(1)])
        state.append(ledger.hold(chosen, worst, question="q", request_id=request, protected=about, up_to=most))
    elif kind == "e":
        extend_a_hold(ledger, draw, state)
    elif kind in "swt" and state:
        hold = state.pop(draw.randrange(len(state)))
        if kind == "s":
            bill = PureLoss(hold.worst_case.epsilon / draw.choice([1, 2, 7]))
            ledger.settle(hold, Receipt(question="q", method="m", promise=hold.worst_case.promise(), bill=bill))
        elif kind == "w":
            ledger.write_off(hold.id)
        else:
            state.append(ledger.take_over(hold))
    elif kind in "krf":
        change_a_secret(ledger, draw, kind)
    elif kind == "b":
        ledger.change_budget("dataset:flights", epsilon(10**6 + draw.randrange(1000)))
    elif kind == "p":
        ledger.open_part(f"part {draw.random()}", of="dataset:flights", by=draw.choice(["site", "year"]))
        ledger.open_account(f"capped {draw.random()}", epsilon(100), question_cap=draw.choice([1, 2]))
        names[:] = [name for name in ledger.accounts() if name != "approx"]
    elif kind == "o" and account != "approx":
        ledger.hold(["approx"], worst, question="q")


def state_of(replay):
    """All that a replay remembers but closed holds, which a restored one reads from the ledger when they are used."""
    state = {name: value for name, value in vars(replay).items() if name not in ("base", "_compared", "_steps")}
    opened = {entry.sequence for entry in replay.pending.values()}
    state["holds"] = {number: row for number, row in replay.holds.items() if number in opened}
    state["requests"] = {request: number for request, number in replay.requests.items() if number in opened}
    return state


@pytest.mark.parametrize("seed", range(4))
def test_a_restored_replay_is_the_one_that_reading_everything_comes_to(sqlite_place, seed):
    url, draw, state = sqlite_place.replace("NAME", ""), random.Random(seed), []
    with open_ledger(url, key=KEY) as ledger:
        ledger.open_account("dataset:flights", epsilon(10**6))
        ledger.open_account("window:*", epsilon(10**6))
        ledger.open_account("approx", approx(100, 1e-6))
        names = ["dataset:flights", "window:1", "window:2"]
        for _ in range(120):
            act_at_random(ledger, draw, names, state)
            if draw.random() < 0.1:
                with open_ledger(url, key=KEY) as restored, open_ledger(url) as replayed:
                    assert restored._replay.base > 0 or ledger.history()[-1].sequence < 10
                    assert replayed._replay.base == -1
                    assert _write_state(restored._replay) == _write_state(replayed._replay)
                    assert state_of(restored._replay) == state_of(replayed._replay)
                    assert restored.open_holds() == replayed.open_holds()
        ledger.verify()
    with open_ledger(url, key=KEY) as ledger:
        assert ledger._replay.base > MILESTONE
        for _ in range(10):
            act_at_random(ledger, draw, names, state)
        ledger.verify()


@pytest.mark.parametrize("tampering", TAMPER.TAMPERINGS)
def test_a_handle_that_began_with_a_checkpoint_serves_the_truth_or_refuses(url, intruder, tampering):
    statements = TAMPER.TAMPERINGS[tampering]
    with open_ledger(url, key=KEY) as ledger:
        before = TAMPER.served(ledger)
    intruder(*statements, **({"lower": TAMPER.LOWER} if ":lower" in statements[0] else {}))

    try:
        with open_ledger(url, key=KEY) as ledger:
            assert ledger._replay.base == 15
            after = TAMPER.served(ledger)
            with pytest.raises(LedgerUnsound):
                ledger.verify()
    except LedgerUnsound:
        return
    assert {what: answer for what, answer in after.items() if answer is not None and answer != before[what]} == {}


def edited_states(state, code):
    """Forged forms of a checkpoint: state and code."""
    content = json.loads(state)
    lower = json.loads(state)
    lower["totals"]["dataset:flights"][1] = lower["totals"]["dataset:flights"][3] = ["0"]
    larger = json.loads(state)
    larger["totals"]["dataset:flights"][0]["epsilon"] = "1000"
    closed = json.loads(state) | {"pending": []}
    return {
        "a lower total": (canonical_json(lower), code),
        "a larger budget": (canonical_json(larger), code),
        "a hold left out": (canonical_json(closed), code),
        "cut off": (state[: len(state) // 2], code),
        "empty": ("", ""),
        "no code": (canonical_json(lower), ""),
        "a code of other text": (canonical_json(content) + " ", code),
        "not ASCII": (state, "ä" * 64),
        "a null character": (canonical_json(lower).replace("null", "0"), "0" * 64),
    }


@pytest.mark.parametrize("forgery", edited_states('{"totals":{"dataset:flights":[{},0,0,0]}}', ""))
def test_a_forged_checkpoint_is_never_served(url, intruder, forgery, monkeypatch):
    ((state, code),) = ask(url, "SELECT state, code FROM ledger_checkpoints")
    state, code = edited_states(state, code)[forgery]
    intruder("UPDATE ledger_checkpoints SET state = :state, code = :code", state=state, code=code)

    assert entries_replayed(monkeypatch, url, KEY) == (18, PureLoss(2.25))
    with open_ledger(url, key=KEY) as ledger:  # the next checkpoint takes its place
        for _ in range(3):
            settle_one(ledger)
        ledger.verify()
    assert entries_replayed(monkeypatch, url, KEY)[0] < 10


def test_a_checkpoint_under_the_name_of_another_key_is_never_served(url, intruder, monkeypatch):
    with open_ledger(url, key=OTHER_KEY) as ledger:
        owner = ledger._safe.owner
    intruder("UPDATE ledger_checkpoints SET owner = :owner", owner=owner)

    assert entries_replayed(monkeypatch, url, OTHER_KEY) == (18, PureLoss(2.25))
    assert entries_replayed(monkeypatch, url, KEY) == (18, PureLoss(2.25))


def test_the_checkpoint_of_another_ledger_of_the_same_owner_is_never_served(url, intruder, tmp_path, monkeypatch):
    with open_ledger(tmp_path / "other.ledger", key=KEY) as other:
        other.open_account("dataset:flights", epsilon(10))
        for _ in range(10):
            other.hold(["dataset:flights"], PureLoss(0.001), question="q")
    ((state, code),) = ask(f"sqlite:///{tmp_path}/other.ledger", "SELECT state, code FROM ledger_checkpoints")
    intruder("UPDATE ledger_checkpoints SET state = :state, code = :code", state=state, code=code)

    assert entries_replayed(monkeypatch, url, KEY) == (18, PureLoss(2.25))


def test_an_older_checkpoint_put_back_leads_to_the_same_totals(url, intruder, monkeypatch):
    older = ask(url, "SELECT sequence, state, code FROM ledger_checkpoints")[0]
    with open_ledger(url, key=KEY) as ledger:
        for _ in range(4):
            settle_one(ledger)
    assert ask(url, "SELECT sequence FROM ledger_checkpoints")[0][0] > 15
    intruder(
        "UPDATE ledger_checkpoints SET sequence = :sequence, state = :state, code = :code",
        **dict(zip(("sequence", "state", "code"), older, strict=True)),
    )

    assert entries_replayed(monkeypatch, url, KEY) == (10, PureLoss(3.25))


def test_a_ledger_that_lacks_what_its_checkpoint_covers_is_refused(url, intruder, monkeypatch):
    (newer,) = ask(url, "SELECT state, code FROM ledger_checkpoints")
    intruder(
        "DELETE FROM ledger_checkpoints",
        "DELETE FROM ledger_holds WHERE entry >= 14",
        "DELETE FROM ledger_entries WHERE sequence >= 14",
        "INSERT INTO ledger_checkpoints VALUES (:owner, 13, :state, :code)",
        owner=open_owner(KEY),
        **dict(zip(("state", "code"), newer, strict=True)),
    )

    monkeypatch.setattr("expost.ledger.head_file.HeadFile.read_note", lambda _: None)  # deleted as well

    with pytest.raises(LedgerUnsound, match="checkpoint covers"):
        open_ledger(url, key=KEY)


def open_owner(key):
    with open_ledger(None, key=key) as ledger:
        return ledger._safe.owner


def rebuilt_chain(url):
    """All entries about another question, with hashes that fit: what somebody without the key can do."""
    rows = ask(url, "SELECT kind, text, hash FROM ledger_entries ORDER BY sequence")
    entries, names = [], {}
    for number, (kind, content, digest) in enumerate(rows):
        for old, new in names.items():
            content = content.replace(old, new)
        content = content if number == 0 else content.replace('"count"', '"other"')
        entries.append(LedgerEntry.follow(entries[-1] if entries else None, EntryKind(kind), json.loads(content)))
        names[f"{number}-{digest[:16]}"] = entries[-1].id
    return entries


def test_a_chain_rebuilt_with_new_hashes_is_refused_with_the_key(url, intruder, monkeypatch):
    for entry in rebuilt_chain(url):
        values = {name: getattr(entry, name) for name in ("text", "previous", "hash", "sequence")}
        intruder(
            "UPDATE ledger_entries SET text = :text, previous = :previous, hash = :hash, at = :at"
            " WHERE sequence = :sequence",
            at=entry.recorded,
            **values,
        )
    monkeypatch.setattr("expost.ledger.head_file.HeadFile.read_note", lambda _: None)  # deleted as well

    with open_ledger(url) as ledger:  # without the key nothing shows it
        assert ledger.history()[2].question == "other"
    with pytest.raises(LedgerUnsound, match="checkpoint covers"):
        open_ledger(url, key=KEY)


def test_a_hold_that_was_extended_before_the_checkpoint_stays_closed(sqlite_place):
    url = sqlite_place.replace("NAME", "")
    with open_ledger(url, key=KEY) as ledger:
        ledger.open_account("dataset:flights", epsilon(10))
        first = ledger.hold(["dataset:flights"], HALF, question="count", up_to=PureLoss(1), request_id="r-1")
        second = ledger.extend(first, PureLoss(1))
        ledger.settle(second, RECEIPT)
        for _ in range(4):
            settle_one(ledger)

    with open_ledger(url, key=KEY) as ledger:
        assert ledger._replay.base > 6
        with pytest.raises(LedgerUnsound, match="this hold is closed"):
            ledger.settle(first, RECEIPT)
        assert ledger.hold(["dataset:flights"], HALF, question="count", up_to=PureLoss(1), request_id="r-1").repeated


def test_closed_holds_before_the_checkpoint_stay_closed(place):
    url = place.replace("NAME", "")
    with open_ledger(url, key=KEY) as ledger:
        ledger.open_account("dataset:flights", epsilon(10))
        hold, entry = settle_one(ledger, request_id="r-1")
        lost = ledger.hold(["dataset:flights"], HALF, question="lost")
        written_off = ledger.write_off(lost.id)
        for _ in range(4):
            settle_one(ledger)
    other = Receipt(question="count", method="m", promise=HALF.promise(), bill=PureLoss(0.125))

    with open_ledger(url, key=KEY) as ledger:
        assert ledger._replay.base > 6
        assert hold.id not in {each.id for each in ledger.open_holds()}
        assert ledger.settle(hold, RECEIPT) == entry  # the same process, the same receipt
        with pytest.raises(LedgerUnsound, match="this hold is closed"):
            ledger.settle(hold, other)
        assert ledger.write_off(lost.id) == written_off
        with pytest.raises(InvalidRequest, match="this one is settled"):
            ledger.write_off(hold.id)
        repeated = ledger.hold(["dataset:flights"], HALF, question="count", request_id="r-1")
        assert repeated.repeated and repeated.id == hold.id and repeated.closed_by == entry
        assert ledger.receipt(entry).bill == RECEIPT.bill
        assert ledger.spent("dataset:flights") == PureLoss(1.75)


EDITED_HOLDS = {
    "opened again": "UPDATE ledger_holds SET state = 'open', closed_by = NULL WHERE entry = 2",
    "written off": "UPDATE ledger_holds SET state = 'written off' WHERE entry = 2",
    "closed by another entry": "UPDATE ledger_holds SET closed_by = 1 WHERE entry = 2",
    "another request": "UPDATE ledger_holds SET request_id = 'r-9' WHERE entry = 2",
    "removed": "DELETE FROM ledger_holds WHERE entry = 2",
}


@pytest.mark.parametrize("edit", EDITED_HOLDS)
def test_an_edited_row_of_an_old_hold_is_refused_when_it_is_used(url, intruder, edit):
    with open_ledger(url) as ledger:
        hold = ledger.history()[2]
    intruder(EDITED_HOLDS[edit])

    with open_ledger(url, key=KEY) as ledger:
        assert ledger._replay.base == 15
        with pytest.raises(LedgerUnsound):
            ledger.write_off(hold.id)
        with pytest.raises(LedgerUnsound):
            ledger.verify()


def test_an_old_entry_with_a_new_hash_is_refused_when_it_is_used(url, intruder):
    with open_ledger(url) as ledger:
        old = ledger.history()[3]
    forged = LedgerEntry.follow(ledger.history()[2], old.kind, json.loads(old.text.replace("1/4", "1/8")))
    intruder(
        "UPDATE ledger_entries SET text = :text, hash = :hash, at = :at WHERE sequence = 3",
        text=forged.text,
        hash=forged.hash,
        at=forged.recorded,
    )

    with open_ledger(url, key=KEY) as ledger:
        assert ledger.spent("dataset:flights") == PureLoss(2.25)
        for use in (
            lambda: ledger.receipt(forged.id),
            lambda: ledger.history("dataset:flights", last=50),
            lambda: ledger.history(last=50),
            lambda: ledger.history(),
        ):
            with pytest.raises(LedgerUnsound):
                use()


def test_a_crash_before_the_commit_keeps_the_earlier_checkpoint(url, monkeypatch):
    def crash(*_):
        raise KeyboardInterrupt

    before = ask(url, "SELECT * FROM ledger_checkpoints")
    with open_ledger(url, key=KEY) as ledger, monkeypatch.context() as patch:
        patch.setattr(EVERY, 1)
        patch.setattr(type(ledger), "_note_head", crash)
        with pytest.raises(KeyboardInterrupt):
            ledger.hold(["dataset:flights"], HALF, question="count")

    assert ask(url, "SELECT * FROM ledger_checkpoints") == before
    with open_ledger(url, key=KEY) as ledger:
        assert ledger.verify().entries == 18


def test_a_checkpoint_that_does_not_follow_from_the_chain_fails_the_verification(url, intruder, monkeypatch):
    ((state,),) = ask(url, "SELECT state FROM ledger_checkpoints")
    state = edited_states(state, "")["a lower total"][0]
    with open_ledger(url, key=KEY) as ledger:
        code = ledger._safe.certify(state)  # by the owner, or by a fault of ours
        intruder("UPDATE ledger_checkpoints SET state = :state, code = :code", state=state, code=code)
        with pytest.raises(LedgerUnsound, match="checkpoint does not follow"):
            ledger.verify()
    with pytest.raises(LedgerUnsound):
        open_ledger(url, key=KEY)
