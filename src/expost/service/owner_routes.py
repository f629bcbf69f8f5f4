"""The routes under /v1/owner: spending, tokens, approvals, freezing, the ledger and the audit log."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response
from starlette.background import BackgroundTask

from expost.core import ExpostError, InvalidRequest
from expost.core.rational import rational
from expost.ledger import EntryKind, LedgerHistory
from expost.ledger.backup import back_up_ledger
from expost.service.access_token import Identity, Role, TokenRecord, parse_duration
from expost.service.curator import Curator
from expost.service.http_requests import Gate, StrictRoute
from expost.service.job_pool import JobPool
from expost.service.question_limits import QuestionLimits
from expost.service.route_table import RouteLine, body_of, build_router, json_body, sender_of
from expost.service.service_store import RequestState
from expost.service.spending_report import report_spending

__all__ = ["OwnerApi", "change_frozen", "decide_request", "list_waiting", "make_token", "read_limits", "token_facts"]

_TOKEN = json_body(
    ["role", "subject"],
    {
        "role": {"type": "string", "enum": [each.value for each in Role]},
        "subject": {"type": "string"},
        "dataset": {"type": ["string", "null"]},
        "budget": {"type": ["number", "array", "null"], "items": {"type": "number"}},
        "expires": {"type": ["string", "null"]},
    },
    {"role": "analyst", "subject": "analyst-1", "dataset": "people", "budget": [0.5, 1e-7], "expires": "30d"},
)
_ROTATION = json_body([], {"expires": {"type": ["string", "null"]}}, {"expires": "30d"})
_DECISION = json_body(["approve"], {"approve": {"type": "boolean"}}, {"approve": True})
_LIMITS = json_body(
    ["question_cap", "approval_above"],
    {name: {"type": ["number", "null"]} for name in ("question_cap", "approval_above")},
    {"question_cap": 0.5, "approval_above": 0.2},
)


class OwnerApi:
    """What owners and auditors do by HTTP.

    Parameters
    ----------
    curator : Curator
        Who answers.
    gate : Gate
        Who lets requests through.
    pool : JobPool
        The threads that answer.
    """

    def __init__(self, curator: Curator, gate: Gate, pool: JobPool) -> None:
        self._curator, self._gate, self._pool = curator, gate, pool

    def router(self) -> APIRouter:
        """Return the routes."""
        lines = [
            RouteLine("GET", "/spending", "see spending", self.show_spending),
            RouteLine("GET", "/log", "see audit log", self.show_log),
            RouteLine("GET", "/verify", "verify ledger", self.verify),
            RouteLine("GET", "/anchor", "verify ledger", self.show_anchor),
            RouteLine("GET", "/ledger.csv", "export ledger", self.export),
            RouteLine("GET", "/ledger.backup", "back up ledger", self.back_up),
            RouteLine("GET", "/tokens", "see tokens", self.list_tokens),
            RouteLine("POST", "/tokens", "change tokens", self.create_token, _TOKEN),
            RouteLine("DELETE", "/tokens/{token}", "change tokens", self.revoke_token),
            RouteLine("POST", "/tokens/{token}/rotate", "change tokens", self.rotate_token, _ROTATION),
            RouteLine("GET", "/approvals", "see approvals", self.list_approvals),
            RouteLine("POST", "/approvals/{job}", "decide approvals", self.decide, _DECISION),
            RouteLine("POST", "/datasets/{dataset}/limits", "change limits", self.change_limits, _LIMITS),
            RouteLine("POST", "/datasets/{dataset}/freeze", "freeze datasets", self.freeze),
            RouteLine("POST", "/datasets/{dataset}/thaw", "freeze datasets", self.thaw),
        ]
        return build_router(lines, self._gate, StrictRoute, prefix="/v1/owner")

    def show_spending(self, request: Request) -> Any:
        """Return what was spent, by dataset and by analyst."""
        return report_spending(self._curator, sender_of(request))

    def show_log(self, request: Request) -> Any:
        """Return the audit log and whether it is unchanged."""
        chosen = sender_of(request).dataset
        lines = [vars(each) for each in self._curator.store.read_log() if chosen in (None, each.dataset)]
        return {"intact": self._curator.store.check_log(), "lines": lines}

    def verify(self) -> Any:
        """Recompute the ledger and say whether it adds up."""
        return {"report": str(self._curator.ledger.verify())}

    def export(self, request: Request) -> Any:
        """Return the ledger as CSV."""
        chosen = sender_of(request).dataset
        entries = self._curator.ledger.history(None if chosen is None else f"dataset:{chosen}")
        # A source entry says where the owner keeps the table.
        history = LedgerHistory(each for each in entries if each.kind is not EntryKind.SOURCE)
        return PlainTextResponse(history.to_csv(), media_type="text/csv")

    def show_anchor(self) -> Any:
        """Return a note of the ledger's newest entry, to be kept elsewhere and passed to a later check."""
        return {"anchor": self._curator.ledger.anchor()}

    def back_up(self) -> Response:
        """Return a consistent, verified copy of a ledger that is a file. Its anchor is in the header Expost-Anchor."""
        if "://" in self._curator.settings.ledger:
            raise InvalidRequest("Expected a ledger in a file", do="Back up the database: see docs/howto/deploy.md")
        folder = tempfile.mkdtemp(prefix="expost-backup-")
        try:
            target = str(Path(folder) / "service.backup")
            anchor = back_up_ledger(self._curator.settings.ledger, target)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        gone = BackgroundTask(shutil.rmtree, folder, ignore_errors=True)
        headers = {"expost-anchor": anchor}
        return FileResponse(target, headers=headers, filename="service.backup", background=gone)

    def change_limits(self, request: Request, dataset: str) -> Any:
        """Decide what one question of an analyst may cost: ``{"question_cap": 0.5, "approval_above": 0.2}``."""
        limits = read_limits(body_of(request))
        self._curator.change_limits(dataset, limits, actor=sender_of(request).actor)
        return {"dataset": dataset} | limits.to_dict()

    def list_tokens(self) -> Any:
        """List all tokens, without their secrets."""
        return {"tokens": list(map(token_facts, self._curator.store.list_tokens()))}

    def create_token(self, request: Request) -> Any:
        """Make a token. Its text is in this response and nowhere else."""
        return make_token(self._curator, body_of(request), actor=sender_of(request).actor)

    def revoke_token(self, request: Request, token: str) -> Any:
        """Revoke a token."""
        self._curator.revoke_token(token, actor=sender_of(request).actor)
        return {"revoked": token}

    def rotate_token(self, request: Request, token: str) -> Any:
        """Revoke a token and make another one for its holder: ``{"expires": "30d"}``, or ``{}`` for the old end."""
        body = body_of(request)
        if (
            not isinstance(body, dict)
            or not set(body) <= {"expires"}
            or not isinstance(body.get("expires"), str | None)
        ):
            raise InvalidRequest("Expected at most a text for expires", do='Send {} or {"expires": "30d"}')
        lifetime = None if body.get("expires") is None else parse_duration(body["expires"])
        secret = self._curator.rotate_token(token, lifetime=lifetime, actor=sender_of(request).actor)
        return {"token": secret.text, "id": secret.token_id}

    def list_approvals(self) -> Any:
        """List the questions that wait for the owner."""
        return {"waiting": list_waiting(self._curator, self._pool)}

    def decide(self, request: Request, job: str) -> Any:
        """Approve or refuse a question: ``{"approve": true}``."""
        body = body_of(request)
        if not isinstance(body, dict) or set(body) != {"approve"} or not isinstance(body["approve"], bool):
            raise InvalidRequest("Expected a decision", do='Send {"approve": true} or {"approve": false}')
        decide_request(self._curator, self._pool, job, approved=body["approve"], who=sender_of(request))
        return {"job": job, "approved": body["approve"]}

    def freeze(self, request: Request, dataset: str) -> Any:
        """Refuse all questions about a dataset from now on."""
        return change_frozen(self._curator, dataset, frozen=True, who=sender_of(request))

    def thaw(self, request: Request, dataset: str) -> Any:
        """Allow questions about a dataset again."""
        return change_frozen(self._curator, dataset, frozen=False, who=sender_of(request))


