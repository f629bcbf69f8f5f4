"""Models of tables with and without a delta: scores at given epsilons, and what a tested score costs.

``python -m benchmarks.pure_models --runs 10 census nycflights``. The score without privacy is that of least
squares or logistic regression on the same features; the target is 0.02 of R^2, or one point of accuracy, below it.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import expost
from benchmarks.models import SLACK, Task, estimator, read_task, score_without_privacy, true_score
from expost.models.tabular import encode_frame

WAYS: dict[str, dict[str, Any]] = {
    "newton": {},
    "objective": {"delta": 0},
    "moments": {"delta": 0, "method": "moments"},
}
LEVELS = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)


def run_case(task: Task, runs: int, cap: float) -> list[dict[str, Any]]:
    """Print one line per way and level, and one per way for the tested score; return their numbers."""
    numbers: list[dict[str, Any]] = []
    encoder = estimator(task, epsilon=1.0).fit(task.frame, target=task.target).encoder_
    best, _ = score_without_privacy(task, lambda frame: encode_frame(frame, encoder))
    wanted = round(best - SLACK[task.classifies], 3)
    print(f"{task.name}: {len(task.frame)} x {encoder.width}, {best:.4f} without privacy, {wanted} asked", flush=True)
    for way, terms in WAYS.items():
        if way == "moments" and task.classifies:
            continue
        for epsilon in LEVELS:
            models = (
                estimator(task, epsilon=epsilon, **terms).fit(task.frame, target=task.target) for _ in range(runs)
            )
            scores = sorted(true_score(task, model) for model in models)
            near = sum(score >= wanted for score in scores)
            numbers.append({"task": task.name, "way": way, "epsilon": epsilon, "asked": wanted, "scores": scores})
            print(f"  {way:9} {epsilon:5} median {statistics.median(scores):.4f}, {near}/{runs} as asked", flush=True)
        measure = "accuracy" if task.classifies else "r2"
        paid, met = [], 0
        for _ in range(runs):
            model = estimator(task, score=(measure, wanted), max_epsilon=cap, **terms)
            try:
                model.fit(task.frame, target=task.target)
                met += 1
            except expost.TargetNotMet:
                pass
            paid.append(model.receipt_.epsilon)
        print(f"  {way:9} tested: met {met}/{runs}, median epsilon {statistics.median(paid):.3f}", flush=True)
        numbers.append({"task": task.name, "way": way, "asked": wanted, "met": met, "runs": runs, "epsilons": paid})
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=["census", "nycflights"])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--cap", type=float, default=4.0)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    found = [each for name in chosen.tasks for each in run_case(read_task(name), chosen.runs, chosen.cap)]
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
