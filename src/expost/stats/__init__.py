"""Questions with one answer: counts, sums, means and their relatives."""

from expost.stats.count import Count

__all__ = ["Count"]
