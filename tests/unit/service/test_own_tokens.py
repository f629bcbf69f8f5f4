"""Tokens that people make for themselves: the same rights, one budget, and an end with the token that made them."""

import datetime
import html
import re
from pathlib import Path

import pytest
from tests.served import Served, write_people

from expost.service import Curator, Role, ServiceSettings


def sign_in(served: Served, token: str) -> str:
    served.http.cookies.clear()
    response = served.http.post("/login", data={"token": token})
    return re.findall(r'name="csrf" content="([^"]+)"', response.text)[0]


def make_token(served: Served, csrf: str, expires: str = "30d") -> str:
    page = served.http.post("/token", data={"csrf": csrf, "expires": expires})
    assert page.status_code == 200, page.text
    return html.unescape(re.findall(r'<code id="made">([^<]+)</code>', page.text)[0])


def test_an_own_token_has_the_same_rights_and_spends_the_same_budget(served: Served) -> None:
    served.tokens["again"] = make_token(served, sign_in(served, served.tokens["ann"]))
    assert served.tokens["again"] not in served.http.get("/token").text
    assert served.ask("again", "count", key="one", epsilon=0.1).status_code == 200
    assert (
        served.ask("ann", "count", key="one", epsilon=0.1).json()
        == served.ask("again", "count", key="one", epsilon=0.1).json()
    )
    assert float(served.curator.ledger.spent("analyst:ann/people").amounts()["epsilon"]) == 0.1
    assert served.call("again", "GET", "/v1/owner/tokens").status_code == 403
    assert served.call("again", "GET", "/v1/datasets/else").status_code == 404


def test_an_own_token_ends_with_the_one_that_made_it_through_any_number_of_steps(served: Served) -> None:
    first = served.tokens["ann"]
    second = make_token(served, sign_in(served, first))
    third = make_token(served, sign_in(served, second))
    session = served.http.cookies
    served.tokens |= {"second": second, "third": third}
    assert served.call("third", "GET", "/v1/datasets").status_code == 200
    served.curator.revoke_token(first.split("_")[1])
    for name in ("ann", "second", "third"):
        assert served.call(name, "GET", "/v1/datasets").status_code == 401
    served.http.cookies = session
    assert served.http.get("/", follow_redirects=False).headers["location"] == "/login?ended=1"


@pytest.mark.parametrize("by_owner", [True, False])
def test_one_own_token_is_revoked_by_its_maker_or_by_the_owner(served: Served, by_owner: bool) -> None:
    csrf = sign_in(served, served.tokens["ann"])
    one, other = (make_token(served, csrf) for _ in range(2))
    served.tokens |= {"one": one, "other": other}
    name = one.split("_")[1]
    if by_owner:
        csrf = sign_in(served, served.tokens["owner"])
        assert name in served.http.get("/owner/tokens").text
        served.http.post(f"/owner/tokens/{name}/revoke", data={"csrf": csrf})
    else:
        served.http.post(f"/token/{name}/revoke", data={"csrf": csrf})
    assert [served.call(each, "GET", "/v1/datasets").status_code for each in ("one", "other", "ann")] == [401, 200, 200]


def test_nobody_revokes_the_tokens_of_others_or_those_of_the_owner(served: Served) -> None:
    served.tokens["one"] = make_token(served, sign_in(served, served.tokens["ann"]))
    csrf = sign_in(served, served.tokens["bob"])
    for each in ("one", "ann", "bob", "owner"):
        name = served.tokens[each].split("_")[1]
        assert served.http.post(f"/token/{name}/revoke", data={"csrf": csrf}).status_code == 404
        assert served.call(each, "GET", "/v1/datasets").status_code == 200
    assert served.http.post("/token", data={}).status_code == 403


def test_an_own_token_never_works_longer_than_the_one_that_made_it(tmp_path: Path) -> None:
    now = [1_000_000_000.0]
    served = Served(write_people(tmp_path), clock=lambda: now[0])
    lifetime = datetime.timedelta(days=1)
    terms = {"role": Role.ANALYST, "subject": "eve", "dataset": "people", "budget": 1.0}
    first = served.curator.create_token(**terms, lifetime=lifetime).text
    with served.http:
        csrf = sign_in(served, first)
        served.tokens |= {"long": make_token(served, csrf, "52w"), "short": make_token(served, csrf, "1h")}
        now[0] += 2 * 3600
        assert [served.call(each, "GET", "/v1/datasets").status_code for each in ("long", "short")] == [200, 401]
        now[0] += 86400
        assert served.call("long", "GET", "/v1/datasets").status_code == 401


def test_own_tokens_share_the_limits_of_the_one_that_made_them(tmp_path: Path) -> None:
    path = write_people(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + "[limits]\nrequests_per_minute = 12\n", encoding="utf-8")
    served = Served(path)
    with served.http:
        served.tokens["one"] = make_token(served, sign_in(served, served.tokens["ann"]))
        found = [served.call(each, "GET", "/v1/datasets").status_code for each in ("ann", "one") * 8]
    assert found.count(200) <= 12 and 429 in found


def test_there_are_at_most_ten_own_tokens_and_wrong_times_are_refused_in_words(served: Served) -> None:
    csrf = sign_in(served, served.tokens["ann"])
    refused = served.http.post("/token", data={"csrf": csrf, "expires": "forever"})
    assert refused.status_code == 400 and "Expected a length of time" in refused.text
    for _ in range(10):
        make_token(served, csrf)
    assert "at most 10 tokens" in served.http.post("/token", data={"csrf": csrf}).text


def test_a_state_of_an_earlier_version_takes_own_tokens(tmp_path: Path) -> None:
    import sqlite3

    path = write_people(tmp_path)
    Served(path).curator.close()
    with sqlite3.connect(tmp_path / "people.state") as connection:
        connection.execute("DROP TABLE service_token_parents")
    connection.close()
    curator = Curator(ServiceSettings.read(path))
    assert {each.parent for each in curator.store.list_tokens()} == {None}
    curator.close()
