"""Sends questions over HTTP: retries under one key, waits for jobs, and raises the errors that a session would."""

from __future__ import annotations

import contextlib
import time
import urllib.parse
import uuid
import warnings
from collections.abc import Mapping
from typing import Any

from expost.core import (
    BudgetExceeded,
    EngineFailed,
    ExpostError,
    InvalidRequest,
    LedgerBusy,
    LedgerUnsound,
    MissingExtra,
    TargetNotMet,
)
from expost.session.wire_format import decode_release

__all__ = ["HttpTransport", "ServiceRefused"]

_ATTEMPTS = 6
_FIRST_PAUSE = 0.2  # seconds, doubled from attempt to attempt
_AGAIN = (429, 502, 503, 504)
_JOB_WAIT = 15.0
_ERRORS: dict[str, type[ExpostError]] = {
    "invalid_request": InvalidRequest,
    "wrong_arguments": InvalidRequest,
    "missing_extra": InvalidRequest,
    "budget_exceeded": BudgetExceeded,
    "engine_failed": EngineFailed,
    "table_changed": EngineFailed,
    "ledger_unsound": LedgerUnsound,
    "ledger_busy": LedgerBusy,
}


class ServiceRefused(ExpostError):
    """The service refused a request, or could not be reached. ``status`` is that of HTTP, 0 if there was no answer.

    Parameters
    ----------
    message : str
        What the service said.
    status : int
        The status.
    code : str
        The stable code of the reason.
    cost : str
        What was spent.
    """

    code = "service_refused"
    cost = "see the message"

    def __init__(self, message: str, *, status: int, code: str, cost: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.cost = status, code, cost


class HttpTransport:
    """One connection to a service.

    Parameters
    ----------
    url : str
        The address of the service.
    token : str
        The analyst's token.
    timeout : float, default 60
        Seconds to wait for one response.
    client : object, optional
        A ready client of httpx2, for tests.
    """

    def __init__(self, url: str, token: str, *, timeout: float = 60.0, client: Any = None) -> None:
        parts = urllib.parse.urlsplit(url) if isinstance(url, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.netloc:
            raise InvalidRequest("Expected the address of a service", do='Pass e.g. "https://host"')
        if not isinstance(token, str) or not token.startswith("expost_"):
            raise InvalidRequest("Expected a token of the service", do="Ask its owner for one")
        self.url, self._token = url.rstrip("/"), token
        self._client = _open_client(timeout) if client is None else client

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def get(self, path: str, **parameters: Any) -> Any:
        """Return what the service has under a path."""
        return self._send("GET", path, params=parameters or None)

    def post(self, path: str, body: Any) -> Any:
        """Send a body that changes nothing that is paid for, and return the response."""
        return self._send("POST", path, json=body)

    def ask(self, path: str, body: Any, key: str | None = None) -> Any:
        """Send a question and wait for its answer. It is sent again under the same key if the connection fails."""
        found = self._send("POST", path, json=body, headers={"Idempotency-Key": key or str(uuid.uuid4())})
        return self._wait(found["job"], found) if "state" in found else found

    def _wait(self, job: str, found: Any) -> Any:
        """Return the answer of a job once it is there. Ctrl-C cancels the job."""
        told = False
        try:
            while found["state"] != "done":
                if found["state"] == "waiting for the owner" and not told:
                    told = True
                    warnings.warn(
                        "This question waits for the owner's approval. Nothing is spent until then.", stacklevel=2
                    )
                found = self.get(f"/v1/jobs/{job}", wait=_JOB_WAIT)
        except KeyboardInterrupt:
            with contextlib.suppress(ExpostError):
                self._send("DELETE", f"/v1/jobs/{job}")
            raise
        return _read_result(found["status"], found["result"])

    def _send(self, method: str, path: str, headers: Mapping[str, str] | None = None, **content: Any) -> Any:
        address = self.url + urllib.parse.quote(path, safe="/")
        sent = {"authorization": f"Bearer {self._token}", **(headers or {})}
        pause, status, reason = _FIRST_PAUSE, 0, "the service cannot be reached"
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(pause)
                pause *= 2
            try:
                response = self._client.request(method, address, headers=sent, **content)
            except _connection_errors():
                continue
            status = response.status_code
            if status in _AGAIN and not _is_final(response):
                continue
            return _read_result(status, _read_json(response))
        if status:
            return _read_result(status, _read_json(response))
        raise ServiceRefused(
            f"Cannot ask because {reason}. Check the address and try again.",
            status=0,
            code="unreachable",
            cost="unknown: ask again under the same key",
        )


def _open_client(timeout: float) -> Any:
    try:
        import httpx2  # noqa: PLC0415  (an extra)
    except ModuleNotFoundError:
        raise MissingExtra("client", package="httpx2") from None
    return httpx2.Client(timeout=timeout)


def _connection_errors() -> tuple[type[BaseException], ...]:
    import httpx2  # noqa: PLC0415  (an extra)

    return (httpx2.TransportError,)


def _is_final(response: Any) -> bool:
    """Return whether an unlucky status is the stored answer of a request, which no retry changes."""
    found = _read_json(response)
    return isinstance(found, dict) and ("job" in found or found.get("error", {}).get("code") == "interrupted")


def _read_json(response: Any) -> Any:
    try:
        return response.json()
    except ValueError:
        return {}


def _read_result(status: int, body: Any) -> Any:
    """Return the body of a good response, and raise the error that another one states."""
    if status < 400:
        return body
    told = body.get("error", {}) if isinstance(body, dict) else {}
    message, code, cost = (
        told.get("message", f"The service answered {status}"),
        told.get("code", ""),
        told.get("cost", ""),
    )
    if code == "target_not_met":
        raise TargetNotMet(message, decode_release(told["release"]))
    if code in _ERRORS:
        error = _ERRORS[code](message)
        error.cost = cost
        raise error
    raise ServiceRefused(message, status=status, code=code, cost=cost)
