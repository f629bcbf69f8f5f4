"""The power of the private tests against epsilon, beside the test without privacy.

    python -m benchmarks.power [--runs 60] [--picture FILE.png] [--json FILE]

Level 0.05. Powers are those the tests are priced by, except for the split test and the tests without privacy, which are run
on drawn samples.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from expost.noise import SeededBits
from expost.stats.hypothesis import (
    anova_power,
    binomial_power,
    correlation_power,
    fit_power,
    independence_power,
    kruskal_wallis_power,
    linear_correlation_power,
    mann_whitney_power,
    mean_difference_power,
    smallest_epsilon,
    split_test,
)

EPSILONS = (0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 4.0)
SHOWN = (0.05, 0.1, 0.3, 1.0)
LEVEL, WANTED = 0.05, 0.8
BOTH = ("replace-one", "add-remove")
ALIKE = "replace-one, equal spreads"
FIT, TABLE = [0.3, 0.2, 0.3, 0.2], [[0.3, 0.2], [0.2, 0.3]]
WIDE = ((-3.0, 3.0), (-3.0, 3.0))

TITLES = (
    "proportion, 500 rows",
    "two means, 2 x 500 rows",
    "three means, 3 x 300 rows",
    "given probabilities, 1,000 rows",
    "independence, 1,000 rows",
    "correlation, 500 rows",
)

Sample = tuple[Any, ...]


@dataclass(frozen=True)
class Question:
    """One test at one effect: its power by epsilon under each name, how a sample is drawn, and the public p-value."""

    name: str
    powers: dict[str, Callable[[float], float]]
    draw: Callable[[np.random.Generator], Sample]
    public: Callable[..., float]
    split: Callable[..., tuple[Any, Any]] | None = None
    relation: Any = "means"


def two_columns(rng: np.random.Generator, effect: float, rows: int) -> Sample:
    x = rng.normal(size=rows)
    return x, effect * x + np.sqrt(1 - effect**2) * rng.normal(size=rows)


def table_of(rng: np.random.Generator) -> Sample:
    cell = rng.choice(4, 1000, p=np.ravel(TABLE))
    return cell // 2, cell % 2


def contingency(first: Any, second: Any) -> float:
    counts = np.histogram2d(first, second, bins=2)[0]
    return float(stats.chi2_contingency(counts, correction=False).pvalue)


def powers_of_means(power: Callable[..., float]) -> dict[str, Callable[[float], float]]:
    """The powers of a test of means for groups that may spread differently, and for groups known to spread alike."""
    found: dict[str, Callable[[float], float]] = {a: lambda e, a=a: power(epsilon=e, adjacency=a) for a in BOTH}
    return found | {ALIKE: lambda e: power(epsilon=e, equal_spread=True)}


def questions() -> list[Question]:
    """The six effects of the page."""
    means = {"deviation": 1.0, "bounds": (-2.5, 2.5)}
    two = partial(mean_difference_power, (500, 500), 0.5, **means)
    three = partial(anova_power, [300] * 3, [-0.25, 0.0, 0.25], **means)
    return [
        Question(
            "proportion 0.6 against 0.5, 500 rows",
            {a: lambda e, a=a: binomial_power(500, 0.5, 0.6, epsilon=e, adjacency=a) for a in BOTH},
            lambda rng: (rng.random(500) < 0.6,),
            lambda x: float(stats.binomtest(int(x.sum()), len(x), 0.5).pvalue),
        ),
        Question(
            "means half a deviation apart, 2 x 500 rows, bounds 5 deviations wide",
            powers_of_means(two) | {"Mann-Whitney": lambda e: mann_whitney_power((500, 500), 0.5, epsilon=e)},
            lambda rng: (rng.normal(size=500), rng.normal(0.5, size=500)),
            lambda *x: float(stats.ttest_ind(*x, equal_var=False).pvalue),
            lambda *x: (np.concatenate(x), np.repeat(np.arange(2), 500)),
        ),
        Question(
            "three means a quarter deviation apart, 3 x 300 rows",
            powers_of_means(three)
            | {"Kruskal-Wallis": lambda e: kruskal_wallis_power([300] * 3, [-0.25, 0, 0.25], epsilon=e)},
            lambda rng: tuple(rng.normal(mean, size=300) for mean in (-0.25, 0, 0.25)),
            lambda *x: float(stats.f_oneway(*x, equal_var=False).pvalue),
            lambda *x: (np.concatenate(x), np.repeat(np.arange(3), 300)),
        ),
        Question(
            "four equal probabilities against 0.3, 0.2, 0.3, 0.2, 1,000 rows",
            {a: lambda e, a=a: fit_power(1000, [0.25] * 4, FIT, epsilon=e, adjacency=a) for a in BOTH},
            lambda rng: (rng.multinomial(1000, FIT),),
            lambda counts: float(stats.chisquare(counts).pvalue),
        ),
        Question(
            "2 x 2 table 0.3, 0.2, 0.2, 0.3, 1,000 rows",
            {a: lambda e, a=a: independence_power(1000, TABLE, epsilon=e, adjacency=a) for a in BOTH},
            table_of,
            contingency,
            lambda *x: x,
            "independence",
        ),
        Question(
            "correlation 0.2 of normal pairs, 500 rows (Pearson's: bounds 3 deviations to each side)",
            {
                "Kendall's": lambda e: correlation_power(500, 0.2, epsilon=e),
                "Pearson's": lambda e: linear_correlation_power(
                    500, 0.2, deviations=(1.0, 1.0), bounds=WIDE, epsilon=e
                ),
            },
            lambda rng: two_columns(rng, 0.2, 500),
            lambda x, y: float(stats.pearsonr(x, y).pvalue),
            lambda *x: x,
            "correlation",
        ),
    ]


def measured(question: Question, runs: int) -> dict[str, Any]:
    """All powers of one question."""
    rng, bits = np.random.default_rng(1), SeededBits(1)
    samples = [question.draw(rng) for _ in range(runs)]
    found: dict[str, Any] = {name: [power(e) for e in EPSILONS] for name, power in question.powers.items()}
    if question.split is not None:
        pairs = [question.split(*sample) for sample in samples]
        found["split test"] = [
            float(
                np.mean(
                    [split_test(question.relation, *pair, epsilon=e, bits=bits).value.rejects(LEVEL) for pair in pairs]
                )
            )
            for e in EPSILONS
        ]
    cheapest = {name: float(smallest_epsilon(power, power=WANTED)) for name, power in question.powers.items()}
    public = float(np.mean([question.public(*sample) <= LEVEL for sample in samples]))
    return {"question": question.name, "powers": found, "without privacy": public, "for power 0.8": cheapest}


def print_table(results: list[dict[str, Any]]) -> None:
    places = [EPSILONS.index(e) for e in SHOWN]
    print("| test and effect | how | " + " | ".join(f"epsilon {e:g}" for e in SHOWN) + " | without privacy | for 0.8 |")
    print("| --- | --- | " + "--: | " * (len(SHOWN) + 2))
    for result in results:
        for name, powers in result["powers"].items():
            cells = " | ".join(f"{powers[place]:.2f}" for place in places)
            cheapest = result["for power 0.8"].get(name)
            price = "" if cheapest is None else f"{cheapest:.2g}"
            print(f"| {result['question']} | {name} | {cells} | {result['without privacy']:.2f} | {price} |")


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """One panel a question."""
    from expost.experiments.figure_style import draw_panels
    from expost.plots.figure import BLUE, GREEN, GREY, ORANGE

    looks = {
        "replace-one": (BLUE, "o", "-", "public number of rows (replace-one)"),
        "add-remove": (ORANGE, "s", "-", "private number of rows (add-remove)"),
        ALIKE: (BLUE, "", ":", "public number of rows, equal_spread=True"),
        "split test": (GREEN, "^", "--", "split test"),
        "Kendall's": (BLUE, "D", "-", "Kendall's"),
        "Pearson's": (ORANGE, "v", "-", "Pearson's"),
    }

    def panel(axes: Any, row: int, column: int) -> None:
        result = results[3 * row + column]
        for name, powers in result["powers"].items():
            color, marker, style, label = looks[name]
            axes.plot(EPSILONS, powers, style, color=color, marker=marker, markersize=5, linewidth=1.6, label=label)
        axes.axhline(result["without privacy"], color=GREY, linestyle=":", linewidth=1.8, label="without privacy")
        axes.set_title(TITLES[3 * row + column], fontsize=10, loc="left")
        axes.set_xscale("log")
        axes.set_xlabel("epsilon")
        axes.set_ylabel("power at level 0.05")
        axes.set_ylim(0, 1.04)

    figure = draw_panels(2, 3, panel, title="Power of the private tests", panel=(3.9, 3.0))
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = [measured(question, options.runs) for question in questions()]
    print_table(results)
    if options.picture is not None:
        draw(results, options.picture)
    if options.json is not None:
        options.json.write_text(json.dumps({"epsilons": EPSILONS, "results": results}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
