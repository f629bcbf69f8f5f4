"""Every code block in the documents runs.

Blocks marked ``python`` run in order, one namespace a page (those with ``>>>`` as doctests); blocks marked ``console`` run the lines that begin with
``$ expost``. Each page has an empty folder of its own. Blocks that begin with ``import torch`` need that extra.
"""

import contextlib
import doctest
import io
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from expost.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.S | re.M)


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_code_block_of_a_page_runs(page: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__page__"}
    for kind, text in blocks(page):
        if text.startswith("import torch\n") and find_spec("torch") is None:
            continue
        if kind == "python":
            run_python(text, names, str(page))
        else:
            run_commands(text)


def test_no_code_is_left_out_by_an_unmarked_block() -> None:
    unmarked = re.compile(r"^```\n(?:(?!```).*\n)*?(?:import|from) \w", re.M)
    pages = [page.name for page in PAGES if unmarked.search(re.sub(BLOCK, "", page.read_text(encoding="utf-8")))]

    assert pages == []


def run_python(text: str, names: dict[str, object], page: str) -> None:
    if text.lstrip().startswith(">>>"):
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
        runner = doctest.DocTestRunner(optionflags=flags)
        examples = doctest.DocTestParser().get_doctest(text, names, page, page, 0)
        runner.run(examples, clear_globs=False)
        names.update(examples.globs)
        assert runner.summarize(verbose=False).failed == 0
        return
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(text, page, "exec"), names)


def run_commands(text: str) -> None:
    for line in text.splitlines():
        if line.startswith("$ expost "):
            result = CliRunner().invoke(app, shlex.split(line.removeprefix("$ expost ")))
            assert result.exit_code == 0, (line, result.output, result.exception)


def test_the_runner_notices_a_broken_block() -> None:
    with pytest.raises(AssertionError):
        run_python(">>> 1 + 1\n3\n", {}, "page")
    with pytest.raises(AssertionError):
        run_commands("$ expost ledger show no-such.ledger")
