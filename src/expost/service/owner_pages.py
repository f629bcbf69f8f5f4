"""The owner's pages: who spent what, tokens, approvals, freezing, and the audit log."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from expost.core import ExpostError
from expost.service.access_token import Identity, Role
from expost.service.curator import Curator, status_of
from expost.service.http_requests import Gate
from expost.service.job_pool import JobPool
from expost.service.owner_routes import (
    change_frozen,
    decide_request,
    list_waiting,
    make_token,
    read_limits,
    token_facts,
)
from expost.service.page_frame import PageFrame, PageRoute, read_form
from expost.service.page_picture import LINE_COLOURS, draw_answers, draw_spending
from expost.service.question_menu import read_number
from expost.service.route_table import RouteLine, build_router, sender_of
from expost.service.spending_report import report_spending, trace_spending

__all__ = ["OwnerPages"]


class OwnerPages:
    """What owners and auditors see.

    Parameters
    ----------
    curator : Curator
        Who answers.
    gate : Gate
        Who lets requests through.
    pool : JobPool
        The threads that answer.
    frame : PageFrame
        What renders the pages.
    """

    def __init__(self, curator: Curator, gate: Gate, pool: JobPool, frame: PageFrame) -> None:
        self._curator, self._gate, self._pool, self._frame = curator, gate, pool, frame

    def router(self) -> APIRouter:
        """Return the routes of the pages."""
        lines = [
            RouteLine("GET", "/owner", "see spending", self.show_spending),
            RouteLine("GET", "/owner/log", "see audit log", self.show_log),
            RouteLine("GET", "/owner/tokens", "see tokens", self.show_tokens),
            RouteLine("POST", "/owner/tokens", "change tokens", self.create_token),
            RouteLine("POST", "/owner/tokens/{token}/revoke", "change tokens", self.revoke_token),
            RouteLine("POST", "/owner/tokens/{token}/rotate", "change tokens", self.rotate_token),
            RouteLine("GET", "/owner/approvals", "see approvals", self.show_approvals),
            RouteLine("POST", "/owner/approvals/{job}", "decide approvals", self.decide),
            RouteLine("POST", "/owner/datasets/{dataset}/limits", "change limits", self.change_limits),
            RouteLine("POST", "/owner/datasets/{dataset}/freeze", "freeze datasets", self.freeze),
            RouteLine("POST", "/owner/datasets/{dataset}/thaw", "freeze datasets", self.thaw),
        ]
        return build_router(lines, self._gate, PageRoute, in_schema=False)

    def show_spending(self, request: Request) -> Response:
        """Show budgets and charges by dataset and analyst."""
        who = sender_of(request)
        accounts = report_spending(self._curator, who)["accounts"]
        found = []
        for each in self._curator.settings.datasets:
            own = next((one for one in accounts if one["account"] == f"dataset:{each.name}"), None)
            if own is None:
                continue
            shown = {
                "name": each.name,
                "title": each.title,
                "percent": round(100 * own["share"], 1),
                "frozen": self._curator.store.is_frozen(each.name),
                "spent": _without_delta(own["spent"]),
                "analysts": [
                    one | {"spent": _without_delta(one["spent"])}
                    for one in accounts
                    if one["dataset"] == each.name and one["analyst"]
                ],
                "limits": self._curator.limits_of(each.name).to_dict(),
                **self._draw_spending(each.name),
            }
            found.append(own | shown)
        terms: dict[str, Any] = {
            "datasets": found,
            "verified": f"The ledger was checked: {self._curator.ledger.verify()}.",
            "can_change": who.role is Role.OWNER,
            "in_file": "://" not in self._curator.settings.ledger,
        }
        return self._frame.render(request, "spending.html", who, here="spending", **terms)

    def _draw_spending(self, dataset: str) -> dict[str, Any]:
        traced, budget = trace_spending(self._curator, dataset), self._curator.ledger.budget(f"dataset:{dataset}")
        top = float(budget.amounts().get("epsilon", 0))
        legend = [
            (number % LINE_COLOURS, name, amounts[-1])
            for number, (name, amounts) in enumerate(traced.lines.items())
            if amounts
        ]
        parts = [(name, amount, None, None) for name, amount in traced.parts]
        return {
            "picture": draw_spending(traced.lines, traced.times, top),
            "legend": legend,
            "parts": draw_answers(parts),
        }

    def show_log(self, request: Request) -> Response:
        """Show who did what."""
        who, store = sender_of(request), self._curator.store
        lines = [
            {"minute": each.at[:16].replace("T", " "), "facts": _facts_of(each.detail), **vars(each)}
            for each in store.read_log()
            if who.dataset in (None, each.dataset)
        ]
        return self._frame.render(request, "log.html", who, here="log", lines=lines, intact=store.check_log())

    def show_tokens(self, request: Request) -> Response:
        """Show all tokens, and the form that makes one."""
        return self._tokens_page(request, sender_of(request))

    def _tokens_page(self, request: Request, who: Identity, **more: Any) -> Response:
        now = self._curator.now()
        tokens = [
            token_facts(each) | {"expired": each.expires is not None and each.expires <= now}
            for each in self._curator.store.list_tokens()
        ]
        datasets = [{"name": each.name, "title": each.title} for each in self._curator.settings.datasets]
        return self._frame.render(request, "tokens.html", who, here="tokens", tokens=tokens, datasets=datasets, **more)

    async def create_token(self, request: Request) -> Response:
        """Make the token of a form, and show it once."""
        who, form = sender_of(request), await read_form(request)
        try:
            made = await asyncio.to_thread(make_token, self._curator, _token_of(form), actor=who.actor)
        except ExpostError as error:
            terms = {"status": status_of(error), "error": str(error)}
            return await asyncio.to_thread(self._tokens_page, request, who, **terms)
        return await asyncio.to_thread(self._tokens_page, request, who, made=made["token"])

    def revoke_token(self, request: Request, token: str) -> Response:
        """Revoke a token."""
        self._curator.revoke_token(token, actor=sender_of(request).actor)
        return RedirectResponse("/owner/tokens", 303)

    def rotate_token(self, request: Request, token: str) -> Response:
        """Replace a token by another one with the same end, and show that once."""
        who = sender_of(request)
        try:
            made = self._curator.rotate_token(token, actor=who.actor)
        except ExpostError as error:
            return self._tokens_page(request, who, status=status_of(error), error=str(error))
        return self._tokens_page(request, who, made=made.text)

    def show_approvals(self, request: Request) -> Response:
        """Show the questions that wait for the owner."""
        found = list_waiting(self._curator, self._pool)
        return self._frame.render(request, "approvals.html", sender_of(request), here="approvals", requests=found)

    async def decide(self, request: Request, job: str) -> Response:
        """Approve or refuse a question."""
        approved = (await read_form(request)).get("approve") == "yes"
        who = sender_of(request)
        await asyncio.to_thread(decide_request, self._curator, self._pool, job, approved=approved, who=who)
        return RedirectResponse("/owner/approvals", 303)

    async def change_limits(self, request: Request, dataset: str) -> Response:
        """Decide what one question of an analyst may cost."""
        who, form = sender_of(request), await read_form(request)
        names = {"question_cap": "the most for one question", "approval_above": "the limit for your approval"}
        given = {name: read_number(form[name], what) if form.get(name) else None for name, what in names.items()}
        await asyncio.to_thread(self._curator.change_limits, dataset, read_limits(given), actor=who.actor)
        return RedirectResponse("/owner", 303)

    def freeze(self, request: Request, dataset: str) -> Response:
        """Refuse all questions about a dataset."""
        change_frozen(self._curator, dataset, frozen=True, who=sender_of(request))
        return RedirectResponse("/owner", 303)

    def thaw(self, request: Request, dataset: str) -> Response:
        """Allow questions about a dataset again."""
        change_frozen(self._curator, dataset, frozen=False, who=sender_of(request))
        return RedirectResponse("/owner", 303)


def _without_delta(spent: str) -> str:
    """Return what was spent without a delta that is zero."""
    return spent.removesuffix(", delta 0")


def _facts_of(detail: str) -> list[tuple[str, str]]:
    """Return the details of a log line as names and short texts."""
    return [
        (name, str(value)[:16] if name in ("request", "token") else str(value))
        for name, value in json.loads(detail).items()
    ]


def _token_of(form: dict[str, str]) -> dict[str, Any]:
    """Return the token of a form, as the routes under /v1 take it."""
    body: dict[str, Any] = {name: form[name] for name in ("subject", "role", "dataset", "expires") if form.get(name)}
    if body.get("role") == "owner":
        body.pop("dataset", None)
    if form.get("budget"):
        amount = read_number(form["budget"], "the budget")
        body["budget"] = [amount, read_number(form["delta"], "delta")] if form.get("delta") else amount
    return body
