"""Secrets of a ledger: encrypted, replaced only by whoever saw the newest version, vouched for by entries.

The noise of a release that may be refined later is such a secret: the less noisy rungs of a gradual release reveal as
much as the data, so they are never written in the clear.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from expost.core import InvalidRequest
from expost.ledger.ledger_entry import EntryKind
from expost.ledger.ledger_page import LedgerPage, SecretRow, unsound_ledger

__all__ = ["Safe", "forget_secret", "keep_secret", "new_key", "read_secret", "replace_secret"]

_KEY_VARIABLE = "EXPOST_LEDGER_KEY"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_NO_KEY = "Expected the key of the ledger's owner; refinement refused"
_WRONG_KEY = "Expected the key that locked this secret; refinement refused"


def new_key() -> str:
    """Return a fresh key. The owner of a ledger stores it outside of the ledger.

    Returns
    -------
    str
        32 random bytes in URL-safe base64.

    Examples
    --------
    >>> len(new_key())
    44
    """
    return base64.urlsafe_b64encode(AESGCM.generate_key(bit_length=8 * _KEY_BYTES)).decode()


class Safe:
    """Locks and opens secrets with AES-256-GCM. Without a key it refuses.

    >>> Safe(new_key()).has_key
    True
    """

    def __init__(self, key: str | bytes | None = None) -> None:
        if key is None:
            key = os.environ.get(_KEY_VARIABLE) or None
        self.__cipher, self.__signer, self.__certifier, self.__coder = None, b"", b"", b""
        if key is not None:
            try:
                raw = base64.urlsafe_b64decode(key) if isinstance(key, str) else bytes(key)
            except (binascii.Error, ValueError):
                raw = b""
            if len(raw) != _KEY_BYTES:  # the key itself must not be repeated in a message
                raise InvalidRequest(
                    f"Expected a key of {_KEY_BYTES} bytes", do="Make one with expost.ledger.new_key()"
                )
            self.__cipher = AESGCM(raw)
            self.__signer = hmac.digest(raw, b"expost anchor", "sha256")  # a key of its own for each use
            self.__certifier = hmac.digest(raw, b"expost checkpoint", "sha256")
            self.__coder = hmac.digest(raw, b"expost source", "sha256")

    @property
    def has_key(self) -> bool:
        """Whether a key is present."""
        return self.__cipher is not None

    def sign(self, text: str) -> str:
        """Return a code that only the holder of the key can make; empty without a key."""
        return hmac.new(self.__signer, text.encode(), "sha256").hexdigest()[:32] if self.has_key else ""

    @property
    def owner(self) -> str:
        """A name of the key that reveals nothing about it; empty without a key."""
        return hmac.digest(self.__certifier, b"owner", "sha256").hex()[:32] if self.has_key else ""

    def certify(self, text: str) -> str:
        """Return the whole code of a checkpoint. Without a key nothing is certified."""
        if not self.has_key:
            _refuse_key(_NO_KEY)
        return hmac.digest(self.__certifier, b"state:" + text.encode(), "sha256").hex()

    def code(self, sample: bytes) -> str:
        """Return a keyed code of a sample of a table, which tells nothing without the key; empty without a key."""
        if not self.has_key:
            return ""
        # Codes of different keys cannot be compared, so each begins with a name of its key.
        return f"{hmac.digest(self.__coder, b'', 'sha256').hex()[:8]}:{hmac.digest(self.__coder, sample, 'sha256').hex()[:32]}"

    def lock(self, secret: bytes, *, label: str) -> bytes:
        """Encrypt the secret and bind it to its label."""
        if self.__cipher is None:
            _refuse_key(_NO_KEY)
        # A nonce only has to differ from all others: 96 random bits do for 2^32 secrets (NIST SP 800-38D, 8.3).
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self.__cipher.encrypt(nonce, secret, label.encode())

    def unlock(self, box: bytes, *, label: str) -> bytes:
        """Decrypt a box that was locked under this label."""
        if self.__cipher is None:
            _refuse_key(_NO_KEY)
        try:
            return self.__cipher.decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], label.encode())
        except InvalidTag:
            _refuse_key(_WRONG_KEY)

    def __repr__(self) -> str:
        return f"<safe, {'with a key' if self.has_key else 'no key'}>"

    def __reduce__(self) -> NoReturn:
        raise InvalidRequest(
            "Cannot pickle a safe because its key must stay in its process",
            do=f"Set {_KEY_VARIABLE} in the other process",
        )


def _refuse_key(expected: str) -> NoReturn:
    raise InvalidRequest(expected, do=f"Pass key=... when opening the ledger, or set {_KEY_VARIABLE}")


def keep_secret(page: LedgerPage, safe: Safe, name: str, secret: bytes, *, version: int = 1) -> None:
    """Store a new secret, or the given later version of one."""
    if version == 1 and page.find_secret(name) is not None:
        raise InvalidRequest("Expected a name that keeps nothing yet", got=name, do="Use replace with what is kept")
    box = safe.lock(secret, label=_box_label(page, name, version))
    row = SecretRow(name, version, box, page.next_sequence())
    page.post(EntryKind.KEEP, {"secret": name, "version": version, "digest": row.digest})
    page.put_secret(row)


def read_secret(page: LedgerPage, safe: Safe, name: str) -> bytes | None:
    """Return the stored secret after comparing it with the chain, or None."""
    row = page.find_secret(name)
    if row is None:
        return None
    body = page.intact_entry(row.entry).body
    if (body.get("secret"), body.get("version"), body.get("digest")) != (name, row.version, row.digest):
        raise unsound_ledger("a kept secret is not the one in the chain")
    return safe.unlock(row.box, label=_box_label(page, name, row.version))


def replace_secret(page: LedgerPage, safe: Safe, name: str, *, old: bytes, new: bytes) -> bool:
    """Store ``new`` if ``old`` is what is kept; otherwise change nothing and return False."""
    current, row = read_secret(page, safe, name), page.find_secret(name)
    if current is None or row is None or not hmac.compare_digest(current, old):
        return False
    keep_secret(page, safe, name, new, version=row.version + 1)
    return True


def forget_secret(page: LedgerPage, name: str) -> None:
    """Delete a secret, so that a finished release cannot be refined any more."""
    row = page.find_secret(name)
    if row is not None:
        page.post(EntryKind.FORGET, {"secret": name, "version": row.version})
        page.drop_secret(name)


def _box_label(page: LedgerPage, name: str, version: int) -> str:
    """Return the text that binds a box to its ledger, name and version, so that boxes cannot be exchanged."""
    return f"{page.intact_entry(0).hash}/{version}/{name}"
