"""Attacks on a service: races, stolen and forged requests, lying and slow bodies, and failures that might say too much."""

import asyncio
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.served import CANARY, Served, write_people
from tests.unit.service.test_pages import sign_in
from tests.unit.service.test_rights import address_of, routes_of

from expost.core import InvalidRequest
from expost.service import Role
from expost.service.access_token import TokenSecret
from expost.service.curator import Curator
from expost.session import Session

WIDE = "[limits]\nrequests_per_minute = 900000\njobs_per_token = 64\nworkers = 8\n"


def serve(folder: Path, *, limits: str = WIDE, extra: str = "") -> Served:
    path = write_people(folder, extra=extra)
    path.write_text(path.read_text(encoding="utf-8") + limits, encoding="utf-8")
    return Served(path)


def spent(served: Served, account: str) -> Fraction:
    return served.curator.ledger.spent(account).amounts()["epsilon"]


def test_questions_of_many_threads_are_charged_exactly_and_never_above_the_budget(tmp_path: Path) -> None:
    served = serve(tmp_path)
    asked = [(who, key) for key in range(14) for who in ("ann", "bob")] * 2  # every key twice

    def ask(each: tuple[str, int]) -> Any:
        who, key = each
        return served.ask(who, "median", f"k{key}", column="age", epsilon=0.25, where=f"pay > {key}")

    with served.http, ThreadPoolExecutor(12) as threads:
        responses = list(threads.map(ask, asked))
        answers = {}
        for each, response in zip(asked, responses, strict=True):
            assert response.status_code in (200, 409), response.text
            assert answers.setdefault(each, response.json()) == response.json()  # one answer per key
        paid = {
            who: sum(w == who and "release" in found for (w, _), found in answers.items()) for who in ("ann", "bob")
        }

        # Each analyst may spend 3, the table 5: 12 and 20 questions of 1/4.
        assert sum(paid.values()) == 20 and max(paid.values()) <= 12
        for who, number in paid.items():
            assert spent(served, f"analyst:{who}/people") == Fraction(number, 4)
        assert 4.9 < spent(served, "dataset:people") <= 5  # composed under its delta, a little less than the sum
        assert not served.curator.ledger.open_holds()
        served.curator.ledger.verify()


def test_one_key_from_many_threads_draws_once(tmp_path: Path) -> None:
    served = serve(tmp_path)
    with served.http, ThreadPoolExecutor(12) as threads:
        found = list(threads.map(lambda _: served.ask("ann", "count", "k", epsilon=0.5), range(24)))

        assert {each.status_code for each in found} == {200}
        assert len({each.text for each in found}) == 1
        assert spent(served, "dataset:people") == Fraction(1, 2)


