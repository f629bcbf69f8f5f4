"""Statements in SQL with an accuracy: read into a logical plan, and asked as the statistics of ``expost.stats``."""

from expost.sql.statement import Statement, read_statement
from expost.sql.statement_parser import DIALECTS
from expost.sql.statement_price import PricedPart, StatementPrice, describe_unit, price_parts

__all__ = ["DIALECTS", "PricedPart", "Statement", "StatementPrice", "describe_unit", "price_parts", "read_statement"]
