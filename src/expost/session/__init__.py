"""Session: questions and fits about one dataset, paid from one budget."""

from expost.session.price import Price
from expost.session.session import Session

__all__ = ["Price", "Session"]
