"""Engines: who reads the rows and adds them up."""

from expost.data.engines.arrow import ArrowEngine
from expost.data.engines.contract import Engine
from expost.data.engines.parquet import ParquetEngine

__all__ = ["ArrowEngine", "Engine", "ParquetEngine"]
