"""Random requests to every route: no failure of the service, one form of errors, and no word about rows."""

import datetime
import inspect
import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.served import CANARY, Served, write_people

from expost.service.question_form import ESTIMATORS, TESTS
from expost.session.statistic_methods import STATISTICS

LIMITS = "[limits]\nrequests_per_minute = 900000000\nwait_seconds = 5.0\n"
FORBIDDEN = re.compile(rf"{CANARY}|Traceback|\.py\b|site-packages|/tmp|\.parquet|numpy|pyarrow|duckdb|sqlalchemy", re.I)
PREVIEW = "/datasets/people/preview"
HARD = settings(
    max_examples=int(os.environ.get("EXPOST_FUZZ", "120")),
    deadline=None,
    derandomize="EXPOST_FUZZ" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

odd_texts = st.sampled_from(
    [
        "",
        "age",
        "city",
        "pay",
        "Oslo",
        CANARY,
        "\x00",
        "a\nb",
        "�",
        "=1+1",
        "<b>",
        "'; --",
        "é\u202e",
        "5%",
        "0%",
        "age > 3",
        "city = 'Oslo'",
        "age / 0 > 1",
        "pay * 1e308 > 3",
        "x" * 300,
        "1/0",
        "nan",
        "(",
        "/etc/passwd",
    ]
) | st.text(max_size=8)
numbers = (
    st.sampled_from([0, -1, 1, 2, 3, 0.5, 0.1, 1e-9, 1e308, -1e308, 5e-324, 10**30, 10**400, -(10**400), 2**63, True])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-5, 100)
)
plain = numbers | odd_texts | st.none() | st.booleans()
kinds = st.sampled_from(["tuple", "fraction", "time", "date", "expression", "PrivateKeys", "release", 3, None, [], {}])
nested = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(odd_texts, inner, max_size=3)
        | st.fixed_dictionaries({"low": inner, "high": inner})
        | st.fixed_dictionaries({"$kind": kinds, "of": inner})
    ),
    max_leaves=6,
)
columns = st.sampled_from(["age", "pay", "city"])
USUAL: dict[str, Any] = {
    **dict.fromkeys(("column", "x", "first", "value", "target", "numerator"), st.sampled_from(["age", "pay", "city"])),
    **dict.fromkeys(("y", "second", "denominator"), st.sampled_from(["pay", "age", "city"])),
    "columns": st.lists(columns, min_size=1, max_size=3, unique=True),
    "by": st.just("city"),
    "groups": st.just(["Oslo", "Rome"]),
    "equals": st.sampled_from(["Oslo", 30]),
    "null": st.just(0.5),
    "chances": st.just({"Oslo": 0.5, "Rome": 0.5}),
    "where": st.sampled_from(["age > 30", "city = 'Oslo'", "pay / age > 1"]),
    "bounds": st.sampled_from(
        [{"low": 0, "high": 100}, {"age": {"low": 0, "high": 90}, "pay": {"low": 0, "high": 99}}]
    ),
    "target_bounds": st.just({"low": 0, "high": 100}),
    "probabilities": st.just([0.25, 0.5]),
    "confidence": st.sampled_from([0.9, 0.99]),
    "max_epsilon": st.sampled_from([0.05, 0.3]),
    **dict.fromkeys(("share", "level", "power", "keys_share", "bounds_share", "validation_share"), st.just(0.4)),
    "delta": st.just(1e-7),
    "k": st.integers(1, 3),
    "window": st.integers(1, 5),
    "bins": st.integers(1, 50) | st.sampled_from([10**5, 10**9, 10**18]),
    "levels": st.integers(2, 50) | st.sampled_from([10**5, 10**9, 10**18]),
    "classes": st.just(["Oslo", "Rome"]),
    "noise": st.sampled_from(["laplace", "gaussian"]),
    "effect": st.sampled_from([0.2, 1]),
    "expected_rows": st.sampled_from([4000, 10**12]),
    "expected_sizes": st.just([2000, 2000]),
    "rows": st.sampled_from([4000, 10**12]),
    "parts": st.integers(2, 30),
    **dict.fromkeys(("steps", "batches", "batch_size", "phases", "rungs"), st.integers(1, 30)),
    "regularization": st.just(0.1),
    **dict.fromkeys(("feature_norm", "feature_bound", "clip", "learning_rate", "excess_risk"), st.just(1)),
    "relation": st.just("greater"),
}
LEVELS = ({"epsilon": 0.01}, {"epsilon": 0.1}, {"within": 5}, {"within": "5%", "max_epsilon": 0.1}, {"within": 100}, {})


