"""A small OpenID Connect provider for tests, which can also answer wrongly in every way that an attacker might."""

import base64
import hashlib
import time
import urllib.parse
from typing import Any

from fastapi import FastAPI, Form, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from fastapi.testclient import TestClient
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

CLIENT, SECRET = "expost-service", "s3cret/with+signs"


class LoginProvider:
    """Signs ``person`` in without asking. ``twist`` names one thing that it does wrong."""

    def __init__(self, issuer: str = "http://127.0.0.1:9", service: str = "http://127.0.0.1:8000") -> None:
        self.issuer, self.redirect = issuer, f"{service}/login/openid/back"
        self.person: dict[str, Any] = {"sub": "7", "email": "ann", "email_verified": True}
        self.twist, self.asked = "", list[str]()
        self._key = RSAKey.generate_key(2048, {"kid": "one"})
        self._codes: dict[str, dict[str, str]] = {}
        self.app = FastAPI()
        self.app.get("/.well-known/openid-configuration")(self.describe)
        self.app.get("/authorize")(self.authorize)
        self.app.post("/token")(self.exchange)
        self.app.get("/keys")(self.list_keys)

    def client(self) -> TestClient:
        """Return a client of this provider that needs no network."""
        return TestClient(self.app, base_url=self.issuer, follow_redirects=False)

    def describe(self) -> dict[str, Any]:
        places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        if self.twist == "plain addresses":
            return {"issuer": self.issuer} | {name: f"http://other.example/{each}" for name, each in places.items()}
        issuer = "http://127.0.0.1:1" if self.twist == "other issuer described" else self.issuer
        return {"issuer": issuer} | {name: f"{self.issuer}/{each}" for name, each in places.items()}

    def authorize(self, request: Request) -> Response:
        given = dict(request.query_params)
        assert given["response_type"] == "code" and given["client_id"] == CLIENT
        assert given["redirect_uri"] == self.redirect and given["code_challenge_method"] == "S256"
        code = f"code-{len(self._codes)}"
        self._codes[code] = given
        back = {"code": code, "state": given["state"], "iss": self.issuer}
        if self.twist == "other state":
            back["state"] = "forged"
        if self.twist == "other provider":
            back["iss"] = "https://evil.example"
        if self.twist == "refused":
            back = {"error": "access_denied", "state": given["state"]}
        return RedirectResponse(f"{self.redirect}?{urllib.parse.urlencode(back)}", 302)

    def exchange(
        self, request: Request, code: str = Form(), code_verifier: str = Form(), redirect_uri: str = Form()
    ) -> Response:
        login = base64.b64decode(request.headers["authorization"].split(" ")[1]).decode()
        assert tuple(map(urllib.parse.unquote, login.split(":"))) == (CLIENT, SECRET)
        given = self._codes.pop(code, None)  # a code works once
        challenge = base64.urlsafe_b64encode(hashlib.sha256(code_verifier.encode()).digest()).decode().rstrip("=")
        if given is None or given["code_challenge"] != challenge or given["redirect_uri"] != redirect_uri:
            return JSONResponse({"error": "invalid_grant"}, 400)
        token = {"token_type": "Bearer", "access_token": "unused"}
        return JSONResponse(token if self.twist == "no token" else token | {"id_token": self._sign(given["nonce"])})

    def list_keys(self) -> dict[str, Any]:
        self.asked.append("keys")
        public = self._key.as_dict(private=False)
        return {"keys": [public, {"kty": "oct", "k": base64.urlsafe_b64encode(b"known" * 8).decode(), "kid": "shared"}]}

    def change_key(self) -> None:
        """Sign with a new key from now on."""
        self._key = RSAKey.generate_key(2048, {"kid": "two"})

    def _sign(self, nonce: str) -> str:
        now = int(time.time())
        claims: dict[str, Any] = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": nonce}
        claims |= self.person
        claims |= {
            "other issuer": {"iss": "https://evil.example"},
            "other audience": {"aud": "another-service"},
            "expired": {"exp": now - 3600, "iat": now - 7200},
            "other nonce": {"nonce": "of another browser"},
            "unverified": {"email_verified": False},
            "unverified text": {"email_verified": "true"},
            "no name": {"email": None},
            "other party": {"aud": [CLIENT, "x"], "azp": "x"},
        }.get(self.twist, {})
        if self.twist == "no nonce":
            del claims["nonce"]
        if self.twist == "no signature":
            head, body = ({"alg": "none"}, claims)
            return ".".join(_encode(each) for each in (head, body)) + "."
        if self.twist == "shared key":
            key = OctKey.import_key(b"known" * 8)
            return jwt.encode({"alg": "HS256", "kid": "shared"}, claims, key)
        if self.twist == "foreign key":
            return jwt.encode({"alg": "RS256", "kid": "one"}, claims, RSAKey.generate_key(2048))
        signed = jwt.encode({"alg": "RS256", "kid": self._key.kid}, claims, self._key)
        if self.twist == "changed":
            head, body, signature = signed.split(".")
            body = _encode(claims | {"email": "owner"})
            return ".".join((head, body, signature))
        return signed


def _encode(part: dict[str, Any]) -> str:
    import json

    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
