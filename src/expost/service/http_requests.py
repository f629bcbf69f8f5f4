"""What every request passes: size, form, identity, rights and rate; and the one form of every error."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import threading
import time
from collections.abc import Awaitable, Callable

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from expost.core import ExpostError
from expost.service.access_token import Identity, TokenRecord, TokenSecret, VerifiedTokens
from expost.service.curator import Curator, Refused, error_body, status_of
from expost.service.permission import is_allowed
from expost.service.question_form import parse_body

__all__ = ["COOKIE", "BodyLimit", "Gate", "StrictRoute", "refusal", "log_failure"]

COOKIE = "expost_session"
_MOST_GUESSES = 120
_LOG = logging.getLogger("expost.service")
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def refusal(error: ExpostError) -> JSONResponse:
    """Return an error in its one form."""
    headers = {"retry-after": "1"} if status_of(error) in (429, 503) else {}
    if status_of(error) == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(error_body(error), status_of(error), headers)


class StrictRoute(APIRoute):
    """A route whose body is read strictly, and whose errors have one form and carry no library's message."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            try:
                # With a token the type may be anything, as curl sends it; forms come with a cookie.
                told = "authorization" in request.headers or "json" in request.headers.get("content-type", "json")
                if request.method in ("POST", "PUT", "PATCH") and told:
                    body = await request.body()
                    if body:
                        request.state.body = parse_body(body, depth=request.app.state.curator.settings.limits.depth)
                return await handle(request)
            except ExpostError as error:
                return refusal(error)

        return strict


class BodyLimit:
    """The outermost layer: refuses long and slow bodies, adds the headers of every response, and hides failures.

    ``count`` is called with every response: its request and its status.
    """

    def __init__(self, app: ASGIApp, *, most: int, seconds: float, count: Callable[[Scope, int], None]) -> None:
        self._app, self._most, self._seconds, self._count = app, most, seconds, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body, started = _CountedBody(receive, self._most, self._seconds), False

        async def add_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(scope, message["status"])
                given = {name.lower() for name, _ in message["headers"]}
                message["headers"] = list(message["headers"]) + [
                    (name.encode(), value.encode()) for name, value in _HEADERS.items() if name.encode() not in given
                ]
            await send(message)

        async def watch(message: Message) -> None:
            nonlocal started
            if body.refused is None:
                started = True
                await add_headers(message)

        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or len(declared) > 18 or int(declared) > self._most:
            body.refused = _too_long(self._most)
        else:
            try:
                await self._app(scope, body.receive, watch)
            except ClientDisconnect:
                return
            except Exception as error:
                if body.refused is None:
                    body.refused = log_failure(error)
        if body.refused is not None and not started:
            await refusal(body.refused)(scope, receive, add_headers)


def log_failure(error: Exception) -> Refused:
    """Log an error that nobody expected, and return what its request is told."""
    # The type alone: a message or a traceback may carry cells.
    _LOG.error("internal error: %s", type(error).__name__)
    if isinstance(error, SQLAlchemyError):
        again = "The service cannot reach its database. Send the request again, under the same Idempotency-Key."
        return Refused(503, "unavailable", again, "see the ledger")
    return Refused(500, "internal", "The service failed.", "see the ledger")


class _CountedBody:
    """Passes the body of a request on, until it is too long or too slow."""

    def __init__(self, receive: Receive, most: int, seconds: float) -> None:
        self._receive, self._most, self._seconds = receive, most, seconds
        self._until: float | None = None  # from the first reading on: a busy service is not a slow client
        self._read, self._complete = 0, False
        self.refused: Refused | None = None

    async def receive(self) -> Message:
        """Return the next part. What is refused raises: a part that was read may be a whole question."""
        try:
            # After the body comes nothing but the end of the connection, which may take as long as an answer.
            now = time.monotonic()
            self._until = now + self._seconds if self._until is None else self._until
            left = None if self._complete else self._until - now
            message = await asyncio.wait_for(self._receive(), left)
        except TimeoutError:
            slow = f"Expected the body within {self._seconds:g} seconds. Send it again."
            self.refused = Refused(408, "too_slow", slow)
            raise self.refused from None
        self._read += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._read > self._most:
            self.refused = _too_long(self._most)
            raise self.refused
        return message


def _too_long(most: int) -> Refused:
    return Refused(413, "too_long", f"Expected a body of at most {most} bytes. Send a shorter one.")


