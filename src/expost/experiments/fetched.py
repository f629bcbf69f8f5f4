"""KDD Cup 99 over the network, through scikit-learn: the only download of the package, and only when asked for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import fetch_kddcup99, get_data_home

from expost.core import InvalidRequest
from expost.experiments.tables import KDD_FILE, data_folder, has_table

__all__ = ["fetch_kdd"]

_ROWS, _NORMAL = 494_021, 97_278  # of the 10 % file, as its publisher counts them

Fetcher = Callable[..., tuple[Any, Any]]


def fetch_kdd(data: str | Path | None = None, *, fetcher: Fetcher = fetch_kddcup99) -> Path:
    """The folder of data, with KDD Cup 99 (the 10 % file) in it; downloads it where it is missing.

    Without a folder it goes where scikit-learn keeps its data sets. ``fetcher`` is called as scikit-learn's
    ``fetch_kddcup99(percent10=True, return_X_y=True)``, which checks the download against its published checksum.

    >>> def offline(**options):
    ...     raise OSError
    >>> fetch_kdd(fetcher=offline)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected scikit-learn to download KDD Cup 99. Check the connection, or get kddcup.data_10_percent.gz by other means and pass its folder with --data.
    """
    given = data_folder(data)
    folder = given or Path(get_data_home()) / "expost"
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
    """42 columns in the order of the published file; words as text."""
    if len(labels) != _ROWS or np.sum(np.asarray(labels) == b"normal.") != _NORMAL:
        raise InvalidRequest(
            f"Expected scikit-learn's KDD Cup 99 to have {_ROWS} rows, {_NORMAL} of them normal",
            do="Empty scikit-learn's data folder and fetch again",
        )
    columns = [*np.asarray(features, dtype=object).T, np.asarray(labels, dtype=object)]
    return pa.table({f"f{place}": _plain(column) for place, column in enumerate(columns)})


def _plain(column: Any) -> pa.Array:
    """Numbers as float64, bytes as text."""
    if isinstance(column[0], bytes):
        return pa.array(np.char.decode(column.astype(bytes), "ascii"))
    return pa.array(column.astype(np.float64))
