"""Explains wrong arguments of public functions before they run."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from expost.core.errors import InvalidRequest

__all__ = ["WrongArguments", "explain_arguments"]

P = ParamSpec("P")
R = TypeVar("R")


class WrongArguments(InvalidRequest, TypeError):
    """A public function was called with arguments that its signature does not have; nothing was spent."""

    code = "wrong_arguments"


def explain_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function so that a misspelt or missing argument gets a sentence with a suggestion.

    Only the call's own arguments are checked. A ``TypeError`` raised inside the function is a bug and passes through.

    Examples
    --------
    >>> @explain_arguments
    ... def mean(column, *, within=None, epsilon=None):
    ...     return column
    >>> mean("age", wihtin=3)
    Traceback (most recent call last):
    expost.core.signature.WrongArguments: mean() got an unexpected argument 'wihtin'. Did you mean 'within'?
    """
    signature = inspect.signature(function)
    name = function.__qualname__.removesuffix(".__init__").rsplit(".", 1)[-1]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise WrongArguments(_explanation(signature, name, kwargs, str(error))) from None
        return function(*args, **kwargs)

    return checked


def _explanation(signature: inspect.Signature, name: str, given: dict[str, object], reason: str) -> str:
    """Return the sentence for arguments that do not fit."""
    known = [each for each in signature.parameters if each != "self"]
    if any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values()):
        unknown = None
    else:
        unknown = next((each for each in given if each not in known), None)
    if unknown is None:
        return f"{name}() cannot be called like this: {reason}. Arguments: {', '.join(known) or 'none'}"
    close = difflib.get_close_matches(unknown, known, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"Its arguments are: {', '.join(known) or 'none'}"
    return f"{name}() got an unexpected argument {unknown!r}. {hint}"
