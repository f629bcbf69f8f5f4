"""The tables of the experiments: from files, fetched, or generated."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.datasets import fetch_kddcup99, get_data_home

from expost.core import InvalidRequest

__all__ = [
    "CARRIERS",
    "KDD_FILE",
    "LOADERS",
    "ORIGINS",
    "ExperimentTable",
    "available",
    "data_folder",
    "fetch_kdd",
    "generated_flights",
    "has_table",
    "load",
]

Floats = NDArray[np.float64]

KDD_FILE = "kddcup99_10pct.parquet"

_TWITTER_SHAPE = (583_250, 78)
_TWITTER_TARGET = {"mean": 191.279, "std": 612.352, "max": 75_724.5}  # as the data set's published summary gives them
_TWITTER_SUMMARY = "twitter_buzz_summary.csv"
_KDD_WORDS = (1, 2, 3)  # columns of words: protocol, service, flag
_KDD_HEAVY = (0, 4, 5)  # heavy-tailed columns: duration and bytes in either direction


@dataclass(frozen=True, eq=False)
class ExperimentTable:
    """Rows of 1-norm at most 1 with targets in [-1, 1], or labels -1 and 1."""

    name: str
    features: Floats
    target: Floats
    classification: bool

    @property
    def rows(self) -> int:
        return len(self.target)

    @property
    def width(self) -> int:
        return int(self.features.shape[1])


def data_folder(given: str | Path | None) -> Path | None:
    """Find where to look for data: the folder given, else the one that EXPOST_DATA names."""
    folder = given if given is not None else os.environ.get("EXPOST_DATA")
    if folder is not None and not Path(folder).is_dir():
        wanted = "Expected --data to be a folder"
        raise InvalidRequest(wanted, got=str(folder), do="Pass the folder that holds the files")
    return None if folder is None else Path(folder)


def available(folder: Path | None) -> tuple[str, ...]:
    """List the tables that can be had, ridge first: the paper's own if present, else stand-ins, else made-up ones."""
    found = {name for name in LOADERS if has_table(name, folder)}
    if "Twitter" in found:
        found -= {"flights", "BlogFeedback"}
    names = [name for name in LOADERS if name in found]
    if not found & {"Twitter", "flights", "BlogFeedback"}:
        names.insert(0, "made-up regression")
    if "KDD 99" not in found:
        names.append("made-up classification")
    return tuple(names)


def load(name: str, folder: Path | None, *, rows: int = 100_000, seed: int = 2017) -> ExperimentTable:
    """Load one of the tables, as a random sample of at most this many rows.

    >>> table = load("made-up regression", None, rows=500)
    >>> table.rows, float(np.abs(table.features).sum(axis=1).max()) <= 1
    (500, True)
    """
    features, target, classification = LOADERS[name][1](_file(name, folder) or Path(str(rows)))
    chosen = np.arange(len(target))
    if len(target) > rows:
        chosen = np.random.default_rng(seed).choice(len(target), rows, replace=False)
    features = features / np.abs(features).sum(axis=1).max()
    target = target / np.abs(target).max()
    return ExperimentTable(name, features[chosen], target[chosen], classification)


def has_table(name: str, folder: Path | None) -> bool:
    """Check whether the folder holds one of the files that the table may be in."""
    return _file(name, folder) is not None


def _file(name: str, folder: Path | None) -> Path | None:
    """Find where a table is, if it is there."""
    places = [folder / file for file in LOADERS[name][0]] if folder else []
    return next((place for place in places if place.exists()), None)


def _kdd(path: Path) -> tuple[Floats, Floats, bool]:
    """Read 41 features and a label; three columns of words are left out, three heavy tails are drawn in."""
    table = pq.read_table(path) if path.suffix == ".parquet" else _read_csv(path)
    label = np.where(table.column(41).to_numpy() == "normal.", -1.0, 1.0)
    kept = {place: _number(table.column(place)) for place in range(41) if place not in _KDD_WORDS}
    features = [np.log1p(column) if place in _KDD_HEAVY else column for place, column in kept.items()]
    return np.column_stack(features), label, True