class Gate:
    """Finds out who sends a request, and whether that is allowed."""

    def __init__(self, curator: Curator) -> None:
        self._curator, self._verified = curator, VerifiedTokens()
        self._sent: dict[str, tuple[float, int]] = {}
        self._running: dict[str, int] = {}
        self._guesses = (0.0, 0)  # when the minute began, and the wrong tokens in it
        self._lock = threading.Lock()

    def identify(self, request: Request) -> Identity:
        """Return who sends a request, by its token or its cookie; refuse if that is nobody."""
        header = request.headers.get("authorization", "")
        scheme, _, text = header.partition(" ")
        if header:
            found = self.identify_token(text.strip()) if scheme.lower() == "bearer" else None
            if found is not None:
                return found
            raise Refused(401, "unauthorized", "Expected a valid token. Send it as: Authorization: Bearer TOKEN.")
        found = self.identify_cookie(request.cookies.get(COOKIE, ""))
        if found is None:
            raise Refused(401, "unauthorized", "Expected a valid token. Send it as: Authorization: Bearer TOKEN.")
        return found

    def identify_token(self, text: str) -> Identity | None:
        """Return whose token a text is."""
        secret = TokenSecret.parse(text)
        if secret is None:
            return None
        record = self._curator.store.find_token(secret.token_id)
        if not self._verified.remembers(secret, record) and not self._check_guess(secret, record):
            return None
        return Identity.of(record) if record is not None and record.is_usable(self._curator.now()) else None

    def _check_guess(self, secret: TokenSecret, record: TokenRecord | None) -> bool:
        """Compute the slow hash of a token that is new here, unless too many wrong ones came in this minute.

        Otherwise anybody could keep the processors busy with it. Tokens that have worked before are not affected.
        """
        now = time.monotonic()
        with self._lock:
            began, wrong = self._guesses if now - self._guesses[0] < 60 else (now, 0)
            self._guesses = (began, wrong + 1)
        if wrong >= _MOST_GUESSES:
            raise Refused(429, "too_many_guesses", "Too many wrong tokens were sent to this service. Wait a minute.")
        found = self._verified.matches(secret, record)
        if found:
            with self._lock:
                self._guesses = (self._guesses[0], max(0, self._guesses[1] - 1))
        return found

    def identify_cookie(self, cookie: str) -> Identity | None:
        """Return whose page session a cookie is; its token must still work."""
        found = self._curator.store.find_page_session(cookie, self._curator.now()) if cookie else None
        record = None if found is None else self._curator.store.find_token(found[0])
        if record is None or not record.is_usable(self._curator.now()):
            return None
        return Identity.of(record)

    def check_usable(self, identity: Identity) -> None:
        """Refuse to give an answer to a token that was revoked or has expired since its request began."""
        record = self._curator.store.find_token(identity.token_id)
        if record is None or not record.is_usable(self._curator.now()):
            raise Refused(401, "unauthorized", "Your token no longer works. Ask the owner.", "see the ledger")

    def check_csrf(self, request: Request, given: str) -> None:
        """Refuse a change that a page of ours did not send."""
        found = self._curator.store.find_page_session(request.cookies.get(COOKIE, ""), self._curator.now())
        if found is None or not hmac.compare_digest(_digest(found[1]), _digest(given)):
            raise Refused(403, "forged", "This form has expired. Load the page again.")

    def allow(self, request: Request, action: str, dataset: str | None = None) -> Identity:
        """Return who sends a request, if that one may take an action; refuse otherwise."""
        identity = self.identify(request)
        self._count(identity)
        if not is_allowed(identity, action, dataset):
            # A dataset that somebody may not see must look like one that is not there.
            if dataset is not None and identity.dataset not in (None, dataset):
                raise Refused(404, "not_found", "There is no such dataset.")
            raise Refused(403, "forbidden", "Your token does not allow this. Ask the owner.")
        if dataset is not None:
            self._curator.describe_dataset(dataset)
        return identity

    def _count(self, identity: Identity) -> None:
        most, now = self._curator.settings.limits.requests_per_minute, time.monotonic()
        with self._lock:
            began, sent = self._sent.get(identity.limited_as, (now, 0))
            began, sent = (now, 0) if now - began >= 60 else (began, sent)
            self._sent[identity.limited_as] = (began, sent + 1)
        if sent >= most:
            raise Refused(429, "too_many_requests", f"Expected at most {most} requests per minute. Wait a little.")

    def start_job(self, identity: Identity) -> None:
        """Count a running question of a token; refuse if there are too many."""
        most = self._curator.settings.limits.jobs_per_token
        with self._lock:
            running = self._running.get(identity.limited_as, 0)
            if running < most:
                self._running[identity.limited_as] = running + 1
        if running >= most:
            raise Refused(429, "too_many_jobs", f"Expected at most {most} questions at the same time. Wait for one.")

    def end_job(self, identity: Identity) -> None:
        """Count a question of a token that has ended."""
        with self._lock:
            self._running[identity.limited_as] = max(0, self._running.get(identity.limited_as, 0) - 1)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
