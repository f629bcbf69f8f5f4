"""Both sides of a fork may use an open ledger: no acknowledged spend is lost, however the other side ends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from expost.core import PureLoss, epsilon
from expost.ledger import open_ledger

HERE = Path(__file__).parent
long_profile = pytest.mark.skipif(os.environ.get("EXPOST_LONG") != "1", reason="long profile: set EXPOST_LONG=1")


def played(place, tmp_path, mode, count):
    command = [sys.executable, str(HERE / "fork_driver.py"), place, mode, str(count), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def check_cases(cases, complaints):
    assert complaints == ""
    assert [case for case in cases if case["lost"] or not case["adds up"] or case["errors"]] == []


@pytest.mark.parametrize("count", [2, pytest.param(5, marks=long_profile)])
def test_workers_forked_at_any_point_lose_nothing_however_their_parent_ends(place, tmp_path, count):
    cases, complaints = played(place, tmp_path, "points", count)

    check_cases(cases, complaints)
    assert len(cases) == 5 * count
    assert min(case["acknowledged"] for case in cases) >= 7  # every child was served, before and after the ending


@pytest.mark.parametrize("stride", [113, pytest.param(1, marks=long_profile)])
def test_a_fork_at_any_line_of_a_spend_leaves_the_books_right_on_both_sides(place, tmp_path, stride):
    cases, complaints = played(place, tmp_path, "lines", stride)

    check_cases(cases, complaints)
    refusals = {text for case in cases for text in case["child"]}
    # A child that was forked inside a transaction is refused; it never finishes what its parent finishes.
    assert all("forked" in text or "not the process that took this hold" in text for text in refusals), refusals


STARTS_WORKERS = """
import multiprocessing, os, sys
from expost.core import PureLoss, Receipt, epsilon
from expost.ledger import open_ledger

RECEIPT = Receipt(question="count", method="m", promise=epsilon(0.01), bill=PureLoss(0.01))

def work(ledger):
    return [
        ledger.settle(ledger.hold(["dataset:flights"], PureLoss(0.01), question="count"), RECEIPT) for _ in range(3)
    ]

if __name__ == "__main__":
    with open_ledger(sys.argv[1]) as ledger:
        work(ledger)
        if sys.argv[2] == "joblib":
            import joblib
            answers = joblib.Parallel(n_jobs=2)(joblib.delayed(work)(ledger) for _ in range(2))
        else:
            with multiprocessing.get_context(sys.argv[2]).Pool(2) as pool:
                answers = pool.map(work, [ledger] * 2)
        work(ledger)
    print(*sum(answers, []))
"""


@pytest.mark.parametrize("manner", ["fork", "forkserver", "spawn", "joblib"])
def test_an_open_ledger_can_be_passed_to_workers_however_they_start(sqlite_place, tmp_path, manner):
    place, script = sqlite_place.replace("NAME", ""), tmp_path / "workers.py"
    script.write_text(STARTS_WORKERS)
    with open_ledger(place) as ledger:
        ledger.open_account("dataset:flights", epsilon(1))

    done = subprocess.run([sys.executable, str(script), place, manner], capture_output=True, text=True, timeout=200)

    assert done.returncode == 0, done.stderr
    with open_ledger(place) as ledger:
        assert set(done.stdout.split()) <= {entry.id for entry in ledger.history()}
        assert len(done.stdout.split()) == 6 and ledger.spent("dataset:flights") == PureLoss(0.12)


def test_a_handle_that_is_dropped_closes_its_files(tmp_path):
    ledger = open_ledger(tmp_path / "a.ledger")
    ledger.open_account("dataset:flights", epsilon(1))
    assert (tmp_path / "a.ledger-wal").exists()

    del ledger

    assert not (tmp_path / "a.ledger-wal").exists()
