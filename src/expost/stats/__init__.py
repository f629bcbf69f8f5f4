"""Statistics of a table: counts, sums, means, quantiles and their relatives."""

from expost.stats.column_statistic import Mean, StandardDeviation, Sum, Variance
from expost.stats.column_summary import Summary
from expost.stats.count import ContingencyTable, Count, CountByPrivateKeys, CountDistinct, Histogram, TopK
from expost.stats.covariance import Covariance
from expost.stats.gradual_release import ReleaseCache
from expost.stats.pick import MostCommon
from expost.stats.private_bounds import ApproximateBounds, PrivatelyBounded
from expost.stats.private_keys import ByPrivateKeys, PrivateKeys, private_keys_in
from expost.stats.quantile import Median, Quantile, Quantiles
from expost.stats.table_release import Group, GroupRelease, Groups

__all__ = [
    "ApproximateBounds",
    "ByPrivateKeys",
    "ContingencyTable",
    "Count",
    "CountByPrivateKeys",
    "CountDistinct",
    "Covariance",
    "Group",
    "GroupRelease",
    "Groups",
    "Histogram",
    "Mean",
    "Median",
    "MostCommon",
    "PrivateKeys",
    "PrivatelyBounded",
    "Quantile",
    "Quantiles",
    "ReleaseCache",
    "StandardDeviation",
    "Sum",
    "Summary",
    "TopK",
    "Variance",
    "private_keys_in",
]
