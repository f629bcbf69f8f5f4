"""What can be seen before anything is spent: prices, price curves, and answers about made-up rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from expost.core import ExpostError, InvalidRequest, Loss, Release, TargetNotMet
from expost.service.access_token import Identity
from expost.service.curator import Curator
from expost.service.page_picture import draw_price_curve
from expost.service.question_form import TESTS, AskedQuestion
from expost.service.question_menu import FORECAST
from expost.session import PriceCurve, PriceQuote, Session
from expost.session.wire_format import encode_price, encode_release

__all__ = ["MOST_MADE_UP", "FreeLook"]

MOST_MADE_UP = 100_000
"""Rows that a service makes up at most for one request."""
_MOST_ACCURACIES = 50
_FACTORS = (0.25, 0.4, 0.63, 1.0, 1.6, 2.5, 4.0)
_SIZES = (100, 1_000, 10_000, 100_000)


class FreeLook:
    """Prices questions and answers them about made-up rows. No real row is read.

    Parameters
    ----------
    curator : Curator
        Who has the datasets and the accounts.
    """

    def __init__(self, curator: Curator) -> None:
        self._curator = curator

    def price_curve(self, dataset: str, identity: Identity, asked: AskedQuestion) -> dict[str, Any]:
        """Return the prices of a question whose argument ``within`` is a list of accuracies."""
        curve = self._curve(asked.session(self._curator.session(dataset, identity)), asked)
        return {"within": list(curve.tolerances), "quotes": list(map(encode_price, curve.quotes))}

    def simulate(self, dataset: str, identity: Identity, body: Any) -> dict[str, Any]:
        """Return the answer to a question about made-up rows; ``made_up_rows`` and ``seed`` are next to its arguments."""
        if not isinstance(body, dict):
            raise InvalidRequest("Expected a question as a JSON object", do='Send e.g. {"statistic": "count"}')
        rest = {name: value for name, value in body.items() if name not in ("made_up_rows", "seed")}
        rows, seed = body.get("made_up_rows", 1000), body.get("seed", 0)
        if type(seed) is not int or abs(seed) >= 2**63:
            raise InvalidRequest("Expected a whole number as seed", do="Send e.g. 0")
        asked = AskedQuestion.read(rest)
        session = asked.session(self._curator.session(dataset, identity))
        release = session.simulate(asked.build(session), made_up_rows=_check_rows(session, rows), seed=seed)
        return {"release": encode_release(release)}

    def make_table(self, dataset: str, rows: int, seed: int) -> pa.Table:
        """Return made-up rows of the same description."""
        described = self._curator.describe_dataset(dataset).dataset
        if described.rows is not None and described.rows > MOST_MADE_UP:
            raise InvalidRequest(
                f"Expected a table of at most {MOST_MADE_UP} rows to make up", got=described.rows, do="Make up your own"
            )
        return described.dummy_table(rows, seed=seed)

    def preview(self, dataset: str, identity: Identity, asked: AskedQuestion) -> dict[str, Any]:
        """Return what the page shows while a question is built: its price, its curve, and an answer to look at."""
        session = asked.session(self._curator.session(dataset, identity))
        given = dict(asked.arguments)
        expect = given.pop("expect", None)
        quote, forecast = self._price(session, asked.statistic, given, expect)
        within = given.get("within")
        share = isinstance(within, str) and within.endswith("%")
        chosen = float(within[:-1]) if isinstance(within, str) and share else float(within or 0)
        found: dict[str, Any] = {"quote": quote, "free": _is_free(quote), "picture": "", "sizes": [], "chosen": within}
        if quote.likely is not None:
            errors = [chosen * factor for factor in _FACTORS if not share or chosen * factor < 100]
            terms = given | {"within": [f"{each:g}%" if share else each for each in errors]}
            if forecast:
                terms["expect"] = expect
            found["picture"] = self._draw_curve(session, AskedQuestion(asked.statistic, terms), errors, chosen, share)
        elif expect is None and asked.statistic in FORECAST:
            found["sizes"] = self._price_sizes(session, asked.statistic, given)
        query = AskedQuestion(asked.statistic, given)
        return found | _look_at_sample(session, query, rows=_rows_like(session, query, expect))

    def _price(
        self, session: Session, statistic: str, given: Mapping[str, Any], expect: Any
    ) -> tuple[PriceQuote, bool]:
        """Return a price, and whether it was forecast from what is expected: some statistics cannot be."""
        if expect is not None:
            try:
                return session.price(statistic, **given, expect=expect), True
            except (
                ExpostError
            ):  # without the guess the question may still be fine; if not, that error is the one to show
                pass
        return session.price(statistic, **given), False

    def _curve(self, session: Session, asked: AskedQuestion) -> PriceCurve:
        within = asked.arguments.get("within")
        if asked.statistic in TESTS:
            raise InvalidRequest("Expected a statistic: tests have no price curve", do="Ask for the price of the test")
        if not isinstance(within, list) or not 1 <= len(within) <= _MOST_ACCURACIES:
            raise InvalidRequest(
                f"Expected 1 to {_MOST_ACCURACIES} accuracies as a list", do='Send e.g. "within": ["1%", "5%"]'
            )
        return session.price_curve(asked.statistic, **asked.arguments)

    def _draw_curve(
        self, session: Session, asked: AskedQuestion, errors: list[float], chosen: float, share: bool
    ) -> str:
        try:
            quotes = self._curve(session, asked).quotes
        except ExpostError:
            return ""
        points = [(error, _epsilon(quote.likely)) for error, quote in zip(errors, quotes, strict=True)]
        usable = [(error, price) for error, price in points if price]
        cap = min(map(session.ledger.question_cap, session.accounts))
        return draw_price_curve(usable, chosen, unit="%" if share else "", cap=float(cap))

    def _price_sizes(self, session: Session, statistic: str, given: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return what a share of the answer costs for answers of several sizes; none if that cannot be forecast."""
        found = []
        for size in _SIZES:
            try:
                quote = session.price(statistic, **given, expect=size)
            except ExpostError:
                return []
            found.append((f"{size:,}", f"more than {quote.worst_case}" if quote.above_cap else str(quote.likely)))
        return found


