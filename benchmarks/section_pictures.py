"""Pictures of docs/benchmarks.md, drawn from the numbers of the benchmarks."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from expost.plots.bar_plot import draw_bars
from expost.plots.figure import BLUE, GREEN, GREY, ORANGE, RED, new_figure, save

PEERS = {"diffprivlib": (RED, "s"), "opacus": (ORANGE, "^")}
NAMES = {"opacus": "Opacus"}


def census_bars(numbers: Any, path: Path) -> None:
    """Draw what each way pays for the same accuracy."""
    names = {"expost": "expost, accuracy tested", "expost, smallest epsilon": "expost, best epsilon known"}
    paid = {
        names.get(
            each["way"],
            each["way"]
            .replace(", smallest epsilon", ", best epsilon known")
            .replace(", best excess risk", ", best epsilon known"),
        ): (statistics.median(each["epsilons"]))
        for each in numbers["ways"]
    }
    title = f"Epsilon paid for a classifier of accuracy {numbers['asked']} (census table; without privacy {numbers['without privacy']:.3f})"
    draw_bars(paid, ours=names["expost"], title=title, path=path)


def model_prices(numbers: Any, path: Path) -> None:
    """Draw one row a table: ours with its range, the oracle, and the smallest epsilons of other libraries."""
    figure, axes = new_figure(7.0, 0.9 + 0.36 * len(numbers))
    ordered = [each for chosen in (True, False) for each in numbers if each["constants chosen on it"] is chosen]
    for place, each in enumerate(ordered):
        paid = sorted(each["epsilons"])
        axes.plot([paid[0], paid[-1]], [place, place], color=BLUE, linewidth=2)
        filled = each["met"] == each["runs"]
        axes.plot(
            statistics.median(paid), place, "o", color=BLUE, markersize=7, markerfacecolor=BLUE if filled else "white"
        )
        if each["oracle"] is not None:
            axes.plot(each["oracle"], place, "D", color=GREEN, markersize=5)
        for peer, (color, marker) in PEERS.items():
            epsilon = each["peers"].get(peer, {}).get("epsilon")
            if epsilon:
                axes.plot(epsilon, place, marker, color=color, markersize=6)
    chosen = sum(each["constants chosen on it"] for each in ordered)
    if 0 < chosen < len(ordered):
        axes.axhline(chosen - 0.5, color=GREY, linewidth=0.8, linestyle="--")
    axes.set_yticks(
        range(len(ordered)), [f"{each['task']} ({'R2' if each['measure'] == 'r2' else 'accuracy'})" for each in ordered]
    )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.invert_yaxis()
    axes.set_xlabel("epsilon (log scale; left is more private)")
    looks = [
        ("expost, tested, with range", {"color": BLUE, "marker": "o", "linewidth": 2}),
        ("expost, some runs missed", {"color": BLUE, "marker": "o", "linewidth": 2, "markerfacecolor": "white"}),
        ("expost, oracle", {"color": GREEN, "marker": "D", "linestyle": ""}),
        *(
            (f"{NAMES.get(peer, peer)}, best epsilon known", {"color": color, "marker": marker, "linestyle": ""})
            for peer, (color, marker) in PEERS.items()
            if any(peer in each["peers"] for each in numbers)
        ),
    ]
    handles = [axes.plot([], [], label=name, **look)[0] for name, look in looks]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    figure.suptitle(
        "Epsilon paid for nearly the score without privacy", fontsize=10, x=0.01, horizontalalignment="left"
    )
    save(figure, path)


def bill_ratios(numbers: Any, path: Path) -> None:
    """Draw what each statistic pays as a multiple of the oracle."""
    given = numbers["bills against the oracle"]
    names = [each["question"] for each in given[::2]]
    figure, axes = new_figure(7.0, 0.9 + 0.32 * len(names))
    for offset, (label, color) in enumerate((("all rows", BLUE), ("4 groups at once", ORANGE))):
        ratios = [each["bill / oracle"] for each in given[offset::2]]
        places = [place + 0.36 * offset - 0.18 for place in range(len(ratios))]
        axes.barh(places, ratios, height=0.34, color=color, label=label)
    axes.axvline(1, color=GREY, linewidth=1, linestyle="--")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("epsilon paid / the least that an oracle pays")
    figure.legend(frameon=False, fontsize=8, ncols=2, loc="outside lower center")
    figure.suptitle("What not knowing the answer costs", fontsize=10, x=0.01, horizontalalignment="left")
    save(figure, path)
