"""The demo, which is the README's first command: a question and a model to the accuracy they need, and what they cost."""

import re
import subprocess
import sys

import pytest

from expost import open_ledger


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
