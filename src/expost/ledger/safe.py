"""Encryption of what must not be read at rest: the noise of a release that may be refined later."""

from __future__ import annotations

import base64
import binascii
import os
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from expost.core import InvalidRequest

__all__ = ["Safe", "new_key"]

_KEY_VARIABLE = "EXPOST_LEDGER_KEY"
_KEY_BYTES = 32
_NONCE_BYTES = 12


def new_key() -> str:
    """A fresh key for the owner of a ledger to hold, outside of the ledger.

    >>> len(new_key())
    44
    """
    return base64.urlsafe_b64encode(AESGCM.generate_key(bit_length=8 * _KEY_BYTES)).decode()


class Safe:
    """Locks and opens secrets with AES-256-GCM; without a key it refuses.

    The less noisy rungs of a gradual release are as good as the data, so they are never written in the clear.

    >>> Safe(new_key()).is_open
    True
    """

    def __init__(self, key: str | bytes | None = None) -> None:
        if key is None:
            key = os.environ.get(_KEY_VARIABLE) or None
        self.__cipher = None if key is None else AESGCM(_key_bytes(key))

    @property
    def is_open(self) -> bool:
        """Whether a key is present."""
        return self.__cipher is not None

    def lock(self, secret: bytes, *, label: str) -> bytes:
        """The secret encrypted and bound to its label."""
        if self.__cipher is None:
            _refuse("Expected the key of the ledger's owner; refinement refused")
        # A nonce only has to differ from all others: 96 random bits do for 2^32 secrets (NIST SP 800-38D, 8.3).
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self.__cipher.encrypt(nonce, secret, label.encode())

    def unlock(self, box: bytes, *, label: str) -> bytes:
        """The secret of a box that was locked under this label."""
        if self.__cipher is None:
            _refuse("Expected the key of the ledger's owner; refinement refused")
        try:
            return self.__cipher.decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], label.encode())
        except InvalidTag:
            _refuse("Expected the key that locked this secret; refinement refused")

    def __repr__(self) -> str:
        return f"<safe, {'with a key' if self.is_open else 'no key'}>"

    def __reduce__(self) -> NoReturn:
        raise InvalidRequest("Expected a safe to stay in its process", do=f"Set {_KEY_VARIABLE} in the other process")


def _key_bytes(key: str | bytes) -> bytes:
    try:
        raw = base64.urlsafe_b64decode(key) if isinstance(key, str) else bytes(key)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _KEY_BYTES:
        # The key itself must not be repeated in a message.
        raise InvalidRequest(f"Expected a key of {_KEY_BYTES} bytes", do="Make one with expost.ledger.new_key()")
    return raw


def _refuse(expected: str) -> NoReturn:
    raise InvalidRequest(expected, do=f"Pass key=... when opening the ledger, or set {_KEY_VARIABLE}")