@st.composite
def terms(draw: st.DrawFn, made: Any) -> dict[str, Any]:
    """Draw arguments: mostly usual ones, so that many are accepted, and some of any value or of an unknown name."""
    signature = inspect.signature(made).parameters
    chosen = draw(st.lists(st.sampled_from(sorted(signature)), unique=True, max_size=3))
    chosen += [name for name, each in signature.items() if each.default is each.empty and name not in chosen]
    wild = draw(st.sampled_from(["", "", "", "within", "epsilon", *chosen]))
    found = {name: draw(USUAL[name]) for name in chosen if name in USUAL}
    found |= {name: each for name, each in draw(st.sampled_from(LEVELS)).items() if name in signature}
    if wild:
        found[wild] = draw(nested)
    if draw(st.integers(0, 15)) == 0:
        found[draw(st.sampled_from(["self", "question", "statistic", "cls", "expect", "request_id", "keep"]))] = 1
    return found


@st.composite
def questions(draw: st.DrawFn) -> Any:
    known: dict[str, Any] = {**STATISTICS, **TESTS}
    name = draw(st.sampled_from(sorted(known)))
    body: dict[str, Any] = {"statistic": name, "arguments": draw(terms(known[name]))}
    if draw(st.integers(0, 5)) == 0:
        place = st.tuples(st.sampled_from(["part", "window", "x"]), odd_texts, nested)
        body["place"] = draw(nested | st.lists(place, max_size=2))
    return body


@st.composite
def fits(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(sorted(ESTIMATORS)))
    body: dict[str, Any] = {"estimator": name, "settings": draw(terms(ESTIMATORS[name]))}
    body["target"] = draw(nested if draw(st.integers(0, 9)) == 0 else columns)
    if draw(st.booleans()):
        numeric = st.lists(st.sampled_from(["age", "pay"]), min_size=1, max_size=2, unique=True)
        body["features"] = draw(nested if draw(st.integers(0, 9)) == 0 else numeric)
    return body


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path: Path = write_people(tmp_path_factory.mktemp("attacked"))
    path.write_text(path.read_text(encoding="utf-8") + LIMITS, encoding="utf-8")
    found = Served(path)
    with found.http:
        yield found


def send(served: Served, who: str, method: str, path: str, body: Any, **more: Any) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return served.call(who, method, path, content=content, **more)


