"""Writes the reference, one page a room, when the site is built; pages hold directives only and are not kept."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import expost
from expost.core import MissingExtra


def rooms() -> list[str]:
    """All packages of expost, by name; those of extras that are not installed are left out."""
    names = sorted(info.name for info in pkgutil.iter_modules(expost.__path__) if info.ispkg)
    return [name for name in names if _is_installed(name)]


def _is_installed(room: str) -> bool:
    try:
        importlib.import_module(f"expost.{room}")
    except MissingExtra:
        return False
    return True


def modules(room: str) -> Iterator[str]:
    """What a page documents: the room's export list, or its modules where it has none; then packages within it."""
    package = importlib.import_module(f"expost.{room}")
    if getattr(package, "__all__", ()):
        yield package.__name__
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        if info.ispkg or not getattr(package, "__all__", ()):
            inner = importlib.import_module(f"{package.__name__}.{info.name}")
            if getattr(inner, "__all__", ()):
                yield inner.__name__


def exports(name: str) -> str:
    """All names that a module exports, in one line: some of them are constants, which have no docstring."""
    return ", ".join(f"`{each}`" for each in importlib.import_module(name).__all__)


def page(room: str) -> str:
    """A heading, the room's sentence, and for each module its export list and one directive."""
    package = importlib.import_module(f"expost.{room}")
    names = list(modules(room))
    parts = [
        f"`{name}`: {exports(name)}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n```\n" for name in names
    ]
    # The directive repeats the sentence of the module it documents.
    sentence = "" if names[:1] == [package.__name__] else (package.__doc__ or "").strip().splitlines()[0] + "\n\n"
    return f"# `expost.{room}`\n\n{sentence}" + "\n".join(parts)


def write_pages(folder: Path) -> list[Path]:
    """All pages."""
    folder.mkdir(exist_ok=True)
    paths = []
    for room in rooms():
        path = folder / f"{room}.md"
        text = page(room)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths
