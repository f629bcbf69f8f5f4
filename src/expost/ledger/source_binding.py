"""Binds an account to the source of its table, and refuses a second name for known rows.

Sources are compared inside one ledger only; two ledgers cannot know of each other. The key of the codes is the owner's or,
without one, a random salt that is stored next to the chain: who has the chain alone (an export, a history) cannot try
contents.
"""

from __future__ import annotations

import glob
import hmac
import os
import shlex
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from expost.core import Guarantee, InvalidRequest
from expost.ledger import posting
from expost.ledger.known_source import KnownSource, known_sources
from expost.ledger.ledger_entry import EntryKind
from expost.ledger.ledger_page import LedgerPage, SecretRow
from expost.ledger.secret import Safe

if TYPE_CHECKING:
    from expost.data.source_identity import SourceIdentity

__all__ = ["SALT", "bind_source", "is_bound", "missing_account"]

SALT = "expost source salt"
"""The name under which the salt of the codes is stored."""

_MOST_FOUND = 10_000  # files of a known pattern that are compared


def missing_account(account: str, ledger: str | None = None, *, argument: str | None = None) -> InvalidRequest:
    """Return the error for an account that its owner has not opened; ``argument`` would open it too.

    >>> print(missing_account("dataset:flights", "flights.ledger"))
    Expected the account 'dataset:flights' in the ledger. Have the owner open it: ...
    """
    where = "LEDGER" if ledger is None or "://" in ledger else shlex.quote(ledger)  # an address may have a password
    also = "" if argument is None else f", or pass {argument}=1.0"
    return InvalidRequest(
        f"Expected the account {account!r} in the ledger",
        do=f"Have the owner open it: expost ledger budget {where} {shlex.quote(account)} --epsilon 1{also}",
    )


def is_bound(page: LedgerPage, *, safe: Safe, account: str, source: SourceIdentity) -> bool:
    """Return whether an open account is known to have this source, so that nothing is to be recorded."""
    known = known_sources(page).get(account)
    if known is None or page.sound_account(account) is None or (source.samples and not _has_key(page, safe)):
        return False
    stored, _ = _code_samples(page, safe, source.samples)
    return known.places.issuperset(source.places) and known.files.issuperset(source.files) and known.codes >= stored


def bind_source(
    page: LedgerPage,
    *,
    safe: Safe,
    account: str,
    source: SourceIdentity,
    budget: Guarantee | None = None,
    question_cap: Fraction | None = None,
    another_budget: str | None = None,
    rebound: str | None = None,
) -> None:
    """Open the account if a budget is given, and record its source; all of it or nothing.

    Refuse a source that belongs to another account unless ``another_budget`` gives the reason, and a source that is not
    the account's own unless ``rebound`` does. What is known already is not recorded again.
    """
    if budget is not None:
        posting.open_account(page, account, budget, question_cap)
    elif page.sound_account(account) is None:
        raise missing_account(account)
    everything = known_sources(page)
    known = everything.get(account)
    if source.samples and not _has_key(page, safe):
        row = SecretRow(SALT, 1, os.urandom(32), page.next_sequence())
        page.post(EntryKind.KEEP, {"secret": SALT, "version": 1, "digest": row.digest})
        page.put_secret(row)
    codes, comparable = _code_samples(page, safe, source.samples)
    found = KnownSource(
        account=account,
        columns=source.columns,
        places=frozenset(source.places),
        files=frozenset(source.files),
        codes=comparable,
        shared=frozenset() if known is None else known.shared,
    )
    if known is not None and rebound is None:
        _check_same_source(known, found)
    old = KnownSource(account=account) if known is None else known
    fresh = replace(found, places=found.places - old.places, files=found.files - old.files, codes=codes - old.codes)
    now = _current_files(found)
    here = replace(now, files=now.files | found.files)
    others = [other for other in everything.values() if other.account != account and not old.may_share(other)]
    moved = known is None or bool(fresh.places)
    reasons = {other.account: _same_rows(here, other, is_new=known is None, moved=moved) for other in others}
    shared = {name: why for name, why in reasons.items() if why is not None}
    if shared and another_budget is None:
        raise _second_name(account, *next(iter(shared.items())))
    if known is not None and not (fresh.places or fresh.files or fresh.codes or shared or rebound):
        return
    body: dict[str, Any] = {
        "account": account,
        "places": sorted(fresh.places),
        "files": sorted(fresh.files),
        "codes": sorted(fresh.codes),
    }
    if source.columns != old.columns:
        body["columns"] = [list(pair) for pair in source.columns]
    if another_budget is not None:
        body |= {"another_budget": another_budget, "shares_with": sorted(shared)}
    if rebound is not None:
        body["rebound"] = rebound
    page.post(EntryKind.SOURCE, body)


