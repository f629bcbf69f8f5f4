"""The demo, which is the README's first command: a question and a model to the accuracy they need, and what they cost."""

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from expost import open_ledger
from expost.cli import app


@pytest.mark.slow
def test_the_demo_answers_to_the_accuracy_and_shows_what_it_paid(tmp_path) -> None:
    words = [sys.executable, "-m", "expost", "demo", "--output", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    paid = re.search(r"by doubling epsilon: epsilon ([\d.]+); here: epsilon ([\d.]+)", done.stdout)
    model = re.search(r"paid +epsilon ([\d.]+), delta 1e-06", done.stdout)
    old = re.search(r"the method of 2017 +epsilon ([\d.]+), accuracy", done.stdout)
    assert paid and model and old, done.stdout

    assert float(paid[2]) < float(paid[1])
    assert float(model[1]) < float(old[1]) / 10
    assert {"count.png", "models.png", "census.toml", "census.parquet"} <= {each.name for each in tmp_path.iterdir()}
    with open_ledger(tmp_path / "census.ledger", create=False) as book:
        assert 0 < book.spent("dataset:census").epsilon < 2


def test_the_commands_at_the_end_of_a_demo_can_be_pasted(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "a demo"
    monkeypatch.setattr("expost.cli.demo_command._count", lambda *_: None)
    monkeypatch.setattr("expost.cli.demo_command._train", lambda *_: {})
    monkeypatch.setattr("expost.cli.demo_command._draw", lambda *_, **__: None)
    shown = CliRunner().invoke(app, ["demo", "--output", str(folder)], catch_exceptions=False).stdout

    query, price, serve = (line.strip() for line in shown.partition("Try next")[2].splitlines() if line.strip())

    assert subprocess.run(["sh", "-c", query], capture_output=True, text=True, check=True).stdout.startswith("mean of")
    assert "probably about epsilon" in subprocess.run(["sh", "-c", price], capture_output=True, text=True).stdout
    assert serve == query.partition(" query")[0] + " serve --demo"
