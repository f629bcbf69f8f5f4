"""The routes under /v1 for analysts: descriptions, prices, questions, fits, answers and jobs."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from expost.core.table_text import csv_text
from expost.ledger import EntryKind
from expost.service.access_token import Identity
from expost.service.curator import Curator, Refused
from expost.service.http_requests import Gate, StrictRoute
from expost.service.job_pool import JobPool
from expost.service.price_preview import MOST_MADE_UP, FreeLook
from expost.service.public_description import public_facts
from expost.service.question_form import ESTIMATORS, TESTS, AskedFit, AskedQuestion, AskedStatement
from expost.service.route_table import RouteLine, body_of, build_router, json_body, sender_of
from expost.service.service_store import RequestRecord, RequestState
from expost.session.statistic_methods import STATISTICS
from expost.session.wire_format import encode_value

__all__ = ["AnalystApi", "answer_request"]

_Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
_Wait = Annotated[float, Query(ge=0, le=600, allow_inf_nan=False)]
_Rows = Annotated[int, Query(ge=1, le=MOST_MADE_UP)]
_Seed = Annotated[int, Query(ge=0, lt=2**63)]
_Form = Annotated[Literal["json", "csv"], Query(alias="format")]


_ASKED = {
    "statistic": {"type": "string", "enum": sorted([*STATISTICS, *TESTS])},
    "arguments": {"type": "object"},
    "place": {"type": "array", "items": {"type": "array"}},
}
_MEAN = {"statistic": "mean", "arguments": {"column": "age", "within": 3}}
_QUESTION = json_body(["statistic"], _ASKED, _MEAN)
_CURVE = json_body(
    ["statistic", "arguments"],
    _ASKED | {"statistic": {"type": "string", "enum": sorted(STATISTICS)}},
    {"statistic": "count", "arguments": {"within": ["1%", "5%", "20%"], "expect": 5000}},
)
_SIMULATION = json_body(
    ["statistic"],
    _ASKED
    | {
        "made_up_rows": {"type": "integer", "minimum": 1, "maximum": MOST_MADE_UP, "default": 1000},
        "seed": {"type": "integer", "default": 0},
    },
    _MEAN | {"made_up_rows": 5000},
)
_FIT = json_body(
    ["estimator"],
    {
        "estimator": {"type": "string", "enum": sorted(ESTIMATORS)},
        "settings": {"type": "object"},
        "features": {"type": ["array", "null"], "items": {"type": "string"}},
        "target": {"type": ["string", "null"]},
    },
    {"estimator": "Regressor", "settings": {"score": ["r2", 0.5]}, "target": "pay"},
)


_SQL = json_body(
    ["sql"],
    {
        "sql": {"type": "string"},
        "dialect": {"type": "string", "enum": ["duckdb", "postgres", "spark"]},
        "tables": {"type": "object"},
        "bounds": {"type": "object"},
        "max_rows_per_unit": {"type": "integer", "minimum": 1},
        "place": {"type": "array", "items": {"type": "array"}},
    },
    {"sql": "SELECT city, COUNT(*) AS n FROM people GROUP BY city ERROR WITHIN 5%"},
)


class AnalystApi:
    """What analysts ask by HTTP.

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
        self._free = FreeLook(curator)

    def router(self) -> APIRouter:
        """Return the routes."""
        one = "/datasets/{dataset}"
        lines = [
            RouteLine("GET", "/datasets", "see datasets", self.list_datasets),
            RouteLine("GET", one, "see datasets", self.describe_dataset),
            RouteLine("GET", f"{one}/budget", "see own budget", self.show_budget),
            RouteLine("POST", f"{one}/price", "price", self.price, _QUESTION),
            RouteLine("POST", f"{one}/price-fit", "price", self.price_fit, _FIT),
            RouteLine("POST", f"{one}/price-curve", "price", self.price_curve, _CURVE),
            RouteLine("POST", f"{one}/simulate", "price", self.simulate, _SIMULATION),
            RouteLine("GET", f"{one}/dummy", "see datasets", self.make_rows),
            RouteLine("POST", f"{one}/ask", "ask", self.ask, _QUESTION),
            RouteLine("POST", f"{one}/fit", "fit", self.fit, _FIT),
            RouteLine("POST", f"{one}/sql", "ask", self.sql, _SQL),
            RouteLine("POST", f"{one}/sql-price", "price", self.price_sql, _SQL),
            RouteLine("GET", f"{one}/releases", "see own releases", self.list_releases),
            RouteLine("GET", f"{one}/history", "see own releases", self.show_history),
            RouteLine("GET", f"{one}/receipts/{{entry}}", "see own releases", self.show_receipt),
            RouteLine("GET", "/jobs/{job}", "see own jobs", self.show_job),
            RouteLine("DELETE", "/jobs/{job}", "see own jobs", self.cancel_job),
        ]
        return build_router(lines, self._gate, StrictRoute, prefix="/v1")

    def list_datasets(self, request: Request) -> Any:
        """List the datasets that this token opens."""
        chosen = sender_of(request).dataset
        found = [each for each in self._curator.settings.datasets if chosen in (None, each.name)]
        return {"datasets": [{"name": each.name, "title": each.title} for each in found]}

    def describe_dataset(self, dataset: str) -> Any:
        """Return the public description of a dataset."""
        described = self._curator.describe_dataset(dataset)
        frozen = self._curator.store.is_frozen(dataset)
        limits = self._curator.limits_of(dataset).to_dict()
        return public_facts(described.dataset) | {"title": described.title, "frozen": frozen} | limits

    def show_budget(self, request: Request, dataset: str) -> Any:
        """Return what this token's holder may still spend."""
        session = self._curator.session(dataset, sender_of(request))
        left = session.remaining()
        return {
            "budget": session.ledger.budget(session.accounts[-1]).to_json(),
            "remaining": left.to_json(),
            "remaining_text": str(left),
            "spent_on_dataset": session.spent().to_json(),
            "accounts": list(session.accounts),
        }

    def price(self, request: Request, dataset: str) -> Any:
        """Return what a question would cost; nothing is spent."""
        return self._curator.price(dataset, sender_of(request), AskedQuestion.read(body_of(request)))

    def price_fit(self, request: Request, dataset: str) -> Any:
        """Return what a fit would cost; nothing is spent."""
        return self._curator.price_fit(dataset, sender_of(request), AskedFit.read(body_of(request)))

    def price_curve(self, request: Request, dataset: str) -> Any:
        """Return what a question would cost at several accuracies; nothing is spent."""
        return self._free.price_curve(dataset, sender_of(request), AskedQuestion.read(body_of(request)))

    def simulate(self, request: Request, dataset: str) -> Any:
        """Answer a question about made-up rows of the same description; nothing is spent."""
        return self._free.simulate(dataset, sender_of(request), body_of(request))

    def make_rows(self, dataset: str, rows: _Rows = 1000, seed: _Seed = 0, form: _Form = "json") -> Response:
        """Return made-up rows of the same description, as JSON or as CSV."""
        table = self._free.make_table(dataset, rows, seed)
        if form == "csv":
            lines = csv_text(table.column_names, zip(*(column.to_pylist() for column in table.columns), strict=True))
            headers = {"content-disposition": 'attachment; filename="made-up.csv"'}
            return PlainTextResponse(lines, media_type="text/csv", headers=headers)
        return JSONResponse({"columns": encode_value({name: table[name].to_pylist() for name in table.column_names})})

    async def ask(self, request: Request, dataset: str, key: _Key = None) -> Response:
        """Ask a question and pay for it. The same key again returns the same answer and charges nothing."""
        return await self._answer(request, dataset, "ask", key)

    async def fit(self, request: Request, dataset: str, key: _Key = None) -> Response:
        """Fit a model and pay for it. The same key again returns the same model and charges nothing."""
        return await self._answer(request, dataset, "fit", key)

    async def sql(self, request: Request, dataset: str, key: _Key = None) -> Any:
        """Answer a statement in SQL and pay for it; EXPLAIN PRICE before it returns its price and spends nothing."""
        if AskedStatement.read(body_of(request)).wants_price:
            return await asyncio.to_thread(self.price_sql, request, dataset)
        return await self._answer(request, dataset, "sql", key)

    def price_sql(self, request: Request, dataset: str) -> Any:
        """Return what a statement in SQL would cost: its releases, their sensitivity and price; nothing is spent."""
        return self._curator.price_statement(dataset, sender_of(request), AskedStatement.read(body_of(request)))

    async def _answer(self, request: Request, dataset: str, kind: str, key: str | None) -> Response:
        record = await answer_request(
            self._curator, self._gate, self._pool, sender_of(request), dataset, kind, body_of(request), key
        )
        headers = {"location": f"/v1/jobs/{record.request_id}"}
        if self._pool.is_visible(record):
            body = json.loads(record.response or "null") | {"job": record.request_id}
            return JSONResponse(body, record.status or 500, headers)
        return JSONResponse(self._pool.describe(record), 202, headers)

    def list_releases(self, request: Request, dataset: str) -> Any:
        """List the answers that this token's holder was given, newest first."""
        records = self._curator.store.list_requests(subject=sender_of(request).subject, dataset=dataset)
        return {"releases": list(map(self._pool.describe, records))}

    def show_history(self, request: Request, dataset: str) -> Any:
        """Return the ledger's entries that charged this token's holder."""
        own = self._curator.session(dataset, sender_of(request)).accounts[-1]
        names = ("sequence", "recorded", "text", "previous", "hash")
        entries = self._curator.ledger.history(own)
        # A source entry says where the owner keeps the table.
        shown = [each for each in entries if each.kind is not EntryKind.SOURCE]
        found = [{name: getattr(each, name) for name in names} | {"kind": each.kind.value} for each in shown]
        return {"entries": found}

    def show_receipt(self, request: Request, dataset: str, entry: str) -> Any:
        """Return the receipt of one of the holder's own answers."""
        own = self._curator.session(dataset, sender_of(request)).accounts[-1]
        found = next((each for each in self._curator.ledger.history(own) if each.id == entry), None)
        if found is None or found.receipt is None:
            raise Refused(404, "not_found", "There is no such receipt.")
        return self._curator.ledger.receipt(entry).to_dict()

    async def show_job(self, request: Request, job: str, wait: _Wait = 0.0) -> Any:
        """Return the state of a question, and its answer once it may leave; ``wait`` for it up to so many seconds."""
        record = await asyncio.to_thread(self._curator.own_request, sender_of(request), job)
        seconds = min(wait, self._curator.settings.limits.wait_seconds)
        return self._pool.describe(await self._pool.wait(record, seconds, sender_of(request), for_owner=True))

    def cancel_job(self, request: Request, job: str) -> Any:
        """Cancel a question. One that waits costs nothing; a training ends after its current phase, and is charged."""
        return self._pool.describe(self._curator.cancel(sender_of(request), job))


async def answer_request(
    curator: Curator,
    gate: Gate,
    pool: JobPool,
    identity: Identity,
    dataset: str,
    kind: str,
    body: Any,
    key: str | None,
) -> RequestRecord:
    """Store a request, answer it, and return it once its answer may leave, or after some time as it is then."""
    gate.start_job(identity)
    started = False
    try:
        name = key or str(uuid.uuid4())
        record, new = await asyncio.to_thread(curator.begin, dataset, identity, kind, body, name)
        if new and record.state == RequestState.RUNNING:
            pool.start(record, identity)
            started = True
    finally:
        if not started:
            gate.end_job(identity)
    return await pool.wait(record, curator.settings.limits.wait_seconds, identity)
