"""The pages in a real browser: an analyst's and an owner's whole journey, narrow and dark, and no barrier for anybody.

Needs Chromium (Debian: apt-get install chromium). ``EXPOST_SHOTS=FOLDER`` keeps a picture of every state, and
``EXPOST_GUIDE=docs/howto`` makes the pictures of the guides again.
"""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from tests.login_provider import CLIENT, SECRET, LoginProvider
from tests.served import Served, write_people
from tests.served_process import ServerProcess, free_port

from expost.service import Curator, Role, ServiceSettings

RECEIPT = "h2:text-is('Receipt')"
GUIDE = {"question-expected": "page-question", "answer-climb": "page-answer", "spending": "page-spending"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@contextlib.contextmanager
def run_app(app: Any, port: int = 0) -> Iterator[int]:
    """Serve an application from a thread, and yield its port."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(30)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    found = Served(write_people(tmp_path_factory.mktemp("browser"), extra="approval_above = 0.2"))
    with run_app(found.app) as port:
        yield found, f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Reader:
    """A person with a browser window, who notices errors, barriers and cut content."""

    def __init__(self, browser: Any, base: str, *, width: int = 1280, dark: bool = False) -> None:
        self._context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        self.page = self._context.new_page()
        self.page.set_default_timeout(120_000)
        self._base, self.errors = base, list[str]()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "console",
            lambda message: self.errors.append(message.text) if "Content Security Policy" in message.text else None,
        )

    def sign_in(self, token: str) -> None:
        self.page.goto(f"{self._base}/login")
        self.page.fill("#token", token)
        self.page.click("main button")
        self.page.wait_for_url(f"{self._base}/")

    def open(self, path: str) -> None:
        self.page.goto(self._base + path)

    def settle(self) -> None:
        """Wait until the script of the page has run and all prices that it asked for are shown."""
        self.page.wait_for_load_state("load")
        self.page.wait_for_selector("[aria-busy]", state="detached")

    def send(self, selector: str) -> None:
        """Click on a button that sends a form, and wait for the page that comes back."""
        with self.page.expect_navigation():
            self.page.click(selector)

    def look(self, name: str) -> None:
        """Check what is on the screen, and keep a picture if that is wanted."""
        from axe_playwright_python.sync_playwright import Axe

        self.settle()
        guide = os.environ.get("EXPOST_GUIDE")
        if guide and name in GUIDE:
            self.page.screenshot(path=Path(guide) / f"{GUIDE[name]}.png")
        folder = os.environ.get("EXPOST_SHOTS")
        if folder:
            self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
        wide = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{name} is {wide} pixels wider than the window"
        response = Axe().run(self.page).response
        # A label that no reader may announce is only a doubt for axe while the element has a text.
        doubts = [each for each in response["incomplete"] if each["id"] == "aria-prohibited-attr"]
        found = [*response["violations"], *doubts]
        barriers = [f"{each['id']}: {each['nodes'][0]['html'][:100]}" for each in found]
        assert barriers == [], name
        assert self.errors == [], name


def test_an_analyst_sees_the_price_buys_and_finds_the_answer_again(served: Any, browser: Any) -> None:
    service, base = served
    reader = Reader(browser, base)
    reader.open("/")
    reader.look("login")
    reader.sign_in(service.tokens["ann"])
    reader.look("datasets")
    reader.page.click("text=People")
    reader.page.select_option("#statistic", "mean")
    reader.page.select_option("#column", "age")
    reader.page.select_option("#statistic", "count")
    reader.page.select_option("#by", "city")
    reader.page.fill("#within", "60")
    reader.settle()
    reader.page.wait_for_selector("#price strong")
    reader.page.wait_for_selector("#curve svg")
    assert 'session.count(by="city", within=60)' in reader.page.text_content("#code")
    reader.page.click("[data-tab=sql]")
    reader.page.wait_for_function("document.querySelector('#code').textContent.includes('GROUP BY')")
    assert reader.page.text_content("#code").endswith("ERROR WITHIN 60")
    reader.page.keyboard.press("ArrowRight")
    assert "/v1/datasets/people/ask" in reader.page.text_content("#code")
    reader.look("question")
    reader.page.fill("#within", "5%")
    reader.page.wait_for_selector("text=Fill in what you expect")
    reader.page.fill("#expect", "2000")
    reader.page.wait_for_selector("#curve svg")
    reader.page.wait_for_selector("#sample svg")
    assert "expect" not in reader.page.text_content("#code")
    reader.look("question-expected")
    reader.page.fill("#within", "60")
    before = service.curator.ledger.spent("dataset:people").amounts()["epsilon"]
    reader.page.keyboard.press("Tab")
    reader.page.click("text=Ask and pay")
    reader.page.wait_for_selector(RECEIPT)
    reader.look("answer")
    assert service.curator.ledger.spent("dataset:people").amounts()["epsilon"] > before
    reader.open("/history")
    reader.look("history")
    reader.page.click("text=count of rows by city")
    reader.page.wait_for_selector(RECEIPT)


def test_every_question_of_the_menu_can_be_built_and_a_climb_is_drawn(served: Any, browser: Any) -> None:
    service, base = served
    reader = Reader(browser, base)
    reader.sign_in(service.tokens["ann"])
    reader.open("/datasets/people")
    for statistic, code in (
        ("histogram", 'histogram(column="age", bins=10, within="5%")'),
        ("value-counts", 'value_counts(column="city", within="5%")'),
        ("count-over-time", 'count_over_time(column="seen", every="month", within="5%")'),
        ("correlation", 'correlation(x="age", y="pay", within=0.2)'),
        ("ratio", 'ratio(numerator="age", denominator="pay", within="5%")'),
        ("quantile", 'quantile(column="age", share=0.9, within="5%")'),
        ("mean", 'mean(column="age", within="5%")'),
    ):
        reader.page.select_option("#statistic", statistic)
        reader.settle()
        assert "epsilon" in reader.page.text_content("#price") and "made-up rows, for" in reader.page.text_content(
            "#sample"
        )
        assert code in reader.page.text_content("#code")
        assert reader.page.is_visible("#expect") == (statistic not in ("correlation", "ratio", "quantile"))
        reader.look(f"question-{statistic}")
    reader.page.fill("#within", "2%")
    reader.page.click("text=Ask and pay")
    reader.page.wait_for_selector("text=waits for the owner")
    owner = Reader(browser, base)
    owner.sign_in(service.tokens["owner"])
    owner.open("/owner/approvals")
    owner.send('button:has-text("Approve") >> nth=-1')
    owner.page.wait_for_selector("text=No question waits for you")
    reader.page.reload()
    reader.page.wait_for_selector("text=How the answer was found")
    reader.look("answer-climb")


def test_wrong_input_and_an_exhausted_cap_come_back_in_words(served: Any, browser: Any) -> None:
    service, base = served
    reader = Reader(browser, base)
    reader.sign_in(service.tokens["bob"])
    for number, (within, where) in enumerate([("abc", ""), ("50", "agee > 3"), ("0.001", "")]):
        reader.open("/datasets/people")
        reader.page.fill("#within", within)
        reader.page.fill("#where", where)
        reader.page.click("text=Ask and pay")
        reader.page.wait_for_selector("[role=alert]")
        reader.look(f"refused-{number}")
        assert reader.page.input_value("#where") == where  # nothing that was typed is lost
    reader.open("/nowhere")
    reader.look("not-found")
    assert service.curator.ledger.spent("analyst:bob/people").amounts()["epsilon"] == 0


def test_a_large_question_waits_until_the_owner_approves_it(served: Any, browser: Any) -> None:
    service, base = served
    analyst, owner = Reader(browser, base), Reader(browser, base)
    analyst.sign_in(service.tokens["bob"])
    owner.sign_in(service.tokens["owner"])
    owner.open("/owner/approvals")
    owner.look("approvals-empty")
    analyst.open("/datasets/people")
    analyst.page.fill("#within", "12")
    analyst.page.click("text=Ask and pay")
    analyst.page.wait_for_selector("text=waits for the owner")
    analyst.look("waiting")
    owner.open("/owner/approvals")
    owner.look("approvals")
    owner.send('button:has-text("Approve") >> nth=-1')
    owner.page.wait_for_selector("text=No question waits for you")
    analyst.page.reload()
    analyst.page.wait_for_selector(RECEIPT)


def test_the_owner_makes_a_token_freezes_a_table_and_reads_the_log(served: Any, browser: Any) -> None:
    service, base = served
    owner = Reader(browser, base)
    owner.sign_in(service.tokens["owner"])
    owner.open("/owner/tokens")
    owner.page.fill("#subject", "carol")
    owner.page.fill("#budget", "0.5")
    owner.send("text=Make a token")
    token = owner.page.text_content("#made")
    owner.look("tokens")
    owner.open("/owner")
    owner.look("spending")
    owner.send("text=Freeze: refuse all questions")
    owner.page.wait_for_selector("text=Allow questions again")
    carol = Reader(browser, base)
    carol.sign_in(token)
    carol.open("/datasets/people")
    assert carol.page.is_disabled("#question button[type=submit]")
    carol.look("frozen")
    owner.send("text=Allow questions again")
    owner.open("/owner/log")
    owner.look("log")
    assert "freeze" in owner.page.content()
    owner.open("/owner/tokens")
    owner.send("[aria-label='Revoke the token of carol']")
    owner.page.wait_for_selector("text=revoked")
    carol.open("/")
    assert "You were signed out" in carol.page.text_content("main")
    carol.look("signed-out")


@pytest.mark.parametrize(("width", "dark"), [(360, True), (360, False), (1920, True)])
def test_pages_fit_narrow_wide_light_and_dark_windows(served: Any, browser: Any, width: int, dark: bool) -> None:
    service, base = served
    reader = Reader(browser, base, width=width, dark=dark)
    reader.sign_in(service.tokens["owner"])
    for path in ("/", "/datasets/people", "/history", "/owner", "/owner/tokens", "/owner/log", "/owner/approvals"):
        reader.open(path)
        reader.look(f"{path.strip('/').replace('/', '-') or 'datasets'}-{width}-{'dark' if dark else 'light'}")


def test_pages_stand_without_their_script_and_without_prices(served: Any, browser: Any) -> None:
    service, base = served
    reader = Reader(browser, base)
    reader.sign_in(service.tokens["bob"])
    reader.page.route("**/expost.js", lambda route: route.abort())
    reader.open("/datasets/people")
    for nothing in ("#slider", "#price", "#curve", "#code"):
        assert reader.page.is_hidden(nothing), nothing
    reader.look("without-script")
    reader.page.unroute("**/expost.js")
    failures: dict[str, Callable[[Any], None]] = {
        "lost": lambda route: route.abort(),
        "busy": lambda route: route.fulfill(status=503, body="<h1>busy</h1>"),
    }
    for failure, fail in failures.items():
        for path in ("**/preview", "**/*-price"):
            reader.page.route(path, fail)
        reader.open("/datasets/people")
        reader.settle()
        reader.page.fill("#sql", "SELECT COUNT(*) FROM people ERROR WITHIN 9%")
        reader.look(f"without-prices-{failure}")
        for place in ("#price", "#sql-price", "#hypothesis [data-quote]", "#training [data-quote]"):
            assert "gives no price now" in reader.page.text_content(place), (failure, place)
        assert "session.count(" in reader.page.text_content("#code")
        reader.page.unroute_all()


def open_slow(folder: Path, *, grid: float) -> tuple[Path, str]:
    """Write the settings of a service whose answers leave late, and return them with an analyst's token."""
    path = write_people(folder)
    text = path.read_text(encoding="utf-8").replace("time_grid = 0.01", f"time_grid = {grid}")
    path.write_text(f"{text}[limits]\nwait_seconds = 0.2\n", encoding="utf-8")
    curator = Curator(ServiceSettings.read(path))
    token = curator.create_token(role=Role.ANALYST, subject="ann", dataset="people", budget=2.0).text
    curator.close()
    return path, token


def ask_count(reader: Reader, within: str = "60") -> None:
    reader.open("/datasets/people")
    reader.page.fill("#within", within)
    reader.page.click("text=Ask and pay")


@contextlib.contextmanager
def no_news(reader: Reader) -> Iterator[None]:
    """Keep a page that waits for an answer as it is: its looks at the job are lost on the way."""
    reader.page.route("**/v1/jobs/**", lambda route: route.abort())
    yield
    reader.page.unroute("**/v1/jobs/**")


def test_a_question_survives_a_killed_server_and_a_revoked_token_ends_a_page(tmp_path: Path, browser: Any) -> None:
    path, token = open_slow(tmp_path, grid=6)
    server = ServerProcess(path, free_port())
    server.start()
    reader = Reader(browser, f"http://127.0.0.1:{server.port}")
    reader.sign_in(token)
    with no_news(reader):
        ask_count(reader)
        reader.page.wait_for_selector("#running")
        reader.look("running")
        # The audit log and the ledger have the charge; the answer is stored and waits for the grid.
        server.kill()
        server.start()
    reader.page.wait_for_selector(RECEIPT)
    reader.look("restarted")
    with no_news(reader):
        ask_count(reader, "70")
        reader.page.wait_for_selector("#running")
        with contextlib.closing(Curator(ServiceSettings.read(path))) as curator:
            (token_id,) = [each.token_id for each in curator.usable_tokens("ann")]
            curator.revoke_token(token_id)
    reader.page.wait_for_url("**/login*")
    reader.look("revoked")
    server.kill()


def test_a_budget_that_is_used_up_is_said_before_and_after_asking(served: Any, browser: Any) -> None:
    service, base = served
    token = service.curator.create_token(role=Role.ANALYST, subject="dan", dataset="people", budget=0.1).text
    reader = Reader(browser, base)
    reader.sign_in(token)
    service.tokens["dan"] = token
    assert service.ask("dan", "count", epsilon=0.1).status_code == 200
    reader.open("/")
    reader.look("datasets-exhausted")
    ask_count(reader)
    reader.page.wait_for_selector("[role=alert]")
    assert "Nothing is left of your budget" in reader.page.text_content("main")
    reader.look("exhausted")
    assert float(service.curator.ledger.spent("analyst:dan/people").amounts()["epsilon"]) == 0.1


def test_two_analysts_at_once_see_their_own_answers_and_the_owner_sees_both(served: Any, browser: Any) -> None:
    service, base = served
    readers = []
    for name in ("eve", "finn"):
        token = service.curator.create_token(role=Role.ANALYST, subject=name, dataset="people", budget=0.5).text
        readers.append(Reader(browser, base))
        readers[-1].sign_in(token)
    for reader in readers:
        reader.open("/datasets/people")
        reader.page.fill("#within", "80")
    for reader in readers:
        reader.page.click("text=Ask and pay", no_wait_after=True)
    for reader, other in zip(readers, readers[::-1], strict=True):
        reader.page.wait_for_selector(RECEIPT)
        address = reader.page.url
        other.page.wait_for_selector(RECEIPT)
        seen = other.page.context.new_page()
        assert seen.goto(address).status == 404
        seen.close()
    owner = Reader(browser, base)
    owner.sign_in(service.tokens["owner"])
    owner.open("/owner")
    assert {"eve", "finn"} <= set(owner.page.locator("main td").all_text_contents())
    owner.page.click("text=Limits of one question")
    owner.page.fill("input[name=question_cap]", "0.4")
    owner.look("limits")
    owner.send("text=Save the limits")
    readers[0].open("/datasets/people")
    assert "at most epsilon 0.4" in readers[0].page.text_content(".lead")
    readers[0].page.emulate_media(media="print")
    readers[0].open("/history")
    readers[0].look("history-print")
    readers[0].page.click("text=count of rows")
    readers[0].page.wait_for_selector(RECEIPT)
    readers[0].look("answer-print")


def test_a_statement_is_priced_while_it_is_written_and_shows_its_table(served: Any, browser: Any) -> None:
    service, base = served
    reader = Reader(browser, base)
    reader.sign_in(service.tokens["ann"])
    reader.open("/datasets/people")
    reader.page.fill("#sql", "SELECT city, MEDAIN(age) FROM people GROUP BY city ERROR WITHIN 5%")
    reader.page.wait_for_selector("#sql-price >> text=Did you mean 'MEDIAN'")
    reader.look("statement-refused")
    reader.page.fill("#sql", "SELECT city, COUNT(*) AS n, AVG(age) AS age FROM people GROUP BY city WITH EPSILON 0.1")
    reader.page.wait_for_selector("#sql-price >> text=at most epsilon 0.1")
    reader.look("statement")
    reader.page.click("#statement button")
    reader.page.wait_for_selector(RECEIPT)
    assert "age low" in reader.page.text_content("main")
    reader.look("answer-statement")


def test_a_hypothesis_is_priced_tested_and_comes_with_its_receipt(served: Any, browser: Any) -> None:
    service, base = served
    reader = Reader(browser, base)
    reader.sign_in(service.tokens["ann"])
    reader.open("/datasets/people")
    page = reader.page
    page.wait_for_selector("#hypothesis .price")
    assert page.is_hidden("#hypothesis [data-plain]")
    for test in page.eval_on_selector_all("#test option", "found => found.map(each => each.value)"):
        page.select_option("#test", test)
        reader.settle()
        # Correlations need a table whose number of rows is public.
        told = "public number of rows" if "Correlation" in test else "epsilon 0.1"
        assert told in page.text_content("#hypothesis [data-quote]"), test
        assert page.is_visible("#group-1") == (test in ("MeanDifferenceTest", "MannWhitneyTest")), test
    page.select_option("#test", "BinomialTest")
    page.focus("#test-first")
    for field in ("equals", "null", "alternative", "level", "test-state"):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == field
    reader.look("hypothesis-binomial")
    page.select_option("#test", "MeanDifferenceTest")
    page.select_option("#test-state", "power")
    page.wait_for_selector("#hypothesis >> text=Pass expected_rows")
    reader.look("hypothesis-refused")
    page.fill("#effect", "5")
    page.fill("#deviation", "20")
    page.fill("#rows", "4000")
    page.wait_for_selector("#hypothesis .price")
    page.fill("#level", "0.01")
    reader.settle()
    assert "'Oslo' against 'Rome'" in page.text_content("#hypothesis [data-quote]")
    reader.look("hypothesis-power")
    before = service.curator.ledger.spent("dataset:people").amounts()["epsilon"]
    page.click("text=Test and pay")
    page.wait_for_selector(RECEIPT)
    assert "difference of means: age by city" in page.text_content("h1")
    assert "p value" in page.text_content("main")
    reader.look("answer-hypothesis")
    assert service.curator.ledger.spent("dataset:people").amounts()["epsilon"] > before


def test_a_model_is_priced_trained_and_comes_with_its_receipt(served: Any, browser: Any) -> None:
    service, base = served
    token = service.curator.create_token(role=Role.ANALYST, subject="ida", dataset="people", budget=(2.0, 1e-4)).text
    reader = Reader(browser, base)
    reader.sign_in(token)
    reader.open("/datasets/people")
    page = reader.page
    page.wait_for_selector("#training .price")
    assert page.is_hidden("#target-number") and page.is_visible("#measure-Classifier")
    page.select_option("#estimator", "Regressor")
    page.select_option("#target-number", "pay")
    for box in page.locator("#training input[type=checkbox]").all():
        box.uncheck()
    page.wait_for_selector("#training >> text=Expected a column to predict from")
    reader.look("model-refused")
    page.check("#training input[name='feature.age']")
    page.fill("#score", "0.1")
    page.wait_for_selector("#training .price")
    reader.look("model-score")
    page.select_option("#fit-state", "epsilon")
    page.fill("#fit-epsilon", "0.15")
    page.wait_for_selector("#training >> text=epsilon 0.15")
    assert page.is_hidden("#score")
    reader.look("model")
    page.click("text=Train and pay")
    page.wait_for_selector(RECEIPT)
    assert "It is fitted" in page.text_content("main")
    reader.look("answer-model")
    assert "epsilon 0.15, delta 1e-06" in page.text_content("main")
    assert service.curator.ledger.spent("analyst:ida/people").amounts()["epsilon"] > 0


def test_a_person_of_an_organisation_signs_in_without_a_token(
    tmp_path: Path, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPOST_OPENID_SECRET", SECRET)
    service_port, provider_port = free_port(), free_port()
    base = f"http://127.0.0.1:{service_port}"
    provider = LoginProvider(f"http://localhost:{provider_port}", base)  # for browsers another site
    path = write_people(tmp_path)
    lines = f'[openid]\nissuer = "{provider.issuer}"\nclient_id = "{CLIENT}"\naddress = "{base}"\n'
    path.write_text(path.read_text(encoding="utf-8") + lines, encoding="utf-8")
    found = Served(path)
    with run_app(provider.app, provider_port), run_app(found.app, service_port):
        reader = Reader(browser, base)
        reader.open("/login")
        reader.look("login-organisation")
        reader.page.click("text=Sign in with your organisation")
        reader.page.wait_for_selector("text=Choose the table to ask about")
        assert reader.page.url == f"{base}/" and "ann" in reader.page.text_content(".who")
        reader.page.click("text=My tokens")
        reader.look("own-tokens-empty")
        reader.page.keyboard.press("Tab")
        reader.send("text=Make a token")
        found.tokens["made"] = reader.page.text_content("#made")
        assert found.ask("made", "count", epsilon=0.1).status_code == 200
        reader.look("own-tokens")
        reader.page.set_viewport_size({"width": 360, "height": 900})
        reader.page.emulate_media(color_scheme="dark")
        reader.look("own-tokens-360-dark")
        reader.page.set_viewport_size({"width": 1280, "height": 900})
        reader.page.click("button:has-text('Revoke')")
        reader.page.wait_for_selector("text=You have made none yet")
        assert found.call("made", "GET", "/v1/datasets").status_code == 401
        reader.page.click("text=Sign out")
        reader.page.wait_for_url(f"{base}/login")
        provider.person |= {"email": "nobody"}
        reader.page.click("text=Sign in with your organisation")
        reader.page.wait_for_selector("text=Ask the owner for one")
        reader.look("unknown-person")
