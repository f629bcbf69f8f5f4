"""The comparison of models: tables come from packages, peers are judged alike, failures are counted."""

import sys

import numpy as np
import pytest
from benchmarks import model_peer_worker, model_peers, models

TERMS = {"wanted": 0.8, "runs": 5, "grid": (0.1, 1.0, 10.0), "classifies": True, "target_bounds": None, "delta": 1e-6}


def test_constants_are_chosen_on_some_tables_and_held_out_from_six_or_more() -> None:
    tasks = [*models.TUNED, *models.HELD_OUT, *models.FRESH]
    assert len(models.HELD_OUT) >= 4 and len(tasks) == len(set(tasks)) >= 6
    # A source with the name of another task would never be read.
    assert not {"census", "nycflights"} & models.SOURCES.keys() and set(tasks) == {
        *models.SOURCES,
        "census",
        "nycflights",
    }


def test_the_census_task_needs_no_file_besides_the_package() -> None:
    task = models.read_task("census")

    assert len(task.frame) == 48_842 and task.classifies and set(task.columns) == set(task.frame.columns)


def test_the_smallest_epsilon_at_which_nine_of_ten_runs_are_good_is_found() -> None:
    tried: list[tuple[float, int]] = []

    def fit(epsilon: float, seed: int) -> float:
        tried.append((epsilon, seed))
        return 0.9 if epsilon >= 1 else 0.5

    found = model_peer_worker.search([("usual", fit)], TERMS)

    assert (found["epsilon"], found["setting"], found["scores"]) == (1.0, "usual", [0.9] * 5)
    assert tried == [(0.1, 0), *((1.0, seed) for seed in range(5))]


def test_a_refusal_is_no_result_and_the_best_score_is_told() -> None:
    def refuse(epsilon: float, seed: int) -> float:
        raise ValueError("budget too low")

    def weak(epsilon: float, seed: int) -> float:
        return 0.7

    found = model_peer_worker.search([("strict", refuse), ("weak", weak)], TERMS)

    assert found["epsilon"] is None and found["best"]["score"] == 0.7
    assert model_peers.describe_peer(found) == "not up to 20 (best 0.70)"


def test_peers_get_features_without_dependent_columns() -> None:
    kinds = np.eye(3)[np.arange(12) % 3]
    rows = np.column_stack([np.ones(12), kinds, np.arange(12.0) ** 2, np.zeros(12)])

    found = model_peers.independent_columns(rows)

    assert found.shape == (12, 3)
    assert np.linalg.matrix_rank(np.column_stack([np.ones(12), found])) == 4


def test_a_peer_that_is_missing_is_written_down(monkeypatch) -> None:
    monkeypatch.setenv("EXPOST_PEERS", f"diffprivlib={sys.executable}, nobody=/a/python")
    assert model_peers.peer_pythons()["diffprivlib"] == sys.executable

    found = model_peers.run_search([sys.executable, "-c", "raise SystemExit('no module')"], 60)
    assert found == {"failed": "no module"} and model_peers.describe_peer(found) == "failed"
    assert "stopped" in model_peers.run_search([sys.executable, "-c", "import time; time.sleep(60)"], 0.2)["failed"]


@pytest.mark.parametrize("name", ["opacus"])
def test_opacus_answers_in_its_own_process(name) -> None:
    pytest.importorskip("opacus")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 3))
    target = np.where(rows[:, 0] > 0, "yes", "no")

    found = model_peers.find_peer_epsilons(rows, target, 0.8, runs=1, pythons={name: sys.executable})

    assert found[name]["epsilon"] is not None and found[name]["version"]