def read_limits(body: Any) -> QuestionLimits:
    """Return the limits that a request describes; null is no limit."""
    names = ("question_cap", "approval_above")
    if not isinstance(body, dict) or set(body) != set(names):
        raise InvalidRequest("Expected question_cap and approval_above", do="Send an epsilon or null for each")
    return QuestionLimits(*(None if body[name] is None else rational(body[name], name) for name in names))


def list_waiting(curator: Curator, pool: JobPool) -> list[dict[str, Any]]:
    """Return the questions that wait for the owner: who asks what, and what it may cost."""
    found = []
    for each in curator.store.list_requests(state=RequestState.WAITING):
        asker = Identity(Role.ANALYST, each.subject, each.dataset, "")
        try:
            price = curator.price_of(each.kind, each.dataset, asker, json.loads(each.body))["worst_case_text"]
        except ExpostError as error:  # the budget has changed since
            price = str(error)
        found.append(pool.describe(each) | {"analyst": each.subject, "may_cost": price, "body": json.loads(each.body)})
    return found


def change_frozen(curator: Curator, dataset: str, *, frozen: bool, who: Identity) -> dict[str, Any]:
    """Refuse questions about a dataset, or allow them again."""
    (curator.store.freeze if frozen else curator.store.thaw)(dataset)
    curator.log(who.actor, "freeze" if frozen else "thaw", dataset)
    return {"dataset": dataset, "frozen": frozen}