def _second_name(account: str, known: str, why: str) -> InvalidRequest:
    name = known.removeprefix("dataset:")
    return InvalidRequest(
        f"Cannot charge {account!r} because {known!r} pays for these rows: {why}",
        do=f"Use the name {name!r}. If a second budget is meant, the owner says why: expost ledger budget LEDGER "
        f"{shlex.quote(account)} --epsilon 1 --source SOURCE --another-budget WHY, or Session(..., another_budget=WHY)",
    )


def _check_same_source(known: KnownSource, found: KnownSource) -> None:
    """Refuse another table under the name of an account. One that grew, moved or was rewritten in place is the same."""
    now = _current_files(known)
    if found.places & now.places or found.files & (known.files | now.files) or found.codes & known.codes:
        return
    ours, theirs = dict(known.columns).keys(), dict(found.columns).keys()
    if not (found.places and known.places) and (ours <= theirs or theirs <= ours):
        return  # rows in memory have no place: columns may be added or left out
    raise InvalidRequest(
        f"Expected the source of account {known.account!r}, {known.text}",
        got=found.text,
        do="Give this table a name of its own, or have the owner run: expost ledger rebind LEDGER "
        f"{known.account} SOURCE --why WHY",
    )


def _same_rows(here: KnownSource, other: KnownSource, *, is_new: bool, moved: bool) -> str | None:
    """Return why two accounts have the same rows, as far as can be told, or None."""
    now = _current_files(other)
    common = here.places & now.places
    if common:
        return f"the same place, {min(common).partition(':')[2]}"
    # A file that is gone may have been moved. Its number is given to other files too, so the columns must be the same.
    gone = moved and not now.files and _names(here) == _names(other)
    if here.files & (other.files if gone else now.files):
        return "the same file, by device and inode"
    if here.codes & other.codes:
        return "the same content"
    if here.codes and other.codes and not _keys(here) & _keys(other) and _names(here) == _names(other):
        return "the same columns, and the contents cannot be compared without the key EXPOST_LEDGER_KEY"
    if is_new and not (here.places and other.places):
        if _names(here) == _names(other) and not (_is_told(here) and _is_told(other)):
            return "the same columns, and nothing else tells the sources apart"
        if _look(here.account) == _look(other.account):
            return "the names look alike"
    return None


def _is_told(source: KnownSource) -> bool:
    """Return whether more than columns is known."""
    return bool(source.places or source.codes)


def _keys(source: KnownSource) -> frozenset[str]:
    """Return the names of the keys of its codes."""
    return frozenset(code.partition(":")[0] for code in source.codes)


def _names(source: KnownSource) -> frozenset[str]:
    return frozenset(name for name, _ in source.columns)


def _look(name: str) -> str:
    """Return a name without what the eye does not see: case, width, spaces, marks.

    >>> _look("dataset:Ｆlights ") == _look("dataset:flights")
    True
    """
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())
    return "".join(letter for letter in folded if unicodedata.category(letter)[0] not in "CMZ")


def _current_files(source: KnownSource) -> KnownSource:
    """Return a source with the paths and files that its paths and patterns lead to now."""
    places, files = set(source.places), set[str]()
    for place in source.places:
        kind, _, path = place.partition(":")
        found = glob.glob(path)[:_MOST_FOUND] if kind == "glob" else [path] if kind == "file" else []
        for each in found:
            places |= {f"file:{os.path.abspath(each)}", f"file:{os.path.realpath(each)}"}
            try:
                status = os.stat(each)
            except OSError:  # gone, or not for us
                continue
            files.add(f"{status.st_dev}:{status.st_ino}")
    return replace(source, places=frozenset(places), files=frozenset(files))


def _has_key(page: LedgerPage, safe: Safe) -> bool:
    return safe.has_key or page.find_secret(SALT) is not None


def _code_samples(page: LedgerPage, safe: Safe, samples: Sequence[bytes]) -> tuple[frozenset[str], frozenset[str]]:
    """Return keyed codes of samples: those to record, and all that can be compared.

    With the owner's key only codes of that key are recorded, so that the database alone does not allow trying contents.
    A ledger that was used without a key before has codes of the salt, which must still be recognised.
    """
    row = page.find_secret(SALT)
    salted = [] if row is None else [f"salt:{hmac.digest(row.box, sample, 'sha256').hex()[:32]}" for sample in samples]
    signed = [safe.code(sample) for sample in samples] if safe.has_key else []
    return frozenset(signed or salted), frozenset(signed + salted)
