"""Signing in to the pages, with a token or through the organisation's OpenID Connect provider, and signing out."""

from __future__ import annotations

import base64
import datetime
import os
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from expost.service.access_token import Identity
from expost.service.curator import Curator, Refused
from expost.service.http_requests import COOKIE, Gate
from expost.service.openid_provider import OpenIdProvider
from expost.service.page_frame import PageFrame, PageRoute

__all__ = ["SignInPages"]

_SIGNED_IN = datetime.timedelta(hours=8)
_BEGUN = "expost_sign_in"
_BEGUN_SECONDS = 600
_MOST_NAME = 200


class SignInPages:
    """Opens and closes page sessions.

    Parameters
    ----------
    curator : Curator
        Who has the tokens.
    gate : Gate
        Who knows tokens and cookies.
    frame : PageFrame
        What renders the pages.
    provider : OpenIdProvider, optional
        Who signs people of the organisation in. Default: tokens only.
    """

    def __init__(self, curator: Curator, gate: Gate, frame: PageFrame, provider: OpenIdProvider | None) -> None:
        self._curator, self._gate, self._frame, self._provider = curator, gate, frame, provider
        self._secure = curator.settings.secure_cookies or curator.settings.certificate is not None

    def router(self) -> APIRouter:
        """Return the routes, which need no token."""
        router = APIRouter(route_class=PageRoute, include_in_schema=False)
        lines: list[tuple[str, str, Callable[..., Response]]] = [
            ("GET", "/login", self.show_login),
            ("POST", "/login", self.login),
            ("POST", "/logout", self.logout),
        ]
        if self._provider is not None:
            lines += [("GET", "/login/openid", self.begin_openid), ("GET", "/login/openid/back", self.finish_openid)]
        for method, path, handler in lines:
            router.add_api_route(path, handler, methods=[method], response_model=None)
        return router

    def show_login(self, request: Request) -> Response:
        """Show the form that takes a token."""
        return self._frame.render(request, "login.html", ended="ended" in request.query_params)

    def login(self, request: Request, token: str = Form(default="")) -> Response:
        """Open a page session for the holder of a token."""
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Refused(403, "forged", "Sign in on the page of this service.")
        identity = self._gate.identify_token(token.strip())
        if identity is None:
            error = "This token does not work. It may have expired."
            return self._frame.render(request, "login.html", status=401, error=error)
        return self._open_session(request, RedirectResponse("/", 303), identity)

    def logout(self, request: Request, csrf: str = Form(default="")) -> Response:
        """End a page session."""
        self._gate.check_csrf(request, csrf)
        self._curator.store.close_page_session(request.cookies.get(COOKIE, ""))
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE)
        return response

    def begin_openid(self, dataset: str = "") -> Response:
        """Send the browser to the sign-in of the organisation."""
        assert self._provider is not None
        page, begun = self._provider.begin(dataset[:_MOST_NAME] or None)
        response = RedirectResponse(page, 303)
        # Lax: the provider's page sends the browser back here, which Strict takes for another site's request.
        terms: dict[str, Any] = {"max_age": _BEGUN_SECONDS, "httponly": True, "secure": self._secure, "path": "/login"}
        response.set_cookie(_BEGUN, begun, samesite="lax", **terms)
        return response

    def finish_openid(self, request: Request) -> Response:
        """Open a page session for a person whom the organisation has signed in, with a token made for that name."""
        assert self._provider is not None
        signed_in = self._provider.finish(request.cookies.get(_BEGUN, ""), request.query_params)
        usable = [each for each in self._curator.usable_tokens(signed_in.name) if each.parent is None]
        wanted = [each for each in usable if each.dataset == signed_in.dataset] or usable
        if not wanted:
            raise Refused(403, "unknown_person", "You have no token of this service. Ask the owner for one.")
        token = wanted[-1]  # the newest
        identity = Identity.of(token)
        # A page of ours opens the next one: after a redirect from another site a Strict cookie would not be sent.
        response = self._frame.render(request, "signed_in.html")
        response.delete_cookie(_BEGUN, path="/login")
        return self._open_session(request, response, identity)

    def _open_session(self, request: Request, response: Response, identity: Identity) -> Response:
        cookie, csrf = (base64.urlsafe_b64encode(os.urandom(32)).decode() for _ in range(2))
        self._curator.store.close_page_session(request.cookies.get(COOKIE, ""))
        self._curator.store.open_page_session(cookie, identity.token_id, csrf, self._curator.now() + _SIGNED_IN)
        self._curator.log(identity.actor, "sign in", identity.dataset, token=identity.token_id)
        terms: dict[str, Any] = {"max_age": int(_SIGNED_IN.total_seconds()), "httponly": True, "secure": self._secure}
        response.set_cookie(COOKIE, cookie, samesite="strict", **terms)
        return response