def decide_request(curator: Curator, pool: JobPool, job: str, *, approved: bool, who: Identity) -> None:
    """Approve a question, which then runs for the analyst who asked it, or refuse it."""
    record = curator.decide(job, approved=approved, actor=who.actor)
    if approved:
        pool.start(record, Identity(Role.ANALYST, record.subject, record.dataset, f"approved {record.subject}"))


def make_token(curator: Curator, body: Any, *, actor: str) -> dict[str, Any]:
    """Make the token that a request describes."""
    known = {"role", "subject", "dataset", "budget", "expires"}
    if not isinstance(body, dict) or not set(body) <= known:
        raise InvalidRequest(f"Expected the keys {', '.join(sorted(known))}", do="Correct the body")
    roles = {each.value: each for each in Role}
    role, budget, dataset, expires = (body.get(name) for name in ("role", "budget", "dataset", "expires"))
    if not isinstance(role, str) or role not in roles:
        shown = role if isinstance(role, str) else type(role).__name__
        raise InvalidRequest("Expected a role", got=shown, do=f"Use one of: {', '.join(roles)}")
    if not (dataset is None or isinstance(dataset, str)) or not (expires is None or isinstance(expires, str)):
        raise InvalidRequest("Expected texts for dataset and expires", do='Send e.g. "expires": "30d"')
    secret = curator.create_token(
        role=roles[role],
        subject=body.get("subject", ""),
        dataset=dataset,
        budget=tuple(budget) if isinstance(budget, list) else budget,
        lifetime=None if expires is None else parse_duration(expires),
        actor=actor,
    )
    return {"token": secret.text, "id": secret.token_id}


def token_facts(record: TokenRecord) -> dict[str, Any]:
    """Return the public facts of a token."""

    def minute(moment: Any) -> str | None:
        return None if moment is None else moment.isoformat(timespec="minutes")

    return {
        "id": record.token_id,
        "own": record.parent is not None,
        "role": record.role.value,
        "subject": record.subject,
        "dataset": record.dataset,
        "created": minute(record.created),
        "expires": minute(record.expires),
        "revoked": minute(record.revoked),
    }
