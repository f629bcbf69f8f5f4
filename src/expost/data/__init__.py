"""Any table, its public description, and exact totals that stay sealed."""

from expost.data.canonical_cell import Kind
from expost.data.case_expression import when
from expost.data.clamp import Clamp
from expost.data.dataset import Dataset
from expost.data.expression import Expression, col
from expost.data.table_schema import Schema
from expost.data.unit_aggregate import UnitAggregate

__all__ = ["Clamp", "Dataset", "Expression", "Kind", "Schema", "UnitAggregate", "col", "when"]