def _look_at_sample(session: Session, asked: AskedQuestion, *, rows: int) -> dict[str, Any]:
    """Return an answer about made-up rows, or why there is none."""
    try:
        made = _check_rows(session, rows)
        release: Release[Any] | None = session.simulate(asked.build(session), made_up_rows=made)
        missed = ""
    except TargetNotMet as error:
        release, missed = (
            error.release,
            "With so few rows, the most that one question may cost does not reach this accuracy.",
        )
    except ExpostError:
        return {"sample": None, "sample_rows": 0, "missed": ""}
    return {
        "sample": release,
        "sample_rows": made if session.dataset.rows is None else session.dataset.rows,
        "missed": missed,
    }


def _rows_like(session: Session, asked: AskedQuestion, expect: Any) -> int:
    """Return how many rows to make up: as many as are expected, where what is expected is a number of rows per group."""
    if not isinstance(expect, int | float) or asked.statistic == "sum":
        return 1000
    given, listed = asked.arguments, session.dataset.categories
    names = [given.get("by"), given.get("column") if asked.statistic == "value-counts" else None]
    groups = math.prod(len(listed[name]) for name in names if isinstance(name, str) and name in listed)
    return int(min(max(expect * groups * given.get("bins", 1), 1), MOST_MADE_UP))


def _is_free(quote: PriceQuote) -> bool:
    """Return whether an earlier answer serves this question."""
    return not any(quote.worst_case.amounts().values())


def _check_rows(session: Session, rows: Any) -> int:
    counted = rows if session.dataset.rows is None else session.dataset.rows
    if type(rows) is not int or not 1 <= counted <= MOST_MADE_UP:
        raise InvalidRequest(f"Expected 1 to {MOST_MADE_UP} made-up rows", do='Send e.g. "made_up_rows": 1000')
    return rows


def _epsilon(loss: Loss | None) -> float:
    return 0.0 if loss is None else float(loss.amounts().get("epsilon", 0))
