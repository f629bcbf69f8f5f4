import pytest

from expost.core import LedgerUnsound
from expost.ledger import Kind, MemoryLedger
from expost.ledger.page import SecretRow


def test_the_chain_vouches_for_a_secret_without_telling_it():
    ledger = MemoryLedger()
    ledger.keep("path:1", b"the noise of rung 3")
    row = ledger._read(lambda page: page.secret("path:1"))
    line = ledger.history()[-1]

    assert (line.kind, line.body["digest"], line.body["version"]) == (Kind.KEEP, row.digest, 1)
    assert b"rung" not in row.box and "rung" not in line.text


def test_an_older_box_put_back_is_unsound():
    ledger = MemoryLedger()
    ledger.keep("path:1", b"rung 3")
    old = ledger._read(lambda page: page.secret("path:1"))
    ledger.replace("path:1", old=b"rung 3", new=b"rung 4")
    newest = ledger._read(lambda page: page.secret("path:1"))
    # Continuing from rung 3 again would redraw what was already released.
    ledger._write(lambda page: page.put_secret(SecretRow("path:1", newest.version, old.box, newest.entry)))

    with pytest.raises(LedgerUnsound, match="the one in the chain"):
        ledger.kept("path:1")
    with pytest.raises(LedgerUnsound, match="kept secrets"):
        ledger.verify()
