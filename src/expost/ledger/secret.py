"""Secrets beside the chain: kept encrypted, replaced only by whoever saw the newest version, vouched for by entries."""

from __future__ import annotations

import hmac

from expost.core import InvalidRequest
from expost.ledger.entry import Kind
from expost.ledger.page import Page, SecretRow, unsound
from expost.ledger.safe import Safe

__all__ = ["forget", "keep", "kept", "replace_secret"]


def keep(page: Page, safe: Safe, name: str, secret: bytes) -> None:
    """Store a new secret."""
    if page.secret(name) is not None:
        raise InvalidRequest("Expected a name that keeps nothing yet", got=name, do="Use replace with what is kept")
    _store(page, safe, name, secret, version=1)


def kept(page: Page, safe: Safe, name: str) -> bytes | None:
    """The stored secret, compared with what the chain says of it."""
    row = page.secret(name)
    if row is None:
        return None
    body = page.intact(row.entry).body
    if (body.get("secret"), body.get("version"), body.get("digest")) != (name, row.version, row.digest):
        raise unsound("Expected a kept secret to be the one in the chain")
    return safe.unlock(row.box, label=_label(page, name, row.version))


def replace_secret(page: Page, safe: Safe, name: str, *, old: bytes, new: bytes) -> bool:
    """Store ``new`` if ``old`` is what is kept; otherwise change nothing and say so."""
    current = kept(page, safe, name)
    row = page.secret(name)
    if current is None or row is None or not hmac.compare_digest(current, old):
        return False
    _store(page, safe, name, new, version=row.version + 1)
    return True


def forget(page: Page, name: str) -> None:
    """Delete a secret, so that a finished release cannot be refined any more."""
    row = page.secret(name)
    if row is not None:
        page.post(Kind.FORGET, {"secret": name, "version": row.version})
        page.drop_secret(name)


def _store(page: Page, safe: Safe, name: str, secret: bytes, *, version: int) -> None:
    box = safe.lock(secret, label=_label(page, name, version))
    last = page.last()
    row = SecretRow(name, version, box, 0 if last is None else last.sequence + 1)
    page.post(Kind.KEEP, {"secret": name, "version": version, "digest": row.digest})
    page.put_secret(row)


def _label(page: Page, name: str, version: int) -> str:
    """Binds a box to its ledger, name and version, so that boxes cannot be exchanged."""
    return f"{page.intact(0).hash}/{version}/{name}"
