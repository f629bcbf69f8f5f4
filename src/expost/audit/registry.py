"""Every mechanism of the package, and what attacks it.

Entries live in the modules ``expost.audit.entries_<room>``; each has a function ``entries()``. A mechanism is any
public class or function of a room whose docstring has a line that begins with ``Guarantee:``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import expost.audit
from expost.audit.entry import Entry
from expost.core import InvalidRequest, MissingExtra

__all__ = ["ROOMS", "all_entries", "mechanisms", "mechanisms_named", "mechanisms_of", "missing", "resolve"]

ROOMS = ("noise", "accuracy", "stats", "learning", "holdout", "robustness", "models")
_PREFIX = "entries_"


def all_entries() -> tuple[Entry, ...]:
    """All registered entries, by name.

    >>> any(entry.short_name == "noise.LaplaceMechanism" for entry in all_entries())
    True
    """
    found = sorted(
        module.name for module in pkgutil.iter_modules(expost.audit.__path__) if module.name.startswith(_PREFIX)
    )
    modules = [importlib.import_module(f"expost.audit.{name}") for name in found]
    entries = [entry for module in modules for entry in module.entries()]
    names = [entry.mechanism for entry in entries]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise InvalidRequest("Expected one entry a mechanism", got=min(repeated), do="Join its pairs in one entry")
    return tuple(sorted(entries, key=lambda entry: entry.mechanism))


def mechanisms(rooms: Sequence[str] = ROOMS) -> dict[str, Any]:
    """All mechanisms of these rooms by the shortest public name they have.

    >>> "expost.noise.LaplaceMechanism" in mechanisms(["noise"])
    True
    """
    found: dict[str, Any] = {}
    for room in rooms:
        package = importlib.import_module(f"expost.{room}")
        for module in _modules(package):
            found |= {_public_name(name, item, package): item for name, item in mechanisms_of(module)}
    return found


def mechanisms_of(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The mechanisms that one module defines itself."""
    for name, item in vars(module).items():
        public = not name.startswith("_") and getattr(item, "__module__", None) == module.__name__
        if public and (inspect.isclass(item) or inspect.isfunction(item)) and _promises(item):
            yield name, item


def _promises(item: Any) -> bool:
    """Whether its own docstring has a line that begins with ``Guarantee:``."""
    return any(line.strip().startswith("Guarantee:") for line in (item.__doc__ or "").splitlines())


def missing(entries: Sequence[Entry], found: Mapping[str, Any]) -> list[str]:
    """The mechanisms that no entry attacks; an entry may use any dotted name that leads to the object.

    >>> missing([], mechanisms_named("expost.noise.LaplaceMechanism"))
    ['expost.noise.LaplaceMechanism']
    """
    covered = [resolve(name) for entry in entries for name in entry.names]
    return sorted(name for name, item in found.items() if not any(item is other for other in covered))


def mechanisms_named(*names: str) -> dict[str, Any]:
    """Objects by their dotted names.

    >>> mechanisms_named("expost.noise.LaplaceMechanism")["expost.noise.LaplaceMechanism"].__name__
    'LaplaceMechanism'
    """
    return {name: resolve(name) for name in names}


def resolve(name: str) -> Any:
    """The object a dotted name leads to.

    >>> resolve("expost.noise.laplace_mechanism.LaplaceMechanism") is resolve("expost.noise.LaplaceMechanism")
    True
    """
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            item: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            item = getattr(item, part, None)
        if item is not None:
            return item
    raise InvalidRequest("Expected the dotted name of a mechanism", got=name, do="Name a public class or function")


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    yield package
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        try:
            yield importlib.import_module(module.name)
        except MissingExtra:
            continue  # its mechanisms cannot run here either


def _public_name(name: str, item: Any, package: ModuleType) -> str:
    """``expost.noise.Laplace`` rather than the file it is defined in, where the room exports it."""
    exported = getattr(package, name, None) is item
    return f"{package.__name__}.{name}" if exported else f"{item.__module__}.{name}"
