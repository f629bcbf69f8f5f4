"""The way of one answer, and the session on top of it."""

from expost.curator.answer import answer
from expost.curator.price import Price
from expost.curator.session import Session

__all__ = ["Price", "Session", "answer"]
