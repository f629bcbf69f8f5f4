import csv

import numpy as np
import pytest

from expost.experiments.thresholdout_figures import SelectionSetting, _crossings, _plan, run
from expost.noise import SeededBits


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    told = []
    paths = run(tmp_path_factory.mktemp("thresholdout"), quick=True, progress=lambda *step: told.append(step))
    return paths, told


def rows_of(paths):
    table = next(path for path in paths if path.suffix == ".csv")
    with table.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def at_the_end(rows, way, signal, sample):
    (row,) = [
        r for r in rows if (r["way"], r["signal"], r["sample"], r["features"]) == (way, str(signal), sample, "500")
    ]
    return float(row["accuracy"]), row["promised error"]


def test_all_files_are_written_and_progress_is_told(files):
    paths, told = files

    assert [path.name for path in paths] == [
        "thresholdout.md",
        "thresholdout.png",
        "thresholdout.svg",
        "thresholdout-promise.png",
        "thresholdout-promise.svg",
        "thresholdout.csv",
    ]
    assert all(path.stat().st_size > 500 for path in paths)
    assert told[-1] == (5, 5, "thresholdout, with signal")


def test_a_standard_holdout_overfits_and_ours_does_not(files):
    rows = rows_of(files[0])

    standard, _ = at_the_end(rows, "standard holdout", False, "holdout")
    fresh, _ = at_the_end(rows, "standard holdout", False, "fresh")
    ours, promised = at_the_end(rows, "Thresholdout with a promise", False, "holdout")

    assert standard > 0.6
    assert fresh == pytest.approx(0.5, abs=0.02)
    assert ours == pytest.approx(0.5, abs=float(promised))
    assert ours < standard - 0.05


def test_the_summary_says_what_is_and_is_not_promised(files):
    text = files[0][0].read_text(encoding="utf-8")

    assert "carries no promise" in text
    assert "description length" in text


def test_asking_at_once_has_the_law_of_asking_one_by_one():
    """Far questions cross, near ones do not, and the budget ends the series."""
    plan = _plan(SelectionSetting(rows=2000, features=50))
    apart = np.zeros(200)
    apart[[20, 40]] = 0.9, -0.9

    hits = _crossings(apart, plan, SeededBits(1))

    assert sorted(hits) == [20, 40]
    assert hits[20] == pytest.approx(0.9, abs=0.1)
    assert hits[40] == pytest.approx(-0.9, abs=0.1)
    assert len(_crossings(np.full(100, 0.9), plan, SeededBits(2))) == plan.max_hits
