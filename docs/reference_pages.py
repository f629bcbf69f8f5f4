"""Writes the reference, one page per package, when the site is built. Pages hold directives only and are not kept."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import expost
from expost.core import MissingExtra

_NETWORKS = ["torch", "opacus"]  # large, and not needed to read docstrings


def packages() -> list[str]:
    """Return the names of all packages of expost whose extras are installed, and of expost.torch in any case."""
    names = sorted(info.name for info in pkgutil.iter_modules(expost.__path__) if info.ispkg)
    # Last: stand-ins for torch must not be seen by libraries that are imported meanwhile.
    found = [name for name in names if name != "torch" and _is_installed(name)]
    if importlib.util.find_spec("torch") is None:
        from sphinx.ext.autodoc.mock import _MockObject, mock  # noqa: PLC0415  (tests read this file without sphinx)

        # A union of types is read as its first one.
        with mock(_NETWORKS), patch.object(_MockObject, "__or__", lambda one, other: one, create=True):
            importlib.import_module("expost.torch")
    return sorted([*found, "torch"])


def _is_installed(package_name: str) -> bool:
    try:
        importlib.import_module(f"expost.{package_name}")
    except MissingExtra:
        return False
    return True


def modules(package_name: str) -> Iterator[str]:
    """Yield what a page documents: the export list, or the modules where there is none, then the packages inside."""
    package = importlib.import_module(f"expost.{package_name}")
    if getattr(package, "__all__", ()):
        yield package.__name__
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        if info.ispkg or not getattr(package, "__all__", ()):
            inner = importlib.import_module(f"{package.__name__}.{info.name}")
            if getattr(inner, "__all__", ()):
                yield inner.__name__


def exports(name: str) -> str:
    """Return all names that a module exports, in one line. Some are constants, which have no docstring."""
    return ", ".join(f"`{each}`" for each in importlib.import_module(name).__all__)


def page(package_name: str) -> str:
    """Return a heading, the package's sentence, and for each module its export list and one directive."""
    package = importlib.import_module(f"expost.{package_name}")
    names = list(modules(package_name))
    parts = [
        f"`{name}`: {exports(name)}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n```\n" for name in names
    ]
    # The directive repeats the sentence of the module it documents.
    sentence = "" if names[:1] == [package.__name__] else (package.__doc__ or "").strip().splitlines()[0] + "\n\n"
    return f"# `expost.{package_name}`\n\n{sentence}" + "\n".join(parts)


def write_pages(folder: Path) -> list[Path]:
    """Write all pages."""
    folder.mkdir(exist_ok=True)
    paths = []
    for package_name in packages():
        path = folder / f"{package_name}.md"
        text = page(package_name)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths
