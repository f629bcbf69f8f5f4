"""What the page of an answer shows: value, interval, groups, picture, receipt and its meaning."""

from __future__ import annotations

import json
import re
from dataclasses import is_dataclass
from fractions import Fraction
from typing import Any

from expost.core import Receipt, Release
from expost.service.job_pool import JobPool
from expost.service.page_picture import draw_answers, draw_rungs
from expost.service.service_store import RequestRecord, RequestState
from expost.session.wire_format import decode_release
from expost.stats.statement_release import StatementRelease
from expost.stats.table_release import GroupRelease

__all__ = ["HISTORY_COLUMNS", "answer_facts", "history_line", "release_of", "show_release"]

HISTORY_COLUMNS = (
    *("asked", "dataset", "question", "state", "value", "low", "high", "paid", "epsilon", "delta", "ledger_entry"),
)

_NOTHING_SHOWN: dict[str, Any] = {
    "receipt": None,
    "single": None,
    "groups": None,
    "verdict": None,
    "group_names": [],
    "picture": "",
    "climb": "",
    "meaning": "",
    "confidence": "95 %",
    "model": False,
    "table": None,
    "asked_for": "",
    "outcome": "",
}

_MISSED = {
    "ask": "This accuracy was not reached at the most that one question may cost. Below is the best answer that it paid for.",
    "fit": "This score was not reached at the most that one question may cost, so there is no model.",
}


def release_of(record: RequestRecord, pool: JobPool) -> Release[Any] | None:
    """Return the release of a request whose answer may leave, None if it has none."""
    if not pool.is_visible(record):
        return None
    body = json.loads(record.response or "null")
    if "model" in body:  # without the model itself: a page has no use for it
        return Release(None, Receipt.from_dict(body["model"]["receipt"]))
    found = body.get("release") or body.get("error", {}).get("release")
    return None if found is None else decode_release(found)


def answer_facts(record: RequestRecord, pool: JobPool, *, brief: bool = False) -> dict[str, Any]:
    """Return what the page, or a line of the history, shows of a request."""
    waits = record.state == RequestState.WAITING
    visible = pool.is_visible(record)
    facts: dict[str, Any] = {
        "job": record.request_id,
        "dataset": record.dataset,
        "question": record.question,
        "asked": record.created[:16].replace("T", " "),
        "state": "waiting" if waits else "done" if visible else "running",
        "paid": "",
        "mood": "",
    }
    release = release_of(record, pool)
    body = json.loads(record.response or "null") if visible else {}
    error = body.get("error")
    if release is not None:
        facts["paid"] = str(release.receipt.bill)
        facts |= {"state": release.receipt.outcome.value, "mood": "good" if release.receipt.outcome.met else "bad"}
    elif error is not None:
        facts |= {"state": error["code"].replace("_", " "), "mood": "bad"}
    if brief:
        return facts
    facts |= {"state": "waiting" if waits else "done" if visible else "running", "error": error}
    facts |= _NOTHING_SHOWN
    if release is not None:
        facts |= show_release(release) | {"model": record.kind == "fit" and error is None}
        if error is not None:  # its sentence is for Python
            facts["error"] = {"message": _MISSED["fit" if record.kind == "fit" else "ask"], "cost": facts["paid"]}
    return facts


def history_line(record: RequestRecord, pool: JobPool) -> list[Any]:
    """Return one line of a history: what was asked, what came out if it is one number, and what was paid."""
    facts = answer_facts(record, pool, brief=True)
    release = release_of(record, pool)
    value = low = high = entry = epsilon = delta = None
    if release is not None:
        amounts, entry = release.receipt.bill.amounts(), release.receipt.ledger_entry
        epsilon, delta = (float(amounts[name]) if name in amounts else None for name in ("epsilon", "delta"))
        if isinstance(release.value, int | float | Fraction | str):
            value = float(release.value) if isinstance(release.value, Fraction) else release.value
            low, high = map(float, release.interval or ()) if _is_plain(release.interval) else (None, None)
    asked = [facts["asked"], facts["dataset"], facts["question"], facts["state"]]
    return [*asked, value, low, high, facts["paid"], epsilon, delta, entry]


def show_release(release: Release[Any]) -> dict[str, Any]:
    """Return what a page shows of a release."""
    receipt = release.receipt
    lines = [(label, _keep_together(plain_text(text))) for label, text in receipt.rows()]
    meaning = _keep_together(receipt.meaning)
    shown = _NOTHING_SHOWN | {"receipt": lines, "paid": str(receipt.bill), "meaning": meaning}
    shown["outcome"] = receipt.outcome.value
    if receipt.target is not None:
        shown["asked_for"] = str(receipt.target)
        shown["confidence"] = f"{float(100 * (1 - receipt.target.failure_probability)):g} %"
    if isinstance(release, GroupRelease):
        names = release.value.columns
        rows = release.value.rows
        labels = [row.label if len(names) > 1 else (row.label,) for row in rows]
        shown["group_names"] = list(names)
        shown["groups"] = [
            {"labels": list(map(str, label)), "value": _text(row.value), "low": _text(row.low), "high": _text(row.high)}
            for label, row in zip(labels, rows, strict=True)
        ]
        bars = [
            (", ".join(map(str, label)), float(row.value), row.low, row.high)
            for label, row in zip(labels, rows, strict=True)
            if isinstance(row.value, int | float | Fraction)
        ]
        shown["picture"] = draw_answers(bars)
        return shown
    if release.value is None:
        return shown
    if isinstance(release, StatementRelease):
        headings, cells = release.table_cells()
        shown["table"] = (headings, [[_text(cell) for cell in row] for row in cells])
        return shown
    if is_dataclass(release.value):  # a verdict of several numbers
        titles, (cells,) = release.table_cells()
        shown["verdict"] = [(title, _text(cell)) for title, cell in zip(titles, cells, strict=True) if cell is not None]
        return shown
    low, high = (None, None) if not _is_plain(release.interval) else map(_text, release.interval or ())
    shown["single"] = {"value": _text(release.value), "low": low, "high": high}
    shown["climb"] = draw_rungs([(float(step.epsilon), step.value, step.low, step.high) for step in release.climb])
    return shown


def _keep_together(text: str) -> str:
    """Return a line for a page: no break between a number and its sign, and no argument of Python."""
    return text.replace("; max_epsilon= raises it", "").replace(" %", "\u00a0%")


def plain_text(text: str) -> str:
    """Return a line of a receipt without the signs of JSON.

    >>> plain_text('{"age": [18.0, 90.0]}'), plain_text("[2000, 2000]"), plain_text("19/20")
    ('age: 18, 90', '2000, 2000', '0.95')
    """
    if re.fullmatch(r"\d+/\d+", text):
        return f"{float(Fraction(text)):.6g}"
    if text[:1] not in "[{":
        return text
    try:
        return _spell_json(json.loads(text))
    except ValueError:
        return text


def _spell_json(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_spell_json(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_spell_json, value))
    return f"{value:.10g}" if isinstance(value, float) else "none" if value is None else str(value)


def _is_plain(interval: Any) -> bool:
    return isinstance(interval, tuple) and all(isinstance(end, int | float | Fraction) for end in interval)


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float | Fraction):
        number = float(value)
        return f"{number:,.6g}" if abs(number) < 1e6 else f"{number:,.0f}"
    return str(value)
