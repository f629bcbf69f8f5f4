"""Checks of what callers pass: arguments that a function does not have, and arrays that hide values under a mask.

NumPy's masked arrays keep next to their values which of them are missing. Converting one to a plain array takes missing
values for real. Such arrays are therefore refused where rows come in, by their type and never by their content. What a
caller's own function returns is filled instead, since that type may depend on rows.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from expost.core.errors import InvalidRequest, WrongArguments

__all__ = ["check_unmasked", "explain_arguments", "fill_masked", "suggest_name"]

_SYNONYMS = {
    "accuracy": "within",
    "eps": "epsilon",
    "error": "within",
    "filter": "where",
    "group_by": "by",
    "groupby": "by",
    "tolerance": "within",
}
"""What other libraries call an argument, and its name here."""

P = ParamSpec("P")
R = TypeVar("R")


def explain_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function so that a misspelt or missing argument gets a sentence with a suggestion.

    Only the call's own arguments are checked. A ``TypeError`` raised inside the function is a bug and passes through.

    Examples
    --------
    >>> @explain_arguments
    ... def mean(column, *, within=None, epsilon=None):
    ...     return column
    >>> mean("age", epsilom=3)
    Traceback (most recent call last):
    expost.core.errors.WrongArguments: mean() got an unexpected argument 'epsilom'. Did you mean 'epsilon'?
    """
    # Read once, at import: binding runs on every call of a public function.
    signature = inspect.signature(function)
    name = function.__qualname__.removesuffix(".__init__").rsplit(".", 1)[-1]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            # Only binding is inside the try: a TypeError from the function itself must not be rewritten.
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise WrongArguments(_explain_call(signature, name, kwargs, str(error))) from None
        return function(*args, **kwargs)

    return checked


def _explain_call(signature: inspect.Signature, name: str, given: dict[str, object], reason: str) -> str:
    """Return the sentence for arguments that do not fit."""
    known = [each for each in signature.parameters if each != "self"]
    # With **kwargs every name is known to the signature, so the fault is elsewhere.
    if any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values()):
        unknown = None
    else:
        unknown = next((each for each in given if each not in known), None)
    if unknown is None:
        return f"{name}() cannot be called like this: {reason}. Arguments: {', '.join(known) or 'none'}"
    meant = _SYNONYMS.get(unknown, "")
    hint = f"Did you mean {meant!r}?" if meant in known else suggest_name(unknown, known)
    hint = hint or f"Its arguments are: {', '.join(known) or 'none'}"
    return f"{name}() got an unexpected argument {unknown!r}. {hint}"


def suggest_name(given: object, known: Iterable[str]) -> str:
    """Return a question that names the known name nearest to a misspelt one, or an empty text if none is near.

    Capitals, spaces, hyphens and underscores do not count.

    >>> suggest_name("Mean_Of", ["mean-of", "sum"]), suggest_name("std", ["mean"])
    ("Did you mean 'mean-of'?", '')
    """
    plain = {_plain_name(name): name for name in reversed(list(known))}
    close = difflib.get_close_matches(_plain_name(str(given)), plain, n=1)
    return f"Did you mean {plain[close[0]]!r}?" if close else ""


def _plain_name(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "").replace(" ", "")


def check_unmasked(*values: object) -> None:
    """Refuse masked arrays, and lists of them."""
    for value in values:
        if _is_masked(type(value)) or (isinstance(value, list | tuple) and any(map(_is_masked, set(map(type, value))))):
            raise InvalidRequest(
                "Expected an array without a mask, which would be lost",
                got=value,
                do="Write missing values as NaN: values.filled(numpy.nan), after values.astype(float) if they are whole",
            )


def fill_masked(values: Any, missing: float) -> Any:
    """Return the values with ``missing`` where a mask hides them. Values without a mask are returned unchanged."""
    return values.filled(missing) if _is_masked(type(values)) else values


def _is_masked(kind: type) -> bool:
    # By name, because core does not import NumPy.
    return any(base.__name__ == "MaskedArray" for base in kind.__mro__)
