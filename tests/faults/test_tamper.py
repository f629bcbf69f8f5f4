"""Edited, removed, reordered and invented rows: found by ``verify``, and an unsound ledger does not serve."""

import json

import pytest
from sqlalchemy import create_engine, text

from expost.core import LedgerUnsound, PureLoss, Receipt, epsilon
from expost.ledger import new_key, open_ledger
from expost.ledger.ledger_entry import EntryKind, LedgerEntry

HALF = PureLoss(0.5)
RECEIPT = Receipt(question="count", method="m", promise=HALF.promise(), bill=PureLoss(0.25))


class Intruder:
    """Someone with all rights on the database."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        self._server = url.startswith("postgresql")

    def __call__(self, *statements: str, **values: object) -> None:
        with self._engine.begin() as connection:
            if self._server:
                connection.execute(text("SET session_replication_role = replica"))  # no triggers, no foreign keys
            else:
                connection.execute(text("DROP TRIGGER IF EXISTS ledger_no_update"))
                connection.execute(text("DROP TRIGGER IF EXISTS ledger_no_delete"))
            for statement in statements:
                connection.execute(text(statement), values)

    def plainly(self, statement: str) -> str:
        """The database's own answer to a statement."""
        try:
            with self._engine.begin() as connection:
                connection.execute(text(statement))
        except Exception as error:
            return str(error)
        return "done"

    def close(self) -> None:
        self._engine.dispose()


@pytest.fixture
def url(place):
    url = place.replace("NAME", "")
    with open_ledger(url, key=new_key()) as ledger:
        ledger.open_account("dataset:flights", epsilon(10))  # entry 1
        for _ in range(3):  # entries 2 to 7
            ledger.settle(ledger.hold(["dataset:flights"], HALF, question="count"), RECEIPT)
        ledger.hold(["dataset:flights"], HALF, question="count", request_id="r-1")  # entry 8
        ledger.keep("path:1", b"rung 1")  # entry 9
        ledger.keep("path:2", b"rung 2")  # entry 10
        ledger.open_account("analyst:ann", epsilon(1))  # entry 11
        ledger.open_part("flights/site=A", of="dataset:flights", by="site")  # entry 12
        ledger.hold(["flights/site=A"], HALF, question="count")  # entry 13
    return url


@pytest.fixture
def intruder(url):
    intruder = Intruder(url)
    yield intruder
    intruder.close()


