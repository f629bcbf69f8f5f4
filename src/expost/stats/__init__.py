"""Questions with one answer: counts, sums, means and their relatives."""

from expost.stats.count import Count, CountDistinct
from expost.stats.groups import Group, GroupRelease, Groups
from expost.stats.histogram import ContingencyTable, Histogram
from expost.stats.spread import Covariance, StandardDeviation, Variance
from expost.stats.total import Mean, Sum

__all__ = [
    "ContingencyTable",
    "Count",
    "CountDistinct",
    "Covariance",
    "Group",
    "GroupRelease",
    "Groups",
    "Histogram",
    "Mean",
    "StandardDeviation",
    "Sum",
    "Variance",
]
