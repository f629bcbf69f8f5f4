"""The pages as a browser without JavaScript sees them: every state, hostile names, and forms that only we can send."""

import datetime
import re
import threading
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy.exc import OperationalError
from tests.served import CANARY, Served, write_people

import expost.service
from expost.models import load_model
from expost.service import Role
from expost.service.inference_menu import list_tests, read_test
from expost.service.page_picture import draw_spending
from expost.service.question_form import TESTS, AskedQuestion
from expost.service.question_menu import MENU, question_of
from expost.service.time_grid import TimeGrid
from expost.session import Session


def public_columns() -> list[dict[str, Any]]:
    facts = {"bounds": None, "categories": None, "time_range": None}
    found = [facts | {"name": name, "bounds": [0, 9]} for name in ("age", "pay")]
    return found + [facts | {"name": name, "categories": ["Oslo", "Rome"]} for name in ("city", "job")]


class Checker(HTMLParser):
    """Collects tags, and fails on unknown nesting of a few that matter."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[dict[str, Any]] = []
        self.labels: set[str] = set()
        self.inputs: list[dict[str, Any]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "script":
            self.scripts.append(found)
        if tag == "label":
            self.labels.add(found.get("for") or "")
        if tag in ("input", "select", "textarea") and found.get("type") != "hidden":
            self.inputs.append(found)
        assert "style" not in found and not any(name.startswith("on") for name in found), (tag, found)


def sign_in(served: Served, who: str) -> str:
    served.http.cookies.clear()
    response = served.http.post("/login", data={"token": served.tokens[who]})
    assert response.status_code == 200
    return re.findall(r'name="csrf" content="([^"]+)"', response.text)[0]


def test_a_label_is_only_given_to_elements_that_may_have_one() -> None:
    # A reader announces no label of an element without a role; axe finds that only while the element is empty.
    folder = Path(expost.service.__file__).parent / "templates"
    for path in folder.iterdir():
        for tag, rest in re.findall(r"<(\w+)([^<]*\saria-label[^<]*)", path.read_text(encoding="utf-8")):
            named = {"a", "button", "form", "input", "main", "nav", "section", "select", "svg", "table", "textarea"}
            assert tag in named or " role=" in rest, (path.name, tag, rest)


@pytest.mark.parametrize(
    ("who", "paths"),
    [
        ("ann", ["/", "/datasets/people", "/history"]),
        ("owner", ["/", "/datasets/people", "/history", "/owner", "/owner/log", "/owner/tokens", "/owner/approvals"]),
        ("auditor", ["/", "/owner", "/owner/log"]),
    ],
)
def test_every_page_is_whole_and_every_field_has_a_name(served: Served, who: str, paths: list[str]) -> None:
    sign_in(served, who)
    for path in paths:
        response = served.http.get(path)
        page = Checker(response.text)

        assert response.status_code == 200, path
        assert [each.get("src") for each in page.scripts] == ["/static/expost.js"]
        for field in page.inputs:
            assert field.get("id") in page.labels or field.get("aria-label"), (path, field)


def test_a_question_by_form_leads_to_its_answer_and_its_files(served: Served) -> None:
    csrf = sign_in(served, "ann")
    form = {"csrf": csrf, "key": "k", "statistic": "mean", "column": "age", "by": "city", "within": "5", "where": ""}
    answer = served.http.post("/datasets/people/ask", data=form)

    assert answer.status_code == 200
    assert answer.url.path.startswith("/answers/")
    assert "Receipt" in answer.text and "<svg" in answer.text and "Oslo" in answer.text
    again = served.http.post("/datasets/people/ask", data=form)
    assert again.url == answer.url  # sending a form twice pays once
    assert "mean of age by city" in served.http.get("/history").text


ASKED: dict[str, dict[str, Any]] = {
    "count": {},
    "mean": {"column": "age"},
    "sum": {"column": "pay"},
    "median": {"column": "age"},
    "quantile": {"column": "age", "share": 0.9},
    "histogram": {"column": "age", "bins": 4},
    "value-counts": {"column": "city"},
    "most-common": {"column": "city"},
    "count-over-time": {"column": "seen", "every": "quarter"},
    "ratio": {"numerator": "pay", "denominator": "age"},
    "correlation": {"x": "age", "y": "pay"},
    "std": {"column": "age"},
    "variance": {"column": "age"},
    "count-distinct": {},
}


def preview(served: Served, csrf: str, statistic: str, **arguments: Any) -> Any:
    body = {"statistic": statistic, "arguments": arguments}
    return served.http.post("/datasets/people/preview", json=body, headers={"x-csrf-token": csrf})


def test_every_question_of_the_menu_is_priced_and_shown_on_made_up_rows(served: Served) -> None:
    csrf = sign_in(served, "ann")
    page = served.http.get("/datasets/people").text.partition('id="statement"')[0]
    assert set(re.findall(r'<option value="([a-z-]+)" data-fields', page)) == set(ASKED) == {m.statistic for m in MENU}
    for line in MENU:
        within = 200 if line.example == "50" else 1.0 if line.example == "0.2" else "30%"
        found = preview(served, csrf, line.statistic, **ASKED[line.statistic], within=within)

        assert found.status_code == 200, (line, found.text)
        assert "epsilon" in found.json()["price"], line
        assert "made-up rows, for epsilon" in found.json()["sample"], (line, found.json()["sample"])
        form = {field: str(ASKED[line.statistic][name]) for field, name in line.fields.items()}
        asked = question_of({"statistic": line.statistic, "within": str(within), **form})
        assert asked == {"statistic": line.statistic, "arguments": ASKED[line.statistic] | {"within": within}}
    assert served.curator.ledger.spent("dataset:people").amounts()["epsilon"] == 0


def test_a_guess_turns_the_flat_price_of_a_share_into_a_curve(served: Served) -> None:
    csrf = sign_in(served, "ann")
    plain = preview(served, csrf, "count", within="5%").json()
    guessed = preview(served, csrf, "count", within="5%", expect=4000).json()

    assert "at most" in plain["price"] and "<svg" not in plain["curve"] and "100,000" in plain["curve"]
    assert "probably" in guessed["price"] and "<polyline" in guessed["curve"]
    assert "4,000 made-up rows" in guessed["sample"]
    assert preview(served, csrf, "count", within="5%", expect="<b>").json()["price"] == plain["price"]
    above = preview(served, csrf, "count", within=0.0001).json()
    assert "more than epsilon 0.3" in above["price"]


@pytest.mark.parametrize(
    ("statistic", "arguments", "head"),
    [
        ("count", {"within": 100}, "question,value,low,high,epsilon,met"),
        ("mean", {"column": "age", "by": "city", "epsilon": 0.2}, "city,value,low,high"),
        ("covariance", {"columns": ["age", "pay"], "epsilon": 0.2}, "first,second,value,low,high"),
        ("histogram", {"column": "age", "bins": 3, "epsilon": 0.2}, "age,age to,value,low,high"),
        ("BinomialTest", {"column": "city", "equals": "Rome", "null": 0.4, "epsilon": 0.2}, "test,statistic,p value,"),
    ],
)
def test_every_kind_of_answer_leaves_as_csv_and_as_a_report(
    served: Served, statistic: str, arguments: dict[str, Any], head: str
) -> None:
    job = served.ask("ann", statistic, **arguments).json()["job"]
    sign_in(served, "ann")
    text, report = (served.http.get(f"/answers/{job}.{kind}") for kind in ("csv", "html"))

    assert text.status_code == report.status_code == 200
    assert text.text.splitlines()[0].startswith(head) and len(text.text.splitlines()) > 1
    assert text.headers["content-type"].startswith("text/csv")
    assert "Receipt" in report.text and "<script" not in report.text
    assert "attachment" in report.headers["content-disposition"]
    assert "Receipt" in (page := served.http.get(f"/answers/{job}").text) and "Verdict(" not in page + report.text
    sign_in(served, "bob")
    assert served.http.get(f"/answers/{job}.csv").status_code == 404


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"within": "abc"}, "accuracy"),
        ({"within": "0"}, "within"),
        ({"where": "agee > 3"}, "agee"),
        ({"statistic": "nonsense"}, "statistic"),
        ({"within": "0.0001"}, "cap"),
    ],
)
def test_a_wrong_form_comes_back_with_a_sentence_and_costs_nothing(
    served: Served, change: dict[str, str], part: str
) -> None:
    csrf = sign_in(served, "ann")
    form = {"csrf": csrf, "statistic": "count", "within": "50"} | change
    answer = served.http.post("/datasets/people/ask", data=form)

    assert answer.status_code in (400, 409)
    assert part in answer.text and 'role="alert"' in answer.text
    assert served.curator.ledger.spent("dataset:people").amounts()["epsilon"] == 0


@pytest.mark.parametrize("csrf", ["", "wrong"])
def test_a_form_that_our_page_did_not_send_changes_nothing(served: Served, csrf: str) -> None:
    sign_in(served, "owner")
    for path, data in (
        ("/datasets/people/ask", {"statistic": "count", "within": "50"}),
        ("/owner/tokens", {"subject": "eve", "role": "owner"}),
        ("/owner/datasets/people/freeze", {}),
        ("/logout", {}),
        ("/v1/owner/datasets/people/freeze", {}),
    ):
        assert served.http.post(path, data={**data, "csrf": csrf}).status_code == 403, path
    assert not served.curator.store.is_frozen("people")
    assert served.curator.ledger.spent("dataset:people").amounts()["epsilon"] == 0


def test_the_owner_makes_a_token_once_and_revokes_it(served: Served) -> None:
    csrf = sign_in(served, "owner")
    form = {"csrf": csrf, "subject": "carol", "role": "analyst", "dataset": "people", "budget": "0.5", "expires": "30d"}
    made = served.http.post("/owner/tokens", data=form)
    text = re.findall(r"expost_[0-9a-f]{18}_[\w-]+", made.text)[0]

    assert text not in served.http.get("/owner/tokens").text
    served.tokens["carol"] = text
    assert served.call("carol", "GET", "/v1/datasets").status_code == 200
    served.http.post(f"/owner/tokens/{text.split('_')[1]}/revoke", data={"csrf": csrf})
    assert served.call("carol", "GET", "/v1/datasets").status_code == 401


def test_signing_out_and_revoking_end_the_session_of_the_page(served: Served) -> None:
    csrf = sign_in(served, "ann")
    served.http.post("/logout", data={"csrf": csrf})
    assert served.http.get("/", follow_redirects=False).status_code == 303
    sign_in(served, "ann")
    served.curator.revoke_token(served.tokens["ann"].split("_")[1])
    assert served.http.get("/", follow_redirects=False).status_code == 303


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    path = write_people(tmp_path)
    hostile = "<script>alert(1)</script>"
    text = path.read_text(encoding="utf-8").replace('title = "People"', f'title = "{hostile}"')
    path.write_text(text, encoding="utf-8")
    served = Served(path)
    served.tokens["eve"] = served.curator.create_token(role=Role.AUDITOR, subject="<b>eve' onload='x").text
    with served.http:
        for who in ("owner", "eve"):
            sign_in(served, who)
            for address in ("/", "/datasets/people", "/owner", "/owner/log"):
                page = served.http.get(address).text

                assert hostile not in page and "<b>eve" not in page
                Checker(page)


def test_an_unknown_page_is_a_page_and_an_unknown_route_is_json(served: Served) -> None:
    sign_in(served, "ann")

    assert "Not found" in served.http.get("/nowhere", headers={"accept": "text/html"}).text
    assert served.http.get("/v1/nowhere").json()["error"]["code"] == "not_found"
    assert "Not allowed" in served.http.get("/owner", headers={"accept": "text/html"}).text


@pytest.mark.parametrize(
    ("place", "form", "told"),
    [
        (
            "test",
            {"test": "MeanDifferenceTest", "test-first": "age", "test-second": "city", "test-epsilon": "0.1"},
            "epsilon 0.1",
        ),
        (
            "fit",
            {"estimator": "Regressor", "target-number": "pay", "feature.age": "on", "feature.pay": "on"}
            | {"fit-state": "epsilon", "fit-epsilon": "0.2"},
            "epsilon 0.2, delta",
        ),
        ("ask", {"statistic": "mean", "column": "age", "by": "city", "within": "5"}, "mean of age by city"),
        ("ask", {"statistic": "count", "within": "<b>"}, "&lt;b&gt;"),
        ("sql", {"sql": "SELECT AVG(age) FROM people WITH EPSILON 0.1"}, "epsilon 0.1"),
        ("sql", {"sql": "SELECT <b> FROM people"}, "&lt;b&gt;"),
        ("test", {"test": "MeanDifferenceTest", "test-first": "nothing", "test-epsilon": "0.1"}, "different groups"),
        ("test", {"test": "AnovaTest", "test-epsilon": "<b>"}, "&lt;b&gt;"),
        ("fit", {"estimator": "Ridge"}, "Ridge"),
    ],
)
def test_every_form_is_priced_without_a_script(served: Served, place: str, form: dict[str, str], told: str) -> None:
    csrf = sign_in(served, "ann")
    before = len(served.curator.ledger.history())
    page = served.http.post(f"/datasets/people/{place}-price", data=form | {"csrf": csrf})
    part = served.http.post(f"/datasets/people/{place}-price", data=form, headers={"x-csrf-token": csrf})
    assert page.status_code == part.status_code == 200
    assert part.text.strip() in page.text and told in part.text and "<b>" not in part.text
    assert len(served.curator.ledger.history()) == before
    assert served.http.post(f"/datasets/people/{place}-price", data=form).status_code == 403
    assert served.http.post(f"/datasets/people/{place}", data=form).status_code == 403


@pytest.mark.parametrize("test", [line.test for line in list_tests(public_columns())])
def test_every_test_of_the_menu_is_asked_with_the_same_words_as_in_python(test: str) -> None:
    names = {"number": ["age", "pay"], "category": ["city", "job"]}
    (line,) = [each for each in list_tests(public_columns()) if each.test == test]
    form = {f"test-{field}": names[kind].pop() for field, (_, kind) in line.columns.items()}
    form |= {"test": test, "test-epsilon": "0.1", "null": "0.5"}
    asked = AskedQuestion.read(read_test(form, public_columns()))
    assert TESTS[test](**asked.arguments).question
    assert asked.arguments["level"] == 0.05


def test_a_model_bought_on_the_page_is_a_file_for_python(served: Served, tmp_path: Path) -> None:
    csrf = sign_in(served, "ann")
    form = {"estimator": "Regressor", "target-number": "pay", "feature.age": "on", "csrf": csrf}
    page = served.http.post("/datasets/people/fit", data=form | {"fit-state": "epsilon", "fit-epsilon": "0.4"})
    (address,) = re.findall(r'href="(/answers/[0-9a-f]+[.]json)"', page.text)
    (tmp_path / "model.json").write_text(served.http.get(address).text, encoding="utf-8")
    assert len(load_model(tmp_path / "model.json").predict(pa.table({"age": [30, 60]}))) == 2
    sign_in(served, "bob")
    assert served.http.get(address).status_code == 404
    assert served.http.get("/answers/none.json").status_code == 404


def test_a_question_that_an_earlier_answer_serves_is_shown_as_free(served: Served) -> None:
    csrf = sign_in(served, "ann")
    body = {"statistic": "count", "arguments": {"within": 300}}
    terms = {"headers": {"x-csrf-token": csrf}, "json": body}
    assert "free" not in served.http.post("/datasets/people/preview", **terms).json()["price"]
    assert served.ask("ann", "count", within=200).status_code == 200
    shown = served.http.post("/datasets/people/preview", **terms).json()
    assert "free" in shown["price"] and "You have paid" in shown["curve"]


def test_spending_over_time_is_a_picture_of_bounded_size() -> None:
    times = [datetime.datetime(2030, 1, 1) + datetime.timedelta(minutes=number) for number in range(20_000)]
    amounts = [number / 1000 for number in range(1, 20_001)]
    picture = draw_spending({"all together": amounts, "ann": amounts}, times, 30.0)

    assert len(picture) < 40_000
    assert "2030-01-01" in picture and "2030-01-14" in picture and "time (UTC)" in picture
    last = re.findall(r'points="([^"]+)"', picture)[0].split()[-2:]
    assert last[0].split(",")[1] == last[1].split(",")[1]  # it ends at what was spent in all


def test_a_long_history_shows_its_newest_answers(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("expost.service.page_routes._MOST_SHOWN", 2)
    sign_in(served, "ann")
    for age in (20, 30, 40):
        assert served.ask("ann", "count", epsilon=0.01, where=f"age > {age}").status_code == 200
    text = served.http.get("/history").text

    assert text.count("/answers/") == 2 and "newest 2" in text
    assert len(served.http.get("/history.csv").text.splitlines()) == 4


def test_a_waiting_question_says_what_it_may_cost(tmp_path: Path) -> None:
    served = Served(write_people(tmp_path, extra="approval_above = 0.05"))
    sign_in(served, "ann")
    job = served.ask("ann", "count", epsilon=0.1).json()["job"]

    assert "costs at most epsilon 0.1" in served.http.get(f"/answers/{job}").text


def test_the_page_of_a_running_answer_does_not_show_when_it_was_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(write_people(tmp_path, extra="[limits]\nwait_seconds = 0.05"))
    served.curator._grid = TimeGrid(3600)
    go_on, original = threading.Event(), Session.ask

    def slow(*given: Any, **terms: Any) -> Any:
        assert go_on.wait(60)
        return original(*given, **terms)

    monkeypatch.setattr(Session, "ask", slow)
    with served.http:
        sign_in(served, "ann")
        job = served.ask("ann", "count", epsilon=0.1).json()["job"]
        pages = [served.http.get(path).text for path in (f"/answers/{job}", "/history")]
        go_on.set()
        while served.curator.store.find_request(job).state != "done":
            time.sleep(0.01)

        assert pages == [served.http.get(path).text for path in (f"/answers/{job}", "/history")]
        assert "being computed" in pages[0]


@pytest.mark.parametrize(
    ("failure", "status"), [(RuntimeError(CANARY), 500), (OperationalError(CANARY, {}, None), 503)]
)
def test_a_page_that_fails_is_a_page_without_the_reason(
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
    status: int,
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise failure

    sign_in(served, "ann")
    for name in ("list_requests", "find_page_session"):  # the second is what every page reads
        monkeypatch.setattr(served.curator.store, name, fail)
        found = served.http.get("/history")

        assert found.status_code == status and found.headers["content-type"].startswith("text/html")
        assert "That did not work" in found.text and "Back to" in found.text
        assert "default-src 'none'" in found.headers["content-security-policy"]
        assert CANARY not in found.text + caplog.text


def test_an_answer_that_misses_its_target_says_so_in_words_of_the_page(served: Served) -> None:
    missed = served.ask("ann", "median", column="age", within=0.01).json()
    fit = {"estimator": "Regressor", "settings": {"score": ["r2", 0.99]}, "features": ["age"], "target": "pay"}
    no_model = served.call("ann", "POST", "/v1/datasets/people/fit", json=fit).json()
    sign_in(served, "ann")
    for body, told in ((missed, "most that one question may cost. Below"), (no_model, "there is no model")):
        assert body["error"]["code"] == "target_not_met"
        page = served.http.get(f"/answers/{body['job']}").text
        note = page.split('role="alert">')[1].split("</p>")[0]

        assert told in note and "Cost: epsilon" in note
        assert "max_epsilon" not in note and ".receipt" not in note
        assert "Receipt" in page and "It is fitted" not in page


def test_the_example_of_a_filter_fits_the_table(served: Served) -> None:
    sign_in(served, "ann")
    text = served.http.get("/datasets/people").text

    assert "age &gt;= 54 AND city = &#39;Oslo&#39;" in text
    assert served.ask("ann", "count", epsilon=0.01, where="age >= 54 AND city = 'Oslo'").status_code == 200
