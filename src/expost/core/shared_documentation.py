"""Docstrings that share the description of a parameter: it is written once, and every function that has it shows it.

A docstring in the source documents what is particular to its function. ``share_parameters`` adds the descriptions of all
other parameters from a table, or from the docstring of another function, in the order of the signature. ``help()``, the
reference pages and editors that ask the running program show the whole docstring.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

__all__ = ["share_parameters"]

T = TypeVar("T", bound=Callable[..., Any])

_SECTIONS = ("Parameters", "Attributes", "Returns", "Yields", "Raises", "See Also", "Notes", "References", "Examples")
"""The sections of numpydoc that are used here, in the order in which a docstring lists them."""


def share_parameters(*sources: Mapping[str, str] | Callable[..., Any], raises: str = "") -> Callable[[T], T]:
    """Complete a docstring with the descriptions of parameters that it leaves out.

    Parameters
    ----------
    *sources : mapping of str to str, or documented function or class
        Where descriptions come from; the first source that has a parameter is used. The keys of a mapping are names of
        parameters (``"smallest, largest"`` describes two at once), its values are numpydoc entries without the name:
        the type, and after a line break the sentence. A class also gets the attributes that a source class documents.
    raises : str, optional
        The entries of the section ``Raises``, if the docstring has none.

    Returns
    -------
    callable
        A decorator for a function, a method or a class.

    Examples
    --------
    >>> table = {"within": "float, optional" + chr(10) + "The error allowed."}
    >>> @share_parameters(table)
    ... def mean(*, within=None):
    ...     '''Average a column.'''
    >>> mean.__doc__.splitlines()[-2:]
    ['within : float, optional', '    The error allowed.']
    """

    def complete(thing: T) -> T:
        head, sections = _split_sections(inspect.cleandoc(thing.__doc__ or ""))
        own = _read_entries(sections.get("Parameters", ""))
        shared = [_read_source(source) for source in sources]
        entries: dict[str, str] = {}
        for name in inspect.signature(thing).parameters:
            text = next((each[name] for each in (own, *shared) if name in each), None)
            # One entry may describe several parameters; it stands where the first of them stands.
            if text is not None and text not in entries.values():
                entries[name] = text
        if entries:
            sections["Parameters"] = "\n".join(entries.values())
        if inspect.isclass(thing):
            attributes = _read_entries(sections.get("Attributes", ""))
            for source in filter(inspect.isclass, sources):
                attributes = _read_source(source, "Attributes") | attributes
            if attributes:
                sections["Attributes"] = "\n".join(dict.fromkeys(attributes.values()))
        if raises and "Raises" not in sections:
            sections["Raises"] = textwrap.dedent(raises).strip()
        written = [f"{name}\n{'-' * len(name)}\n{sections[name]}" for name in _SECTIONS if name in sections]
        thing.__doc__ = "\n\n".join([head, *written])
        return thing

    return complete


def _split_sections(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into what comes before the first section, and the body of each section."""
    parts = re.split(rf"^({'|'.join(_SECTIONS)})\n-+\n", text, flags=re.MULTILINE)
    return parts[0].rstrip(), {name: body.rstrip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def _read_entries(section: str) -> dict[str, str]:
    """Return the entry of each parameter in a section."""
    entries = (each for each in re.split(r"\n(?=\S)", section) if each)
    return {name: entry for entry in entries for name in _names(entry.partition(" : ")[0])}


def _read_source(source: Mapping[str, str] | Callable[..., Any], section: str = "Parameters") -> dict[str, str]:
    """Return the entries that a source offers."""
    if isinstance(source, Mapping):
        made = {names: f"{names} : " + text.replace("\n", "\n    ") for names, text in source.items()}
        return {name: entry for names, entry in made.items() for name in _names(names)}
    return _read_entries(_split_sections(inspect.cleandoc(source.__doc__ or ""))[1].get(section, ""))


def _names(names: str) -> Iterable[str]:
    return (name.strip(" *") for name in names.split(","))
