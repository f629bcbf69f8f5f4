"""Refusals of a statement: the place in its text, the reason, and the nearest thing that works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlglot import exp

from expost.core import InvalidRequest

__all__ = ["Node", "SourceText", "check_arguments", "find_place"]

Node = Any
"""A part of a syntax tree: the parser's own types say too little about its parts."""

_BEFORE, _SHOWN = 50, 90  # characters of a line that an error shows before the place, and in all
_FAR = 1 << 60
_PATTERN = "Write x LIKE 'A%', or STARTS_WITH(x, 'A')"
_PERIOD = "Write DATE_TRUNC('month', t), or YEAR(t) and MONTH(t)"
_TODAY = "Write the time itself: TIMESTAMP '2024-01-31 12:30:00'"
_BETWEEN = "Compare with a constant: t > DATE '2024-01-31' - INTERVAL 30 DAY"
_ORDERED = "Write QUANTILE_CONT(x, 0.5), or MODE(x)"
_TRUE = "Count: SUM(CASE WHEN c THEN 1 ELSE 0 END) > 0"
_ONE = "Ask one statement for each grouping"
_PRODUCT = "Write x * x, or add the column to the table before it is described"
_COLUMN = "Add the column to the table before it is described"
_NEAREST = {
    **dict.fromkeys(("REGEXPLIKE", "REGEXPILIKE", "SIMILARTO", "REGEXPEXTRACT", "STRPOSITION", "GLOB"), _PATTERN),
    **dict.fromkeys(("TIMETOSTR", "DATEFORMAT", "YEARWEEK", "MONTHNAME", "LASTDAY"), _PERIOD),
    **dict.fromkeys(("CURRENTDATE", "CURRENTTIMESTAMP", "CURRENTTIME", "NOW"), _TODAY),
    **dict.fromkeys(("DATEDIFF", "TSORDSADD", "DATEADD", "DATESUB", "AGE", "TIMESTAMPDIFF", "INTERVAL"), _BETWEEN),
    **dict.fromkeys(("FIRST", "LAST", "ANYVALUE", "MAD", "FIRSTVALUE", "LASTVALUE"), _ORDERED),
    **dict.fromkeys(("LOGICALOR", "LOGICALAND", "BOOLOR", "BOOLAND"), _TRUE),
    **dict.fromkeys(("CUBE", "ROLLUP", "GROUPINGSETS"), _ONE),
    **dict.fromkeys(("LN", "LOG", "EXP", "SQRT", "SIGN", "REPLACE", "CBRT"), _COLUMN),
    "POW": _PRODUCT,
    "TUPLE": "Write a = 1 AND b = 2",
    "ANY": "Write x IN (1, 2)",
    "ARRAY": "Ask for one value at a time",
    "BYTESTRING": "Write the text in plain quotes",
    "ATTIMEZONE": "Times are those of UTC: compare with TIMESTAMP '2024-01-31 12:30:00'",
    "APPROXDISTINCT": "Write COUNT(DISTINCT id) of the unit's id",
    "REGRSLOPE": "Write COVAR_POP(y, x) / VAR_POP(x)",
    "DAYNAME": "Write EXTRACT(ISODOW FROM t)",
    "BROUND": "Write ROUND(x)",
}
"""What comes nearest to functions and operators outside the subset, by the parser's names of them."""


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
        raise self.refusal(place, f"Expected {expected}", do=do, got=got)

    def refusal(self, place: int | Node, sentence: str, *, do: str = "", got: object = ...) -> InvalidRequest:
        """Return an error whose first sentence is given."""
        position = find_place(place) if not isinstance(place, int) else place
        position = min(max(position, 0), len(self.text))
        start = self.text.rfind("\n", 0, position) + 1
        end = self.text.find("\n", position)
        line = self.text[start : len(self.text) if end < 0 else end]
        first = max(position - start - _BEFORE, 0)
        shown = "".join(sign if sign.isprintable() else " " for sign in line[first : first + _SHOWN])
        hint = "" if not do else f"{do} " if do.endswith(("?", ".")) else f"{do}. "
        mark = f"{hint}Look at the mark:\n    {shown}\n    {' ' * (position - start - first)}^"
        return InvalidRequest(sentence, got=got, do=mark)

    def refuse_function(self, node: Node, expected: str, *, do: str, known: bool = True) -> NoReturn:
        """Raise an error about a function or operator, with what is nearest to it; ``do`` if nothing is ``known``."""
        named = str(node.this) if isinstance(node, exp.Anonymous) else node.key.upper()
        start = node.meta.get("start")
        if start is None and isinstance(node, exp.Func) and not isinstance(node.parent, exp.Func | exp.Paren | exp.In):
            # The parser keeps no place of a function with a second name: it is what stands before the first argument.
            before = re.search(r"[^\W\d]\w*\s*\(\s*$", self.text[: find_place(node)])
            start = None if before is None else before.start()
        written = None if start is None else re.match(r"[^\W\d]\w*(?=\s*\()", self.text[start:])
        hint = _NEAREST.get(named.upper().replace("_", ""), do) if known else do
        place = node if written is None else start
        self.refuse(place, expected, got=written[0] if written else named, do=hint)

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


def check_arguments(source: SourceText, node: Node, *known: str) -> None:
    """Refuse a part of the statement that has something that its translation would leave out."""
    for name, value in node.args.items():
        if name not in known and value not in (None, False, []):
            at = value if isinstance(value, exp.Expression) else node
            words = name.replace("_", " ").strip().upper()
            source.refuse(at, f"no {words} here", do="Leave it out: it would change what the statement means")
