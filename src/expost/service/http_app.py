"""The service as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException

from expost.core import ExpostError, InvalidRequest
from expost.service.api_routes import AnalystApi
from expost.service.curator import Curator, Refused
from expost.service.http_requests import BodyLimit, Gate, refusal
from expost.service.job_pool import JobPool
from expost.service.openapi_document import describe_routes
from expost.service.openid_provider import OpenIdProvider
from expost.service.own_token_pages import OwnTokenPages
from expost.service.owner_pages import OwnerPages
from expost.service.owner_routes import OwnerApi
from expost.service.page_frame import PageFrame, static_files
from expost.service.page_routes import AnalystPages
from expost.service.service_metrics import ServiceMetrics
from expost.service.service_store import RequestState
from expost.service.sign_in_pages import SignInPages

__all__ = ["create_app"]


def create_app(curator: Curator) -> FastAPI:
    """Return the application: the routes under /v1, the pages, health and metrics.

    Parameters
    ----------
    curator : Curator
        Who answers.
    """
    gate, metrics = Gate(curator), ServiceMetrics()
    pool = JobPool(curator, gate)
    openid = curator.settings.openid
    provider = None if openid is None else OpenIdProvider(openid)

    @asynccontextmanager
    async def run(_: FastAPI) -> AsyncIterator[None]:
        yield
        pool.close()
        if provider is not None:
            provider.close()
        curator.close()

    app = FastAPI(
        title="expost",
        version=version("expost"),
        summary="Answers about private tables: as private as the accuracy that you need allows.",
        lifespan=run,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would repeat the host that the client named
        openapi_url="/v1/openapi.json",
    )
    app.state.curator, app.state.gate, app.state.pool = curator, gate, pool
    frame = PageFrame(curator, gate)
    app.state.pages = frame
    app.include_router(AnalystApi(curator, gate, pool).router())
    app.include_router(OwnerApi(curator, gate, pool).router())
    app.include_router(SignInPages(curator, gate, frame, provider).router())
    app.include_router(OwnTokenPages(curator, gate, frame).router())
    app.include_router(AnalystPages(curator, gate, pool, frame).router())
    app.include_router(OwnerPages(curator, gate, pool, frame).router())
    app.mount("/static", static_files())
    describe_routes(app)
    _add_health(app, curator, metrics)
    _add_error_forms(app)
    limits = curator.settings.limits
    app.add_middleware(BodyLimit, most=limits.body_bytes, seconds=limits.body_seconds, count=metrics.count)
    return app


def _add_health(app: FastAPI, curator: Curator, metrics: ServiceMetrics) -> None:
    @app.get("/health", include_in_schema=False)
    def health() -> Any:
        return {"status": "alive"}

    @app.get("/ready", include_in_schema=False)
    def ready() -> Any:
        if not curator.store.is_reachable():
            return refusal(Refused(503, "not_ready", "The service cannot reach its state. Try again."))
        return {"status": "ready"}

    @app.get("/metrics", include_in_schema=False)
    def show_metrics() -> Any:
        # How many questions run would tell how long they take, and what was spent is for the owner: neither is here.
        waiting = curator.store.count_requests(RequestState.WAITING)
        frozen = sum(curator.store.is_frozen(each.name) for each in curator.settings.datasets)
        facts = {"datasets": len(curator.settings.datasets), "datasets_frozen": frozen, "questions_waiting": waiting}
        return PlainTextResponse(metrics.text(facts), media_type="text/plain; version=0.0.4")


def _add_error_forms(app: FastAPI) -> None:
    """Give every error the same form; none repeats a library's message."""

    @app.exception_handler(ExpostError)
    async def expected(_: Request, error: ExpostError) -> Response:
        return refusal(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        place = error.errors()[0].get("loc", ("request",))[-1] if error.errors() else "request"
        return refusal(InvalidRequest(f"Expected a valid value of {place}", do="See /v1/openapi.json"))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        code, message = {
            404: ("not_found", "There is nothing here."),
            405: ("wrong_method", "This address does not take this method."),
        }.get(error.status_code, ("refused", "The request was refused."))
        refused_error = Refused(error.status_code, code, message)
        wants_page = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/v1/")
        return app.state.pages.error(request, refused_error) if wants_page else refusal(refused_error)
