"""Routes as lines of a table: address, method, the right that is needed, and who handles it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from expost.core import InvalidRequest
from expost.service.access_token import Identity
from expost.service.http_requests import Gate
from expost.service.permission import ACTIONS
from expost.service.question_form import check_text

__all__ = ["RouteLine", "body_of", "build_router", "json_body", "sender_of"]


@dataclass(frozen=True)
class RouteLine:
    """One route. ``action`` is that of the table of rights; a route about a dataset has ``{dataset}`` in its path."""

    method: str
    path: str
    action: str
    handler: Callable[..., Any]
    schema: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise InvalidRequest("Expected an action of the table of rights", got=self.action, do="See permission.py")


def build_router(
    lines: Iterable[RouteLine], gate: Gate, route_class: type[APIRoute], *, prefix: str = "", in_schema: bool = True
) -> APIRouter:
    """Return a router in which every route checks its right before its handler runs."""
    router = APIRouter(prefix=prefix, route_class=route_class, include_in_schema=in_schema)
    for line in lines:
        router.add_api_route(
            line.path,
            line.handler,
            methods=[line.method],
            dependencies=[Depends(_checker(gate, line.action))],
            openapi_extra={"x-action": line.action} | line.schema,
            response_class=JSONResponse,
            response_model=None,
        )
    return router


def _checker(gate: Gate, action: str) -> Callable[[Request], Awaitable[None]]:
    async def check(request: Request) -> None:
        dataset = request.path_params.get("dataset")
        for each in request.path_params.values():
            check_text(each)
        request.state.identity = await asyncio.to_thread(gate.allow, request, action, dataset)
        # A cookie is sent along by every page that names our address; only ours know the second text.
        if request.method not in ("GET", "HEAD") and "authorization" not in request.headers:
            given = request.headers.get("x-csrf-token", "")
            if not given and "form" in request.headers.get("content-type", ""):
                given = str((await request.form()).get("csrf", ""))
            await asyncio.to_thread(gate.check_csrf, request, given)

    return check


def sender_of(request: Request) -> Identity:
    """Return who sent a request that was let through."""
    identity: Identity = request.state.identity
    return identity


def json_body(required: list[str], properties: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    """Return how a route's body looks, for OpenAPI."""
    schema = {"type": "object", "required": required, "properties": properties, "additionalProperties": False}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}}


def body_of(request: Request) -> Any:
    """Return the parsed body of a request."""
    if not hasattr(request.state, "body"):
        raise InvalidRequest("Expected a body in JSON", do='Send e.g. {"statistic": "count"}')
    return request.state.body
