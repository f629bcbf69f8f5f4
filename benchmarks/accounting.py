"""Accounting: a thousand adaptive events through each filter, and loss distributions against dp-accounting itself.

    python benchmarks/accounting.py [--events 1000] [--rounds 7] [--json FILE]

Rounds are interleaved, so that a busy machine slows all rows alike; the best and the median of each row are printed, for
filters in processor time. The events of a round are all different and were never priced before; the goal is 50 ms a thousand after warm-up. The peer's
rows run its own accountant on the same example, at its default bin and at the bin that expost chooses.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import statistics
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from expost.accounting import (
    ApproxFilter,
    ConcentratedFilter,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    ExponentialEvent,
    ExPostEvent,
    Filter,
    GaussianEvent,
    GaussianFilter,
    LaplaceEvent,
    PoissonSampled,
    PrivacyEvent,
    PureEvent,
    PureFilter,
    RenyiFilter,
    Repeat,
    account,
)

GOAL_MS = 50.0
EXAMPLE = Repeat(PoissonSampled(0.01, GaussianEvent(1.1)), 10_000)
DELTA = Fraction(1, 10**5)


def events_of(rng: np.random.Generator, count: int, kinds: list[str]) -> list[PrivacyEvent]:
    """Different events, taking turns among the kinds."""
    makers: dict[str, Callable[[Fraction], PrivacyEvent]] = {
        "gaussian": GaussianEvent,
        "pure": lambda x: PureEvent(1 / x),
        "laplace": LaplaceEvent,
        "exponential": lambda x: ExponentialEvent(1 / x),
        "discrete laplace": lambda x: DiscreteLaplaceEvent(3 * x, 3),
        "ex post": lambda x: ExPostEvent(1 / (5 * x), 1 / x),
        "discrete gaussian": lambda x: DiscreteGaussianEvent(x),
        "sampled gaussian": lambda x: PoissonSampled(Fraction(1, 100) + 1 / (100 * x), GaussianEvent(x / 20)),
    }
    values = (Fraction(int(n), 1000) for n in rng.integers(20_000, 400_000, count))
    return [makers[kinds[index % len(kinds)]](value) for index, value in enumerate(values)]


ALL = ["gaussian", "pure", "laplace", "exponential", "discrete laplace", "ex post", "discrete gaussian"]
FILTERS: dict[str, tuple[Callable[[], Filter], list[str]]] = {
    "pure": (lambda: PureFilter(10**6), ["pure", "laplace", "exponential", "discrete laplace", "ex post"]),
    "zcdp": (lambda: ConcentratedFilter(10**6), ALL),
    "gdp": (lambda: GaussianFilter(10**6), [kind for kind in ALL if kind != "discrete gaussian"]),
    "rdp, 4 orders": (lambda: RenyiFilter([(order, 10**6) for order in (2, 4, 16, 64)]), ALL),
    "(epsilon, delta), 15 orders": (lambda: ApproxFilter(10**6, 1e-6), ALL),
    "(epsilon, delta), an eighth sampled": (lambda: ApproxFilter(10**6, 1e-6), [*ALL, "sampled gaussian"]),
}


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def charge(make: Callable[[], Filter], events: list[PrivacyEvent]) -> float:
    """Processor seconds, which a busy machine blurs less than the clock on the wall."""
    filter = make()
    start = time.process_time()
    for event in events:
        filter.charge(event)
    return time.process_time() - start


def measure_filters(count: int, rounds: int) -> dict[str, list[float]]:
    rng = np.random.default_rng(1)
    times: dict[str, list[float]] = {name: [] for name in FILTERS}
    for turn in range(rounds + 1):
        for name, (make, kinds) in FILTERS.items():
            spent = charge(make, events_of(rng, count, kinds))
            if turn:  # the first round warms up
                times[name].append(1000 * spent)
    return times


def distribution_rows() -> dict[str, Callable[[], float]]:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    from expost.accounting.loss_distribution import sum_loss_distribution
    from expost.accounting.scenario import list_scenarios

    (scenario,) = list_scenarios(EXAMPLE)

    def ours(interval: float | None) -> float:
        found = sum_loss_distribution(scenario, interval)
        assert found is not None
        return found.epsilon(DELTA)

    def theirs(interval: float) -> float:
        accountant = PLDAccountant(value_discretization_interval=interval)
        accountant.compose(PoissonSampledDpEvent(0.01, GaussianDpEvent(1.1)), 10_000)
        return float(accountant.get_epsilon(float(DELTA)))

    return {
        "expost, own bin": lambda: ours(None),
        "expost, bin 1e-4": lambda: ours(1e-4),
        "dp-accounting, bin 1e-4 (its default)": lambda: theirs(1e-4),
        "expost, bin 2^-11": lambda: ours(2.0**-11),
        "dp-accounting, bin 2^-11": lambda: theirs(2.0**-11),
    }


def measure_distributions(rounds: int) -> dict[str, tuple[list[float], float]]:
    rows = distribution_rows()
    values = {name: run() for name, run in rows.items()}
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, run in rows.items():
            times[name].append(seconds(run))
    return {name: (times[name], values[name]) for name in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=argparse.FileType("w"))
    options = parser.parse_args()
    result: dict[str, object] = {"python": platform.python_version(), "numpy": np.__version__}

    filters = measure_filters(options.events, options.rounds)
    print(f"{options.events} different events through a filter, CPU ms | best | median | median / goal of {GOAL_MS:g}")
    for name, times in filters.items():
        middle = statistics.median(times)
        print(f"{name:38} | {min(times):6.1f} | {middle:6.1f} | {middle / GOAL_MS * 1000 / options.events:5.2f}")
    result["filters_cpu_ms"] = {name: statistics.median(times) for name, times in filters.items()}

    print(f"\nepsilon of the example by Renyi orders: {account(EXAMPLE, currency='rdp').epsilon(DELTA):.4f}")
    try:
        result["dp-accounting"] = importlib.metadata.version("dp-accounting")
        distributions = measure_distributions(options.rounds)
    except ImportError:
        print("dp-accounting is not installed: no loss distributions")
        distributions = {}
    peers = {
        "expost, own bin": "dp-accounting, bin 1e-4 (its default)",
        "expost, bin 1e-4": "dp-accounting, bin 1e-4 (its default)",
        "expost, bin 2^-11": "dp-accounting, bin 2^-11",
    }
    print("loss distribution of the example | epsilon | best s | median s | median / peer's median")
    for name, (times, value) in distributions.items():
        ratio = statistics.median(times) / statistics.median(distributions[peers[name]][0]) if name in peers else 1.0
        print(f"{name:38} | {value:.4f} | {min(times):.3f} | {statistics.median(times):.3f} | {ratio:.2f}")
    result["distributions_s"] = {name: statistics.median(times) for name, (times, _) in distributions.items()}
    if options.json:
        json.dump(result, options.json, indent=2)


if __name__ == "__main__":
    main()