def check(response: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    """Check the form of a response, and that neither it nor the logs say what is not public."""
    text = response.text
    if response.status_code >= 400 and response.request.method != "HEAD" and "json" in response.headers["content-type"]:
        error = response.json()["error"]
        assert {"code", "message", "cost"} <= set(error) <= {"code", "message", "cost", "release"}, text
        assert error["code"] not in ("internal", "interrupted"), text
    assert response.status_code < 500, text
    typed = response.request.content.decode("utf-8", "replace") + str(response.request.url)
    seen = text + str(response.headers) + caplog.text + "".join(capsys.readouterr())
    assert not {found for found in FORBIDDEN.findall(seen) if found not in typed}
    caplog.clear()


@HARD
@given(body=questions(), path=st.sampled_from(["/v1/datasets/people/ask", "/v1/datasets/people/price", PREVIEW]))
@example(body={"statistic": "count", "arguments": {"within": {"$kind": []}}}, path=PREVIEW)
@example(body={"statistic": "count", "arguments": {"self": 1, "within": 9}}, path=PREVIEW)
@example(body={"statistic": "count", "arguments": {"where": "city = '\ud800'", "within": 9}}, path=PREVIEW)
@example(body={"statistic": "count", "arguments": {"within": 10**4000}}, path=PREVIEW)
def test_random_questions_are_answered_or_refused(
    attacked: Served, caplog: Any, capsys: Any, body: Any, path: str
) -> None:
    caplog.set_level(logging.DEBUG, "expost")
    check(send(attacked, "ann", "POST", path, body), caplog, capsys)


@HARD
@given(body=fits(), paid=st.integers(0, 5))
def test_random_fits_are_made_or_refused(attacked: Served, caplog: Any, capsys: Any, body: Any, paid: int) -> None:
    check(send(attacked, "ann", "POST", f"/v1/datasets/people/{'price-fit' if paid else 'fit'}", body), caplog, capsys)


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a request to any route, with any method, token, key, type and body."""
    path = draw(st.sampled_from(PATHS))
    word = st.sampled_from(["people", "0" * 64, "%00", "%ff", "..%2f..", "%0d%0aX: 1", "a b", "é", "%ud800", "x" * 500])
    filled = re.sub(r"\{\w+\}", lambda _: quote(draw(word), safe="%"), path)
    query = draw(st.sampled_from(["", "?wait=0", "?wait=nan", "?wait=-1", "?wait=1e999", "?%00=%ff", "?wait=0&wait=x"]))
    kind = st.sampled_from(
        [
            "application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "text/plain",
            "a;b=ÿ",
            "",
            "multipart/form-data; boundary=x",
            "application/json; charset=utf-16",
            "form",
        ]
    )
    whole = nested.map(lambda each: json.dumps(each).encode())
    body = whole | st.binary(max_size=60) | st.sampled_from([b'{"a":' * 50, b"[" * 5000, b"\xff\xfe", b"1" * 5000])
    form = st.sampled_from([b"within=1e999&statistic=count&csrf=%00", b"--x\r\nbad\r\n--x--", b"a=%ff&a=2", b"=&="])
    return {
        "method": draw(st.sampled_from(["GET", "POST", "DELETE", "HEAD", "PUT", "PATCH", "OPTIONS", "TRACE", "FOO"])),
        "url": filled + query,
        "content": draw(body | form),
        "who": draw(st.sampled_from(["owner", "auditor", "ann", "ann", "none", "page"])),
        "headers": {
            "content-type": draw(kind),
            "accept": draw(st.sampled_from(["*/*", "text/html", "\xff"])),
            "idempotency-key": draw(st.sampled_from(["k", "", "x" * 300, "\xff", "a\tb"])),
            "cookie": draw(st.sampled_from(["", "expost_session=x", "expost_session=\xff", "=;;="])),
        },
    }


PATHS = [
    *("/", "/login", "/logout", "/history", "/health", "/ready", "/metrics", "/nowhere", "/static/..%2fpage_frame.py"),
    *("/datasets/{d}", "/datasets/{d}/ask", "/datasets/{d}/preview", "/answers/{j}", "/answers/{j}.csv"),
    *(
        "/answers/{j}/cancel",
        "/owner",
        "/owner/log",
        "/owner/tokens",
        "/owner/tokens/{t}/revoke",
        "/owner/approvals/{j}",
    ),
    *("/owner/datasets/{d}/thaw", "/v1/openapi.json", "/v1/datasets", "/v1/datasets/{d}", "/v1/datasets/{d}/budget"),
    *("/v1/datasets/{d}/price", "/v1/datasets/{d}/price-fit", "/v1/datasets/{d}/ask", "/v1/datasets/{d}/fit"),
    *("/v1/datasets/{d}/releases", "/v1/datasets/{d}/history", "/v1/datasets/{d}/receipts/{e}", "/v1/jobs/{j}"),
    *("/v1/owner/spending", "/v1/owner/log", "/v1/owner/verify", "/v1/owner/ledger.csv", "/v1/owner/tokens"),
    *("/v1/owner/tokens/{t}", "/v1/owner/approvals", "/v1/owner/approvals/{j}", "/v1/owner/datasets/{d}/thaw"),
]


@HARD
@given(request=requests())
def test_random_requests_to_every_route_are_answered_or_refused(
    attacked: Served, caplog: Any, capsys: Any, request: dict[str, Any]
) -> None:
    headers = {name: value.encode("latin-1") for name, value in request["headers"].items()}
    if request["who"] in attacked.tokens:
        headers["authorization"] = f"Bearer {attacked.tokens[request['who']]}".encode()
    elif request["who"] == "page":
        cookie, csrf = page_session(attacked)
        headers |= {"cookie": f"expost_session={cookie}".encode(), "x-csrf-token": csrf.encode()}
    attacked.http.cookies.clear()
    terms = {"content": request["content"], "headers": headers, "follow_redirects": False}
    check(attacked.http.request(request["method"], request["url"], **terms), caplog, capsys)


def page_session(served: Served) -> tuple[str, str]:
    """Return the cookie of a page session of the owner, and the text that only our pages know."""
    if "cookie" not in PAGE:
        now = served.curator.now()
        token = served.tokens["owner"].split("_")[1]
        served.curator.store.open_page_session("fuzz", token, "text", now + datetime.timedelta(hours=1))
        PAGE.update(cookie="fuzz", csrf="text")
    return PAGE["cookie"], PAGE["csrf"]


PAGE: dict[str, str] = {}
