"""What all pages share: templates, who is signed in, forms that only our pages can send, and errors as pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from starlette.requests import ClientDisconnect

from expost.core import ExpostError
from expost.service.access_token import Identity, Role
from expost.service.curator import Curator, status_of
from expost.service.http_requests import COOKIE, Gate, log_failure
from expost.service.question_form import check_text
from expost.service.service_store import RequestState

__all__ = ["PageFrame", "PageRoute", "read_form", "static_files"]

_HERE = Path(__file__).parent
_HEADINGS = {403: "Not allowed", 404: "Not found", 429: "A little slower, please"}


class PageRoute(APIRoute):
    """A route whose errors are pages, and whose forms carry the text that only our pages know."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        handle = super().get_route_handler()

        async def page(request: Request) -> Response:
            try:
                return await handle(request)
            except ExpostError as error:
                if status_of(error) == 401:
                    # A cookie that no longer works deserves a reason; who comes for the first time needs none.
                    return RedirectResponse("/login?ended=1" if request.cookies.get(COOKIE) else "/login", 303)
                frame: PageFrame = request.app.state.pages
                return frame.error(request, error)
            except ClientDisconnect:
                raise
            except Exception as error:
                frame = request.app.state.pages
                return frame.failure(log_failure(error))

        return page


class PageFrame:
    """Renders templates with what every page shows.

    Parameters
    ----------
    curator : Curator
        Who answers.
    gate : Gate
        Who knows who is signed in.
    """

    def __init__(self, curator: Curator, gate: Gate) -> None:
        self._curator, self._gate = curator, gate
        loader = jinja2.FileSystemLoader(_HERE / "templates")
        self._templates = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)

    def render(
        self,
        request: Request,
        name: str,
        who: Identity | None = None,
        *,
        status: int = 200,
        here: str = "",
        **facts: Any,
    ) -> Response:
        """Return a page."""
        store = self._curator.store
        found = store.find_page_session(request.cookies.get(COOKIE, ""), self._curator.now())
        waiting = 0
        if who is not None and who.role is Role.OWNER:
            waiting = store.count_requests(RequestState.WAITING)
        common = {"who": who, "csrf": found[1] if found else "", "here": here, "waiting": waiting}
        common |= {"error": None, "made": None, "ended": False, "openid": self._curator.settings.openid is not None}
        return HTMLResponse(self._templates.get_template(name).render(common | facts), status)

    def fragment(self, name: str, **facts: Any) -> str:
        """Return a part of a page, for the script to put in its place."""
        return self._templates.get_template(name).render(facts)

    def error(self, request: Request, error: ExpostError) -> Response:
        """Return the page of an error."""
        who = self._gate.identify_cookie(request.cookies.get(COOKIE, ""))
        heading = _HEADINGS.get(status_of(error), "That did not work")
        return self.render(
            request,
            "error.html",
            who,
            status=status_of(error),
            heading=heading,
            back="/" if who else "/login",
            message=str(error),
        )

    def failure(self, error: ExpostError) -> Response:
        """Return the page of an error that nobody expected. It reads nothing: the database may be what failed."""
        facts = {"who": None, "csrf": "", "here": "", "waiting": 0, "back": "/"}
        facts |= {"heading": "That did not work", "message": str(error)}
        return HTMLResponse(self._templates.get_template("error.html").render(facts), status_of(error))


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form that the gate has let through, without the text that proves where it came from."""
    form = await request.form()
    found = {name: str(value).strip() for name, value in form.items() if name != "csrf"}
    check_text("".join(found.values()))
    return found


def static_files() -> StaticFiles:
    """Return the styles and the script of the pages."""
    return StaticFiles(directory=_HERE / "static")