def test_a_token_that_is_revoked_while_its_question_runs_gets_no_answer(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, go_on, original = threading.Event(), threading.Event(), Session.ask

    def slow(*given: Any, **terms: Any) -> Any:
        running.set()
        assert go_on.wait(10)
        return original(*given, **terms)

    monkeypatch.setattr(Session, "ask", slow)
    with ThreadPoolExecutor(2) as threads:
        future = threads.submit(served.ask, "ann", "count", "k", epsilon=0.5)
        assert running.wait(10)
        job = served.call("ann", "GET", "/v1/datasets/people/releases").json()["releases"][0]["job"]
        waiting = threads.submit(served.call, "ann", "GET", f"/v1/jobs/{job}?wait=10")
        served.curator.revoke_token(served.tokens["ann"].split("_")[1])
        go_on.set()
        for response in (future.result(), waiting.result()):
            assert response.status_code == 401 and "release" not in response.text
    assert spent(served, "dataset:people") == Fraction(1, 2)  # it was drawn, and is charged
    again = served.curator.create_token(role=Role.ANALYST, subject="ann", dataset="people")
    served.tokens["ann"] = again.text
    assert served.ask("ann", "count", "k", epsilon=0.5).status_code == 200  # a new token of the same analyst gets it


def test_a_question_that_fails_ends_charged_and_without_a_word_of_the_failure(
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError(CANARY)

    monkeypatch.setattr(Session, "ask", fail)
    asked = served.ask("ann", "count", epsilon=0.1)
    monkeypatch.setattr(Curator, "describe_dataset", fail)
    described = served.call("ann", "GET", "/v1/datasets/people")

    assert (asked.status_code, asked.json()["error"]["code"]) == (503, "failed")
    assert (described.status_code, described.json()["error"]["code"]) == (500, "internal")
    assert "nosniff" in described.headers["x-content-type-options"]
    said = asked.text + described.text + caplog.text + "".join(capsys.readouterr())
    assert CANARY not in said and "Traceback" not in said


@pytest.mark.filterwarnings("error")
def test_a_failure_does_not_reach_the_server_which_would_log_its_traceback(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError(CANARY)

    monkeypatch.setattr(Curator, "describe_dataset", fail)
    sent = send_raw(served, [b""], token=served.tokens["ann"], path="/v1/datasets/people", method="GET")

    assert sent[0]["status"] == 500


def send_raw(
    served: Served, chunks: list[bytes | None], *, token: str, path: str, method: str = "POST", length: bytes = b""
) -> list[Any]:
    """Send a request without a client library, chunk by chunk. None: nothing comes any more."""
    sent: list[Any] = []
    rest = list(chunks)
    headers = [(b"authorization", f"Bearer {token}".encode()), (b"content-type", b"application/json")]
    headers += [(b"content-length", length)] if length else []
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": headers}
    scope |= {"query_string": b"", "server": ("testserver", 80), "client": ("test", 1), "scheme": "http"}
    scope |= {"http_version": "1.1", "root_path": "", "asgi": {"version": "3.0"}}

    async def receive() -> Any:
        if not rest or rest[0] is None:
            await asyncio.sleep(3600)
        return {"type": "http.request", "body": rest.pop(0), "more_body": bool(rest)}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(served.app(scope, receive, send))
    return sent


QUESTION = b'{"statistic": "count", "arguments": {"epsilon": 0.1}}'


def test_a_whole_question_at_the_start_of_a_long_body_is_not_asked(served: Served) -> None:
    sent = send_raw(
        served, [QUESTION, b" " * 70_000], token=served.tokens["ann"], path="/v1/datasets/people/ask", length=b"53"
    )

    assert sent[0]["status"] == 413
    assert spent(served, "dataset:people") == 0
    assert served.curator.store.list_requests() == []


@pytest.mark.parametrize("length", [b"-1", b"x", b"9" * 5000, b"1e3", b""])
def test_a_length_that_lies_is_refused_or_ignored(served: Served, length: bytes) -> None:
    sent = send_raw(served, [QUESTION], token=served.tokens["ann"], path="/v1/datasets/people/price", length=length)

    assert sent[0]["status"] == (413 if length else 200)


def test_a_body_that_never_ends_is_given_up(tmp_path: Path) -> None:
    served = serve(tmp_path, limits="[limits]\nbody_seconds = 0.2\n")
    with served.http:
        sent = send_raw(
            served, [QUESTION[:9], None], token=served.tokens["ann"], path="/v1/datasets/people/ask", length=b"53"
        )

    assert sent[0]["status"] == 408


def test_an_answer_may_take_longer_than_a_body(tmp_path: Path) -> None:
    path = write_people(tmp_path)
    text = path.read_text(encoding="utf-8").replace("time_grid = 0.01", "time_grid = 0.5")
    path.write_text(text + "[limits]\nbody_seconds = 0.1\n", encoding="utf-8")
    served = Served(path)
    with served.http:
        assert served.ask("ann", "count", epsilon=0.1).status_code == 200


def test_every_change_by_cookie_needs_the_text_that_only_our_pages_know(served: Served) -> None:
    sign_in(served, "owner")
    before = served.curator.store.list_tokens()
    tried = 0
    for method, path, _ in routes_of(served):
        if method not in ("GET", "HEAD"):
            tried += 1
            for content in ({"json": {}}, {"data": {"csrf": "x"}}, {"headers": {"x-csrf-token": "é".encode()}}):
                response = served.http.request(method, address_of(path), **content)

                assert response.status_code == 403, (method, path, response.text)
    assert tried > 15
    assert served.curator.store.list_tokens() == before


def test_signing_in_opens_a_new_session_and_ends_the_one_before(served: Served) -> None:
    sign_in(served, "ann")
    planted = served.http.cookies["expost_session"]
    response = served.http.post("/login", data={"token": served.tokens["ann"]}, follow_redirects=False)
    flags = response.headers["set-cookie"].lower()
    fresh = response.cookies["expost_session"]

    assert fresh != planted and response.headers["location"] == "/"
    assert "httponly" in flags and "samesite=strict" in flags and "path=/" in flags
    served.http.cookies.clear()
    old = served.http.get("/", headers={"cookie": f"expost_session={planted}"}, follow_redirects=False)
    assert old.status_code == 303


def test_another_site_cannot_sign_somebody_in(served: Served) -> None:
    forged = served.http.post(
        "/login",
        data={"token": served.tokens["ann"]},
        headers={"sec-fetch-site": "cross-site"},
        follow_redirects=False,
    )

    assert forged.status_code == 403 and "set-cookie" not in forged.headers


@pytest.mark.parametrize("path", ["/v1/datasets/", "//evil.example/", "/login/", "/v1/datasets/people/ask/"])
def test_no_address_redirects_to_the_host_that_a_client_names(served: Served, path: str) -> None:
    response = served.http.get(path, headers={"host": "evil.example"}, follow_redirects=False)

    assert "evil.example" not in response.headers.get("location", "")


def test_a_name_has_one_role_and_an_owner_has_all_datasets(served: Served) -> None:
    with pytest.raises(InvalidRequest, match="one role"):
        served.curator.create_token(role=Role.OWNER, subject="ann")
    with pytest.raises(InvalidRequest, match="opens all"):
        served.curator.create_token(role=Role.OWNER, subject="deputy", dataset="people")


@pytest.mark.parametrize("name", ["a\nb", "a\rSet-Cookie: x", "a\x1b[31m", "a\u2028b", "a\x00", "a/b", "*", " "])
def test_names_cannot_forge_lines_of_a_log(served: Served, name: str) -> None:
    body = {"role": "auditor", "subject": name}

    assert served.call("owner", "POST", "/v1/owner/tokens", json=body).status_code == 400


def test_gaussian_noise_does_not_pass_the_owners_approval(tmp_path: Path) -> None:
    served = serve(tmp_path, extra="approval_above = 0.2")
    with served.http:
        fine = served.ask("ann", "count", within=6, noise="gaussian", max_epsilon=2)
        rough = served.ask("ann", "count", within=50, noise="gaussian", max_epsilon=2)

    assert (fine.status_code, rough.status_code) == (202, 200)


def test_freezing_keeps_what_was_paid_and_holds_what_was_approved_late(tmp_path: Path) -> None:
    served = serve(tmp_path, extra="approval_above = 0.2")
    with served.http:
        first = served.ask("ann", "count", "a", epsilon=0.1)
        job = served.ask("ann", "count", "b", epsilon=0.4).json()["job"]
        served.call("owner", "POST", "/v1/owner/datasets/people/freeze")

        assert served.ask("ann", "count", "a", epsilon=0.1).json() == first.json()
        approved = served.call("owner", "POST", f"/v1/owner/approvals/{job}", json={"approve": True})
        assert (approved.status_code, approved.json()["error"]["code"]) == (409, "frozen")


def test_settings_of_a_fit_name_no_file_of_the_server(served: Served, tmp_path: Path) -> None:
    for name in (str(tmp_path / "people.toml"), "/etc/passwd", "nowhere"):
        body = {"estimator": "Regressor", "settings": {"epsilon": 0.1, "columns": name}, "target": "pay"}
        found = served.call("ann", "POST", "/v1/datasets/people/fit", json=body)

        assert found.status_code == 400 and "description of each column" in found.json()["error"]["message"]


def test_categories_cannot_become_formulas(tmp_path: Path) -> None:
    path = write_people(tmp_path)
    described = tmp_path / "people.toml"
    text = described.read_text(encoding="utf-8").replace('"Oslo"', '"=1+1"')
    described.write_text(text, encoding="utf-8")
    served = Served(path)
    with served.http:
        csrf = sign_in(served, "ann")
        form = {"csrf": csrf, "statistic": "count", "by": "city", "within": "50", "where": "city <> '=cmd'"}
        page = served.http.post("/datasets/people/ask", data=form)
        answer = served.http.get(f"{page.url.path}.csv").text
        ledger = served.call("owner", "GET", "/v1/owner/ledger.csv").text

    assert "=1+1" in answer
    assert not re.search(r"(^|[,\n]\"?)[=+@]", answer + ledger)


def test_invented_methods_share_one_line_of_the_metrics(served: Served) -> None:
    for number in range(5):
        served.http.request(f"INVENTED{number}", "/v1/datasets")

    assert "INVENTED" not in served.http.get("/metrics").text


def test_wrong_tokens_cannot_keep_the_processors_busy(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("expost.service.http_requests._MOST_GUESSES", 5)
    assert served.call("ann", "GET", "/v1/datasets").status_code == 200
    computed = []
    slow = TokenSecret.hash
    monkeypatch.setattr(TokenSecret, "hash", lambda secret, salt: computed.append(secret) or slow(secret, salt))
    for number in range(12):
        served.tokens["guess"] = TokenSecret.make().text
        response = served.call("guess", "GET", "/v1/datasets")
        assert response.status_code == (401 if number < 5 else 429)
    assert response.json()["error"]["code"] == "too_many_guesses" and response.headers["retry-after"]
    assert len(computed) == 5
    assert served.call("ann", "GET", "/v1/datasets").status_code == 200  # it has worked before
    assert served.call("bob", "GET", "/v1/datasets").status_code == 429  # until the minute is over
    served.app.state.gate._guesses = (-100.0, 9)
    assert served.call("bob", "GET", "/v1/datasets").status_code == 200
