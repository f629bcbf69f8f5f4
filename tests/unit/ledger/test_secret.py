import base64
import pickle

import pytest

from expost.core import InvalidRequest, LedgerUnsound
from expost.ledger import EntryKind, MemoryLedger
from expost.ledger.ledger_page import SecretRow
from expost.ledger.secret import Safe, new_key


def test_the_chain_vouches_for_a_secret_without_telling_it():
    ledger = MemoryLedger()
    ledger.keep("path:1", b"the noise of rung 3")
    row = ledger._read(lambda page: page.find_secret("path:1"))
    line = ledger.history()[-1]

    assert (line.kind, line.body["digest"], line.body["version"]) == (EntryKind.KEEP, row.digest, 1)
    assert b"rung" not in row.box and "rung" not in line.text


def test_an_older_box_put_back_is_unsound():
    ledger = MemoryLedger()
    ledger.keep("path:1", b"rung 3")
    old = ledger._read(lambda page: page.find_secret("path:1"))
    ledger.replace("path:1", old=b"rung 3", new=b"rung 4")
    newest = ledger._read(lambda page: page.find_secret("path:1"))
    # Continuing from rung 3 again would redraw what was already released.
    ledger._write(lambda page: page.put_secret(SecretRow("path:1", newest.version, old.box, newest.entry)))

    with pytest.raises(LedgerUnsound, match="the one in the chain"):
        ledger.kept("path:1")
    with pytest.raises(LedgerUnsound, match="kept secrets"):
        ledger.verify()


def test_a_box_opens_with_its_key_and_label_only():
    safe = Safe(new_key())
    box = safe.lock(b"rung 3", label="a")

    assert b"rung 3" not in box
    assert safe.unlock(box, label="a") == b"rung 3"
    for other, label in ((safe, "b"), (Safe(new_key()), "a")):
        with pytest.raises(InvalidRequest, match="refinement refused"):
            other.unlock(box, label=label)
    with pytest.raises(InvalidRequest, match="refinement refused"):
        safe.unlock(box[:-1] + bytes([box[-1] ^ 1]), label="a")


def test_locking_the_same_secret_twice_shows_two_different_boxes():
    safe = Safe(new_key())

    assert safe.lock(b"rung 3", label="a") != safe.lock(b"rung 3", label="a")


def test_a_key_comes_from_the_argument_or_the_environment(monkeypatch):
    key = new_key()
    box = Safe(base64.urlsafe_b64decode(key)).lock(b"rung 3", label="a")
    monkeypatch.setenv("EXPOST_LEDGER_KEY", key)
    assert Safe().unlock(box, label="a") == b"rung 3"
    monkeypatch.setenv("EXPOST_LEDGER_KEY", "")

    assert not Safe().has_key
    for use in (lambda: Safe().lock(b"", label="a"), lambda: Safe().unlock(box, label="a")):
        with pytest.raises(InvalidRequest, match="Expected the key of the ledger's owner; refinement refused"):
            use()


@pytest.mark.parametrize("key", ["", "short", b"short", "é" * 44, "!" * 44])
def test_a_wrong_key_is_refused_and_not_repeated(key):
    with pytest.raises(InvalidRequest, match=r"Expected a key of 32 bytes\. Make one"):
        Safe(key)


def test_a_safe_shows_and_gives_away_nothing():
    key = new_key()
    safe = Safe(key)

    assert key not in repr(safe) and repr(safe) == "<safe, with a key>"
    with pytest.raises(InvalidRequest, match="stay in its process"):
        pickle.dumps(safe)
