"""How values and intervals are read off noisy coordinates."""

from expost.stats.readers.combination import CombinationReader
from expost.stats.readers.contract import Reader
from expost.stats.readers.mean import CentredMeanReader, MeanReader
from expost.stats.readers.total import TotalReader
from expost.stats.readers.variance import DeviationReader, SquareMeanReader, VarianceReader

__all__ = [
    "CentredMeanReader",
    "CombinationReader",
    "DeviationReader",
    "MeanReader",
    "Reader",
    "SquareMeanReader",
    "TotalReader",
    "VarianceReader",
]