def _read_csv(path: Path) -> pa.Table:
    """Read a file without a header, compressed or not."""
    return pa.csv.read_csv(path, read_options=pa.csv.ReadOptions(autogenerate_column_names=True))


def _twitter(path: Path) -> tuple[Floats, Floats, bool]:
    """Read 77 features and the mean number of active discussions, checked against the published summary of the data set."""
    use = "Use the regression file of the UCI data set 'Buzz in social media'"
    try:
        values = np.column_stack([_number(column) for column in _read_csv(path).columns])
    except pa.ArrowInvalid:
        values = np.empty((0, 0))
    if values.shape != _TWITTER_SHAPE or not _has_target_of_twitter(values[:, -1]):
        rows, columns = _TWITTER_SHAPE
        wanted = f"Expected Twitter.data to be {rows} rows of {columns} numbers with the published target"
        raise InvalidRequest(wanted, do=use)
    published = path.parent / _TWITTER_SUMMARY
    if published.exists():
        table = pa.csv.read_csv(published)
        summary = np.column_stack([_number(table[name]) for name in ("mean", "min", "max")])
        found = np.column_stack([values.mean(axis=0), values.min(axis=0), values.max(axis=0)])
        if found.shape != summary.shape or not np.allclose(found, summary, rtol=1e-6, atol=1e-6):
            raise InvalidRequest(f"Expected the columns of Twitter.data to agree with {_TWITTER_SUMMARY}", do=use)
    return values[:, :-1], np.log1p(values[:, -1]), False


def _has_target_of_twitter(target: Floats) -> bool:
    found = {"mean": target.mean(), "std": target.std(ddof=1), "max": target.max()}
    return all(abs(found[name] - value) < 0.01 for name, value in _TWITTER_TARGET.items())


def _flights(path: Path) -> tuple[Floats, Floats, bool]:
    table = pq.read_table(path).drop_null()
    target = np.log1p(np.maximum(_number(table["arr_delay"]) + 60, 0))
    numbers = ("month", "day", "sched_dep_time", "dep_delay", "sched_arr_time", "distance", "hour", "air_time")
    columns = [np.ones(len(target)), *(_unit(_number(table[name])) for name in numbers)]
    for name in ("carrier", "origin"):
        words = table[name].to_numpy()
        columns += [(words == word).astype(float) for word in sorted(set(words))]
    return np.column_stack(columns), target, False


def _blog(path: Path) -> tuple[Floats, Floats, bool]:
    """Read the first 77 features that vary, as many as Twitter has, with heavy tails drawn in."""
    table = pq.read_table(path)
    columns = [_number(table[name]) for name in table.column_names if name not in ("source_file", "V281")]
    varied = [column for column in columns if column.std() > 0][:77]
    features = np.column_stack([np.sign(column) * np.log1p(np.abs(column)) for column in varied])
    return features, np.log1p(_number(table["V281"])), False


def _made_up_regression(count: Path) -> tuple[Floats, Floats, bool]:
    generator, rows, width = np.random.default_rng(77), int(str(count)), 20
    activity = generator.gamma(0.7, 1.0, size=(rows, 1))
    features = np.log1p(activity * generator.gamma(0.8, 2.0, size=(rows, width)))
    target = np.log1p(activity[:, 0] * generator.gamma(2.0, 4.0, size=rows))
    return features, target, False


def _made_up_classification(count: Path) -> tuple[Floats, Floats, bool]:
    generator, rows, width = np.random.default_rng(38), int(str(count)), 12
    label = np.where(generator.random(rows) < 0.7, 1.0, -1.0)
    center = generator.random((2, width)) ** 3
    features = np.round(generator.poisson(8 * center[(label > 0).astype(int)]))
    return features + 0.0, label, True


def _number(column: pa.ChunkedArray) -> Floats:
    return np.asarray(pc.cast(column, pa.float64()).to_numpy(), dtype=np.float64)


def _unit(values: Floats) -> Floats:
    shifted = values - values.min()
    return np.asarray(shifted / max(shifted.max(), 1.0))