LOWER = '{"definition":"pure","epsilon":"1/4"}'
TAMPERINGS = {
    "a smaller bill": ["UPDATE ledger_entries SET text = replace(text, '1/4', '1/8') WHERE sequence = 3"],
    "another question": ["UPDATE ledger_entries SET text = replace(text, 'count', 'sum') WHERE sequence = 3"],
    "another time": ["UPDATE ledger_entries SET at = '2001-01-01' WHERE sequence = 4"],
    "another kind": ["UPDATE ledger_entries SET kind = 'write-off' WHERE sequence = 3"],
    "an unknown kind": ["UPDATE ledger_entries SET kind = 'gift' WHERE sequence = 3"],
    "no JSON": ["UPDATE ledger_entries SET text = 'nonsense' WHERE sequence = 3"],
    "a removed entry": ["DELETE FROM ledger_entries WHERE sequence = 4"],
    "a removed pair": ["DELETE FROM ledger_entries WHERE sequence IN (4, 5)"],
    "a removed beginning": ["DELETE FROM ledger_entries WHERE sequence = 0"],
    "a removed line in the middle": ["DELETE FROM ledger_entries WHERE sequence = 11"],
    "a removed end": ["DELETE FROM ledger_entries WHERE sequence = 13"],
    "everything removed": ["DELETE FROM ledger_entries"],
    "two entries exchanged": [
        "UPDATE ledger_entries SET sequence = 99 WHERE sequence = 4",
        "UPDATE ledger_entries SET sequence = 4 WHERE sequence = 6",
        "UPDATE ledger_entries SET sequence = 6 WHERE sequence = 99",
    ],
    "a renumbered gap": ["UPDATE ledger_entries SET sequence = sequence + 100 WHERE sequence > 5"],
    "a lower total": ["UPDATE ledger_accounts SET spent = :lower WHERE name = 'dataset:flights'"],
    "a lower total in both forms": [
        "UPDATE ledger_accounts SET spent = :lower, used = 25000000000000000 WHERE name = 'dataset:flights'"
    ],
    "a lower total of an old entry": [
        "UPDATE ledger_accounts SET spent = :lower, used = 25000000000000000, entry = 3 WHERE name = 'dataset:flights'"
    ],
    "a larger budget": [
        'UPDATE ledger_accounts SET budget = \'{"definition":"pure","epsilon":"20"}\','
        " used = 62500000000000000 WHERE name = 'dataset:flights'"
    ],
    "a removed account": ["DELETE FROM ledger_accounts WHERE name = 'dataset:flights'"],
    "an invented account": [
        'INSERT INTO ledger_accounts VALUES (\'analyst:eve\', \'{"definition":"pure","epsilon":"1"}\','
        ' \'{"definition":"pure","epsilon":"0"}\', 0, 11, \'{"definition":"pure","epsilon":"0"}\', NULL, NULL, NULL)'
    ],
    "a hold opened again": ["UPDATE ledger_holds SET state = 'open', closed_by = NULL WHERE entry = 2"],
    "a hold written off by hand": ["UPDATE ledger_holds SET state = 'written off', closed_by = 11 WHERE entry = 8"],
    "a hold given to somebody": ["UPDATE ledger_holds SET ticket = 'mine' WHERE entry = 8"],
    "a removed hold": ["DELETE FROM ledger_holds WHERE entry = 8"],
    "a forgotten request": ["UPDATE ledger_holds SET request_id = NULL WHERE entry = 8"],
    "lower charges of its own": ["UPDATE ledger_accounts SET own = :lower WHERE name = 'dataset:flights'"],
    "a part set free": [
        "UPDATE ledger_accounts SET part_of = NULL, part_by = NULL, touching = NULL WHERE name = 'flights/site=A'"
    ],
    "a part of something else": ["UPDATE ledger_accounts SET part_of = 'analyst:ann' WHERE name = 'flights/site=A'"],
    "a part by something else": ["UPDATE ledger_accounts SET part_by = 'year' WHERE name = 'flights/site=A'"],
    "a part that counts otherwise": ["UPDATE ledger_accounts SET touching = 2 WHERE name = 'flights/site=A'"],
    "a removed secret": ["DELETE FROM ledger_secrets WHERE name = 'path:1'"],
    "an older secret": ["UPDATE ledger_secrets SET version = 7 WHERE name = 'path:1'"],
    "two secrets exchanged": [
        "UPDATE ledger_secrets SET name = 'x' WHERE name = 'path:1'",
        "UPDATE ledger_secrets SET name = 'path:1' WHERE name = 'path:2'",
        "UPDATE ledger_secrets SET name = 'path:2' WHERE name = 'x'",
    ],
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_tampering_is_found_and_the_ledger_refuses_to_serve(url, intruder, tampering):
    with open_ledger(url) as open_before:
        intruder(*TAMPERINGS[tampering], **({"lower": LOWER} if ":lower" in TAMPERINGS[tampering][0] else {}))

        with pytest.raises(LedgerUnsound):
            open_before.verify()
    with pytest.raises(LedgerUnsound):
        open_ledger(url)


@pytest.mark.parametrize("tampering", [name for name in TAMPERINGS if "total" in name])
def test_an_open_handle_notices_a_changed_total_at_the_next_hold(url, intruder, tampering):
    with open_ledger(url) as ledger:
        intruder(*TAMPERINGS[tampering], lower=LOWER)

        if tampering == "a lower total of an old entry":
            # Consistent with some entry of the chain, hence only the full check finds it.
            with pytest.raises(LedgerUnsound):
                ledger.verify()
        else:
            with pytest.raises(LedgerUnsound):
                ledger.hold(["dataset:flights"], HALF, question="count")


@pytest.mark.parametrize("tampering", ["lower charges of its own", "a part set free", "a part of something else"])
def test_an_open_handle_notices_at_the_next_hold_that_a_total_does_not_follow_from_its_parts(url, intruder, tampering):
    with open_ledger(url) as ledger:
        intruder(*TAMPERINGS[tampering], **({"lower": LOWER} if ":lower" in TAMPERINGS[tampering][0] else {}))

        with pytest.raises(LedgerUnsound):
            ledger.hold(["dataset:flights"], HALF, question="count")


def forged(url, kind, body):
    """An entry that fits the chain perfectly and lies in its content."""
    with open_ledger(url) as ledger:
        entry = LedgerEntry.follow(ledger.history()[-1], kind, body)
    return {name: getattr(entry, name) for name in ("sequence", "at", "text", "previous", "hash")} | {
        "kind": kind.value
    }


SPENT = {"definition": "pure", "epsilon": "1"}
FORGERIES = {
    "a total out of nothing": (EntryKind.SETTLE, {"hold": "none", "receipt": {}, "charges": {}, "spent": {}}),
    "a second beginning": (EntryKind.BEGIN, {"format": 1}),
    "an account opened twice": (
        EntryKind.OPEN,
        {
            "account": "dataset:flights",
            "template": None,
            "budget": {"definition": "pure", "epsilon": "10"},
            "spent": {"dataset:flights": {"definition": "pure", "epsilon": "0"}},
        },
    ),
    "a hold that charges nothing": (
        EntryKind.HOLD,
        {
            "question": "count",
            "request_id": None,
            "ticket": "t",
            "worst_case": SPENT,
            "charges": {"dataset:flights": {"definition": "pure", "epsilon": "0"}},
            "spent": {},
        },
    ),
    "a hold beyond the budget": (
        EntryKind.HOLD,
        {
            "question": "count",
            "request_id": None,
            "ticket": "t",
            "worst_case": {"definition": "pure", "epsilon": "100"},
            "charges": {"dataset:flights": {"definition": "pure", "epsilon": "100"}},
            "spent": {"dataset:flights": {"definition": "pure", "epsilon": "405/4"}},
        },
    ),
    "a part whose whole pays nothing": (
        EntryKind.HOLD,
        {
            "question": "count",
            "request_id": None,
            "ticket": "t",
            "worst_case": SPENT,
            "charges": {"flights/site=A": SPENT},
            "spent": {"flights/site=A": {"definition": "pure", "epsilon": "3/2"}},
        },
    ),
    "a part of another currency": (
        EntryKind.OPEN,
        {
            "account": "flights/site=B",
            "template": None,
            "budget": {"definition": "zcdp", "rho": "1"},
            "spent": {"flights/site=B": {"definition": "zcdp", "rho": "0"}},
            "part": {"of": "dataset:flights", "by": "site", "touching": 1},
        },
    ),
    "a part of nothing": (
        EntryKind.OPEN,
        {
            "account": "flights/site=B",
            "template": None,
            "budget": {"definition": "pure", "epsilon": "10"},
            "spent": {"flights/site=B": {"definition": "pure", "epsilon": "0"}},
            "part": {"of": "dataset:nowhere", "by": "site", "touching": 1},
        },
    ),
    "a budget in another currency": (
        EntryKind.BUDGET,
        {"account": "dataset:flights", "budget": {"definition": "zcdp", "rho": "10"}, "spent": {}},
    ),
    "a secret that was never kept": (EntryKind.FORGET, {"secret": "path:9", "version": 1}),
    "a body that is no object": (EntryKind.HOLD, {}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_an_entry_that_fits_the_chain_but_not_the_rules_is_found(url, intruder, forgery):
    kind, body = FORGERIES[forgery]
    row = forged(url, kind, body)
    intruder(
        "INSERT INTO ledger_entries (sequence, kind, at, text, previous, hash)"
        " VALUES (:sequence, :kind, :at, :text, :previous, :hash)",
        **row,
    )

    with pytest.raises(LedgerUnsound):
        open_ledger(url)
    assert json.loads(row["text"]) == body


def test_the_database_itself_refuses_to_change_the_chain_or_to_overspend(intruder):
    assert "only grows" in intruder.plainly("UPDATE ledger_entries SET at = '2001-01-01'")
    assert "only grows" in intruder.plainly("DELETE FROM ledger_entries")
    assert "CHECK" in intruder.plainly("UPDATE ledger_accounts SET used = 1000000000000000001").upper()
    if intruder._server:
        assert "only grows" in intruder.plainly("TRUNCATE ledger_entries CASCADE")


def test_a_ledger_of_a_newer_version_is_left_alone(url, intruder):
    intruder("INSERT INTO ledger_migrations VALUES (99, 'something_new', 'later')")

    with pytest.raises(Exception, match="Expected a ledger this version can read"):
        open_ledger(url)
