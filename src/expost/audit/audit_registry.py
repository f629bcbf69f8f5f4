"""Every mechanism of the package, and the entry that attacks it.

Entries are in the modules ``expost.audit.entries_<package>``; each has a function ``entries()``. A mechanism is a public
class or function whose docstring has a line that begins with ``Guarantee:``.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import expost.audit
from expost.audit.output_law import LawPair
from expost.audit.pair_attack import Pair
from expost.audit.planted_fault import Noise
from expost.core import InvalidRequest, MissingExtra

__all__ = ["AUDITED_PACKAGES", "AuditEntry", "all_entries", "mechanisms", "mechanisms_of", "missing", "resolve"]


@dataclass(frozen=True)
class AuditEntry:
    """A mechanism by its dotted name, with its worst-case pairs and, where they can be written out, its laws.

    ``pairs`` and ``laws`` are called when the audit runs, so that listing the entries is cheap. ``also`` names further
    public objects that this entry attacks through the same code (an alias, a thin wrapper). ``noise`` lists the places
    where the mechanism decides how much noise it draws; planting faults there measures what the attack detects.
    """

    mechanism: str
    pairs: Callable[[], Sequence[Pair]]
    laws: Callable[[], Sequence[LawPair]] = tuple
    also: tuple[str, ...] = ()
    noise: tuple[Noise, ...] = ()

    @property
    def short_name(self) -> str:
        """Shorten the name to the first-level package and the mechanism, whichever module defines it."""
        parts = self.mechanism.split(".")
        return f"{parts[1]}.{parts[-1]}"

    @property
    def names(self) -> frozenset[str]:
        """All names that this entry covers."""
        return frozenset((self.mechanism, *self.also))


AUDITED_PACKAGES = ("noise", "accuracy", "stats", "models", "holdout", "robustness")


def all_entries() -> tuple[AuditEntry, ...]:
    """List all registered entries, sorted by name."""
    found = [each.name for each in pkgutil.iter_modules(expost.audit.__path__) if each.name.startswith("entries_")]
    modules = [importlib.import_module(f"expost.audit.{name}") for name in found]
    entries = [entry for module in modules for entry in module.entries()]
    names = [entry.mechanism for entry in entries]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise InvalidRequest("Expected one entry per mechanism", got=min(repeated), do="Join its pairs in one entry")
    return tuple(sorted(entries, key=lambda entry: entry.mechanism))


def mechanisms(packages: Sequence[str] = AUDITED_PACKAGES) -> dict[str, Any]:
    """Find all mechanisms of these packages, by their shortest public name.

    >>> "expost.noise.LaplaceMechanism" in mechanisms(["noise"])
    True
    """
    found: dict[str, Any] = {}
    for package_name in packages:
        package = importlib.import_module(f"expost.{package_name}")
        modules = [package]
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            # Mechanisms of a module whose extra is missing cannot run here either.
            with contextlib.suppress(MissingExtra):
                modules.append(importlib.import_module(info.name))
        for module in modules:
            for name, item in mechanisms_of(module):
                # The name in the package, where it is exported, is better than the module that defines it.
                exported = getattr(package, name, None) is item
                found[f"{package.__name__ if exported else item.__module__}.{name}"] = item
    return found


def mechanisms_of(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the mechanisms that one module defines, not those that it imports."""
    for name, item in vars(module).items():
        public = not name.startswith("_") and getattr(item, "__module__", None) == module.__name__
        documented = public and (inspect.isclass(item) or inspect.isfunction(item))
        if documented and re.search(r"^\s*Guarantee:", item.__doc__ or "", re.MULTILINE):
            yield name, item


def missing(entries: Sequence[AuditEntry], found: Mapping[str, Any]) -> list[str]:
    """List the mechanisms that no entry attacks; an entry may use any dotted name of the object."""
    covered = [resolve(name) for entry in entries for name in entry.names]
    return sorted(name for name, item in found.items() if not any(item is other for other in covered))


def resolve(name: str) -> Any:
    """Look up the object that a dotted name refers to."""
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        raise InvalidRequest(
            "Expected the dotted name of a mechanism", got=name, do="Name a public class or function"
        ) from None
