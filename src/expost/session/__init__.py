"""Session: statistics and fits about one dataset, paid from one budget."""

from expost.session.price_quote import PriceCurve, PriceQuote
from expost.session.session import Session

__all__ = ["PriceCurve", "PriceQuote", "Session"]
