"""Any table, its public description, and exact totals that stay sealed."""

from expost.data.canonical_cell import Kind
from expost.data.clamp import Clamp
from expost.data.dataset import Dataset
from expost.data.expression import Expression, col
from expost.data.table_schema import Schema

__all__ = ["Clamp", "Dataset", "Expression", "Kind", "Schema", "col"]
