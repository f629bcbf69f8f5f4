"""Engines: each reads the rows of one kind of source. ``docs/howto/plug-in-an-engine.md`` shows how to add one."""

from expost.data.engines.arrow_engine import ArrowEngine
from expost.data.engines.engine import ROWS_PER_BATCH, Engine
from expost.data.engines.parquet_engine import ParquetEngine

__all__ = ["ROWS_PER_BATCH", "ArrowEngine", "Engine", "ParquetEngine"]
