"""The OpenAPI document: an example of every route that real responses look like, and random requests made from it.

``EXPOST_SCHEMA_CALLS=100000`` sends so many requests instead of a few per route.
"""

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.served import Served, write_people
from tests.unit.service.test_fuzz import LIMITS, check

from expost.service.openapi_document import EXAMPLES

CALLS = int(os.environ.get("EXPOST_SCHEMA_CALLS", "60"))
PATHS = {"dataset": "people", "job": "0" * 64, "entry": "0-0", "token": "none"}


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path: Path = write_people(tmp_path_factory.mktemp("described"))
    path.write_text(path.read_text(encoding="utf-8") + LIMITS, encoding="utf-8")
    found = Served(path)
    with found.http:
        yield found


def operations_of(served: Served) -> dict[tuple[str, str], dict[str, Any]]:
    paths = served.http.get("/v1/openapi.json").json()["paths"]
    return {(method.upper(), path): each for path, methods in paths.items() for method, each in methods.items()}


def shape(value: Any) -> Any:
    """Return the names in a response, without its values."""
    if isinstance(value, dict):
        return set(value)
    return type(value)


def test_every_route_has_an_example_with_the_names_of_a_real_response(described: Served) -> None:
    found = operations_of(described)
    assert set(found) == set(EXAMPLES)
    for (method, path), operation in found.items():
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
        who = "owner" if "/owner/" in path else "ann"
        if path.endswith(("/fit", "/price-fit")):
            body = {"estimator": "Regressor", "settings": {"epsilon": 0.1}, "features": ["age"], "target": "pay"}
        content = {} if body is None else {"json": body}
        response = described.call(who, method, path.format_map(PATHS), **content)
        example = operation["responses"]["200"]["content"]
        if response.status_code == 200 and "application/json" in example:
            shown = example["application/json"]["example"]
            assert shape(response.json()) == shape(shown), (method, path)
            for name, value in response.json().items():
                if isinstance(value, list) and value and isinstance(value[0], dict) and name != "releases":
                    assert shape(value[0]) == shape(shown[name][0]), (method, path, name)
        else:
            assert response.status_code in (200, 400, 404, 409), (method, path, response.text)
        if method == "POST" and body is None:
            assert path.endswith(("freeze", "thaw"))


def test_the_document_is_one_that_tools_read(described: Served) -> None:
    document = described.http.get("/v1/openapi.json").json()

    assert document["security"] == [{"token": []}]
    for operation in operations_of(described).values():
        assert {"200", "default"} <= set(operation["responses"]) <= {"200", "202", "default"}
        assert operation["description"]


@pytest.mark.timeout(max(300, CALLS))
def test_requests_made_from_the_document_are_answered_or_refused(
    described: Served, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "expost")
    document = described.http.get("/v1/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    operations = [each.ok() for each in schema.get_all_operations()]
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    cases = st.one_of(*(each.as_strategy(generation_mode=mode) for each in operations for mode in modes))
    counted: dict[str, int] = {}

    @settings(
        max_examples=CALLS,
        deadline=None,
        database=None,
        derandomize="EXPOST_SCHEMA_CALLS" not in os.environ,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=cases, who=st.sampled_from(["owner", "ann", "ann", "auditor"]), real=st.booleans())
    def send(case: Any, who: str, real: bool) -> None:
        if case.operation.path.endswith("/freeze"):  # one frozen dataset would end all questions
            who = "auditor"
        if real and "dataset" in case.path_parameters:
            case.path_parameters["dataset"] = "people"
        sent = case.as_transport_kwargs(base_url="http://testserver")
        headers = {name: value.encode("utf-8", "replace") for name, value in dict(sent.pop("headers")).items()}
        headers["authorization"] = f"Bearer {described.tokens[who]}".encode()
        kept = {name: sent[name] for name in ("json", "data", "params", "content") if sent.get(name) is not None}
        if isinstance(kept.get("data"), bytes | str):
            kept["content"] = kept.pop("data")
        if "json" in kept:
            kept["content"] = json.dumps(kept.pop("json"), ensure_ascii=True).encode()
            headers.setdefault("content-type", b"application/json")
        response = described.http.request(sent["method"], sent["url"], headers=headers, follow_redirects=False, **kept)
        counted[case.operation.path] = counted.get(case.operation.path, 0) + 1
        if not case.operation.path.endswith("/ledger.backup"):  # the whole ledger, for the owner alone
            check(response, caplog, capsys)

    send()
    assert sum(counted.values()) >= CALLS * 0.9
    if CALLS >= 2000:
        assert set(counted) == {path for _, path in EXAMPLES}
