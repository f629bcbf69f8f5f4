"""Tables of the page about models and networks."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.model_peers import describe_peer
from benchmarks.page import Measured, Table, plain

RATIO = Measured.ratio
_GIVEN_UP = "*Given up*: runs that ended at epsilon 0.3 or less, because the score was not likely to be reached."


def census_ways(numbers: Any) -> Table:
    """What each way pays for one accuracy."""
    rows = []
    for each in numbers["ways"]:
        paid = each["epsilons"]
        met = sum(score >= numbers["asked"] for score in each["accuracies"])
        shown = RATIO(paid[0]) if len(paid) == 1 else Measured.of_runs(paid)
        accuracy = Measured.within(statistics.median(each["accuracies"]), 0.004)
        rows.append([each["way"], shown, accuracy, f"{met} of {len(each['accuracies'])}", each["note"]])
    reading = (
        f"Census, accuracy {numbers['asked']} asked; always the most frequent class has {numbers['trivial']:.3f}, the model without "
        f"privacy {numbers['without privacy']:.3f}. Ours pays for the test that confirms the accuracy. *Best epsilon known* is the smallest one that works: neither the search for it nor a check of the accuracy is paid."
    )
    return Table(reading, ["way", "epsilon paid", "accuracy", "met", "how"], rows)


def model_table(numbers: Any, *, chosen: bool, reading: str) -> Table | None:
    """One row a public table."""
    peers = list(dict.fromkeys(name for each in numbers for name in each["peers"]))
    rows = []
    for each in numbers:
        if each["constants chosen on it"] is not chosen:
            continue
        measure = "R2" if each["measure"] == "r2" else each["measure"]
        oracle: Any = f"not up to {1:g}" if each["oracle"] is None else RATIO(each["oracle"])
        ratio: Any = "" if each["oracle"] is None else RATIO(statistics.median(each["epsilons"]) / each["oracle"])
        rows.append(
            [
                each["task"],
                f"{each['rows']:,} x {each['features']}",
                measure,
                plain_score(each["trivial"]),
                Measured.within(each["without privacy"], 0.003),
                plain_score(each["asked"]),
                f"{each['met']} of {each['runs']}",
                each["out of reach"],
                Measured.of_runs(each["epsilons"], 2),
                oracle,
                ratio,
                *(describe_peer(each["peers"][name]) if name in each["peers"] else "" for name in peers),
            ]
        )
    head = ["table", "rows x features", "score", "trivial", "without privacy", "asked", "met", "given up"]
    paid = ["epsilon paid", "oracle", "paid / oracle"]
    return Table(f"{reading} {_GIVEN_UP}", [*head, *paid, *peers], rows) if rows else None


def plain_score(value: float) -> str:
    return f"{value:.3f}"


def chosen_tables(numbers: Any) -> Table | None:
    """The tables that constants were chosen on."""
    reading = "Tables that constants of the trainings were chosen on (`TUNED` in `benchmarks/models.py`). A run that misses its target is counted with what it paid."
    return model_table(numbers, chosen=True, reading=reading)


def held_out_tables(numbers: Any) -> Table | None:
    """The tables that were held out."""
    reading = "Tables that no constant was chosen on (`HELD_OUT`, `FRESH`): run afterwards, with everything fixed."
    return model_table(numbers, chosen=False, reading=reading)


def pure_levels(numbers: Any) -> Table:
    """With and without a delta."""
    rows = [
        [
            f"{each['task']}, {each['way']}",
            plain_score(each["asked"]),
            f"{each['met']} of {each['runs']}",
            Measured.of_runs(each["epsilons"], 2),
        ]
        for each in numbers
        if "met" in each
    ]
    return Table(
        "Without a delta (`objective`, `moments`) the same score costs more.",
        ["training", "asked", "met", "epsilon paid"],
        rows,
    )


def paper_regime(numbers: Any) -> Table:
    """The setting of the paper of 2017."""
    rows = []
    for each in numbers["rows"]:
        rows.append(
            [
                f"{each['table']}, {each['tolerance']:g}",
                RATIO(each["expost"]),
                plain(each["oracle, ours"]),
                plain(each["paper"]),
                plain(each["theory, as printed"]),
                RATIO(each["paper"] / each["expost"]),
                zero_verdict(each),
            ]
        )
    reading = "Excess risk asked for, and the epsilon that each way pays for it. `paper` is the noise reduction of 2017 as its authors' code does it."
    columns = [
        "table, excess risk",
        "expost",
        "oracle",
        "paper",
        "theory, as printed",
        "paper / expost",
        "does zero meet it?",
    ]
    return Table(reading, columns, rows)


def zero_verdict(each: Any) -> str:
    """Say whether coefficients of zero meet a target, and which share of their excess risk is asked for."""
    if each["zero meets the target"]:
        return "**coefficients of zero already meet this target**"
    zero = each.get("excess risk of zero")
    return f"no: {100 * each['tolerance'] / zero:.0f} % of zero's excess risk is asked" if zero else "no"


def linear_penalties(numbers: Any) -> Table:
    """Small penalties."""
    rows = [
        [
            f"{each['table']}, penalty {each['penalty']:g}",
            *(
                plain(each[name]) if each[name] is not None else "not met"
                for name in ("objective", "certificate", "oracle")
            ),
            RATIO(each["objective"] / each["oracle"]) if each["objective"] and each["oracle"] else "",
        ]
        for each in numbers["rows"]
    ]
    reading = "Ridge regression to an excess risk of 0.01 with penalties that people use: prices rise where the penalty falls."
    return Table(reading, ["table and penalty", "expost, tilt", "expost, certificate", "oracle", "tilt / oracle"], rows)


def newton_left(numbers: Any) -> Table:
    """Newton steps next to gradient steps."""
    by_way: dict[tuple[str, int], dict[float, list[float]]] = {}
    for each in numbers:
        left = by_way.setdefault((each["solver"], each["steps"]), {})
        left.setdefault(each["epsilon"], []).extend(each["left"])
    levels = sorted({each["epsilon"] for each in numbers})
    rows = [
        [f"{solver}, {steps} steps", *(Measured.within(statistics.fmean(left[level]), 0.05) for level in levels)]
        for (solver, steps), left in by_way.items()
    ]
    reading = "The mean share of the possible gain that is left, over made-up and real tables: 0 is the best model, 1 the trivial one."
    return Table(reading, ["solver", *(f"epsilon {level:g}" for level in levels)], rows)


def mnist_runs(numbers: Any) -> Table:
    """MNIST on fixed features."""
    rows = []
    found = numbers["mnist"]
    for epsilon in sorted({round(run["epsilon"], 4) for run in found["fixed"]}):
        runs = [run for run in found["fixed"] if round(run["epsilon"], 4) == epsilon]
        rows.append(_mnist_row(f"fixed epsilon {epsilon:g}", runs, 0.95))
    for target in (name for name in found if name != "fixed"):
        for kind, name in (("aimed", "accuracy first, private tests"), ("public", "accuracy first, public rows")):
            rows.append(_mnist_row(f"{name}, {target}", found[target][kind], float(target)))
    reading = "A softmax on fixed features, delta 1e-5. A fixed epsilon does not tell anybody that the target is met; accuracy first does."
    return Table(reading, ["training", "epsilon", "test accuracy", "runs that have 0.95"], rows)


def network_runs(numbers: Any) -> Table:
    """MNIST by a small convolutional network."""
    rows = []
    for kind, name in (
        ("fixed", "fixed epsilon"),
        ("aimed", "accuracy first, private tests"),
        ("public", "accuracy first, public rows"),
    ):
        if numbers.get(kind):
            rows.append(_mnist_row(name, numbers[kind], 0.95))
    return Table(
        "A small convolutional network, delta 1e-5.",
        ["training", "epsilon", "test accuracy", "runs that have 0.95"],
        rows,
    )


def _mnist_row(name: str, runs: list[Any], target: float) -> list[Any]:
    scores = [run["accuracy"] for run in runs]
    return [
        name,
        Measured.of_runs([run["epsilon"] for run in runs], 3),
        f"{statistics.median(scores):.3f} ({min(scores):.3f} to {max(scores):.3f})",
        f"{sum(score >= target for score in scores)} of {len(runs)}",
    ]
