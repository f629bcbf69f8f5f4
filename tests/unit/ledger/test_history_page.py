import json

import pytest

from expost.core import InvalidRequest, LedgerUnsound, PureLoss, Receipt, epsilon
from expost.ledger import open_ledger
from expost.ledger.chain_replay import ChainReplay
from expost.ledger.ledger_entry import LedgerEntry
from expost.ledger.ledger_page import LedgerPage
from expost.ledger.sql_table import SqlPage

HALF = PureLoss(0.5)
RECEIPT = Receipt(question="count", method="m", promise=HALF.promise(), bill=PureLoss(0.25))
NAMES = ["dataset:a", "dataset:b", "study", "part:1", "window:*"]


def fill(ledger, rounds=40):
    for name in ("dataset:a", "dataset:b", "study", "window:*"):
        ledger.open_account(name, epsilon(1000))
    ledger.open_part("part:1", of="study")
    for number in range(rounds):
        accounts = [["dataset:a"], ["dataset:b", "dataset:a"], ["part:1"], ["study"]][number % 4]
        hold = ledger.hold(accounts, HALF, question=f"question {number}")
        if number % 5 == 4:
            ledger.write_off(hold.id)
        else:
            ledger.settle(hold, RECEIPT)
    ledger.change_budget("dataset:b", epsilon(2000))
    ledger.take_over(ledger.hold(["dataset:b"], HALF, question="begun"))


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request, tmp_path):
    with open_ledger(None if request.param == "memory" else tmp_path / "a.ledger") as ledger:
        yield ledger


@pytest.fixture(params=["linked", "earlier version", "upgraded"])
def filled(request, ledger, monkeypatch):
    """A ledger, one whose entries have no links, and one that was begun by an earlier version."""
    with monkeypatch.context() as patch:
        if request.param != "linked":
            patch.setattr("expost.ledger.ledger_page.accounts_in", lambda body: ())
        fill(ledger, 10)
        if request.param == "earlier version":
            fill_on(ledger)
    if request.param != "earlier version":
        fill_on(ledger)
    return ledger


def fill_on(ledger):
    for number in range(40):
        ledger.settle(ledger.hold([NAMES[number % 2]], HALF, question="q"), RECEIPT)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_pages_put_together_are_the_whole_history(filled, size):
    for account in (None, *NAMES):
        whole, pages, before = filled.history(account), [], None
        while page := filled.history(account, last=size, before=before):
            pages[:0], before = page, page[0].id
            assert len(page) <= size

        assert pages == list(whole)
    filled.verify()


def test_a_page_before_an_entry_about_other_accounts_is_found_too(filled):
    whole = filled.history()
    for entry in whole[5::9]:
        expected = [each for each in whole[: entry.sequence] if "dataset:a" in each.accounts][-3:]

        assert filled.history("dataset:a", last=3, before=entry.id) == expected


def test_an_account_without_entries_has_no_history(ledger):
    assert ledger.history("dataset:nowhere", last=5) == []


@pytest.mark.parametrize("last", [0, -1, 1.5, "5", True])
def test_a_page_needs_a_size(ledger, last):
    with pytest.raises(InvalidRequest, match="last to be a positive whole number"):
        ledger.history(last=last)


def test_a_page_needs_a_size_and_an_entry_of_the_ledger(ledger):
    with pytest.raises(InvalidRequest, match="last together with before"):
        ledger.history(before="0-0123456789abcdef")
    with pytest.raises(InvalidRequest, match="the id of an entry"):
        ledger.history(last=1, before="0-0123456789abcdef")


def count_entries(monkeypatch, action):
    """How many entries are read from the database, and whether the whole chain is."""
    rows, read, one = [], SqlPage._read_all, SqlPage._read_one

    def all_of(self, build, *terms):
        found = read(self, build, *terms)
        rows.extend(each for each in found if isinstance(each, LedgerEntry))
        return found

    def one_of(self, build, *terms):
        found = one(self, build, *terms)
        rows.extend([found] if isinstance(found, LedgerEntry) else [])
        return found

    def never(*_):
        raise AssertionError("the whole chain is read")

    with monkeypatch.context() as patch:
        patch.setattr(SqlPage, "_read_all", all_of)
        patch.setattr(SqlPage, "_read_one", one_of)
        patch.setattr(SqlPage, "all_entries", never)
        action()
    return len(rows)


def test_pages_and_open_holds_do_not_read_the_whole_chain(tmp_path, monkeypatch):
    with open_ledger(tmp_path / "a.ledger") as ledger:
        fill(ledger, 240)
        middle = ledger.history("dataset:a")[60].id
        for account in (None, "dataset:a", "part:1"):
            assert count_entries(monkeypatch, lambda account=account: ledger.history(account, last=20)) < 250
        assert count_entries(monkeypatch, lambda: ledger.history("dataset:a", last=20, before=middle)) < 300
        assert count_entries(monkeypatch, ledger.open_holds) < 10


def test_an_entry_with_a_wrong_link_does_not_follow(ledger, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(LedgerPage, "post", post_with_wrong_link)
        ledger.open_account("dataset:a", epsilon(1))
    replay = ChainReplay()

    with pytest.raises(LedgerUnsound):
        for entry in ledger._read(lambda page: list(page.all_entries())):
            replay.add_entry(entry)


def post_with_wrong_link(self, kind, body):
    entry = LedgerEntry.follow(self.last_entry(), kind, {**body, "links": {"dataset:a": 0}})
    self.append_entry(entry)
    return entry


def test_links_name_every_account_that_an_entry_concerns(ledger):
    fill(ledger, 8)
    seen = {}
    for entry in ledger.history():
        links = json.loads(entry.text).get("links", {})
        assert links == {name: seen.get(name) for name in entry.accounts}
        seen |= dict.fromkeys(entry.accounts, entry.sequence)
