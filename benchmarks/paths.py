"""A gradual-release path drawn as jumps, against drawing every level.

    python benchmarks/paths.py [--coordinates 3080] [--rungs 1000] [--rounds 7] [--json FILE]

3,080 coordinates are the sufficient statistics of ridge regression with 77 features. The baselines draw float Laplace
noise level by level in NumPy: once with a coin per entry called through ``numpy.vectorize``, as the public code of the
2017 paper does, and once with the coins vectorised, the best that drawing every level can do in NumPy. Neither is exact.
Ours is timed twice: drawing the path (all randomness, any rung then reads in a fraction of a millisecond), and drawing it
plus writing out every rung, which the baselines do as they go.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np

from expost.core import Ladder, Sealed, Sensitivity
from expost.noise import DiscreteLaplacePath

GENERATOR = np.random.default_rng()
CODE_2017, LEVELS = "level by level, a call per coin (2017 code)", "level by level, vectorised coins"
PATH, PATH_READ, FIRST_RUNG = "path of jumps", "path of jumps, every rung written out", "reading one rung of it"


def level_by_level(levels: np.ndarray, size: int, coin: Callable[[float, np.ndarray], np.ndarray]) -> np.ndarray:
    """Float noise reduction over all levels; ``coin`` keeps each entry of a step with the given probability."""
    noise = GENERATOR.laplace(scale=1 / levels[-1], size=size)
    rungs = [noise]
    for low, high in zip(levels[-2::-1], levels[:0:-1], strict=True):
        step = GENERATOR.laplace(scale=1 / low, size=size)
        noise = noise + coin(1 - (low / high) ** 2, step)
        rungs.append(noise)
    return np.array(rungs[::-1])


def coin_per_call(probability: float, step: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda entry: entry if GENERATOR.random() < probability else 0.0)(step)


def coins_at_once(probability: float, step: np.ndarray) -> np.ndarray:
    return np.where(GENERATOR.random(len(step)) < probability, step, 0.0)


def read_all(path: DiscreteLaplacePath) -> None:
    for start in range(0, len(path.ladder), 50):
        path.block(start, min(start + 50, len(path.ladder)))


def measure(coordinates: int, rungs: int, rounds: int) -> dict[str, float]:
    """Seconds of each row: the median over interleaved rounds (one round of the slowest)."""
    ladder = Ladder.geometric(1e-5, 10, rungs=rungs)
    levels = np.array([float(level) for level in ladder])
    sealed = Sealed(np.zeros(coordinates, np.int64), Sensitivity(1))
    drawn = DiscreteLaplacePath(sealed, ladder)
    rows: dict[str, Callable[[], object]] = {
        CODE_2017: lambda: level_by_level(levels, coordinates, coin_per_call),
        LEVELS: lambda: level_by_level(levels, coordinates, coins_at_once),
        PATH: lambda: DiscreteLaplacePath(sealed, ladder),
        PATH_READ: lambda: read_all(DiscreteLaplacePath(sealed, ladder)),
        FIRST_RUNG: lambda: drawn.at(0),
    }
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    for turn in range(rounds):
        for name, call in rows.items():
            if turn == 0 or name != CODE_2017:
                begin = time.process_time()
                call()
                seconds[name].append(time.process_time() - begin)
    return {name: statistics.median(values) for name, values in seconds.items()}


def kept_bytes(coordinates: int, rungs: int) -> int:
    """What a path keeps in memory, beyond the ladder it was given."""
    ladder = Ladder.geometric(1e-5, 10, rungs=rungs)
    sealed = Sealed(np.zeros(coordinates, np.int64), Sensitivity(1))
    tracemalloc.start()
    path = DiscreteLaplacePath(sealed, ladder)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path.size == coordinates
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coordinates", type=int, default=3080)
    parser.add_argument("--rungs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seconds = measure(options.coordinates, options.rungs, options.rounds)
    memory = {rungs: kept_bytes(options.coordinates, rungs) for rungs in (100, 1000, 10_000)}
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    print("  ".join(f"{name} {version}" for name, version in versions.items()))
    print(f"{options.coordinates} coordinates, {options.rungs} rungs from 1e-5 to 10")
    print(f"{'':45s} {'ms':>9s} {'2017 / it':>10s} {'vectorised / it':>16s}")
    table = []
    for name, each in seconds.items():
        row = {
            "row": name,
            "seconds": each,
            "over_2017": seconds[CODE_2017] / each,
            "over_levels": seconds[LEVELS] / each,
        }
        table.append(row)
        print(f"{name:45s} {each * 1e3:9.2f} {row['over_2017']:10.1f} {row['over_levels']:16.1f}")
    print("memory kept: " + ", ".join(f"{size / 1e6:.2f} MB at {rungs} rungs" for rungs, size in memory.items()))
    if options.json:
        result = {"versions": versions, "rows": table, "kept_bytes": memory}
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
