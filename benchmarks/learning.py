"""How long accuracy-first fits take: ratios against scikit-learn in one run, interleaved, one BLAS thread, medians."""

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np
from sklearn.linear_model import LogisticRegression as PlainLogistic
from sklearn.linear_model import Ridge as PlainRidge
from threadpoolctl import threadpool_limits

from expost.data.matrix import RowSource, UnitBall, UnitRows, grid_numbers
from expost.data.moments import MomentLayout
from expost.models import LogisticRegression, Ridge

PENALTY = 0.005
# Trials of the original research code on a machine like this, in seconds (ridge p = 77, logistic p = 38).
ORIGINAL = {"ridge": 211.0, "logistic": 111.0}


def table(rows: int, width: int, *, signs: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features = rng.lognormal(0, 1.5, (rows, width)) * rng.lognormal(0, 1.0, (rows, 1))
    features /= np.abs(features).sum(axis=1).max()
    score = np.log1p(features.sum(axis=1) * 1e3 * np.exp(0.3 * rng.normal(size=rows)))
    target = score / score.max()
    return features, np.where(target > np.median(target), 1.0, -1.0) if signs else target


def seconds(fits: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median time of each, all in turn so that a busy machine slows them alike."""
    times: dict[str, list[float]] = {name: [] for name in fits}
    for fit in fits.values():
        fit()
    for _ in range(repeats):
        for name, fit in fits.items():
            start = time.perf_counter()
            fit()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def report(kind: str, plain: str, fits: dict[str, Callable[[], object]], repeats: int) -> None:
    took = seconds(fits, repeats)
    for name, value in took.items():
        against = (
            f"{value / took[plain]:5.2f}x {plain}, {ORIGINAL[kind] / value:6.0f}x faster than the 2017 code's trial"
        )
        print(f"{kind:9} {name:42} {value * 1000:8.1f} ms  {against if name != plain else ''}")


def memory(rows: int, width: int) -> None:
    """Peak memory of exact moments over a stream of float32 batches, above what the stream itself needs."""
    batch = np.random.default_rng(0).random((100_000, width), dtype=np.float32) / width
    target = np.zeros(len(batch), dtype=np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def read():
        for _ in range(rows // len(batch)):
            for start in range(0, len(batch), 8192):
                yield batch[start : start + 8192], target[start : start + 8192]

    layout = MomentLayout(UnitBall(width))
    start = time.perf_counter()
    layout.measure(UnitRows(RowSource(rows, width, None, read), layout.ball, grid_numbers(1.0)))
    took = time.perf_counter() - start
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"moments   {rows:.0e} x {width} float32: {took:.1f} s, {peak:.0f} MB above the input")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--memory-rows", type=int, default=10_000_000)
    options = parser.parse_args()
    x, y = table(options.rows, 77, signs=False)
    z, s = table(options.rows, 38, signs=True)
    common = {"regularization": PENALTY, "max_epsilon": 100.0}
    with threadpool_limits(1, user_api="blas"):
        memory(options.memory_rows, 50)
        report(
            "ridge",
            "sklearn Ridge",
            {
                "sklearn Ridge": lambda: PlainRidge(alpha=PENALTY * len(y), fit_intercept=False).fit(x, y),
                "expost, default": lambda: Ridge(excess_risk=0.02, **common).fit(x, y),
                "expost, certificate, 1000 rungs": lambda: Ridge(
                    excess_risk=0.02, method="certificate", rungs=1000, **common
                ).fit(x, y),
                "expost, paper2017, 1000 rungs": lambda: Ridge(excess_risk=0.02, method="paper2017", **common).fit(
                    x, y
                ),
            },
            options.repeats,
        )
        report(
            "logistic",
            "sklearn LogisticRegression",
            {
                "sklearn LogisticRegression": lambda: PlainLogistic(C=1 / (PENALTY * len(s)), fit_intercept=False).fit(
                    z, s
                ),
                "expost, default": lambda: LogisticRegression(excess_risk=0.02, classes=(-1, 1), **common).fit(z, s),
                "expost, paper2017, 1000 rungs": lambda: LogisticRegression(
                    excess_risk=0.1, classes=(-1, 1), method="paper2017", **common
                ).fit(z, s),
            },
            options.repeats,
        )


if __name__ == "__main__":
    main()
