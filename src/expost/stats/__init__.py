"""Statistics of a table: counts, sums, means, quantiles and their relatives."""

import importlib
from typing import Any

from expost.stats.column_statistic import Mean, StandardDeviation, Sum, Variance
from expost.stats.column_summary import Summary
from expost.stats.correlation import Correlation
from expost.stats.count import (
    ContingencyTable,
    Count,
    CountByPrivateKeys,
    CountDistinct,
    CountOverTime,
    Histogram,
    TopK,
    ValueCounts,
)
from expost.stats.covariance import Covariance
from expost.stats.gradual_release import ReleaseCache
from expost.stats.pick import MostCommon
from expost.stats.private_bounds import ApproximateBounds, PrivatelyBounded
from expost.stats.private_keys import ByPrivateKeys, PrivateKeys, private_keys_in
from expost.stats.quantile import Median, Quantile, Quantiles
from expost.stats.ratio import Ratio
from expost.stats.table_release import Group, GroupRelease, Groups
from expost.stats.window_count import Cumulative, Moving

__all__ = [
    "ApproximateBounds",
    "ByPrivateKeys",
    "ContingencyTable",
    "Correlation",
    "Count",
    "CountByPrivateKeys",
    "CountDistinct",
    "CountOverTime",
    "Covariance",
    "Cumulative",
    "Group",
    "GroupRelease",
    "Groups",
    "Histogram",
    "Mean",
    "Median",
    "MostCommon",
    "Moving",
    "PrivateKeys",
    "PrivatelyBounded",
    "Quantile",
    "Quantiles",
    "Ratio",
    "ReleaseCache",
    "StandardDeviation",
    "Sum",
    "Summary",
    "TopK",
    "ValueCounts",
    "Variance",
    "private_keys_in",
]


def __getattr__(name: str) -> Any:
    if name == "hypothesis":  # its tests are loaded on first use
        return importlib.import_module("expost.stats.hypothesis")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
