"""Refusals of a statement: the place in its text, the reason, and the nearest thing that works."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from expost.core import InvalidRequest

__all__ = ["Node", "SourceText", "find_place"]

Node = Any
"""A part of a syntax tree: the parser's own types say too little about its parts."""

_BEFORE, _SHOWN = 50, 90  # characters of a line that an error shows before the place, and in all
_FAR = 1 << 60


@dataclass(frozen=True, slots=True)
class SourceText:
    """A statement as it was written, to point into.

    >>> SourceText("SELECT 1").refuse(7, "a statistic", do="Write COUNT(*)")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a statistic. Write COUNT(*). Look at the mark:
    ...
    """

    text: str
    dialect: str = "duckdb"

    def refuse(self, place: int | Node, expected: str, *, do: str = "", got: object = ...) -> NoReturn:
        """Raise an error with a mark under a place of the text, which may be that of a part of the statement."""
        position = find_place(place) if not isinstance(place, int) else place
        position = min(max(position, 0), len(self.text))
        start = self.text.rfind("\n", 0, position) + 1
        end = self.text.find("\n", position)
        line = self.text[start : len(self.text) if end < 0 else end]
        first = max(position - start - _BEFORE, 0)
        shown = "".join(sign if sign.isprintable() else " " for sign in line[first : first + _SHOWN])
        hint = "" if not do else f"{do} " if do.endswith(("?", ".")) else f"{do}. "
        mark = f"{hint}Look at the mark:\n    {shown}\n    {' ' * (position - start - first)}^"
        raise InvalidRequest(f"Expected {expected}", got=got, do=mark)

    @contextmanager
    def point_at(self, node: Node) -> Iterator[None]:
        """Add the place to refusals of what a part of the statement stands for."""
        try:
            yield
        except InvalidRequest as error:
            expected, got, do = error._parts
            if "Look at the mark" in do:
                raise
            known: dict[str, Any] = {} if got is ... else {"got": got}
            self.refuse(node, expected.removeprefix("Expected "), do=do, **known)


def find_place(node: Node) -> int:
    """Return where a part of a statement begins: the first of its names, constants and functions that have a place."""
    found = min((each.meta.get("start", _FAR) for each in node.walk()), default=_FAR)
    above = node.parent
    while found == _FAR and above is not None:  # a keyword such as NULL has no place of its own
        found = min((each.meta.get("start", _FAR) for each in above.walk()), default=_FAR)
        above = above.parent
    return 0 if found == _FAR else found
