"""The page on which somebody who is signed in makes a token for Python, with the same rights, and revokes it."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from expost.core import InvalidRequest
from expost.service.access_token import parse_duration
from expost.service.curator import Curator, status_of
from expost.service.http_requests import Gate
from expost.service.owner_routes import token_facts
from expost.service.page_frame import PageFrame, PageRoute, read_form
from expost.service.route_table import RouteLine, build_router, sender_of

__all__ = ["OwnTokenPages"]


class OwnTokenPages:
    """What everybody sees about the own tokens.

    Parameters
    ----------
    curator : Curator
        Who has the tokens.
    gate : Gate
        Who lets requests through.
    frame : PageFrame
        What renders the pages.
    """

    def __init__(self, curator: Curator, gate: Gate, frame: PageFrame) -> None:
        self._curator, self._gate, self._frame = curator, gate, frame

    def router(self) -> APIRouter:
        """Return the routes of the pages."""
        lines = [
            RouteLine("GET", "/token", "change own tokens", self.show),
            RouteLine("POST", "/token", "change own tokens", self.create),
            RouteLine("POST", "/token/{token}/revoke", "change own tokens", self.revoke),
        ]
        return build_router(lines, self._gate, PageRoute, in_schema=False)

    def show(self, request: Request) -> Response:
        """Show the tokens that somebody made, and the form that makes one."""
        return self._page(request)

    def _page(self, request: Request, **more: Any) -> Response:
        who = sender_of(request)
        tokens = list(map(token_facts, self._curator.own_tokens(who)))
        address = str(request.base_url).rstrip("/")
        return self._frame.render(
            request, "own_tokens.html", who, here="own tokens", tokens=tokens, address=address, **more
        )

    async def create(self, request: Request) -> Response:
        """Make a token, and show it once."""
        who, form = sender_of(request), await read_form(request)
        try:
            lifetime = parse_duration(form.get("expires") or "30d")
            made = await asyncio.to_thread(self._curator.create_own_token, who, lifetime)
        except InvalidRequest as error:
            return await asyncio.to_thread(self._page, request, status=status_of(error), error=str(error))
        return await asyncio.to_thread(self._page, request, made=made.text)

    def revoke(self, request: Request, token: str) -> Response:
        """Revoke a token that somebody made."""
        who = sender_of(request)
        self._curator.revoke_own_token(who, token)
        return RedirectResponse("/login" if token == who.token_id else "/token", 303)
