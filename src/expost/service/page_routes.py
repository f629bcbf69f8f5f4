"""The analyst's pages: choose a dataset, build a question, see its price, buy, and look at answers."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response

from expost.core import BudgetExceeded, ExpostError, InvalidRequest
from expost.core.table_text import csv_text
from expost.service.access_token import Identity
from expost.service.answer_page import HISTORY_COLUMNS, answer_facts, history_line, release_of, show_release
from expost.service.api_routes import answer_request
from expost.service.curator import Curator, Refused, status_of
from expost.service.http_requests import Gate, StrictRoute
from expost.service.inference_menu import kind_of, list_models, list_tests, read_fit, read_test
from expost.service.job_pool import JobPool
from expost.service.page_frame import PageFrame, PageRoute, read_form
from expost.service.price_preview import FreeLook
from expost.service.public_description import public_facts
from expost.service.question_form import AskedQuestion, AskedStatement
from expost.service.question_menu import FORECAST, menu_for, question_of
from expost.service.question_sql import statement_of
from expost.service.route_table import RouteLine, body_of, build_router, sender_of
from expost.service.service_settings import DatasetSettings
from expost.service.service_store import RequestRecord, RequestState
from expost.service.spending_report import balance_facts

__all__ = ["AnalystPages"]

_MOST_EXPORTED = 10_000
_MOST_SHOWN = 200


class AnalystPages:
    """What analysts see.

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
        self._free = FreeLook(curator)

    def router(self) -> APIRouter:
        """Return the routes of the pages."""
        lines = [
            RouteLine("GET", "/", "see datasets", self.show_datasets),
            RouteLine("GET", "/datasets/{dataset}", "see datasets", self.show_dataset),
            RouteLine("POST", "/datasets/{dataset}/ask", "ask", self.buy),
            RouteLine("POST", "/datasets/{dataset}/ask-price", "price", self.price_question),
            RouteLine("POST", "/datasets/{dataset}/sql", "ask", self.buy_statement),
            RouteLine("POST", "/datasets/{dataset}/sql-price", "price", self.price_statement),
            RouteLine("POST", "/datasets/{dataset}/test", "ask", self.buy_test),
            RouteLine("POST", "/datasets/{dataset}/test-price", "price", self.price_test),
            RouteLine("POST", "/datasets/{dataset}/fit", "fit", self.buy_fit),
            RouteLine("POST", "/datasets/{dataset}/fit-price", "price", self.price_fit),
            RouteLine("GET", "/history", "see own releases", self.show_history),
            RouteLine("GET", "/history.csv", "see own releases", self.export_history),
            RouteLine("GET", "/history.html", "see own releases", self.report_history),
            RouteLine("GET", "/answers/{job}.csv", "see own releases", self.export_answer),
            RouteLine("GET", "/answers/{job}.html", "see own releases", self.report_answer),
            RouteLine("GET", "/answers/{job}.json", "see own releases", self.export_model),
            RouteLine("GET", "/answers/{job}", "see own releases", self.show_answer),
            RouteLine("POST", "/answers/{job}/cancel", "see own jobs", self.cancel),
        ]
        router = build_router(lines, self._gate, PageRoute, in_schema=False)
        preview = [RouteLine("POST", "/datasets/{dataset}/preview", "price", self.preview)]
        router.include_router(build_router(preview, self._gate, StrictRoute, in_schema=False))
        return router

    # Questions

    def show_datasets(self, request: Request) -> Response:
        """List the datasets that the holder of the token may ask about."""
        who = sender_of(request)
        found = [
            {
                "name": each.name,
                "title": each.title,
                "columns": len(each.dataset.schema.kinds),
                "unit": str(each.dataset.unit),
                "frozen": self._curator.store.is_frozen(each.name),
                **balance_facts(self._curator, each.name, who),
            }
            for each in self._curator.settings.datasets
            if who.dataset in (None, each.name)
        ]
        others = self._other_datasets(who) if self._curator.settings.openid is not None else []
        return self._frame.render(request, "datasets.html", who, here="datasets", datasets=found, others=others)

    def _other_datasets(self, who: Identity) -> list[DatasetSettings]:
        """Return the datasets that other tokens of the same name open."""
        names = {each.dataset for each in self._curator.usable_tokens(who.subject)} - {who.dataset}
        return [each for each in self._curator.settings.datasets if each.name in names]

    def show_dataset(self, request: Request, dataset: str) -> Response:
        """Show a dataset and the form that builds a question."""
        return self._dataset_page(request, sender_of(request), dataset)

    def _dataset_page(self, request: Request, who: Identity, dataset: str, status: int = 200, **more: Any) -> Response:
        described = self._curator.describe_dataset(dataset)
        public = public_facts(described.dataset)
        facts: dict[str, Any] = {
            "title": described.title,
            "facts": public,
            "limits": self._curator.limits_of(dataset).to_dict(),
            **balance_facts(self._curator, dataset, who),
            "frozen": self._curator.store.is_frozen(dataset),
            "menu": menu_for(public["columns"]),
            "tests": list_tests(public["columns"]),
            "models": list_models(public["columns"]),
            "columns": [each | {"kind": kind_of(each)} for each in public["columns"]],
            "example": _example_filter(public["columns"]),
            "sql_example": " ".join(statement_of("count", {"within": "5%"}, dataset=dataset, unit=None).split()),
            "form": {},
            "quotes": {},
            "key": str(uuid.uuid4()),
        }
        return self._frame.render(request, "dataset.html", who, status=status, here="datasets", **(facts | more))

    def preview(self, request: Request, dataset: str) -> Any:
        """Show the price of a question while it is built, and an answer about made-up rows; nothing is spent."""
        asked = AskedQuestion.read(body_of(request))
        if asked.statistic not in FORECAST:
            asked = AskedQuestion(
                asked.statistic, {k: v for k, v in asked.arguments.items() if k != "expect"}, asked.place
            )
        found = self._free.preview(dataset, sender_of(request), asked)
        sample = found.pop("sample")
        shown = None if sample is None else show_release(sample)
        facts = found | {"shown": shown, "expects": FORECAST.get(asked.statistic, "")}
        return {
            name: self._frame.fragment(f"preview_{name}.html", **facts) for name in ("price", "curve", "sample")
        } | {"text": str(found["quote"]), "sql": self._as_sql(dataset, sender_of(request), asked)}

    def _as_sql(self, dataset: str, who: Identity, asked: AskedQuestion) -> str:
        """Return a question as SQL, if a statement can ask it; an empty text otherwise."""
        unit = self._curator.describe_dataset(dataset).dataset.unit.column
        text = statement_of(asked.statistic, asked.arguments, dataset=dataset, unit=unit)
        try:
            if text:
                self._curator.price_statement(dataset, who, AskedStatement(text, {}, asked.place))
        except ExpostError:
            return ""
        return text

    async def buy(self, request: Request, dataset: str) -> Response:
        """Ask the question of a form."""
        return await self._buy(request, dataset, "ask", question_of)

    async def buy_statement(self, request: Request, dataset: str) -> Response:
        """Ask the statement of a form."""
        return await self._buy(request, dataset, "sql", _read_statement)

    async def buy_test(self, request: Request, dataset: str) -> Response:
        """Run the hypothesis test of a form."""
        return await self._buy(request, dataset, "ask", self._test_reader(dataset))

    async def buy_fit(self, request: Request, dataset: str) -> Response:
        """Fit the model of a form."""
        return await self._buy(request, dataset, "fit", read_fit)

    async def price_question(self, request: Request, dataset: str) -> Response:
        """Show what the question of a form would cost; nothing is spent."""
        return await self._price(request, dataset, "ask", question_of, "ask")

    async def price_statement(self, request: Request, dataset: str) -> Response:
        """Show what the statement of a form would cost; nothing is spent."""
        return await self._price(request, dataset, "sql", _read_statement, "sql")

    async def price_test(self, request: Request, dataset: str) -> Response:
        """Show what the test of a form would cost; nothing is spent."""
        return await self._price(request, dataset, "ask", self._test_reader(dataset), "test")

    async def price_fit(self, request: Request, dataset: str) -> Response:
        """Show what the fit of a form would cost; nothing is spent."""
        return await self._price(request, dataset, "fit", read_fit, "fit")

    def _test_reader(self, dataset: str) -> Callable[[dict[str, str]], dict[str, Any]]:
        columns = public_facts(self._curator.describe_dataset(dataset).dataset)["columns"]
        return lambda form: read_test(form, columns)

    async def _price(
        self, request: Request, dataset: str, kind: str, read: Callable[[dict[str, str]], dict[str, Any]], place: str
    ) -> Response:
        """Return the price of a form: for the script as a part of the page, for a browser without it as the whole page."""
        who, form = sender_of(request), await read_form(request)
        price: dict[str, Any] = {}
        refused = ""
        try:
            price = await asyncio.to_thread(self._curator.price_of, kind, dataset, who, read(form))
        except (InvalidRequest, BudgetExceeded) as error:
            refused = str(error)
        shown = self._frame.fragment("preview_terms.html", price=price, refused=refused)
        if "x-csrf-token" in request.headers:
            return HTMLResponse(shown)
        terms: dict[str, Any] = {"form": form, "quotes": {place: shown}}
        return await asyncio.to_thread(self._dataset_page, request, who, dataset, **terms)

    async def _buy(
        self, request: Request, dataset: str, kind: str, read: Callable[[dict[str, str]], dict[str, Any]]
    ) -> Response:
        who, form = sender_of(request), await read_form(request)
        key = form.pop("key", "") or str(uuid.uuid4())
        try:
            body = read(form)
            record = await answer_request(self._curator, self._gate, self._pool, who, dataset, kind, body, key)
        except (InvalidRequest, BudgetExceeded, Refused) as error:
            terms: dict[str, Any] = {"status": status_of(error), "error": str(error), "form": form}
            return await asyncio.to_thread(self._dataset_page, request, who, dataset, **terms)
        return RedirectResponse(f"/answers/{record.request_id}", 303)

    # Answers

    def show_history(self, request: Request) -> Response:
        """List all answers of the holder of the token."""
        found = self._own_requests(request, _MOST_SHOWN + 1)
        answers = [answer_facts(each, self._pool, brief=True) for each in found[:_MOST_SHOWN]]
        terms: dict[str, Any] = {"answers": answers, "more": len(found) > _MOST_SHOWN}
        return self._frame.render(request, "history.html", sender_of(request), here="history", **terms)

    def _own_requests(self, request: Request, last: int = _MOST_EXPORTED) -> list[RequestRecord]:
        who = sender_of(request)
        return self._curator.store.list_requests(subject=who.subject, dataset=who.dataset, last=last)

    def export_history(self, request: Request) -> Response:
        """Return everything that the holder of the token asked, as CSV with one line per question."""
        lines = [history_line(each, self._pool) for each in self._own_requests(request)]
        headers = {"content-disposition": 'attachment; filename="answers.csv"'}
        text = csv_text(HISTORY_COLUMNS, lines)
        return PlainTextResponse(text, media_type="text/csv", headers=headers)

    def report_history(self, request: Request) -> Response:
        """Return everything that the holder of the token asked, as a report of one file."""
        answers = [answer_facts(each, self._pool) for each in self._own_requests(request)]
        when = self._curator.now().isoformat(" ", timespec="minutes")[:16]
        text = self._frame.fragment("history_report.html", answers=answers, who=sender_of(request), when=when)
        return HTMLResponse(text, headers=_report_headers("answers.html"))

    def show_answer(self, request: Request, job: str) -> Response:
        """Show one answer."""
        record = self._curator.own_request(sender_of(request), job)
        facts = answer_facts(record, self._pool) | {"may_cost": ""}
        if record.state == RequestState.WAITING:  # while it runs, what it still costs would tell whether it has ended
            with suppress(ExpostError):  # the budget may have changed since
                price = self._curator.price_of(record.kind, record.dataset, sender_of(request), json.loads(record.body))
                facts["may_cost"] = price["worst_case_text"]
        return self._frame.render(request, "answer.html", sender_of(request), **facts)

    def export_answer(self, request: Request, job: str) -> Response:
        """Return an answer as CSV."""
        release = self._own_release(request, job)
        headers = {"content-disposition": f'attachment; filename="answer-{job[:8]}.csv"'}
        return PlainTextResponse(csv_text(*release.table_cells()), media_type="text/csv", headers=headers)

    def export_model(self, request: Request, job: str) -> Response:
        """Return a fitted model as a file that ``load_model`` reads."""
        record = self._curator.own_request(sender_of(request), job)
        body = json.loads(record.response or "null") if self._pool.is_visible(record) else {}
        if "model" not in body:
            raise Refused(404, "not_found", "There is no such model.")
        headers = {"content-disposition": f'attachment; filename="model-{job[:8]}.json"'}
        return JSONResponse(body["model"], headers=headers)

    def report_answer(self, request: Request, job: str) -> Response:
        """Return an answer as a report."""
        release = self._own_release(request, job)
        return HTMLResponse(release.report(), headers=_report_headers(f"answer-{job[:8]}.html"))

    def cancel(self, request: Request, job: str) -> Response:
        """Cancel a question."""
        self._curator.cancel(sender_of(request), job)
        return RedirectResponse(f"/answers/{job}", 303)

    def _own_release(self, request: Request, job: str) -> Any:
        release = release_of(self._curator.own_request(sender_of(request), job), self._pool)
        if release is None:
            raise Refused(404, "not_found", "There is no such answer.")
        return release


def _read_statement(form: dict[str, str]) -> dict[str, Any]:
    return {"sql": form.get("sql", "")}


def _example_filter(columns: list[dict[str, Any]]) -> str:
    """Return a filter that fits the columns of a table, to show how one is written."""
    named = [each for each in columns if each["name"].isidentifier()]
    parts = [f"{each['name']} >= {sum(each['bounds']) / 2:.4g}" for each in named if each["bounds"]][:1]
    plain = [each for each in named if each["categories"] and str(each["categories"][0]).isalnum()]
    parts += [f"{each['name']} = '{each['categories'][0]}'" for each in plain][:1]
    return " AND ".join(parts)


def _report_headers(name: str) -> dict[str, str]:
    """Return the headers of a report, which has its styles in itself."""
    return {
        "content-disposition": f'attachment; filename="{name}"',
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    }
