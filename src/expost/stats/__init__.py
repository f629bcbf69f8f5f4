"""Questions with one answer: counts, sums, means and their relatives."""

from expost.stats.approximate_bounds import ApproximateBounds
from expost.stats.by_private_keys import ByPrivateKeys, private_keys_in
from expost.stats.count import Count, CountDistinct
from expost.stats.count_by_private_keys import CountByPrivateKeys
from expost.stats.covariance import Covariance
from expost.stats.groups import Group, GroupRelease, Groups
from expost.stats.histogram import ContingencyTable, Histogram
from expost.stats.kept import Shelf
from expost.stats.private_bounds import PrivatelyBounded
from expost.stats.private_keys import PrivateKeys
from expost.stats.quantile import Median, Quantile
from expost.stats.quantiles import Quantiles
from expost.stats.selection import MostCommon, TopK
from expost.stats.spread import StandardDeviation, Variance
from expost.stats.summary import Summary
from expost.stats.total import Mean, Sum

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
    "Shelf",
    "StandardDeviation",
    "Sum",
    "Summary",
    "TopK",
    "Variance",
    "private_keys_in",
]
