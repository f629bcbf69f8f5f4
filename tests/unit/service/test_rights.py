"""Every route checks its right: each one, with every role, another dataset, and every state of a token."""

import datetime
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.routing import APIRoute
from tests.served import Served, write_people

from expost.service import Role
from expost.service.permission import ACTIONS

OPEN = {"/health", "/ready", "/metrics", "/login", "/logout", "/v1/openapi.json"}


def walk_routes(routes: Iterable[Any]) -> Iterator[APIRoute]:
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        elif hasattr(route, "original_router"):
            yield from walk_routes(route.original_router.routes)


def routes_of(served: Served) -> list[tuple[str, str, str]]:
    found = []
    for route in walk_routes(served.app.routes):
        if route.path not in OPEN:
            action = (route.openapi_extra or {})["x-action"]  # a route without one must not exist
            found += [(method, route.path, action) for method in route.methods]
    assert len(found) > 35
    return found


def address_of(path: str, dataset: str = "people") -> str:
    return path.format(dataset=dataset, job="0" * 64, token="none", entry="0-none")


def test_every_route_names_an_action_and_every_action_has_a_route(served: Served) -> None:
    actions = {action for _, _, action in routes_of(served)}

    assert actions <= set(ACTIONS)
    assert set(ACTIONS) == actions


@pytest.mark.parametrize("role", list(Role))
def test_a_role_gets_exactly_what_the_table_gives_it(served: Served, role: Role) -> None:
    who = {"owner": "owner", "auditor": "auditor", "analyst": "ann"}[role.value]
    for method, path, action in routes_of(served):
        if not path.startswith("/v1"):
            continue
        response = served.call(who, method, address_of(path))
        allowed = role in ACTIONS[action]

        assert (response.status_code != 403) == allowed, (method, path, response.text)
        assert response.status_code not in (401, 500), (method, path, response.text)


def test_a_token_for_one_dataset_sees_no_other(tmp_path: Path) -> None:
    path = write_people(tmp_path)
    pq.write_table(pa.table({"age": [1, 2, 3]}), tmp_path / "more.parquet")
    (tmp_path / "more.toml").write_text('source = "more.parquet"\nname = "more"\n', encoding="utf-8")
    with path.open("a", encoding="utf-8") as file:
        file.write('[[datasets]]\ndescription = "more.toml"\nbudget = 1.0\n')
    served = Served(path)
    with served.http:
        for method, address, _ in routes_of(served):
            if "{dataset}" in address and address.startswith("/v1"):
                hidden = served.call("ann", method, address_of(address, "more"))
                absent = served.call("ann", method, address_of(address, "nothing"))

                assert hidden.status_code in (403, 404)
                assert hidden.text == absent.text  # one that is hidden looks like one that is not there
        assert served.call("ann", "GET", "/v1/datasets").json()["datasets"] == [{"name": "people", "title": "People"}]


@pytest.mark.parametrize("state", ["none", "garbage", "revoked", "expired", "basic"])
def test_without_a_usable_token_nothing_is_shown(served: Served, state: str) -> None:
    token = served.curator.create_token(
        role=Role.OWNER, subject="late", lifetime=datetime.timedelta(seconds=1 if state == "expired" else 1000)
    )
    if state == "revoked":
        served.curator.revoke_token(token.token_id)
    if state == "expired":
        later = served.curator.now() + datetime.timedelta(seconds=5)
        served.curator.now = lambda: later  # type: ignore[method-assign]
    headers: dict[str, Any] = {
        "none": {},
        "garbage": {"authorization": "Bearer expost_x_y"},
        "basic": {"authorization": f"Basic {token.text}"},
    }.get(state, {"authorization": f"Bearer {token.text}"})
    for method, path, _ in routes_of(served):
        response = served.http.request(method, address_of(path), headers=headers, follow_redirects=False)

        assert response.status_code in (401, 303), (method, path, response.text)
        assert "people" not in response.text


def test_nobody_sees_the_jobs_of_another(served: Served) -> None:
    job = served.ask("ann", "count", epsilon=0.1).json()["job"]

    assert served.call("ann", "GET", f"/v1/jobs/{job}").status_code == 200
    for who in ("bob", "owner"):
        assert served.call(who, "GET", f"/v1/jobs/{job}").status_code == 404
    assert served.call("bob", "GET", "/v1/datasets/people/releases").json() == {"releases": []}
    entry = served.call("ann", "GET", f"/v1/jobs/{job}").json()["result"]["release"]["receipt"]["of"]["ledger_entry"]
    assert served.call("ann", "GET", f"/v1/datasets/people/receipts/{entry}").status_code == 200
    assert served.call("bob", "GET", f"/v1/datasets/people/receipts/{entry}").status_code == 404


@pytest.mark.parametrize("role", list(Role))
def test_a_page_shows_a_role_exactly_what_the_table_gives_it(served: Served, role: Role) -> None:
    who = {"owner": "owner", "auditor": "auditor", "analyst": "ann"}[role.value]
    token_id = served.tokens[who].split("_")[1]
    served.curator.store.open_page_session(
        "cookie", token_id, "text", served.curator.now() + datetime.timedelta(hours=1)
    )
    headers = {"cookie": "expost_session=cookie", "x-csrf-token": "text", "accept": "text/html"}
    pages = [each for each in routes_of(served) if not each[1].startswith("/v1")]
    assert len(pages) > 18
    for method, path, action in pages:
        response = served.http.request(method, address_of(path), headers=headers, follow_redirects=False)
        allowed = role in ACTIONS[action]

        assert (response.status_code != 403) == allowed, (method, path, response.text)
        assert response.status_code not in (401, 500), (method, path, response.text)
    assert served.curator.store.find_page_session("cookie", served.curator.now()) is not None


@pytest.mark.parametrize("state", ["revoked", "expired", "session expired", "signed out"])
def test_a_page_session_ends_with_its_token_and_by_itself(served: Served, state: str) -> None:
    token = served.curator.create_token(role=Role.OWNER, subject="deputy", lifetime=datetime.timedelta(seconds=1000))
    now = served.curator.now()
    served.curator.store.open_page_session("cookie", token.token_id, "text", now + datetime.timedelta(hours=8))
    headers = {"cookie": "expost_session=cookie", "x-csrf-token": "text", "accept": "text/html"}
    assert served.http.get("/owner", headers=headers).status_code == 200
    if state == "revoked":
        served.curator.revoke_token(token.token_id)
    elif state == "signed out":
        assert served.http.post("/logout", data={"csrf": "text"}, headers=headers, follow_redirects=False).is_redirect
    else:
        later = now + datetime.timedelta(seconds=2000 if state == "expired" else 8 * 3600 + 1)
        served.curator.now = lambda: later  # type: ignore[method-assign]
    for method, path, _ in routes_of(served):
        response = served.http.request(method, address_of(path), headers=headers, follow_redirects=False)

        assert response.status_code in (401, 303), (method, path)
        assert response.headers.get("location", "/login?ended=1") == "/login?ended=1" and "people" not in response.text
