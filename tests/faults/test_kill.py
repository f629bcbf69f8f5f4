"""SIGKILL anywhere: acknowledged spends stay, the total stays within the budget, nothing leaves uncharged."""

import json
import os

import pytest

long_profile = pytest.mark.skipif(os.environ.get("EXPOST_LONG") != "1", reason="long profile: set EXPOST_LONG=1")


def summary(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("stride", [6, pytest.param(1, marks=long_profile)])
def test_a_kill_at_any_line_of_the_ledger_loses_no_acknowledged_spend(drive, sqlite_place, stride):
    seen = summary(drive(sqlite_place, "lines", stride))

    # Both sides of the hold's commit were hit, and with a stride of 1 every single line was tried.
    assert seen["nothing"] > 80 / stride
    assert seen["held"] > 80 / stride
    tried = seen["nothing"] + seen["held"] + seen.get("released", 0)
    assert tried >= 0.95 * (seen["lines"] // stride)


def test_a_kill_inside_the_libraries_loses_no_acknowledged_spend(drive, place):
    seen = summary(drive(place, "deep", 150))

    assert seen["nothing"] > 5
    assert seen["held"] > 5


def test_a_kill_at_any_tenth_line_loses_nothing_on_a_server(drive, postgres_place):
    seen = summary(drive(postgres_place, "lines", 10))

    assert seen["nothing"] > 10
    assert seen["held"] > 10


def test_a_kill_at_a_random_instant_loses_no_acknowledged_spend(drive, place):
    seen = summary(drive(place, "random", 25))

    assert seen["held"] > 0
    assert seen["released"] > 0


def test_an_answer_that_leaves_before_its_bill_is_caught_by_these_checks(drive, sqlite_place):
    done = drive(sqlite_place, "lines", 20, "careless")

    assert done.returncode != 0
    assert "an answer left uncharged" in done.stderr
