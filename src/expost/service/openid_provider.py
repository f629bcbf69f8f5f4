"""Signing in with OpenID Connect: the organisation says who somebody is, and the owner's tokens say what that person may do."""

from __future__ import annotations

import base64
import hmac
import json
import os
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import httpx2
from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from expost.core import MissingExtra
from expost.service.curator import Refused
from expost.service.service_settings import OpenIdSettings, is_private_address

__all__ = ["OpenIdProvider", "SignedIn"]

# Signatures that only the provider can make. With "none" anybody can, and with HS256 anybody who knows a public key could.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
_BEGUN_SECONDS = 600
_KEPT_SECONDS = 3600  # how long addresses and keys of the provider are remembered
_LEEWAY_SECONDS = 60  # between the clocks of the provider and of this machine
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class SignedIn:
    """Who has signed in, and the dataset that was asked for."""

    name: str
    dataset: str | None


class OpenIdProvider:
    """The provider of an organisation, by the authorization code flow with a proof key (RFC 7636).

    What a sign-in must remember is in an encrypted cookie, so that any worker can finish it.

    Parameters
    ----------
    settings : OpenIdSettings
        The owner's decisions.
    http : object, optional
        A ready client of httpx2, for tests.
    clock : callable, optional
        Returns the time in seconds, for tests.
    """

    def __init__(self, settings: OpenIdSettings, *, http: Any = None, clock: Callable[[], float] = time.time) -> None:
        try:
            import authlib  # noqa: F401, PLC0415  (an extra)
        except ModuleNotFoundError:
            raise MissingExtra("openid", package="authlib") from None
        self._settings, self._clock = settings, clock
        self._http = httpx2.Client(timeout=10, follow_redirects=False) if http is None else http
        key = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"expost sign-in").derive(settings.secret.encode())
        self._box = Fernet(base64.urlsafe_b64encode(key))
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, dict[str, Any]]] = {}

    def close(self) -> None:
        """Close the connection to the provider."""
        self._http.close()

    def begin(self, dataset: str | None) -> tuple[str, str]:
        """Return the provider's page to send a browser to, and what that browser must bring back as a cookie.

        Parameters
        ----------
        dataset : str, optional
            The dataset to open afterwards.
        """
        from authlib.oauth2.rfc7636 import create_s256_code_challenge  # noqa: PLC0415  (an extra)

        state, nonce, verifier = (base64.urlsafe_b64encode(os.urandom(36)).decode() for _ in range(3))
        asked = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._settings.redirect_address,
            "scope": self._settings.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": create_s256_code_challenge(verifier),
            "code_challenge_method": "S256",
        }
        page = self._address("authorization_endpoint")
        begun = {"state": state, "nonce": nonce, "verifier": verifier, "dataset": dataset}
        cookie = self._box.encrypt_at_time(json.dumps(begun).encode(), int(self._clock()))
        return f"{page}{'&' if '?' in page else '?'}{urllib.parse.urlencode(asked)}", cookie.decode()

    def finish(self, cookie: str, given: Mapping[str, str]) -> SignedIn:
        """Return who has signed in, from the provider's answer; refuse what is not an answer to this browser's request.

        Parameters
        ----------
        cookie : str
            What ``begin`` gave to the browser.
        given : mapping
            The parameters of the address that the provider sent the browser to.
        """
        try:
            opened = self._box.decrypt_at_time(cookie.encode(), _BEGUN_SECONDS, int(self._clock()))
        except (InvalidToken, UnicodeEncodeError):
            raise Refused(403, "sign_in_expired", "This sign-in has expired. Begin again.") from None
        begun = json.loads(opened)
        state, code = given.get("state", ""), given.get("code", "")
        if not hmac.compare_digest(begun["state"].encode(), state.encode("utf-8", "surrogatepass")):
            _refuse("belongs to another sign-in")
        if given.get("iss", self._settings.issuer) != self._settings.issuer:  # RFC 9207: a mix-up of two providers
            _refuse("is of another provider")
        if "error" in given or not code:
            _refuse("is a refusal")
        claims = self._read_token(self._fetch_token(code, begun["verifier"]), begun["nonce"])
        return SignedIn(self._name_of(claims), begun["dataset"])

    def _fetch_token(self, code: str, verifier: str) -> str:
        """Return the ID token that a code stands for."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._settings.redirect_address,
            "code_verifier": verifier,
        }
        login = tuple(urllib.parse.quote(each, safe="") for each in (self._settings.client_id, self._settings.secret))
        found = self._request("POST", self._address("token_endpoint"), data=form, auth=login)
        token = found.get("id_token")
        if not isinstance(token, str):
            _refuse("has no ID token")
        return token

    def _read_token(self, token: str, nonce: str) -> Mapping[str, Any]:
        """Return the claims of an ID token whose signature, issuer, audience, nonce and times are right."""
        from authlib.oidc.core import CodeIDToken  # noqa: PLC0415  (an extra)
        from joserfc import jwt  # noqa: PLC0415  (comes with authlib)
        from joserfc.errors import JoseError  # noqa: PLC0415
        from joserfc.jws import JWSRegistry  # noqa: PLC0415

        registry = JWSRegistry(algorithms=list(_ALGORITHMS), strict_check_header=False)
        wanted = {"iss": {"value": self._settings.issuer}, "aud": {"value": self._settings.client_id}}
        known = {"nonce": nonce, "client_id": self._settings.client_id}
        for again in (False, True):  # the provider may have new keys
            try:
                read = jwt.decode(token, self._keys(again), registry=registry)
                claims = CodeIDToken(read.claims, read.header, wanted, known)
                claims.validate(now=int(self._clock()), leeway=_LEEWAY_SECONDS)
            except (JoseError, ValueError, TypeError, KeyError):
                if again:
                    _refuse("cannot be trusted")
            else:
                return dict(claims)
        raise AssertionError  # pragma: no cover

    def _keys(self, again: bool) -> Any:
        from joserfc.jwk import KeySet  # noqa: PLC0415

        found = self._remember(self._address("jwks_uri"), again=again).get("keys")
        usable = [each for each in found or [] if isinstance(each, dict) and each.get("kty") != "oct"]
        return KeySet.import_key_set({"keys": usable})

    def _name_of(self, claims: Mapping[str, Any]) -> str:
        name = claims.get(self._settings.name_claim)
        if not isinstance(name, str) or not name:
            _refuse(f"has no {self._settings.name_claim}")
        if self._settings.name_claim == "email" and claims.get("email_verified") is not True:
            _refuse("has an email address that the provider has not verified")
        return name

    # What the provider publishes

    def _address(self, name: str) -> str:
        described = self._remember(f"{self._settings.issuer.rstrip('/')}/.well-known/openid-configuration")
        found = described.get(name)
        if (
            described.get("issuer") != self._settings.issuer
            or not isinstance(found, str)
            or not is_private_address(found)
        ):
            raise Refused(503, "sign_in_unavailable", "The sign-in of your organisation is not set up right.")
        return found

    def _remember(self, address: str, *, again: bool = False) -> dict[str, Any]:
        with self._lock:
            until, found = self._known.get(address, (0.0, {}))
        if again or self._clock() >= until:
            found = self._request("GET", address)
            with self._lock:
                self._known[address] = (self._clock() + _KEPT_SECONDS, found)
        return found

    def _request(self, method: str, address: str, **content: Any) -> dict[str, Any]:
        try:
            response = self._http.request(method, address, **content)
            found = response.json() if response.status_code == 200 and len(response.content) <= _MOST_BYTES else None
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
            found = None
        if not isinstance(found, dict):
            if method == "POST":
                _refuse("was not accepted")
            raise Refused(503, "sign_in_unavailable", "The sign-in of your organisation does not answer. Try again.")
        return found


def _refuse(why: str) -> NoReturn:
    raise Refused(403, "sign_in_failed", f"The answer of your organisation's sign-in {why}. Begin again.")
