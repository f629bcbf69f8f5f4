"""The reusable holdout: what it promises at which size, and what asking costs in time.

    python benchmarks/holdout.py [--questions 500] [--json FILE]

Time is compared with the textbook algorithm in plain floats (NumPy noise, no budget, no bound, not private in its low
bits), on the same questions in one run.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

from expost.holdout import ReusableHoldout, sampling_error, tolerance_reached

FAILURE, QUESTIONS = 0.05, 1000


def sizes() -> list[dict[str, float]]:
    """The smallest tolerance that can be promised, by holdout size and number of answers from it."""
    table = []
    for rows in (10_000, 100_000, 1_000_000):
        for hits in (1, 10, 100):
            reached = {
                variant: tolerance_reached(
                    rows, max_hits=hits, failure_probability=FAILURE, max_queries=QUESTIONS, variant=variant
                )
                for variant in ("analysed", "improved")
            }
            split = sampling_error(rows // hits, FAILURE / QUESTIONS).error
            table.append({"rows": rows, "hits": hits, **reached, "a fresh part for each hit": round(split, 3)})
    return table


def textbook(train: np.ndarray, holdout: np.ndarray, columns: int, sigma: float, threshold: float) -> float:
    """Thresholdout as in the notes, in floats; processor seconds for all questions."""
    generator = np.random.default_rng()
    start = time.process_time()
    barrier = threshold + generator.laplace(scale=2 * sigma)
    for column in range(columns):
        on_train, on_holdout = train[:, column].mean(), holdout[:, column].mean()
        if abs(on_holdout - on_train) > barrier + generator.laplace(scale=4 * sigma):
            on_holdout + generator.laplace(scale=sigma)
            barrier = threshold + generator.laplace(scale=2 * sigma)
    return time.process_time() - start


def ours(train: np.ndarray, holdout: np.ndarray, columns: int) -> float:
    """The same questions, one by one, with exact noise and bounds; processor seconds."""
    session = ReusableHoldout(
        train,
        holdout,
        tolerance=0.2,
        failure_probability=FAILURE,
        max_queries=columns,
        budget=2,
        variant="improved",
    )
    start = time.process_time()
    for column in range(columns):
        session.ask(lambda rows, column=column: rows[:, column])
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = np.random.default_rng(1).random((100_000, options.questions))
    train, holdout = rows[:50_000], rows[50_000:]
    rounds = [
        (textbook(train, holdout, options.questions, 1e-3, 0.1), ours(train, holdout, options.questions))
        for _ in range(3)
    ]
    plain, exact = (sorted(times)[1] for times in zip(*rounds, strict=True))
    result = {
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "expost": version("expost"),
        "sizes": sizes(),
        "microseconds a question": {
            "textbook floats": plain / options.questions * 1e6,
            "expost": exact / options.questions * 1e6,
        },
        "ratio": exact / plain,
    }
    print(f"{'rows':>9} {'hits':>5} {'analysed':>9} {'improved':>9} {'fresh parts':>12}")
    for row in result["sizes"]:
        print(
            f"{row['rows']:>9,} {row['hits']:>5} {row['analysed']:>9} {row['improved']:>9} {row['a fresh part for each hit']:>12}"
        )
    for name, micro in result["microseconds a question"].items():
        print(f"{name:>16}: {micro:8.0f} microseconds a question of 50,000 rows")
    print(f"{'ratio':>16}: {result['ratio']:8.2f}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
