"""Tokens: a name and a secret in one text. The service keeps a slow hash of the secret, never the secret."""

from __future__ import annotations

import base64
import datetime
import enum
import hashlib
import hmac
import os
import threading
from dataclasses import dataclass
from typing import ClassVar

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from expost.core import InvalidRequest

__all__ = ["Identity", "Role", "TokenRecord", "TokenSecret", "VerifiedTokens", "parse_duration"]

_PREFIX = "expost"
_ID_BYTES, _SECRET_BYTES, _SALT_BYTES = 9, 32, 16
# RFC 7914, section 2: N = 2^14, r = 8, p = 1. The secret has 256 bits, so that guessing is hopeless anyway; the slow hash
# is for a stolen state file of a later version with shorter secrets.
_COST = {"length": 32, "n": 2**14, "r": 8, "p": 1}
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}


class Role(enum.Enum):
    """What a token is for."""

    OWNER = "owner"
    ANALYST = "analyst"
    AUDITOR = "auditor"


@dataclass(frozen=True)
class TokenSecret:
    """A token as its holder has it. It is shown once, when it is made.

    >>> secret = TokenSecret.make()
    >>> TokenSecret.parse(secret.text) == secret, secret.text.startswith("expost_")
    (True, True)
    """

    token_id: str
    secret: bytes

    @classmethod
    def make(cls) -> TokenSecret:
        """Return a new token from the system's cryptographic source."""
        return cls(os.urandom(_ID_BYTES).hex(), os.urandom(_SECRET_BYTES))

    @classmethod
    def parse(cls, text: object) -> TokenSecret | None:
        """Return the token that a text spells, None if it spells none.

        Parameters
        ----------
        text : object
            What a request brought.
        """
        parts = text.split("_", 2) if isinstance(text, str) and text.isascii() and len(text) < 200 else []
        if len(parts) != 3 or parts[0] != _PREFIX or len(parts[1]) != 2 * _ID_BYTES:
            return None
        try:
            secret = base64.urlsafe_b64decode(parts[2] + "=" * (-len(parts[2]) % 4))
        except ValueError:
            return None
        found = cls(parts[1], secret)
        return found if len(secret) == _SECRET_BYTES and found.text == text else None

    @property
    def text(self) -> str:
        """The token as one text."""
        return f"{_PREFIX}_{self.token_id}_{base64.urlsafe_b64encode(self.secret).decode().rstrip('=')}"

    def hash(self, salt: bytes) -> bytes:
        """Return the slow hash of the secret.

        Parameters
        ----------
        salt : bytes
            The salt of this token.
        """
        return Scrypt(salt=salt, **_COST).derive(self.secret)

    def __repr__(self) -> str:
        return f"TokenSecret({self.token_id})"


@dataclass(frozen=True, kw_only=True)
class TokenRecord:
    """A token as the service keeps it.

    ``subject`` is the person or program that holds it. ``dataset`` is the one that it opens, None for all of them.
    ``parent`` is the token whose holder made this one on the page, and which ends it when it is revoked.
    """

    token_id: str
    salt: bytes
    hash: bytes
    role: Role
    subject: str
    dataset: str | None
    created: datetime.datetime
    expires: datetime.datetime | None
    revoked: datetime.datetime | None = None
    parent: str | None = None

    @classmethod
    def of(
        cls,
        secret: TokenSecret,
        *,
        role: Role,
        subject: str,
        dataset: str | None,
        now: datetime.datetime,
        lifetime: datetime.timedelta | None,
    ) -> TokenRecord:
        """Return what to keep of a new token."""
        salt = os.urandom(_SALT_BYTES)
        return cls(
            token_id=secret.token_id,
            salt=salt,
            hash=secret.hash(salt),
            role=role,
            subject=subject,
            dataset=dataset,
            created=now,
            expires=None if lifetime is None else now + lifetime,
        )

    def is_usable(self, now: datetime.datetime) -> bool:
        """Return whether the token is neither revoked nor expired."""
        return self.revoked is None and (self.expires is None or now < self.expires)


@dataclass(frozen=True)
class Identity:
    """Who sends a request."""

    role: Role
    subject: str
    dataset: str | None
    token_id: str
    parent: str | None = None

    @classmethod
    def of(cls, record: TokenRecord) -> Identity:
        """Return who holds a token."""
        return cls(record.role, record.subject, record.dataset, record.token_id, record.parent)

    @property
    def limited_as(self) -> str:
        """What limits count together: a token and those that its holder made with it."""
        return self.parent or self.token_id

    @property
    def actor(self) -> str:
        """The name in the audit log."""
        return f"{self.role.value}:{self.subject}"


class VerifiedTokens:
    """Remembers which secrets matched, so that the slow hash is computed once per token and process.

    What is remembered is a keyed hash with a key of this process. Whether a token was revoked is read from the store
    every time.
    """

    _most: ClassVar[int] = 10_000

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._known: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def remembers(self, secret: TokenSecret, record: TokenRecord | None) -> bool:
        """Return whether the secret matched the record before."""
        with self._lock:
            known = self._known.get(secret.token_id, b"")
        return record is not None and hmac.compare_digest(known, self._code(secret, record))

    def matches(self, secret: TokenSecret, record: TokenRecord | None) -> bool:
        """Return whether the secret is that of the record. An unknown token takes as long as a wrong secret."""
        if self.remembers(secret, record):
            return True
        found = secret.hash(bytes(_SALT_BYTES) if record is None else record.salt)
        if record is None or not hmac.compare_digest(found, record.hash):
            return False
        with self._lock:
            if len(self._known) >= self._most:
                self._known.clear()
            self._known[secret.token_id] = self._code(secret, record)
        return True

    def _code(self, secret: TokenSecret, record: TokenRecord) -> bytes:
        return hmac.digest(self._key, secret.secret + record.hash, hashlib.sha256)


def parse_duration(text: str) -> datetime.timedelta:
    """Return the length of time that a text such as 30d, 12h, 2w or 45m spells.

    >>> parse_duration("30d").days
    30
    """
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdecimal() or not 0 < int(number) < 10**5:
        raise InvalidRequest("Expected a length of time", got=text, do="Pass e.g. 45m, 12h, 30d or 2w")
    return datetime.timedelta(seconds=int(number) * _UNITS[unit])
