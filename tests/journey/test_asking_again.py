"""Asking again in a second process: less is free, more costs the difference, related statistics share a path."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import expost.ledger

SCRIPT = """
import json, sys
import expost
source, ledger, questions = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
data = expost.Dataset(source, name="people", bounds={"age": (0, 100)}, categories={"city": ["a", "b"]})
with expost.Session(data, expost.epsilon(20), ledger=ledger) as session:
    found = []
    for name, subject, terms in questions:
        release = getattr(session, name)(*subject, **terms)
        value = release.value
        value = value if isinstance(value, int | float) else [[str(label), each] for label, each in value.items()]
        found.append([value, float(release.receipt.epsilon)])
    print(json.dumps([found, float(session.spent().amounts()["epsilon"])]))
"""


@pytest.fixture
def place(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({"age": rng.integers(0, 101, 20_000), "city": rng.choice(["a", "b"], 20_000, p=[0.8, 0.2])})
    pa.parquet.write_table(table, tmp_path / "people.parquet")
    key = expost.ledger.new_key()

    def run(*questions):
        """The answers of one process, what each cost, and what the account has spent by then."""
        arguments = [str(tmp_path / "people.parquet"), str(tmp_path / "people.ledger"), json.dumps(questions)]
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *arguments],
            env={**os.environ, "EXPOST_LEDGER_KEY": key},
            capture_output=True,
            check=True,
            text=True,
        )
        return json.loads(done.stdout)

    return run


def test_a_second_process_answers_for_nothing_or_for_the_difference(place) -> None:
    rough = [
        ["count", [], {"within": "5%", "by": "city", "max_epsilon": 2}],
        ["mean", ["age"], {"within": 4, "max_epsilon": 2}],
        ["summary", [["age"]], {"within": "5%", "max_epsilon": 2, "where": "age > 20"}],
        ["quantiles", ["age", [0.5]], {"within": 20, "max_epsilon": 2, "levels": 2}],
    ]
    first, spent = place(*rough)
    same, still = place(*rough)

    assert [cost for _, cost in same] == [0.0] * 4 and still == spent
    assert [value for value, _ in same] == [value for value, _ in first]

    fine, after = place(
        ["count", [], {"within": "2%", "by": "city", "max_epsilon": 2}],
        ["mean", ["age"], {"within": 1, "max_epsilon": 2}],
    )
    assert all(cost > 0 for _, cost in fine) and after == pytest.approx(spent + sum(cost for _, cost in fine))


def test_a_sum_a_mean_and_a_deviation_are_read_off_the_summary_of_another_process(place) -> None:
    place(["summary", [["age"]], {"within": "1%", "max_epsilon": 4}])

    found, _ = place(
        ["sum", ["age"], {"within": "4%", "max_epsilon": 4}],
        ["mean", ["age"], {"within": "4%", "max_epsilon": 4}],
        ["variance", ["age"], {"within": "8%", "max_epsilon": 4}],
        ["std", ["age"], {"within": "6%", "max_epsilon": 4}],
    )

    assert [cost for _, cost in found] == [0.0] * 4
    assert found[0][0] == pytest.approx(50 * 20_000, rel=0.05) and found[3][0] == pytest.approx(29.2, rel=0.07)


def test_groups_of_a_mean_path_answer_the_sum_of_another_process(place) -> None:
    place(["mean", ["age"], {"within": "2%", "by": "city", "max_epsilon": 4}])

    (found,), _ = place(["sum", ["age"], {"within": "20%", "by": "city", "max_epsilon": 4}])

    assert found[1] == 0.0
