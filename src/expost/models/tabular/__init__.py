"""Models of mixed tables: public declarations turn numbers, categories, flags and dates into features."""

from expost.models.tabular.column_declaration import read_columns
from expost.models.tabular.column_encoding import CategoryColumn, ColumnEncoding, FlagColumn, NumberColumn
from expost.models.tabular.date_column import DateColumn
from expost.models.tabular.promise_margin import PromiseMargin
from expost.models.tabular.table_encoder import TableEncoder
from expost.models.tabular.tabular_rows import RowChunk, TabularRows
from expost.models.tabular.tabular_source import encode_frame, table_dataset

__all__ = [
    "CategoryColumn",
    "ColumnEncoding",
    "DateColumn",
    "FlagColumn",
    "NumberColumn",
    "PromiseMargin",
    "RowChunk",
    "TableEncoder",
    "TabularRows",
    "encode_frame",
    "read_columns",
    "table_dataset",
]
