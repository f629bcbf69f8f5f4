"""The built site in a real browser: dead links, contrast, cut lines, narrow screens, and nothing fetched from a network.

Needs Chromium and a built site: ``scripts/docs`` builds one and runs these tests. ``EXPOST_SITE`` names its folder, and
``EXPOST_SHOTS=FOLDER`` keeps a picture of every page.
"""

import os
import re
import shutil
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

SITE = Path(os.environ.get("EXPOST_SITE", ""))
SHOTS = os.environ.get("EXPOST_SHOTS")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WRITTEN = re.compile(r"^(?!_modules/|reference/|genindex|py-modindex|search)")

pytestmark = pytest.mark.skipif(not os.environ.get("EXPOST_SITE"), reason="no built site: run scripts/docs")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

# What is wider than its box. Code may scroll on a narrow screen, where no line length would fit.
CUT = """() => [...document.querySelectorAll('article pre, article .table-wrapper, article table')]
    .filter(box => box.scrollWidth > box.clientWidth + 2 && box.offsetParent !== null)
    .map(box => box.tagName + ': ' + box.innerText.split('\\n').sort((a, b) => b.length - a.length)[0].slice(0, 110))"""
# Words of a narrow table that are broken into less than four letters a line.
CRUSHED = """() => [...document.querySelectorAll('article td, article th')]
    .filter(cell => cell.innerText.trim().length > 12 && cell.clientWidth < 48)
    .map(cell => cell.innerText.slice(0, 60))"""


class PageLinks(HTMLParser):
    """The targets of a page's links and the ids that links may lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids |= {name for name in (found.get("id"), found.get("name")) if name}
        self.links += [link for link in (found.get("href"), found.get("src")) if link]


@cache
def read_page(path: Path) -> PageLinks:
    return PageLinks(path.read_text(encoding="utf-8"))


def pages() -> list[str]:
    return sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html"))


def written_pages() -> list[str]:
    return [name for name in pages() if WRITTEN.match(name)]


def varied_pages() -> list[str]:
    """All written pages, but only a few of the many proofs and decisions, which are made of the same parts."""
    alike = [
        [name for name in written_pages() if name.startswith(f"{folder}/")][4:] for folder in ("proofs", "decisions")
    ]
    return [name for name in written_pages() if name not in {*alike[0], *alike[1]}]


def test_there_is_a_site() -> None:
    assert len(written_pages()) > 100


def test_no_link_inside_the_site_is_dead() -> None:
    dead = []
    for name in pages():
        page = SITE / name
        for link in read_page(page).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or not (parts.path or parts.fragment):
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            inside = target.suffix == ".html" and unquote(parts.fragment)
            if not target.exists() or (inside and inside not in read_page(target).ids):
                dead.append(f"{name}: {link}")

    assert dead == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--allow-file-access-from-files"]
        )
        yield found
        found.close()


def visit(browser: Any, names: list[str], width: int, scheme: str) -> Iterator[tuple[str, Any, list[str]]]:
    """Yield the name of each page, the open page, and what went wrong while it was loaded."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if request.url.startswith("http") else None)
    for name in names:
        wrong.clear()
        page.goto(f"file://{SITE.resolve()}/{name}")
        page.evaluate("window.MathJax?.startup?.promise")
        if SHOTS:
            file = Path(SHOTS) / f"{width}-{scheme}-{name.replace('/', '-').removesuffix('.html')}.png"
            page.screenshot(path=file, full_page=True)
        yield name, page, wrong
    context.close()


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (380, "dark")])
def test_every_page_fits_the_screen(browser: Any, width: int, scheme: str) -> None:
    found = []
    for name, page, wrong in visit(browser, written_pages(), width, scheme):
        found += [f"{name}: {each}" for each in wrong]
        found += [f"{name}: formula: {each}" for each in page.evaluate(BAD_FORMULAS)]
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        found += [f"{name}: the page is {wide} pixels wider than the screen"] if wide > 0 else []
        found += [f"{name}: {each}" for each in page.evaluate(CUT if width > 1000 else CRUSHED)]

    assert not found, "\n".join(found)


RULES = ["color-contrast", "image-alt", "link-name"]
BAD_FORMULAS = """() => [...document.querySelectorAll('mjx-merror, [data-mjx-error]')]
    .map(each => each.getAttribute('data-mjx-error') || each.textContent)"""


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_background_differ_enough(browser: Any, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    found = []
    for name, page, _ in visit(browser, varied_pages(), 1280, scheme):
        answer = Axe().run(page, options={"runOnly": {"type": "rule", "values": RULES}})
        for each in answer.response["violations"]:
            found.append(f"{name}: {each['id']}: {each['nodes'][0]['html'][:110]} ({len(each['nodes'])} times)")

    assert not found, "\n".join(found)
