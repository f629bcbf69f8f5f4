"""A budget belongs to a table, not to its name."""

import json
import multiprocessing
import os
import shutil
from dataclasses import replace
from random import Random

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import expost
from expost import Dataset, Session
from expost.core import InvalidRequest, LedgerUnsound
from expost.data.source_identity import SourceIdentity
from expost.ledger import EntryKind, LedgerEntry, new_key, open_ledger
from expost.ledger.chain_replay import ChainReplay
from expost.ledger.checkpoint import LedgerCheckpoint
from expost.ledger.repair import repair_ledger
from expost.ledger.secret import Safe
from expost.ledger.source_binding import SALT

ROWS = 2000


@pytest.fixture(autouse=True)
def no_key_around(monkeypatch):
    monkeypatch.delenv("EXPOST_LEDGER_KEY", raising=False)


def people(first: int = 0, rows: int = ROWS) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table({"id": numbers, "site": ["A", "B"] * (rows // 2), "age": [each % 97 for each in numbers]})


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(people(), path)
    return path


def open_as(name: str, source, folder, **terms) -> Session:
    session = Session(Dataset(source, name=name), **({"budget": 1} | terms), ledger=folder / "s.ledger")
    session.ledger.close()
    return session


def copy_of(file, kind: str):
    """Return the same rows under another path, in another format or in memory."""
    table, folder = pq.read_table(file), file.parent / "copies"
    folder.mkdir(exist_ok=True)
    path = folder / "u.parquet"
    if kind == "linked folder":
        (folder / "there").symlink_to(file.parent)
    if kind == "link to a link":
        (folder / "v.parquet").symlink_to(file)
    make = {
        "link": lambda: path.symlink_to(file),
        "link to a link": lambda: path.symlink_to(folder / "v.parquet"),
        "linked folder": lambda: folder / "there" / file.name,
        "hard link": lambda: os.link(file, path),
        "copy": lambda: shutil.copyfile(file, path) and None,
        "moved": lambda: os.rename(file, path),
        "moved and grown": lambda: (os.rename(file, path), pq.write_table(people(rows=ROWS + 500), path))[1],
        "csv": lambda: pyarrow.csv.write_csv(table, folder / "u.csv") or folder / "u.csv",
        "arrow": lambda: pyarrow.feather.write_feather(table, folder / "u.arrow") or folder / "u.arrow",
        "glob": lambda: file.parent / "*.parquet",
        "relative path": lambda: os.path.relpath(file),
        "beginning": lambda: pq.write_table(table.slice(0, 1500), path),
        "table": lambda: table,
        "pandas": table.to_pandas,
        "polars": lambda: pl.from_arrow(table),
        "arrays": lambda: {name: table[name].to_numpy() for name in ("id", "age")} | {"site": table["site"]},
        "query": lambda: f"select * from '{file}'",
        "function": lambda: f"select id, age from read_parquet('{file.parent}/*.parquet')",
    }
    found = make[kind]()
    return path if found is None else found


KINDS = (
    "link",
    "link to a link",
    "linked folder",
    "hard link",
    "copy",
    "moved",
    "moved and grown",
    "csv",
    "arrow",
    "glob",
)
KINDS += "relative path", "beginning", "table", "pandas", "polars", "arrays", "query", "function", "file"


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_name_for_the_same_rows_is_refused_and_records_nothing(file, kind: str) -> None:
    open_as("t", file, file.parent)
    before = open_ledger(file.parent / "s.ledger").anchor()
    source = file if kind == "file" else copy_of(file, kind)

    with pytest.raises(InvalidRequest, match=r"Cannot charge 'dataset:u' because 'dataset:t' pays for these rows"):
        open_as("u", source, file.parent)

    with open_ledger(file.parent / "s.ledger") as ledger:
        assert ledger.accounts() == ["dataset:t"] and ledger.anchor() == before


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "file"])
def test_the_same_rows_under_the_same_name_stay_the_same_account(file, kind: str) -> None:
    with open_as("t", file, file.parent) as session:
        session.count(epsilon=0.5)
    source = copy_of(file, kind)

    for _ in range(2):
        with open_as("t", source, file.parent, budget=None) as session:
            assert session.remaining().epsilon == 0.5
    with open_ledger(file.parent / "s.ledger") as ledger:
        length = ledger.verify().entries
    open_as("t", source, file.parent, budget=None)
    with open_ledger(file.parent / "s.ledger") as ledger:
        assert ledger.verify().entries == length  # what is known is not recorded again


def test_what_was_taken_at_a_budget_of_one_is_at_most_one(file) -> None:
    copy = copy_of(file, "copy")
    with open_as("t", file, file.parent) as session:
        session.count(epsilon=0.99)
    for name, source in (("t2", file), ("u", copy), ("ｔ", file), ("T", copy), ("t ", file)):
        with pytest.raises(expost.ExpostError):
            open_as(name, source, file.parent).count(epsilon=0.9)

    with open_ledger(file.parent / "s.ledger") as ledger:
        assert sum(float(ledger.spent(account).epsilon) for account in ledger.accounts()) <= 1


@pytest.mark.parametrize("name", ["T", "ｔ", "ｔ ", "t\u0301", "т", "dataset:t"])
def test_a_name_that_looks_alike_opens_nothing(file, name: str) -> None:
    open_as("t", file, file.parent)

    with pytest.raises(InvalidRequest, match="pays for these rows"):
        open_as(name, file, file.parent)


def test_a_name_that_looks_alike_is_refused_where_nothing_tells_the_tables_apart(tmp_path) -> None:
    ledger = open_ledger(None)
    first = SourceIdentity(columns=(("age", "integer"),))
    ledger.bind_source("dataset:people", first, budget=1)

    with pytest.raises(InvalidRequest, match="the names look alike"):
        ledger.bind_source("dataset:Ｐeople", SourceIdentity(columns=(("pay", "real"),)), budget=1)
    with pytest.raises(InvalidRequest, match="nothing else tells the sources apart"):
        ledger.bind_source("dataset:others", first, budget=1)
    ledger.bind_source("dataset:wages", SourceIdentity(columns=(("pay", "real"),)), budget=1)


def test_other_rows_have_a_name_and_a_budget_of_their_own(file, tmp_path) -> None:
    open_as("t", file, tmp_path)
    pq.write_table(people(5000), tmp_path / "next.parquet")  # the same columns

    assert open_as("next", tmp_path / "next.parquet", tmp_path).remaining().epsilon == 1
    assert open_as("frame", people(9000).to_pandas(), tmp_path).remaining().epsilon == 1


def test_the_owner_may_give_another_budget_and_the_reason_is_recorded(file) -> None:
    with open_as("t", file, file.parent) as session:
        session.count(epsilon=0.5)
    with open_as("study", file, file.parent, another_budget="a study with a budget of its own") as session:
        assert session.remaining().epsilon == 1
    # Both go on while the table grows, without the reason.
    pq.write_table(people(rows=ROWS + 100), file)
    assert open_as("t", file, file.parent, budget=None).remaining().epsilon == 0.5
    assert open_as("study", file, file.parent, budget=None).remaining().epsilon == 1

    with open_ledger(file.parent / "s.ledger") as ledger:
        known = ledger.sources()["dataset:study"]
        assert known.reasons == ("a study with a budget of its own",) and known.shared == {"dataset:t"}
        ledger.verify()
    with pytest.raises(InvalidRequest, match="pays for these rows"):
        open_as("third", file, file.parent)


@pytest.mark.parametrize("reason", ["", "  ", "a\nb", "x" * 501, 5, b"why"])
def test_a_reason_that_says_nothing_is_refused_and_leaves_no_file(file, reason) -> None:
    with pytest.raises(InvalidRequest, match="to be a reason"):
        open_as("t", file, file.parent, another_budget=reason)
    assert not (file.parent / "s.ledger").exists()


def test_a_table_that_grows_is_the_same_table(tmp_path) -> None:
    (tmp_path / "days").mkdir()
    pq.write_table(people(), tmp_path / "days" / "1.parquet")
    open_as("days", tmp_path / "days" / "*.parquet", tmp_path)
    pq.write_table(people(5000), tmp_path / "days" / "2.parquet")
    open_as("days", tmp_path / "days" / "*.parquet", tmp_path, budget=None)
    pq.write_table(people(9000), tmp_path / "days" / "1.parquet")  # rewritten
    open_as("days", tmp_path / "days" / "*.parquet", tmp_path, budget=None)
    pq.write_table(people(12000), tmp_path / "days" / "3.parquet")  # the ledger has not seen this one

    for part in ("3.parquet", "[12].parquet", "2*"):
        with pytest.raises(InvalidRequest, match="pays for these rows"):
            open_as("part", tmp_path / "days" / part, tmp_path)
    shutil.copy(tmp_path / "days" / "1.parquet", tmp_path / "copy.parquet")
    with pytest.raises(InvalidRequest, match="the same content"):
        open_as("copy", tmp_path / "copy.parquet", tmp_path)


def test_a_folder_that_takes_in_the_file_of_another_account_is_refused(tmp_path) -> None:
    (tmp_path / "days").mkdir()
    for day in (1, 2):
        pq.write_table(people(day * 5000), tmp_path / "days" / f"{day}.parquet")
    open_as("first", tmp_path / "days" / "1.parquet", tmp_path)

    with pytest.raises(InvalidRequest, match="'dataset:first' pays for these rows"):
        open_as("days", tmp_path / "days" / "*.parquet", tmp_path)


@pytest.mark.parametrize("other", ["file", "columns"])
def test_another_table_under_the_same_name_is_refused_until_the_owner_says_so(file, other: str) -> None:
    open_as("t", file, file.parent)
    source = pa.table({"z": [1] * 10})
    if other == "file":
        source = file.parent / "other.parquet"
        pq.write_table(people(5000), source)

    with pytest.raises(InvalidRequest, match=r"Expected the source of account 'dataset:t'.*expost ledger rebind"):
        open_as("t", source, file.parent, budget=None)
    with open_ledger(file.parent / "s.ledger") as ledger:
        ledger.bind_source("dataset:t", Dataset(source).source_identity(), rebound="the table moved")
    open_as("t", source, file.parent, budget=None)
    with pytest.raises(InvalidRequest, match="pays for these rows"):  # the old rows stay this account's
        open_as("u", file, file.parent)


def test_an_account_that_the_owner_opened_belongs_to_the_first_table_that_is_asked_about(file) -> None:
    with open_ledger(file.parent / "s.ledger") as ledger:
        ledger.open_account("dataset:t", 1)
        ledger.open_account("dataset:u", 1)
    open_as("t", file, file.parent, budget=None)

    with pytest.raises(InvalidRequest, match="pays for these rows"):
        open_as("u", file, file.parent, budget=None)


def test_an_account_that_nobody_opened_is_refused_with_the_command_that_opens_it(file) -> None:
    open_as("t", file, file.parent)

    with pytest.raises(InvalidRequest, match=r"expost ledger budget \S*s.ledger dataset:u --epsilon 1"):
        open_as("u", pa.table({"z": [1]}), file.parent, budget=None)
    ledger = open_ledger(None)
    with pytest.raises(InvalidRequest, match="a budget for dataset:u"):
        Session(Dataset(people(), name="u"), ledger=ledger)
    with pytest.raises(InvalidRequest, match="expost ledger budget LEDGER dataset:u --epsilon 1"):
        ledger.hold(["dataset:u"], expost.core.PureLoss(0.5), question="count")


def test_no_plain_hash_of_the_rows_is_in_the_ledger(file) -> None:
    open_as("t", file, file.parent)
    samples = Dataset(file).source_identity().samples
    stored = b"".join(each.read_bytes() for each in file.parent.glob("s.ledger*"))
    with open_ledger(file.parent / "s.ledger") as ledger:
        chain = "".join(entry.text for entry in ledger.history())
        salt = ledger._read(lambda page: page.find_secret(SALT).box)

    assert samples and not any(sample in stored or sample.hex().encode() in stored for sample in samples)
    assert salt.hex() not in chain and len(ledger.sources()["dataset:t"].code) == 8
    assert "samples" not in repr(Dataset(file).source_identity())


def test_two_ledgers_have_different_codes_of_one_table(file) -> None:
    codes = []
    for name in ("a.ledger", "b.ledger"):
        with Session(Dataset(file, name="t"), 1, ledger=file.parent / name) as session:
            codes.append(session.ledger.sources()["dataset:t"].codes)
    assert codes[0].isdisjoint(codes[1])


def test_with_the_owners_key_no_salt_is_stored_and_without_it_contents_are_not_taken_for_different(
    file, tmp_path
) -> None:
    copy, place = copy_of(file, "copy"), tmp_path / "keyed.ledger"
    key = new_key()
    with open_ledger(place, key=key) as ledger:
        Session(Dataset(file, name="t"), 1, ledger=ledger)
        assert ledger._read(lambda page: page.find_secret(SALT)) is None
        with pytest.raises(InvalidRequest, match="the same content"):
            Session(Dataset(copy, name="u"), 1, ledger=ledger)
    for other in (None, new_key()):
        with open_ledger(place, key=other) as ledger, pytest.raises(InvalidRequest, match="without the key"):
            Session(Dataset(copy, name="u"), 1, ledger=ledger)
    with Session(Dataset(file, name="t"), ledger=place) as session:  # the place is known
        assert session.remaining().epsilon == 1


def test_codes_of_the_salt_are_recognised_once_there_is_a_key(file) -> None:
    copy = copy_of(file, "copy")
    open_as("t", file, file.parent)

    with (
        open_ledger(file.parent / "s.ledger", key=new_key()) as ledger,
        pytest.raises(InvalidRequest, match="the same content"),
    ):
        Session(Dataset(copy, name="u"), 1, ledger=ledger)


def test_a_chain_with_two_accounts_of_one_source_and_no_reason_is_unsound(file) -> None:
    open_as("t", file, file.parent)
    open_as("u", file, file.parent, another_budget="two studies")
    with open_ledger(file.parent / "s.ledger") as ledger:
        entries = list(ledger.history())

    def replay(change) -> None:
        last, chain = None, ChainReplay()
        for entry in entries:
            body = json.loads(entry.text)
            change(entry.kind, body)
            last = LedgerEntry.follow(last, entry.kind, body)
            chain.add_entry(last)

    def forget_reason(kind, body):
        if kind is EntryKind.SOURCE:
            body.pop("another_budget", None), body.pop("shares_with", None)

    def rename(kind, body):
        if kind is EntryKind.SOURCE:
            body["account"] = "dataset:nobody"

    def misspell(kind, body):
        if kind is EntryKind.SOURCE:
            body["places"] = "file:/x"

    replay(lambda kind, body: None)
    for change in (forget_reason, rename, misspell):
        with pytest.raises(LedgerUnsound):
            replay(change)


def test_an_old_ledger_without_sources_learns_them_from_the_next_session(file) -> None:
    with open_ledger(file.parent / "s.ledger") as ledger:  # as version 0.1 wrote it
        ledger.open_account("dataset:t", 1)
        ledger.hold(["dataset:t"], expost.core.PureLoss(0.25), question="count")

    assert open_as("t", file, file.parent).remaining().epsilon == 0.75
    with open_ledger(file.parent / "s.ledger") as ledger:
        assert list(ledger.sources()) == ["dataset:t"] and ledger.verify()
    with pytest.raises(InvalidRequest, match="pays for these rows"):
        open_as("u", file, file.parent)


def test_a_number_of_a_file_that_was_reused_is_not_taken_for_the_file(file, tmp_path) -> None:
    """File systems give the inode of a deleted file to the next one."""
    first, second = Dataset(file).source_identity(), tmp_path / "second.parquet"
    pq.write_table(people(5000), second)
    with open_ledger(tmp_path / "s.ledger") as ledger:
        ledger.bind_source("dataset:t", replace(first, files=("1:5",)), budget=1)  # its file has another number since
        ledger.bind_source("dataset:u", replace(Dataset(second).source_identity(), files=("1:5",)), budget=1)
        file.unlink()  # even now the account goes on with a number that the first file once had
        ledger.bind_source("dataset:u", replace(Dataset(second).source_identity(), files=("1:5", "1:6")))
        third = SourceIdentity(columns=first.columns, places=("file:/moved.parquet",), files=("1:5",))
        with pytest.raises(InvalidRequest, match="by device and inode"):  # but a new place may be the file that moved
            ledger.bind_source("dataset:v", third, budget=1)


def test_columns_are_recorded_when_they_change_only(file) -> None:
    open_as("t", file, file.parent)
    pq.write_table(people(5000), file)
    open_as("t", file, file.parent)
    pq.write_table(people(9000).append_column("pay", [[1] * ROWS]), file)
    open_as("t", file, file.parent)

    with open_ledger(file.parent / "s.ledger") as ledger:
        recorded = [entry.body for entry in ledger.history() if entry.kind is EntryKind.SOURCE]
        assert ["columns" in body for body in recorded] == [True, False, True] and ledger.verify()
        assert [name for name, _ in ledger.sources()["dataset:t"].columns] == ["id", "site", "age", "pay"]


def test_an_analyst_without_an_account_opens_nothing(file) -> None:
    open_as("t", file, file.parent)
    with pytest.raises(
        InvalidRequest, match=r"expost ledger budget .* analyst:ann --epsilon 1, or pass analyst_budget"
    ):
        open_as("u", people(5000), file.parent, analyst="ann")
    with open_ledger(file.parent / "s.ledger") as ledger:
        assert ledger.accounts() == ["dataset:t"]


def test_a_repaired_ledger_still_recognises_rows(file) -> None:
    copy = copy_of(file, "copy")
    open_as("t", file, file.parent)
    (file.parent / "s.ledger.head").write_text("damaged")
    assert repair_ledger(str(file.parent / "s.ledger")).problem is not None

    with pytest.raises(InvalidRequest, match="the same content"):
        open_as("u", copy, file.parent)


def test_a_checkpoint_keeps_the_sources(file) -> None:
    open_as("t", file, file.parent)
    open_as("u", file, file.parent, another_budget="two studies")
    chain, safe = ChainReplay(), Safe(new_key())
    with open_ledger(file.parent / "s.ledger") as ledger:
        entries = list(ledger.history())
    for entry in entries:
        chain.add_entry(entry)

    restored = LedgerCheckpoint.of(chain, safe).restore(entries[0], entries[-1])

    assert restored.sources == chain.sources and restored.sources["dataset:u"].reasons == ("two studies",)


def _open_in_child(path, name: str) -> bool:
    try:
        open_as(name, path, path.parent)
    except InvalidRequest:
        return False
    return True


def test_of_many_names_at_once_one_is_opened(file) -> None:
    names = [f"n{number}" for number in range(6)]
    with multiprocessing.get_context("fork").Pool(3) as pool:
        opened = pool.starmap(_open_in_child, [(file, name) for name in names])

    assert sum(opened) == 1
    with open_ledger(file.parent / "s.ledger") as ledger:
        assert len(ledger.accounts()) == 1 and ledger.verify()


def test_parts_of_a_table_and_analysts_need_no_source(file) -> None:
    dataset = Dataset(file, name="t", categories={"site": ["A", "B"]})
    with Session(dataset, 1, ledger=file.parent / "s.ledger", analyst="ann", analyst_budget=1) as session:
        for part in session.parts("site").values():
            part.count(epsilon=0.25)
        assert list(session.ledger.sources()) == ["dataset:t"]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_to_files_their_rows_have_one_account(tmp_path, seed: int) -> None:
    random, ledger, fresh = Random(seed), open_ledger(None), iter(range(10**6, 10**9, 10**5))
    rows: dict[int, int] = {}  # the first id of the rows that the file with this number has
    payers: dict[int, str] = {}  # the account that pays for the rows with this first id
    opened = refused = 0

    def path(number: int):
        return tmp_path / f"{number}.parquet"

    def write(number: int, first: int, length: int) -> None:
        pq.write_table(people(first, length), path(number))
        rows[number] = first

    def place(number: int, target: int, step: str) -> None:
        getattr(os, step)(path(number), path(target))
        rows[target] = rows.pop(number) if step == "rename" else rows[number]

    for number in range(120):
        known = [each for each in rows if path(each).exists()]
        old = random.choice(known) if known else None
        step = random.choice(["write", "write", "rewrite", "grow", "copy", "symlink", "link", "rename", "drop"])
        if old is None or step == "write":
            write(number, next(fresh), 300)
        elif step in ("rewrite", "grow"):
            first = next(fresh) if step == "rewrite" else rows[old]
            same = [each for each in known if os.path.samefile(path(each), path(old))]
            write(old, first, random.choice([300, 400, 500]))
            rows.update(dict.fromkeys(same, first))
        elif step == "copy":
            write(number, rows[old], 300) if random.random() < 0.5 else shutil.copyfile(path(old), path(number))
            rows[number] = rows[old]
        elif step == "drop":
            path(old).unlink()
            rows.pop(old)
        else:
            place(old, number, step)
        there = [each for each in rows if path(each).exists()]
        if not there:
            continue
        source = random.choice(there)
        name = payers.get(rows[source]) if random.random() < 0.5 else None
        name = name or f"n{random.randrange(20)}"
        try:
            Session(Dataset(path(source), name=name), 1, ledger=ledger)
        except InvalidRequest:
            refused += 1
            continue
        opened += 1
        assert payers.setdefault(rows[source], name) == name
    assert opened > 20 and refused > 20 and ledger.verify()
