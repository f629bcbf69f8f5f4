"""The clauses after a statement that say how accurate it must be, or what it may cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from expost.sql.refusal import SourceText

__all__ = ["FORMS", "AccuracyClauses", "Tolerance", "Word", "read_clauses"]

_STARTS = {
    ("ERROR", "WITHIN"): "within",
    ("AT", "CONFIDENCE"): "confidence",
    ("AT", "MOST"): "max_epsilon",
    ("WITH", "EPSILON"): "epsilon",
    ("WITH", "DELTA"): "delta",
}
FORMS = "ERROR WITHIN 5%, AT CONFIDENCE 95%, WITH EPSILON 0.1, WITH DELTA 1e-6, AT MOST EPSILON 0.5"
"""The clauses, by example."""


_NUMBER = re.compile(r"(?=.{1,30}$)(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?", re.ASCII)


class Word(NamedTuple):
    """A token of the statement with its place."""

    kind: Any
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An error allowed: a number, or a share of the answer.

    >>> Tolerance(Fraction(1, 20), relative=True).within
    '5%'
    """

    amount: Fraction
    relative: bool
    place: int = 0

    @property
    def within(self) -> float | str:
        """Return the error as statistics take it."""
        return f"{float(100 * self.amount):.12g}%" if self.relative else float(self.amount)


@dataclass(frozen=True, kw_only=True)
class AccuracyClauses:
    """What the clauses ask for; None for what they leave open. ``places`` says where each clause begins."""

    within: tuple[Tolerance, ...] = ()
    confidence: Fraction = Fraction(19, 20)
    epsilon: Fraction | None = None
    delta: Fraction | None = None
    max_epsilon: Fraction | None = None
    places: dict[str, int] = field(default_factory=dict)


def read_clauses(source: SourceText, words: Sequence[Word]) -> tuple[AccuracyClauses, int]:
    """Return what the clauses at the end of a statement say, and the place in the text where they begin."""
    first = _find_first(words)
    if first is None:
        return AccuracyClauses(), len(source.text)
    found: dict[str, Any] = {}
    places: dict[str, int] = {}
    place = first
    while place < len(words):
        if words[place].kind == TokenType.SEMICOLON and place == len(words) - 1:
            break
        name = _clause_at(words, place)
        if name is None:
            source.refuse(words[place].start, "a clause of accuracy or the end", do=f"The clauses are: {FORMS}")
        if name in places:
            source.refuse(words[place].start, "each clause once", do="Leave one of them out")
        places[name] = words[place].start
        place += 2
        if name == "max_epsilon":
            if place >= len(words) or words[place].text.upper() != "EPSILON":
                source.refuse(_start_of(source, words, place), "EPSILON after AT MOST", do="Write AT MOST EPSILON 0.5")
            place += 1
        if name == "within":
            found[name], place = _read_tolerances(source, words, place)
        else:
            found[name], place = _read_amount(source, words, place, name)
    if "within" in found and "epsilon" in found:
        source.refuse(
            places["epsilon"],
            "either ERROR WITHIN or WITH EPSILON",
            do="Leave one of them out: AT MOST EPSILON is a cap",
        )
    if "epsilon" in found and "max_epsilon" in found:
        source.refuse(places["max_epsilon"], "no cap together with WITH EPSILON, which is the price", do="Leave it out")
    return AccuracyClauses(**found, places=places), words[first].start


def _clause_at(words: Sequence[Word], place: int) -> str | None:
    """Return the name of the clause that begins at a word."""
    pair = tuple(each.text.upper() for each in words[place : place + 2])
    return _STARTS.get(pair)  # type: ignore[arg-type]


def _find_first(words: Sequence[Word]) -> int | None:
    """Return the first word of the first clause outside parentheses. WITH epsilon AS (...) is a common table."""
    depth = 0
    for place, word in enumerate(words):
        depth += (word.kind == TokenType.L_PAREN) - (word.kind == TokenType.R_PAREN)
        if depth or word.kind == TokenType.STRING or _clause_at(words, place) is None:
            continue
        if place + 2 < len(words) and words[place + 2].text.upper() in ("AS", "("):
            continue
        return place
    return None


def _start_of(source: SourceText, words: Sequence[Word], place: int) -> int:
    return words[place].start if place < len(words) else len(source.text)


def _read_number(source: SourceText, words: Sequence[Word], place: int, example: str) -> tuple[Tolerance, int]:
    """Read a number, perhaps with a percent sign."""
    start = _start_of(source, words, place)
    if place >= len(words) or words[place].kind != TokenType.NUMBER:
        source.refuse(start, "a number", do=f"Write {example}")
    # A long exponent would take all memory: 1e-999999999 is a fraction with as many digits.
    amount = Fraction(words[place].text) if _NUMBER.fullmatch(words[place].text) else None
    if amount is None or not 0 < amount < 10**18 or amount < Fraction(1, 10**30):
        source.refuse(start, "a number above 0 of usual size", do=f"Write {example}")
    relative = place + 1 < len(words) and words[place + 1].text == "%"
    return Tolerance(amount / 100 if relative else amount, relative, start), place + 1 + relative


def _read_tolerances(source: SourceText, words: Sequence[Word], place: int) -> tuple[tuple[Tolerance, ...], int]:
    """Read one error, or one per column."""
    found: list[Tolerance] = []
    while True:
        tolerance, place = _read_number(source, words, place, "ERROR WITHIN 5%, or ERROR WITHIN 3, 100")
        if tolerance.relative and tolerance.amount >= 1:
            source.refuse(tolerance.place, "a share below 100%", do="Write ERROR WITHIN 5%")
        found.append(tolerance)
        if place >= len(words) or words[place].kind != TokenType.COMMA:
            return tuple(found), place
        place += 1


def _read_amount(source: SourceText, words: Sequence[Word], place: int, name: str) -> tuple[Fraction, int]:
    """Read the number of another clause."""
    examples = {
        "confidence": "AT CONFIDENCE 95%",
        "epsilon": "WITH EPSILON 0.1",
        "delta": "WITH DELTA 1e-6",
        "max_epsilon": "AT MOST EPSILON 0.5",
    }
    found, after = _read_number(source, words, place, examples[name])
    if found.relative and name != "confidence":
        source.refuse(found.place, "a number without %", do=f"Write {examples[name]}")
    if name in ("confidence", "delta") and found.amount >= 1:
        source.refuse(found.place, "a probability below 1", do=f"Write {examples[name]}")
    return found.amount, after