LOADERS = {
    "Twitter": (("Twitter.data",), _twitter),
    "flights": (("nycflights13.parquet",), _flights),
    "BlogFeedback": (("blogfeedback.parquet",), _blog),
    "KDD 99": ((KDD_FILE, "kddcup.data_10_percent", "kddcup.data_10_percent.gz"), _kdd),
    "made-up regression": ((), _made_up_regression),
    "made-up classification": ((), _made_up_classification),
}
"""Each table's name, with the files it may be in, the first that exists being read, and how it is read."""


_ROWS, _NORMAL = 494_021, 97_278  # of the 10 % file, as its publisher counts them

Fetcher = Callable[..., tuple[Any, Any]]


def fetch_kdd(data: str | Path | None = None, *, fetcher: Fetcher = fetch_kddcup99) -> Path:
    """Return the folder of data, with KDD Cup 99 (the 10 % file) in it; downloads it where it is missing.

    Without a folder it goes where scikit-learn keeps its data sets. ``fetcher`` is called as scikit-learn's
    ``fetch_kddcup99(percent10=True, return_X_y=True)``, which checks the download against its published checksum.
    """
    folder = data_folder(data) or Path(get_data_home()) / "expost"
    if has_table("KDD 99", folder):
        return folder
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn warns at every new attempt
            features, labels = fetcher(percent10=True, return_X_y=True)
    except OSError as error:  # no connection, no such address, a wrong checksum
        raise InvalidRequest(
            "Expected scikit-learn to download KDD Cup 99",
            do="Check the connection, or get kddcup.data_10_percent.gz by other means and pass its folder with --data",
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    table = _as_published(features, labels)
    partial = folder / f"{KDD_FILE}.partial"
    pq.write_table(table, partial)
    partial.replace(folder / KDD_FILE)
    return folder


def _as_published(features: Any, labels: Any) -> pa.Table:
    """Arrange 42 columns in the order of the published file: numbers as float64, words as text."""
    if len(labels) != _ROWS or np.sum(np.asarray(labels) == b"normal.") != _NORMAL:
        raise InvalidRequest(
            f"Expected scikit-learn's KDD Cup 99 to have {_ROWS} rows, {_NORMAL} of them normal",
            do="Empty scikit-learn's data folder and fetch again",
        )
    table = {}
    for place, column in enumerate([*np.asarray(features, dtype=object).T, np.asarray(labels, dtype=object)]):
        words = isinstance(column[0], bytes)
        table[f"f{place}"] = np.char.decode(column.astype(bytes), "ascii") if words else column.astype(np.float64)
    return pa.table(table)


CARRIERS = ["AA", "B6", "DL", "EV", "MQ", "UA", "US", "WN"]
ORIGINS = ["EWR", "JFK", "LGA"]


def generated_flights(rows: int = 100_000, *, seed: int = 13) -> pa.Table:
    """Generate a table of flights: who flew, from where, how far, how late.

    >>> generated_flights(3).column_names
    ['tailnum', 'carrier', 'origin', 'month', 'hour', 'distance', 'dep_delay', 'arr_delay']
    """
    generator = np.random.default_rng(seed)
    popularity = 1 / np.arange(1, len(CARRIERS) + 1)
    carrier = generator.choice(len(CARRIERS), size=rows, p=popularity / popularity.sum())
    hour = generator.integers(5, 24, size=rows)
    distance = np.round(generator.gamma(4.0, 260.0, size=rows)).clip(80, 5000)
    late = generator.random(rows) < 0.15 + 0.015 * (hour - 5)
    departure = np.round(np.where(late, generator.gamma(1.2, 38.0, size=rows), generator.normal(-4, 4, size=rows)))
    arrival = np.round(departure - 0.002 * distance + 0.8 * carrier + generator.normal(-3, 14, size=rows))
    return pa.table(
        {
            "tailnum": np.char.add("N", generator.integers(1000, 1000 + max(rows // 80, 1), size=rows).astype(str)),
            "carrier": np.asarray(CARRIERS)[carrier],
            "origin": np.asarray(ORIGINS)[generator.choice(3, size=rows, p=[0.36, 0.33, 0.31])],
            "month": generator.integers(1, 13, size=rows),
            "hour": hour,
            "distance": distance,
            "dep_delay": departure.clip(-40, 1300),
            "arr_delay": arrival.clip(-90, 1300),
        }
    )
