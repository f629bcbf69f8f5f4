"""The levels of the private tests at extremes: how often a true null hypothesis is rejected at 0.05 and 0.01.

    python -m benchmarks.levels [--runs 20000] [--only means] [--json FILE]

Rare values, few rows, tiny and huge epsilons, unequal laws of one mean. For each test and family of laws the worst setting
is printed, with P(p <= 0.05) and P(p <= 0.01) there and the number of settings above four standard errors.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Adjacency
from expost.noise import SeededBits, sample_laplace
from expost.stats.hypothesis.anova import anova_p_values
from expost.stats.hypothesis.binomial import binomial_p_values
from expost.stats.hypothesis.count_table import sample_noisy_tables
from expost.stats.hypothesis.goodness_of_fit import fit_p_values, private_fit_p_value
from expost.stats.hypothesis.group_means import GroupShares, NoisyGroups
from expost.stats.hypothesis.independence import independence_p_value
from expost.stats.hypothesis.linear_correlation import MomentShares, ReleasedMoments, linear_correlation_p_values
from expost.stats.hypothesis.mean_difference import mean_difference_p_values
from expost.stats.hypothesis.private_proportion import private_p_value
from expost.stats.hypothesis.rank_correlation import correlation_p_values, score_masses

LEVELS = (0.05, 0.01)
Floats = NDArray[np.float64]
Found = tuple[str, str, Floats]
"""The test and family, the setting, and p-values of independent runs under the null hypothesis."""

SIZES = [(10, 10), (30, 30), (100, 100), (1000, 1000), (10, 1000), (1000, 10), (30, 1000), (100, 10_000)]
ALTERNATIVES: tuple[Any, ...] = ("two-sided", "greater", "less")


def two_point(rng: np.random.Generator, law: tuple[float, float, float], rows: int, runs: int) -> tuple[Floats, Floats]:
    """Sums and squares about the middle of [0, 1] of values that are ``high`` with a chance and else ``low``."""
    chance, low, high = law[0], law[1] - 0.5, law[2] - 0.5
    hits = rng.binomial(rows, chance, runs)
    return hits * high + (rows - hits) * low, hits * high**2 + (rows - hits) * low**2


def groups_of(
    rng: np.random.Generator,
    laws: list[tuple[float, float, float]],
    sizes: Any,
    strength: float,
    public: bool,
    runs: int,
) -> NoisyGroups:
    parts = [two_point(rng, law, size, runs) for law, size in zip(laws, sizes, strict=True)]
    sums, squares = (np.stack([part[i] for part in parts], axis=1) for i in (0, 1))
    counts = np.broadcast_to(np.array(sizes, np.float64), sums.shape)
    shares = GroupShares.for_groups(
        Fraction(str(strength)),
        rows=sum(sizes) if public else None,
        public_sizes=sizes if public else None,
        adjacency=Adjacency.REPLACE_ONE if public else Adjacency.ADD_REMOVE,
    )
    noisy_counts = counts if public else counts + rng.laplace(0, shares.size_scale, sums.shape)
    noisy_squares = None if shares.squares is None else squares + rng.laplace(0, shares.square_scale, sums.shape)
    return NoisyGroups.under_shares(
        sums + rng.laplace(0, shares.sum_scale, sums.shape), noisy_counts, noisy_squares, shares
    )


def families() -> Iterator[tuple[str, float, list[tuple[float, float, float]]]]:
    for chance in (0.5, 0.1, 0.02, 0.005):
        yield "equal laws", chance, [(chance, 0.0, 1.0)] * 3
    for chance in (0.1, 0.02, 0.005):
        nearly = (0.5, 0.9 * chance, 1.1 * chance)
        yield "one mean, unequal laws", chance, [(chance, 0.0, 1.0), nearly, nearly]


def means(rng: np.random.Generator, runs: int) -> Iterator[Found]:
    for (family, chance, laws), sizes, strength, public in product(families(), SIZES, (0.1, 1, 30), (True, False)):
        groups = groups_of(rng, laws[:2], sizes, strength, public, runs)
        for alternative in ALTERNATIVES:
            where = f"chance {chance}, {sizes[0]} + {sizes[1]} rows, epsilon {strength}, public {public}, {alternative}"
            yield f"two means, {family}", where, mean_difference_p_values(groups, alternative)


def anova(rng: np.random.Generator, runs: int) -> Iterator[Found]:
    few = max(runs // 10, 200)
    sizes = [(10, 10, 10), (100, 100, 100), (1000, 1000, 30), (30, 1000, 1000), (1000, 1000, 1000)]
    for (family, chance, laws), size, strength, public in product(families(), sizes, (0.1, 1, 30), (True, False)):
        groups = groups_of(rng, laws, size, strength, public, few)
        where = f"chance {chance}, {size} rows, epsilon {strength}, public {public}"
        yield f"several means, {family}", where, anova_p_values(groups, draws=199, bits=SeededBits(1))


def linear(rng: np.random.Generator, runs: int) -> Iterator[Found]:
    for rows, first, second, strength in product(
        (10, 100, 1000), (0.5, 0.1, 0.02), (0.5, 0.1, 0.02), (0.1, 2, 20, 200)
    ):
        law = np.outer((first, 1 - first), (second, 1 - second)).ravel()
        both, left, right, neither = rng.multinomial(rows, law, runs).T
        x, y = both + left - rows / 2, both + right - rows / 2
        shares = MomentShares.for_rows(Fraction(str(strength)), rows=rows)
        exact = [(both + neither - left - right) / 4, x, y]
        scales = [0.5 / float(shares.products), 1 / float(shares.sums), 1 / float(shares.sums)]
        found: list[Any] = [e + rng.laplace(0, s, runs) for e, s in zip(exact, scales, strict=True)]
        if shares.squares is None:
            found += [None, None]
        else:
            found += [rows / 4 + rng.laplace(0, 0.25 / float(shares.squares), runs) for _ in range(2)]
        moments = ReleasedMoments.under_shares(*found, rows=rows, shares=shares)
        expected = rows * min(first, 1 - first) * min(second, 1 - second)
        family = "at least ten rows in both" if expected >= 10 else "fewer than ten rows in both"
        for alternative in ALTERNATIVES:
            where = f"chances {first}, {second}, {rows} rows, epsilon {strength}, {alternative}"
            yield f"linear correlation, {family}", where, linear_correlation_p_values(moments, alternative)


def rank(rng: np.random.Generator, runs: int) -> Iterator[Found]:
    for rows, strength in product((3, 20, 100, 101, 150), (0.1, 1, 20, 1000)):
        masses, most = score_masses(rows), rows * (rows - 1) // 2
        scores = 2 * np.searchsorted(np.cumsum(masses), rng.random(runs)).clip(max=most) - most
        noise = sample_laplace(Fraction(2 * (rows - 1)) / Fraction(str(strength)), runs, bits=SeededBits(rows))
        p = correlation_p_values(scores + noise, rows, epsilon=strength)
        yield "rank correlation", f"{rows} rows, epsilon {strength}", p


def fit(rng: np.random.Generator, runs: int) -> Iterator[Found]:
    for rows, law, strength in product(
        (5, 30, 300), ([0.5, 0.5], [0.98, 0.01, 0.01], [0.9, 0.09, 0.01]), (0.05, 1, 50)
    ):
        tables = sample_noisy_tables(rows, np.array(law), runs, 2 / strength, SeededBits(rows))
        p = fit_p_values(tables, rows, np.array(law), scale=2 / strength, bits=SeededBits(1))
        yield "given probabilities, public number", f"{law}, {rows} rows, epsilon {strength}", p
        few = sample_noisy_tables(rows, np.array(law), max(runs // 200, 50), 1 / strength, SeededBits(rows))
        private = [
            private_fit_p_value(t, np.array(law), scale=1 / strength, draws=99, bits=SeededBits(i))
            for i, t in enumerate(few)
        ]
        yield "given probabilities, private number", f"{law}, {rows} rows, epsilon {strength}", np.array(private)


def proportion(rng: np.random.Generator, runs: int) -> Iterator[Found]:
    for rows, chance, strength in product((1, 5, 30, 300), (0.5, 0.05, 0.001), (0.05, 1, 50)):
        hits = rng.binomial(rows, chance, runs)
        noise = sample_laplace(1 / Fraction(str(strength)), (2, runs), bits=SeededBits(rows))
        where = f"chance {chance}, {rows} rows, epsilon {strength}"
        p = binomial_p_values(hits + noise[0] + rng.random(runs) - 0.5, rows, chance, epsilon=strength)
        yield "proportion, public number", where, p
        few = max(runs // 100, 100)
        pairs = np.stack([hits, rows - hits])[:, :few] + noise[:, :few]
        private = [private_p_value(float(a), float(b), chance, scale=1 / strength) for a, b in pairs.T]
        yield "proportion, private number", where, np.array(private)


def independence(rng: np.random.Generator, runs: int) -> Iterator[Found]:
    few = max(runs // 50, 100)
    for kinds, rare, rows, strength, public in product(
        (2, 3, 5), (0.1, 1, 4), (5, 30, 100), (0.1, 1, 20), (True, False)
    ):
        law = np.full(kinds, min(rare / rows, 1 / kinds))
        law[0] = 1 - law[1:].sum()
        scale = (2 if public else 1) / strength
        bits = SeededBits(rows)
        tables = sample_noisy_tables(rows, np.outer(law, law), few, scale, bits)
        p = [independence_p_value(t, rows if public else None, scale=scale, draws=99, bits=bits) for t in tables]
        where = f"{kinds} x {kinds}, {rare} rows of each rare kind, {rows} rows, epsilon {strength}"
        yield f"independence, {'public' if public else 'private'} number", where, np.array(p)


TESTS = {f.__name__: f for f in (proportion, means, anova, fit, independence, rank, linear)}


def report(found: Iterator[Found]) -> list[dict[str, Any]]:
    """Print the worst setting of each family, by how far it is above the level in standard errors."""
    worst: dict[str, tuple[float, str, list[float]]] = {}
    counted: dict[str, list[int]] = {}
    for family, where, p in found:
        shares = [float((p <= level).mean()) for level in LEVELS]
        excess = max((s - a) / math.sqrt(a * (1 - a) / len(p)) for s, a in zip(shares, LEVELS, strict=True))
        worst[family] = max(worst.get(family, (-math.inf, "", [])), (excess, where, shares))
        total = counted.setdefault(family, [0, 0])
        total[0], total[1] = total[0] + 1, total[1] + (excess > 4)
    rows = []
    for family, (excess, where, shares) in worst.items():
        settings, above = counted[family]
        rows.append({"family": family, "settings": settings, "above": above, "worst": shares, "where": where})
        levels = ", ".join(f"P(p <= {a}) = {s:.4f}" for a, s in zip(LEVELS, shares, strict=True))
        print(
            f"{family}: {above} of {settings} settings above; worst {levels} ({excess:.1f} s.e.) at {where}", flush=True
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--only", choices=sorted(TESTS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chosen = [test for name, test in TESTS.items() if arguments.only in (None, name)]
    found = [each for test in chosen for each in report(test(np.random.default_rng(1), arguments.runs))]
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
