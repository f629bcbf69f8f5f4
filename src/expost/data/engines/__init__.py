"""Engines: who reads the rows and runs a function over them."""

from expost.data.engines.arrow import ArrowEngine
from expost.data.engines.contract import ROWS_PER_BATCH, Engine
from expost.data.engines.parquet import ParquetEngine

__all__ = ["ROWS_PER_BATCH", "ArrowEngine", "Engine", "ParquetEngine"]
