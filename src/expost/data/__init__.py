"""Any table, its public description, and exact totals that stay sealed."""

from expost.data.dataset import Dataset
from expost.data.schema import Kind, Schema

__all__ = ["Dataset", "Kind", "Schema"]
