"""Answers the questions of benchmarks/peers.py with one library; runs in any Python that has NumPy and that library.

    python benchmarks/peer_worker.py PEER DATA.npz

Reads one question a line from standard input and answers with a line of JSON: seconds, and the answer as a list of numbers.
A library that lacks something says so in the first line, which otherwise carries its version.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

Questions = dict[str, Callable[[], Any]]


def numpy_questions(data: dict) -> Questions:
    delays, facts = data["delays"], data["facts"]
    return {
        "count": lambda: np.count_nonzero(delays > facts["late"]),
        "mean": lambda: np.clip(delays, facts["low"], facts["high"]).mean(),
        "histogram": lambda: np.histogram(delays, data["edges"])[0],
        "median": lambda: np.median(np.clip(delays, facts["low"], facts["high"])),
    }


def duckdb_questions(data: dict) -> Questions:
    import duckdb
    import pyarrow as pa

    facts, connection = data["facts"], duckdb.connect()
    connection.execute("SET threads = 1")
    connection.register("flights", pa.table({"delay": data["delays"]}))
    clipped = f"least(greatest(delay, {facts['low']}), {facts['high']})"
    width = (facts["high"] - facts["low"]) / (len(data["edges"]) - 1)

    def rows(sql: str) -> list:
        return connection.execute(sql).fetchall()

    def histogram() -> list[int]:
        cell = f"least(floor((delay - {facts['low']}) / {width})::INT, {len(data['edges']) - 2})"
        within = f"delay BETWEEN {facts['low']} AND {facts['high']}"
        found = dict(rows(f"SELECT {cell}, count(*) FROM flights WHERE {within} GROUP BY 1"))
        return [found.get(each, 0) for each in range(len(data["edges"]) - 1)]

    return {
        "count": lambda: rows(f"SELECT count(*) FROM flights WHERE delay > {facts['late']}")[0][0],
        "mean": lambda: rows(f"SELECT avg({clipped}) FROM flights")[0][0],
        "histogram": histogram,
        "median": lambda: rows(f"SELECT median({clipped}) FROM flights")[0][0],
    }


def scikit_learn_questions(data: dict) -> Questions:
    from sklearn.linear_model import LogisticRegression

    facts = data["facts"]
    model = {"C": 1 / (facts["penalty"] * len(data["labels"])), "fit_intercept": False, "tol": 1e-8}
    return {"logistic": lambda: LogisticRegression(**model).fit(data["features"], data["labels"]).coef_[0]}


def diffprivlib_questions(data: dict) -> Questions:
    from diffprivlib import tools
    from diffprivlib.models import LogisticRegression

    warnings.simplefilter("ignore")
    delays, facts = data["delays"], data["facts"]
    epsilon, bounds = facts["epsilon"], (facts["low"], facts["high"])
    model = {"C": 1 / (facts["penalty"] * len(data["labels"])), "fit_intercept": False, "data_norm": 1.0}
    return {
        "count": lambda: tools.count_nonzero(delays > facts["late"], epsilon=epsilon),
        "mean": lambda: tools.mean(delays, epsilon=epsilon, bounds=bounds),
        "histogram": lambda: tools.histogram(delays, epsilon=epsilon, bins=data["edges"])[0],
        "median": lambda: tools.median(delays, epsilon=epsilon, bounds=bounds),
        "logistic": lambda: (
            LogisticRegression(epsilon=facts["model_epsilon"], **model).fit(data["features"], data["labels"]).coef_[0]
        ),
    }


def opendp_questions(data: dict) -> Questions:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    delays, facts, edges = data["delays"], data["facts"], data["edges"]
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
    cells, grid = list(range(len(edges) + 1)), np.arange(facts["low"], facts["high"] + 1).tolist()

    def release(values: np.ndarray, make: Callable[[float], dp.Measurement]) -> object:
        return dp.binary_search_chain(make, d_in=1, d_out=facts["epsilon"])(values)

    def noisy(steps: dp.Transformation) -> Callable[[float], dp.Measurement]:
        return lambda scale: steps >> dp.m.then_laplace(scale)

    bounds = (facts["low"], facts["high"])
    counting = space >> dp.t.then_count()
    meaning = space >> dp.t.then_clamp(bounds) >> dp.t.then_resize(size=len(delays), constant=0.0) >> dp.t.then_mean()
    binning = (
        space
        >> dp.t.then_find_bin(edges=edges.tolist())
        >> dp.t.then_count_by_categories(categories=cells, null_category=False)
    )

    def quantile(scale: float) -> dp.Measurement:
        return space >> dp.m.then_private_quantile(dp.max_divergence(), candidates=grid, alpha=0.5, scale=scale)

    return {
        "count": lambda: release(delays[delays > facts["late"]], noisy(counting)),
        "mean": lambda: release(delays, noisy(meaning)),
        "histogram": lambda: release(delays, noisy(binning))[1:-1],
        "median": lambda: release(delays, quantile),
    }


def expost_questions(data: dict) -> Questions:
    import pyarrow as pa

    import expost

    delays, facts = data["delays"], data["facts"]
    table = pa.table({"delay": delays})

    def session() -> expost.Session:
        # A new one each time: a question that is asked again is answered from the record, for nothing.
        dataset = expost.Dataset(table, name="flights", bounds={"delay": (facts["low"], facts["high"])})
        return expost.Session(dataset, expost.epsilon(1))

    def model() -> np.ndarray:
        fit = expost.LogisticRegression(
            epsilon=facts["model_epsilon"], regularization=facts["penalty"], classes=(-1, 1), feature_bound=1.0
        )
        return fit.fit(data["features"], data["labels"]).coef_[0]

    epsilon = facts["epsilon"]
    return {
        "count": lambda: session().count(where=expost.col("delay") > facts["late"], epsilon=epsilon).value,
        "mean": lambda: session().mean("delay", epsilon=epsilon).value,
        "histogram": lambda: [
            row.value for row in session().histogram("delay", edges=data["edges"].tolist(), epsilon=epsilon).value.rows
        ],
        "median": lambda: session().median("delay", epsilon=epsilon).value,
        "logistic": model,
    }


PEERS = {
    "NumPy": ("numpy", numpy_questions),
    "DuckDB": ("duckdb", duckdb_questions),
    "scikit-learn": ("scikit-learn", scikit_learn_questions),
    "OpenDP": ("opendp", opendp_questions),
    "diffprivlib": ("diffprivlib", diffprivlib_questions),
    "expost": ("expost", expost_questions),
}


def read_data(path: str) -> dict:
    with np.load(path) as arrays:
        return {**arrays, "facts": json.loads(str(arrays["facts"]))}


def serve(peer: str, path: str) -> None:
    """Say hello, then answer questions until there are no more."""
    package, make = PEERS[peer]
    try:
        hello, questions = {"version": version(package)}, make(read_data(path))
    except ImportError as error:
        print(json.dumps({"missing": f"{type(error).__name__}: {error}"}), flush=True)
        return
    print(json.dumps(hello | {"questions": sorted(questions)}), flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        answer = questions[line.strip()]()
        seconds = time.perf_counter() - begin
        print(json.dumps({"seconds": seconds, "answer": np.ravel(answer).astype(float).tolist()}), flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
