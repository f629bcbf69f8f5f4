import hashlib
import os
import pickle
import re
from dataclasses import replace

import pytest

from expost.core import InvalidRequest, PureLoss
from expost.ledger import Hold, ledger_entry
from expost.ledger.ledger_entry import EntryKind, LedgerEntry, canonical_json, is_own_ticket, new_ticket, sequence_of


def chain():
    first = LedgerEntry.follow(None, EntryKind.BEGIN, {"format": 1})
    return first, LedgerEntry.follow(first, EntryKind.OPEN, {"account": "dataset:a"})


@pytest.mark.parametrize(
    "change",
    [
        {"sequence": 7},
        {"kind": EntryKind.HOLD},
        {"recorded": "2001"},
        {"text": "{}"},
        {"previous": "0" * 64},
        {"hash": "0" * 64},
    ],
)
def test_a_change_of_any_part_breaks_the_hash(change):
    entry = chain()[1]

    assert entry.is_intact
    assert not replace(entry, **change).is_intact


def test_equal_content_at_another_place_has_another_hash():
    first, second = chain()
    third = LedgerEntry.follow(second, EntryKind.OPEN, second.body)

    assert second.previous == first.hash
    assert third.hash != second.hash


def test_canonical_text_has_one_spelling_and_no_infinity():
    assert (
        canonical_json({"b": [1, "é"], "a": None})
        == canonical_json({"a": None, "b": [1, "é"]})
        == '{"a":null,"b":[1,"é"]}'
    )
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json(float("nan"))


def test_an_id_names_the_line_and_its_hash():
    entry = chain()[1]

    assert entry.id == f"1-{entry.hash[:16]}"
    assert sequence_of(entry.id) == 1


@pytest.mark.parametrize("wrong", ["", "7", "7-", "a-b", "-7-b", "7 -b", "٣-b", 7, None])
def test_what_is_no_id_is_refused(wrong):
    with pytest.raises(InvalidRequest, match="id of a ledger entry"):
        sequence_of(wrong)


def test_a_line_without_charges_names_its_account_or_none():
    first, second = chain()

    assert (first.accounts, second.accounts) == ((), ("dataset:a",))
    assert first.charges == first.spent == {}
    assert first.receipt is None and first.question is None


def test_the_hash_is_over_canonical_json():
    entry = LedgerEntry.follow(None, EntryKind.BEGIN, {"a": 'ü " \\ \n \u2028 😀'})
    line = canonical_json([entry.sequence, entry.kind.value, entry.recorded, entry.text, entry.previous])

    assert entry.hash == hashlib.sha256(line.encode()).hexdigest()


def test_a_line_tells_the_minute_and_no_more():
    entry = chain()[1]

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d\+00:00", entry.recorded)
    assert entry.at == entry.recorded


def test_a_line_of_version_0_1_stays_intact_and_shows_its_minute_only():
    text = '{"format":1}'
    line = canonical_json([0, "begin", "2026-11-17T04:25:57.123+00:00", text, ""])
    old = LedgerEntry(
        0,
        EntryKind.BEGIN,
        "2026-11-17T04:25:57.123+00:00",
        text=text,
        previous="",
        hash=hashlib.sha256(line.encode()).hexdigest(),
    )

    assert old.is_intact
    assert old.at == "2026-11-17T04:25+00:00"
    assert "57" not in repr(old).replace(old.hash, "")
    assert LedgerEntry.follow(old, EntryKind.OPEN, {"account": "dataset:a"}).previous == old.hash


def test_a_hold_travels_between_processes_and_does_not_show_its_ticket():
    hold = Hold("3-ab", ("dataset:a",), PureLoss(1), question="count", ticket="hidden")

    assert pickle.loads(pickle.dumps(hold)) == hold
    assert "hidden" not in repr(hold)


def test_tickets_of_a_process_differ_and_are_its_own():
    tickets = [new_ticket() for _ in range(3)]

    assert len(set(tickets)) == 3 and all(map(is_own_ticket, tickets))
    assert not is_own_ticket("") and not is_own_ticket("0123456789abcdef" * 2)


def test_a_process_of_another_number_has_other_tickets(monkeypatch):
    mine = new_ticket()
    monkeypatch.setattr(os, "getpid", lambda: -7)

    assert not is_own_ticket(mine) and is_own_ticket(new_ticket())


def test_a_fork_that_has_the_number_of_its_parent_has_other_tickets(monkeypatch):
    monkeypatch.setattr(ledger_entry, "_PROCESS_NAMES", dict(ledger_entry._PROCESS_NAMES))
    mine = new_ticket()
    ledger_entry._PROCESS_NAMES.clear()  # what the hook of a fork does

    assert not is_own_ticket(mine)
