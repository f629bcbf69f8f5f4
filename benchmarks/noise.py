"""Exact samplers against OpenDP's exact samplers and NumPy's float Laplace, in one run.

    python benchmarks/noise.py [--count 1000000] [--rounds 7] [--json FILE]

Rounds are interleaved, so that a busy machine slows all rows alike; the median rate of each row is printed, with its
ratio to OpenDP's sampler of the same law and to ``numpy.random.Generator.laplace``, which is neither exact nor private.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path

import numpy as np
import opendp.prelude as dp

from expost.noise import sample_gaussian, sample_geometric, sample_laplace, system_bits
from expost.noise.gaussian_stream import gaussian_table

dp.enable_features("contrib")

SCALE = 100
WIDE = 2**45
PEER_COUNT = 20_000  # OpenDP draws a few ten thousand a second
LAPLACE_PEER, GAUSSIAN_PEER, FLOAT_PEER = "OpenDP integer Laplace", "OpenDP integer Gaussian", "NumPy float Laplace"


def opendp_sampler(make: Callable[..., dp.Measurement], metric: dp.Metric) -> Callable[[], object]:
    measurement = make(dp.vector_domain(dp.atom_domain(T=int)), metric, scale=float(SCALE))
    zeros = [0] * PEER_COUNT
    return lambda: measurement(zeros)


def samplers(count: int) -> dict[str, tuple[int, Callable[[], object]]]:
    """Each row: how many values a call draws, and the call."""
    generator = np.random.default_rng()
    laplace = opendp_sampler(dp.m.make_laplace, dp.l1_distance(T=int))
    gaussian = opendp_sampler(dp.m.make_gaussian, dp.l2_distance(T=float))
    table = gaussian_table(Fraction(1 << 48))
    scales = np.tile([1.0, 10.0, 100.0, 1e6], -(-count // 4))[:count]
    return {
        LAPLACE_PEER: (PEER_COUNT, laplace),
        GAUSSIAN_PEER: (PEER_COUNT, gaussian),
        FLOAT_PEER: (count, lambda: generator.laplace(scale=SCALE, size=count)),
        f"discrete Laplace, scale {SCALE}": (count, lambda: sample_laplace(SCALE, count)),
        "discrete Laplace, scale 2^45": (count, lambda: sample_laplace(WIDE, count)),
        "discrete Laplace, a scale per element": (count, lambda: sample_laplace(scales)),
        f"geometric, scale {SCALE}": (count, lambda: sample_geometric(SCALE, count)),
        f"discrete Gaussian, sigma {SCALE}": (count, lambda: sample_gaussian(SCALE**2, count)),
        "discrete Gaussian, sigma 2^45": (count, lambda: sample_gaussian(WIDE**2, count)),
        "discrete Gaussian by table, sigma 2^24": (count, lambda: table.draw(count, system_bits())),
    }


def measure(count: int, rounds: int) -> dict[str, float]:
    """Values a second, the median over interleaved rounds."""
    rows = samplers(count)
    rates: dict[str, list[float]] = {name: [] for name in rows}
    for call in (call for _, call in rows.values()):
        call()
    for _ in range(rounds):
        for name, (drawn, call) in rows.items():
            begin = time.process_time()
            call()
            rates[name].append(drawn / (time.process_time() - begin))
    return {name: statistics.median(values) for name, values in rates.items()}


def peer(name: str) -> str:
    return GAUSSIAN_PEER if "Gaussian" in name else LAPLACE_PEER


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rates = measure(options.count, options.rounds)
    versions = {name: version(name) for name in ("numpy", "opendp", "cryptography")}
    versions["python"] = platform.python_version()
    print("  ".join(f"{name} {which}" for name, which in versions.items()))
    print(f"{'sampler':45s} {'million/s':>10s} {'x OpenDP':>9s} {'x NumPy':>8s}")
    table = []
    for name, rate in rates.items():
        row = {"sampler": name, "per_second": rate, "to_opendp": rate / rates[peer(name)]}
        row["to_numpy"] = rate / rates[FLOAT_PEER]
        table.append(row)
        print(f"{name:45s} {rate / 1e6:10.2f} {row['to_opendp']:9.1f} {row['to_numpy']:8.2f}")
    if options.json:
        options.json.write_text(json.dumps({"versions": versions, "rows": table}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
