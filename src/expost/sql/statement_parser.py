"""Read the text of a statement: its accuracy clauses by hand, the SELECT by sqlglot."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from expost.core import InvalidRequest
from expost.core.argument import suggest_name
from expost.sql.accuracy_clause import FORMS, AccuracyClauses, Word, read_clauses
from expost.sql.refusal import Node, SourceText

__all__ = ["DIALECTS", "ParsedStatement", "parse_statement"]

DIALECTS = ("duckdb", "postgres", "spark")
"""The dialects of SQL in which a statement may be written."""

_LONGEST = 20_000  # signs of a statement
_DEEPEST = 40  # parentheses inside each other
_EXPLAIN = re.compile(r"\s*explain\s+price\b", re.IGNORECASE)
logging.getLogger("sqlglot").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class ParsedStatement:
    """A statement: its syntax tree, what its clauses ask for, and whether only its price is asked for.

    ``question`` is the statement without its clauses, in one line.
    """

    source: SourceText
    tree: Node
    clauses: AccuracyClauses
    explain: bool
    question: str
    words: tuple[Word, ...] = ()

    def written_columns(self) -> list[str]:
        """Return the columns of the SELECT as they were written, each in one line.

        >>> parse_statement("WITH v AS (SELECT 1) SELECT DISTINCT a, MAX( b , 2 ) FROM v").written_columns()
        ['a', 'MAX( b , 2 )']
        """
        found: list[list[Word]] = []
        depth = 0
        for word in self.words:
            opens, closes = word.kind in _OPENING, word.kind in _CLOSING
            depth -= closes
            if not depth and not closes and word.kind in (TokenType.SELECT, TokenType.DISTINCT, TokenType.COMMA):
                found = [*found, []] if word.kind == TokenType.COMMA else [[]]
            elif not depth and word.kind in (TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY) and found:
                break
            elif found:
                found[-1].append(word)
            depth += opens
        return [_one_line(self.source.text, words) for words in found]


def parse_statement(text: str, *, dialect: str = "duckdb") -> ParsedStatement:
    """Parse one statement. Whatever the text, the result is a SELECT or a refusal.

    >>> parse_statement("EXPLAIN PRICE SELECT COUNT(*) FROM t ERROR WITHIN 5%").question
    'SELECT COUNT(*) FROM t'
    """
    if not isinstance(text, str):
        raise InvalidRequest(
            "Expected a statement as a text", got=text, do='Pass "SELECT COUNT(*) FROM t WITH EPSILON 1"'
        )
    if dialect not in DIALECTS:
        raise InvalidRequest(
            f"Expected one of {', '.join(DIALECTS)}",
            got=dialect,
            do=suggest_name(dialect, DIALECTS) or "Name one of them",
        )
    source = SourceText(text, dialect)
    if len(text) > _LONGEST:
        raise InvalidRequest(f"Expected a statement of at most {_LONGEST} signs", do="Use views: session.view(...)")
    strange = next((place for place, sign in enumerate(text) if sign == "\0" or "\ud800" <= sign <= "\udfff"), None)
    if strange is not None:
        source.refuse(strange, "whole characters without NUL", do="Leave it out")
    priced = _EXPLAIN.match(text)
    start = priced.end() if priced else 0
    tokens = _split_tokens(source, start)
    words = [Word(token.token_type, token.text, token.start, token.end) for token in tokens]
    if not words:
        source.refuse(start, "a statement", do="Write SELECT COUNT(*) FROM t ERROR WITHIN 5%")
    if words[0].text.upper() == "EXPLAIN":
        source.refuse(words[0].start, "EXPLAIN PRICE", do="Write EXPLAIN PRICE SELECT COUNT(*) FROM t ERROR WITHIN 5%")
    if not words or words[0].text.upper() not in ("SELECT", "WITH", "FROM", "("):
        at = words[0].start if words else len(text)
        source.refuse(at, "SELECT, or WITH before it: tables are never changed", do="Write SELECT COUNT(*) FROM t")
    clauses, end = read_clauses(source, words)
    first = words[0].start
    stop = first + len(text[first:end].rstrip().removesuffix(";"))
    kept = [word for word in words if word.start < stop]
    tree = _parse_tree(source, tokens[: len(kept)], text[:stop])
    return ParsedStatement(source, tree, clauses, priced is not None, _one_line(text, kept), tuple(kept))


def _one_line(text: str, words: Sequence[Word]) -> str:
    """Return some words of a text with one blank wherever there was any space: line ends and comments go."""
    gaps = ["", *(" " if after.start > word.end + 1 else "" for word, after in itertools.pairwise(words))]
    return "".join(gap + text[word.start : word.end + 1] for gap, word in zip(gaps, words, strict=False))


def _split_tokens(source: SourceText, start: int) -> list[Any]:
    """Split the text from a place on; blanks in place of the rest keep every place."""
    try:
        tokens = sqlglot.tokenize(" " * start + source.text[start:], read=source.dialect)
    except TokenError:
        source.refuse(len(source.text), "complete quotes and comments", do="Close what was opened last")
    except Exception:  # whatever the tokenizer does with odd texts
        source.refuse(0, "a statement in SQL", do="Write SELECT COUNT(*) FROM t ERROR WITHIN 5%")
    depth = 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth > _DEEPEST:
            source.refuse(token.start, f"at most {_DEEPEST} parentheses inside each other", do="Use WITH v AS (...)")
    return list(tokens)


_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


def _parse_tree(source: SourceText, tokens: list[Any], text: str) -> Node:
    """Parse the tokens of a SELECT; ``text`` is what they were split from."""
    place, reason = len(text), "SQL that can be parsed"
    trees: list[Any] = []
    try:
        parser = sqlglot.Dialect.get_or_raise(source.dialect).parser(error_level=ErrorLevel.IMMEDIATE)
        trees = list(parser.parse(tokens, text))
    except ParseError as error:
        place = _place_of(text, error)
    except RecursionError:
        place, reason = 0, "fewer expressions inside each other"
    except Exception:  # whatever the parser does with odd texts
        place = 0
    else:
        if len(trees) == 1 and isinstance(trees[0], exp.Query):
            _check_complete(source, trees[0])
            return _rename_functions(trees[0], source.dialect)
        place = 0
        reason = "one statement" if len(trees) != 1 else "a SELECT"
    near = re.findall(r"\w+", text[max(place - 20, 0) : place + 20].upper())
    do = 'Put names that are words of SQL into quotes: "when". See docs/sql.md'
    if _CLAUSE_WORDS & {*near}:
        do = f"The clauses are: {FORMS}"
    elif "TOP" in near:
        do = "Write LIMIT 5 after the statement"
    source.refuse(place, reason, do=do)


_SECOND_NAMES: dict[tuple[str, str], type[exp.Expression]] = {
    ("duckdb", "MEAN"): exp.Avg,
    ("spark", "MEAN"): exp.Avg,
    ("spark", "STD"): exp.Stddev,
}
"""Names of aggregates in a dialect that the parser does not know."""


def _rename_functions(tree: Node, dialect: str) -> Node:
    """Return the tree with aggregates in place of their second names."""
    for node in list(tree.find_all(exp.Anonymous)):
        known = _SECOND_NAMES.get((dialect, str(node.this).upper()))
        if known is not None and len(node.expressions) == 1:
            found = known(this=node.expressions[0])
            found.meta.update(node.meta)
            node.replace(found)
    return tree


_CLAUSE_WORDS = {"ERROR", "WITHIN", "CONFIDENCE", "EPSILON", "DELTA"}
_NEEDED: dict[type[exp.Expression], tuple[str, ...]] = {
    exp.Count: ("this",),
    exp.Distinct: ("expressions",),
    exp.WidthBucket: ("min_value", "max_value", "num_buckets"),
    exp.Anonymous: ("expressions",),
}
"""Arguments that the parser lets be left out, and that are needed here."""
_NAMED = frozenset({"bin", "date_part", "mean", "std"})
"""Functions of the subset whose names the parser does not know."""


def _check_complete(source: SourceText, tree: Node) -> None:
    """Refuse a function without an argument that it needs; the parser does not look at all of them."""
    for node in tree.walk():
        required = [name for name, needed in node.arg_types.items() if needed and node.args.get(name) is None]
        if isinstance(node, exp.Anonymous) and str(node.this).lower() not in _NAMED:
            continue  # a function that is not known is refused where it is read
        left_out = [name for name in _NEEDED.get(type(node), ()) if not node.args.get(name)]
        # DISTINCT of a whole SELECT has no columns of its own.
        if required or (left_out and not (isinstance(node, exp.Distinct) and isinstance(node.parent, exp.Select))):
            named = node.this if isinstance(node, exp.Anonymous) else node.key.upper()
            source.refuse(node, "a function with all of its arguments", got=str(named), do="Write them in parentheses")


def _place_of(text: str, error: ParseError) -> int:
    """Return where the parser stopped."""
    known = error.errors[0] if error.errors else {}
    line, column, highlight = known.get("line"), known.get("col"), known.get("highlight") or ""
    if not isinstance(line, int) or not isinstance(column, int):
        return len(text)
    lines = text.split("\n")[: line - 1]
    return max(sum(len(each) + 1 for each in lines) + column - len(str(highlight)), 0)
