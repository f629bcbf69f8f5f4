"""How values and intervals are read off noisy coordinates."""

from expost.stats.readers.contract import Reader
from expost.stats.readers.mean import MeanReader
from expost.stats.readers.total import TotalReader
from expost.stats.readers.variance import DeviationReader, VarianceReader

__all__ = ["DeviationReader", "MeanReader", "Reader", "TotalReader", "VarianceReader"]
