"""The description of the routes under /v1: an example of every response, the one form of errors, and how to sign in."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

__all__ = ["EXAMPLES", "describe_routes"]

_JOB = "33f8035fa29a18494985deaa7ecfc335b2e802aac12ec3f96560bad4d0c8bec8"
_EPSILON = {"definition": "pure", "epsilon": "1/10"}
_RECEIPT = {
    **{"format": 1, "question": "count of rows", "method": "discrete Laplace", "promise": _EPSILON, "bill": _EPSILON},
    **{"adjacency": "add-remove", "unit": {"column": None, "time_column": None, "window": None}},
    **{"outcome": "fixed epsilon", "target": None, "achieved": 30.0, "rung": None, "rungs": None, "terms": {}},
    **{"breakdown": {}, "citations": ["GRS09, Definition 2.1"], "simulation": False},
    **{"ledger_entry": "7-793a675164d034da", "paid_before": None},
}
_RELEASE = {
    **{"$kind": "AnswerRelease", "value": 3990, "receipt": {"$kind": "receipt", "of": _RECEIPT}},
    **{"interval": {"$kind": "tuple", "of": [3960, 4020]}, "climb": {"$kind": "tuple", "of": []}},
    "confidence": {"$kind": "fraction", "of": "19/20"},
}
_PRICE = {
    **{"question": "count of rows", "worst_case": _EPSILON, "likely": _EPSILON, "above_cap": "", "account_note": None},
    **{
        "worst_case_text": "epsilon 0.1",
        "margin": "",
        "supposed": "",
        "noise": "",
        "filter_note": "",
        "text": "count of rows: at most epsilon 0.1",
    },
}
_STATE = {
    "job": _JOB,
    "dataset": "people",
    "question": "count of rows",
    "state": "running",
    "asked": "2030-01-31T09:30",
}
_LINE = {"line": 1, "at": "2030-01-31T09:30:00+00:00", "actor": "owner", "action": "create token", "dataset": "people"}
_TOKEN = {
    **{"id": "d6390e389a201a334d", "role": "analyst", "subject": "ann", "dataset": "people"},
    **{"created": "2030-01-31T09:30+00:00", "expires": None, "revoked": None, "own": False},
}
_LIMITS = {"question_cap": 0.5, "approval_above": 0.2}
_COLUMN = {"name": "age", "type": "integer", "bounds": [18, 90], "categories": None, "time_range": None}
_DATASET = {
    **{"name": "people", "title": "People", "adjacency": "add-remove", "rows": None, "columns": [_COLUMN]},
    **{"unit": {"text": "one row", "column": None, "time_column": None, "per": None}, "frozen": False},
    **{"max_rows_per_unit": None, "max_groups_per_unit": None, **_LIMITS},
}
_ACCOUNT = {
    **{"account": "analyst:ann/people", "dataset": "people", "analyst": "ann", "budget": "epsilon 3", "share": 0.1},
    **{"spent": "epsilon 0.3", "left": "epsilon 2.7"},
}
_ENTRY = {
    **{"sequence": 7, "recorded": "2030-01-31T09:30+00:00", "text": "{}", "previous": "0" * 64, "hash": "f" * 64},
    "kind": "settle",
}
_BUDGET = {
    "budget": _EPSILON,
    **{"remaining": _EPSILON, "remaining_text": "epsilon 0.1", "spent_on_dataset": _EPSILON},
    "accounts": ["dataset:people", "analyst:ann/people"],
}
_PART = {"question": "count of rows by city", "sensitivity": "1 (L1)", "worst_case": _EPSILON, "climbs": True}
_TABLE = {
    **{"$kind": "StatementRelease", "columns": {"$kind": "tuple", "of": ["n"]}, "receipt": _RELEASE["receipt"]},
    "value": {"$kind": "tuple", "of": [{"$kind": "tuple", "of": [3990]}]},
}
_ONE, _OWNER = "/v1/datasets/{dataset}", "/v1/owner"
EXAMPLES: dict[tuple[str, str], Any] = {
    ("GET", "/v1/datasets"): {"datasets": [{"name": "people", "title": "People"}]},
    ("GET", _ONE): _DATASET,
    ("GET", f"{_ONE}/budget"): _BUDGET,
    ("POST", f"{_ONE}/price"): _PRICE,
    ("POST", f"{_ONE}/price-fit"): _PRICE | {"question": "table regressor of pay"},
    ("POST", f"{_ONE}/price-curve"): {"within": ["5%"], "quotes": [_PRICE]},
    ("POST", f"{_ONE}/simulate"): {"release": _RELEASE},
    ("GET", f"{_ONE}/dummy"): {"columns": {"age": [29, 30], "city": ["Oslo", "Rome"]}},
    ("POST", f"{_ONE}/ask"): {"job": _JOB, "release": _RELEASE},
    ("POST", f"{_ONE}/fit"): {"job": _JOB, "model": {"receipt": _RECEIPT}},
    ("POST", f"{_ONE}/sql"): {"job": _JOB, "release": _TABLE},
    ("POST", f"{_ONE}/sql-price"): _PRICE | {"parts": [_PART], "unit": "one row", "groups": 1},
    ("GET", f"{_ONE}/releases"): {"releases": [_STATE]},
    ("GET", f"{_ONE}/history"): {"entries": [_ENTRY]},
    ("GET", f"{_ONE}/receipts/{{entry}}"): _RECEIPT,
    ("GET", "/v1/jobs/{job}"): _STATE | {"state": "done", "status": 200, "result": {"release": _RELEASE}},
    ("DELETE", "/v1/jobs/{job}"): _STATE | {"state": "stopping"},
    ("GET", f"{_OWNER}/spending"): {"accounts": [_ACCOUNT]},
    ("GET", f"{_OWNER}/log"): {"intact": True, "lines": [_LINE | {"detail": "{}", "hash": "f" * 64}]},
    ("GET", f"{_OWNER}/verify"): {"report": "8 entries, 3 accounts, 1 hold, 0 open, head 7-793a675164d034da"},
    ("GET", f"{_OWNER}/anchor"): {"anchor": "7-793a675164d034da"},
    ("GET", f"{_OWNER}/ledger.csv"): "sequence,recorded,kind\n",
    ("GET", f"{_OWNER}/ledger.backup"): b"",
    ("GET", f"{_OWNER}/tokens"): {"tokens": [_TOKEN]},
    ("POST", f"{_OWNER}/tokens"): {"token": "expost_...", "id": "d6390e389a201a334d"},
    ("DELETE", f"{_OWNER}/tokens/{{token}}"): {"revoked": "d6390e389a201a334d"},
    ("POST", f"{_OWNER}/tokens/{{token}}/rotate"): {"token": "expost_...", "id": "81a0b6a3f2f0c5d7e9"},
    ("GET", f"{_OWNER}/approvals"): {
        "waiting": [
            _STATE | {"state": "waiting for the owner", "analyst": "ann", "may_cost": "epsilon 0.4", "body": {}}
        ]
    },
    ("POST", f"{_OWNER}/approvals/{{job}}"): {"job": _JOB, "approved": True},
    ("POST", f"{_OWNER}/datasets/{{dataset}}/limits"): {"dataset": "people", **_LIMITS},
    ("POST", f"{_OWNER}/datasets/{{dataset}}/freeze"): {"dataset": "people", "frozen": True},
    ("POST", f"{_OWNER}/datasets/{{dataset}}/thaw"): {"dataset": "people", "frozen": False},
}
"""What each route answers."""
_PATH_EXAMPLES = {"dataset": "people", "job": _JOB, "entry": "7-793a675164d034da", "token": "d6390e389a201a334d"}
_FAILURE = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "cost"],
            "properties": {name: {"type": "string"} for name in ("code", "message", "cost")},
        }
    },
}
_TOLD = {
    "error": {"code": "not_found", "message": "There is no such dataset.", "cost": "nothing spent, data untouched"}
}


def describe_routes(app: FastAPI) -> None:
    """Complete the application's OpenAPI document.

    Parameters
    ----------
    app : FastAPI
        The application.
    """
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = plain()
            document["components"] = {
                "schemas": {"Failure": _FAILURE},
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            }
            document["security"] = [{"token": []}]
            for path, methods in document["paths"].items():
                for method, operation in methods.items():
                    _complete(operation, EXAMPLES[(method.upper(), path)])
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _complete(operation: dict[str, Any], example: Any) -> None:
    kinds: dict[type, str] = {str: "text/csv", bytes: "application/octet-stream"}
    kind = kinds.get(type(example), "application/json")
    shown = {} if isinstance(example, bytes) else {"example": example}
    schema = {"type": "object"} if kind == "application/json" else {"type": "string"}
    failure = {"$ref": "#/components/schemas/Failure"}
    operation["responses"] = {
        "200": {"description": "What was asked for", "content": {kind: {"schema": schema} | shown}},
        "default": {
            "description": "Why not, in one form",
            "content": {"application/json": {"schema": failure, "example": _TOLD}},
        },
    }
    if operation["x-action"] in ("ask", "fit"):
        running = {"schema": {"type": "object"}, "example": _STATE}
        operation["responses"]["202"] = {"description": "It runs", "content": {"application/json": running}}
    for parameter in operation.get("parameters", []):
        if parameter["name"] in _PATH_EXAMPLES:
            parameter["example"] = _PATH_EXAMPLES[parameter["name"]]
