"""Edited, removed, reordered and invented rows: found by ``verify``, and an unsound ledger does not serve."""

import json
from fractions import Fraction

import pytest
from sqlalchemy import create_engine, text

from expost.core import BudgetExceeded, LedgerUnsound, PureLoss, Receipt, epsilon
from expost.ledger import new_key, open_ledger
from expost.ledger.ledger_entry import EntryKind, LedgerEntry

KEY = new_key()
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
                names = ("ledger_no_update", "ledger_no_delete")
                guards = [
                    connection.execute(
                        text("SELECT sql FROM sqlite_master WHERE name = :name"), {"name": name}
                    ).scalar()
                    for name in names
                ]
                for name in names:
                    connection.execute(text(f"DROP TRIGGER {name}"))
            for statement in statements:
                connection.execute(text(statement), values)
            if not self._server:
                for guard in guards:  # put back, so that the schema does not give the intruder away
                    connection.execute(text(guard))

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
    with open_ledger(url, key=KEY) as ledger:
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


ACCOUNTS = ["dataset:flights", "analyst:ann", "flights/site=A"]


def served(ledger):
    """What an open handle serves, by operation; a refusal is None."""
    operations = {
        "accounts": lambda: ledger.accounts(),
        "history": lambda: ledger.history(),
        "open holds": lambda: ledger.open_holds(),
        "parts": lambda: ledger.parts("dataset:flights"),
        "a repeated request": lambda: ledger.hold(["dataset:flights"], HALF, question="count", request_id="r-1").id,
        "receipt": lambda: ledger.receipt(ledger.history()[3].id),
    }
    for name in ("path:1", "path:2", "path:9"):
        operations[f"kept {name}"] = lambda name=name: ledger.kept(name)
    for name in ACCOUNTS:
        operations[f"budget of {name}"] = lambda name=name: ledger.budget(name)
        operations[f"spent in {name}"] = lambda name=name: ledger.spent(name)
        operations[f"left in {name}"] = lambda name=name: ledger.remaining(name)
        operations[f"whole of {name}"] = lambda name=name: ledger.whole_of(name)
        operations[f"too much for {name}"] = lambda name=name: refused_hold(ledger, name)
    found = {}
    for what, operation in operations.items():
        try:
            found[what] = operation()
        except LedgerUnsound:
            found[what] = None
    return found


def refused_hold(ledger, name):
    with pytest.raises(BudgetExceeded):
        ledger.hold([name], PureLoss(9), question="more than is left")
    return "refused"


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_an_open_handle_serves_what_it_served_before_or_refuses(url, intruder, tampering):
    with open_ledger(url, key=KEY) as ledger:
        before = served(ledger)
        assert None not in before.values() or before["kept path:9"] is None
        intruder(*TAMPERINGS[tampering], **({"lower": LOWER} if ":lower" in TAMPERINGS[tampering][0] else {}))

        after = served(ledger)

        assert {what: answer for what, answer in after.items() if answer is not None and answer != before[what]} == {}


@pytest.mark.parametrize("amount", [1, 5, 50, 10**6])
@pytest.mark.parametrize("put_back", [False, True])
def test_an_open_handle_never_spends_a_budget_that_was_edited(url, intruder, amount, put_back):
    larger = (
        f'UPDATE ledger_accounts SET budget = \'{{"definition":"pure","epsilon":"{2 * amount + 10}"}}\','
        f" used = {-(-(Fraction(7, 4) * 10**18) // (2 * amount + 10))} WHERE name = 'dataset:flights'"
    )
    with open_ledger(url) as ledger:
        intruder(larger)
        with pytest.raises(LedgerUnsound, match="not the one in the chain"):
            ledger.hold(["dataset:flights"], PureLoss(amount), question="count")
        if put_back:
            intruder(
                'UPDATE ledger_accounts SET budget = \'{"definition":"pure","epsilon":"10"}\','
                " used = 175000000000000000 WHERE name = 'dataset:flights'"
            )
            assert ledger.spent("dataset:flights") == PureLoss(1.75)
            ledger.verify()


UNDO = "UPDATE ledger_accounts SET spent = OLD.spent, own = OLD.own, used = OLD.used, entry = OLD.entry"
PLANTS = {
    "sqlite": {
        "a trigger that undoes spends": f"CREATE TRIGGER evil AFTER UPDATE OF spent ON ledger_accounts BEGIN {UNDO}"
        " WHERE name = NEW.name; END",
        "a trigger on holds": "CREATE TRIGGER evil AFTER INSERT ON ledger_holds BEGIN SELECT 1; END",
        "a trigger on secrets": "CREATE TRIGGER evil BEFORE DELETE ON ledger_secrets BEGIN SELECT RAISE(IGNORE); END",
        "a view": "CREATE VIEW evil AS SELECT * FROM ledger_accounts",
        "a table": "CREATE TABLE evil (name TEXT)",
        "an index": "CREATE UNIQUE INDEX evil ON ledger_accounts (spent)",
        "a column": "ALTER TABLE ledger_holds ADD COLUMN evil TEXT DEFAULT 'x'",
        "a missing guard": "DROP TRIGGER ledger_no_update",
        "a missing index": "DROP INDEX ledger_parts",
    },
    "postgres": {
        "a trigger": "CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$;"
        " CREATE TRIGGER evil BEFORE UPDATE ON ledger_accounts FOR EACH ROW EXECUTE FUNCTION evil()",
        "a rule": "CREATE RULE evil AS ON UPDATE TO ledger_accounts DO INSTEAD NOTHING",
        "row security": "ALTER TABLE ledger_accounts ENABLE ROW LEVEL SECURITY",
        "a table that inherits": "CREATE TABLE evil () INHERITS (ledger_accounts)",
        "a guard switched off": "ALTER TABLE ledger_entries DISABLE TRIGGER ledger_only_grows",
        "a guard of other content": "CREATE OR REPLACE FUNCTION ledger_only_grows() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN RETURN NULL; END $$",
    },
}


@pytest.mark.parametrize(("storage", "plant"), [(storage, plant) for storage in PLANTS for plant in PLANTS[storage]])
def test_a_planted_definition_is_found_at_the_opening_and_by_open_handles(request, storage, plant):
    url = request.getfixturevalue(f"{storage}_place").replace("NAME", "")
    with open_ledger(url) as ledger:
        ledger.open_account("dataset:flights", epsilon(1))
        intruder = Intruder(url)
        assert intruder.plainly(PLANTS[storage][plant]) == "done"
        intruder.close()

        with pytest.raises(LedgerUnsound, match="are not those of a ledger"):
            ledger.hold(["dataset:flights"], HALF, question="count")
    with pytest.raises(LedgerUnsound, match="are not those of a ledger"):
        open_ledger(url)


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
