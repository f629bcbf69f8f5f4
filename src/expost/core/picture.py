"""A seam for drawings: the words do not know who draws them."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from expost.core.errors import InvalidRequest, MissingExtra

__all__ = ["draw"]

_GROUP = "expost.pictures"


def draw(kind: str, subject: Any, **options: Any) -> Any:
    """Draw ``subject`` with whatever is installed under this kind in the entry points ``expost.pictures``.

    >>> draw("no such picture", None)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a known kind of picture, got 'no such picture'. Install a package ...
    """
    for point in entry_points(group=_GROUP, name=kind):
        try:
            artist = point.load()
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("expost"):
                raise
            raise MissingExtra("plots", package=error.name or "matplotlib") from None
        return artist(subject, **options)
    raise InvalidRequest(
        "Expected a known kind of picture", got=kind, do=f"Install a package that offers it in the group {_GROUP}"
    )
