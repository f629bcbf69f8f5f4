"""Run one action on two neighbouring tables and compare everything that an observer could see.

The noise and every secret are frozen. The first run records each exact answer when it is sealed. The second run checks
that its own exact answer lies within the declared sensitivity of the recorded one, and then continues with the
recorded one. From there on the two runs must agree in everything: results, types, texts, exceptions, warnings, logs and
the number of random bits drawn. Whatever differs is a channel that the sensitivity does not account for.
"""

from __future__ import annotations

import importlib
import logging
import math
import pkgutil
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any
from unittest import mock

import numpy as np

import expost
from expost.core import Adjacency, Norm, Receipt, Sealed, Sensitivity, unseal
from expost.data import Dataset
from expost.data.unit_ball import UnitRows
from expost.models.tabular.private_levels import LevelSearch
from expost.models.tabular.tilted_table import EncodedRows
from expost.noise import SeededBits
from expost.stats.private_keys import KeyPlan

__all__ = ["Seen", "assert_one_number_differs", "observe"]

SEED = 20_261_117
_ENTRY = re.compile(r"\d+-[0-9a-f]{16}")
_PUBLIC_ADVICE = "the exponential mechanism is more accurate than smooth sensitivity"
_DRAWN: Counter[str] = Counter()


class CountedBits(SeededBits):
    """Seeded bits that count how many bytes were drawn."""

    def __init__(self, seed: int = SEED, name: str = "system") -> None:
        super().__init__(seed)
        self._name = name

    def _fill(self, out: memoryview) -> None:
        _DRAWN[self._name] += len(out)
        super()._fill(out)


@dataclass
class Seen:
    """Everything an observer could see of one run, and, for the comparison only, what was sealed on the way."""

    outcome: Any = None
    error: str | None = None
    warned: list[str] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)
    drawn: dict[str, int] = field(default_factory=dict)
    sealed: list[tuple[Any, Sensitivity]] = field(default_factory=list)
    keys: list[tuple[dict[Any, int], Any, Any, Sensitivity]] = field(default_factory=list)
    rows: Counter[Any] = field(default_factory=Counter)
    too_far: list[str] = field(default_factory=list)

    @property
    def visible(self) -> dict[str, Any]:
        """What must not differ between neighbours."""
        return {name: getattr(self, name) for name in ("outcome", "error", "warned", "logged", "drawn")}


def observe(
    action: Callable[[SeededBits], Any], recorded: Seen | None = None, *, distances: bool = True, moves: int = 1
) -> Seen:
    """Run an action with frozen randomness; with ``recorded``, replay the exact answers of that run.

    Parameters
    ----------
    action : callable
        Builds the table, asks and returns what was released. Gets the bits of the session.
    recorded : Seen, optional
        The run on the neighbouring table.
    distances : bool
        Whether sealed answers are protected by their sensitivity alone. False for objective perturbation, whose
        guarantee is a density ratio; its rows are compared instead.
    moves : int
        How many times the sensitivity the parts of one answer may move together. Picks by group under replace-one are
        proved for two moves.
    """
    seen = Seen()
    _DRAWN.clear()
    with _frozen(seen, recorded, distances, moves), _captured(seen):
        try:
            seen.outcome = _described(action(CountedBits(SEED + 1, "session")))
        except Exception as error:
            seen.error = f"{type(error).__module__}.{type(error).__name__}: {error}"
    seen.drawn = dict(_DRAWN)
    return seen


def assert_one_number_differs(
    first: Callable[[SeededBits], Any],
    second: Callable[[SeededBits], Any],
    *,
    distances: bool = True,
    moves: int = 1,
    changed_rows: int = 1,
) -> Seen:
    """Fail if the runs on two neighbours differ in anything but sealed answers, by more than their sensitivity."""
    recorded = observe(first)
    replayed = observe(second, recorded, distances=distances, moves=moves)
    assert replayed.too_far == [], replayed.too_far
    for name, value in recorded.visible.items():
        assert value == replayed.visible[name], f"{name} differs:\n{value}\n{replayed.visible[name]}"
    # Advice from public facts is the same on both tables, as asserted above; any other warning comes from rows.
    assert [text for text in recorded.warned if _PUBLIC_ADVICE not in text] == [], recorded.warned
    # A refusal compares nothing. Only a target that the noise happened to miss is an answer too.
    assert recorded.error is None or "TargetNotMet" in recorded.error, recorded.error
    assert len(recorded.sealed) == len(replayed.sealed) and len(recorded.keys) == len(replayed.keys)
    gone, come = recorded.rows - replayed.rows, replayed.rows - recorded.rows
    assert max(gone.total(), come.total()) <= changed_rows, (gone, come)
    return recorded


# What is frozen and watched -------------------------------------------------------------------------------------------


@contextmanager
def _frozen(seen: Seen, recorded: Seen | None, distances: bool, moves: int) -> Iterator[None]:
    patches = [mock.patch.object(module, "system_bits", CountedBits) for module in _users_of("system_bits")]
    together: Counter[str] = Counter()
    patches.append(mock.patch.object(Sealed, "__init__", _watched_seal(seen, recorded, distances, moves, together)))
    patches.append(mock.patch.object(Dataset, "measure_steps", _watched_parts(_STEPS, "records", together)))
    patches.append(mock.patch.object(Dataset, "measure_parts", _watched_parts(_TOTALS, "totals", together)))
    patches.append(mock.patch.object(KeyPlan, "measure", _watched_keys(seen, recorded)))
    patches.append(mock.patch.object(LevelSearch, "measure", _watched_levels(seen, recorded)))
    patches += [mock.patch.object(kind, "weighted_chunks", _watched_rows(kind, seen)) for kind in _CHUNKS]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()


def _users_of(name: str) -> list[Any]:
    """The loaded modules of the package that hold a function under its own name."""
    _load_all()
    return [
        module
        for path, module in list(sys.modules.items())
        if path.startswith("expost") and module is not None and callable(vars(module).get(name))
    ]


def _load_all() -> None:
    """Import every module once, so that none holds the real source of bits unnoticed."""
    if getattr(_load_all, "done", False):
        return
    for found in pkgutil.walk_packages(expost.__path__, "expost."):
        if not found.name.startswith(("expost.torch", "expost.cli", "expost.__main__", "expost.experiments")):
            try:
                importlib.import_module(found.name)
            except ImportError:  # an extra that is not installed
                continue
    _load_all.done = True  # type: ignore[attr-defined]


_INIT = Sealed.__init__
_MEASURE, _LEVELS = KeyPlan.measure, LevelSearch.measure
_CHUNKS = {kind: vars(kind)["weighted_chunks"] for kind in (UnitRows, EncodedRows)}
_STEPS, _TOTALS = Dataset.measure_steps, Dataset.measure_parts
_mode = "totals"  # "records" while single rows are sealed, "keys" while private keys are counted


@contextmanager
def _sealing(what: str) -> Iterator[None]:
    global _mode
    before, _mode = _mode, what
    try:
        yield
    finally:
        _mode = before


def _watched_parts(original: Callable[..., Any], mode: str, together: Counter[str]) -> Callable[..., Any]:
    """Watch an answer that is sealed in parts: one unit moves all parts together by at most the sensitivity."""

    def parts(self: Dataset, *arguments: Any, **named: Any) -> Any:
        together.clear()
        together["parts"] = 1
        with _sealing(mode):
            found = original(self, *arguments, **named)
        together.clear()
        return found

    return parts


def _watched_seal(
    seen: Seen, recorded: Seen | None, distances: bool, moves: int, together: Counter[str]
) -> Callable[..., None]:
    def init(self: Sealed, exact: Any, sensitivity: Sensitivity, *more: Any, **named: Any) -> None:
        if _mode != "keys":
            place = len(seen.sealed)
            seen.sealed.append((exact, sensitivity))
            if recorded is not None:
                if place >= len(recorded.sealed):
                    seen.too_far.append(f"the neighbour sealed only {place} answers")
                else:
                    other, declared = recorded.sealed[place]
                    together["moved"] += _moved(seen, place, exact, other, sensitivity, declared, distances)
                    if together["parts"] and together["moved"] > moves * sensitivity.amount:
                        seen.too_far.append(f"parts moved {together['moved']} of {sensitivity.amount}")
                    exact = other
        _INIT(self, exact, sensitivity, *more, **named)

    return init


def _moved(
    seen: Seen, place: int, here: Any, there: Any, sensitivity: Sensitivity, declared: Sensitivity, distances: bool
) -> Any:
    """The distance of two sealed answers in the declared norm; differences in form are reported at once."""
    if sensitivity != declared:
        seen.too_far.append(f"sealed {place}: sensitivity {sensitivity} and {declared}")
    if type(here) is not type(there) or getattr(here, "dtype", None) != getattr(there, "dtype", None):
        kinds = [f"{type(each).__name__} {getattr(each, 'dtype', '')}" for each in (here, there)]
        seen.too_far.append(f"sealed {place}: types {kinds}")
    left, right = (np.atleast_1d(np.asarray(each)).ravel().tolist() for each in (here, there))
    if not distances:
        return 0
    if _mode == "records":  # those of a quantile: how many came and went
        come, gone = (Counter(left) - Counter(right)).total(), (Counter(right) - Counter(left)).total()
        distance: Any = max(come, gone) if sensitivity.adjacency is Adjacency.REPLACE_ONE else come + gone
    elif len(left) != len(right):
        seen.too_far.append(f"sealed {place}: {len(left)} and {len(right)} coordinates")
        return 0
    else:
        steps = [abs(a - b) for a, b in zip(left, right, strict=True)]
        if sensitivity.norm is Norm.L2:
            distance = math.sqrt(sum(step * step for step in steps)) * (1 - 1e-12)
        else:
            distance = max(steps, default=0) if sensitivity.norm is Norm.LINF else sum(steps)
    if distance > sensitivity.amount:
        seen.too_far.append(f"sealed {place}: moved {distance} of {sensitivity.amount}, {sensitivity}")
    return distance


def _watched_keys(seen: Seen, recorded: Seen | None) -> Callable[..., Any]:
    def measure(self: KeyPlan, dataset: Dataset) -> Any:
        with _sealing("keys"):
            found = _MEASURE(self, dataset)
            sealed, column = _compare_keys(seen, recorded, found.sealed, found.keys, found.column)
            return replace(found, sealed=sealed, column=column)

    return measure


def _watched_levels(seen: Seen, recorded: Seen | None) -> Callable[..., Any]:
    def measure(self: LevelSearch, dataset: Dataset) -> Any:
        with _sealing("keys"):
            sealed, levels = _LEVELS(self, dataset)
            return _compare_keys(seen, recorded, sealed, levels.to_pylist(), levels)

    return measure


def _compare_keys(
    seen: Seen, recorded: Seen | None, sealed: Sealed, keys: Iterable[Any], column: Any
) -> tuple[Sealed, Any]:
    """Note counts of private keys; with ``recorded``, compare them with those of the other run and return those."""
    place, exact, sensitivity = len(seen.keys), unseal(sealed), sealed.sensitivity
    counts = dict(zip(map(_typed, keys), np.asarray(exact).tolist(), strict=True))
    seen.keys.append((counts, column, exact, sensitivity))
    if recorded is None:
        return sealed, column
    others, other_column, other, declared = recorded.keys[place]
    moved = sum(abs(counts.get(key, 0) - others.get(key, 0)) for key in {*counts, *others})
    if moved > sensitivity.amount or len(set(counts) ^ set(others)) > sensitivity.amount:
        seen.too_far.append(f"keys {place}: moved {moved} of {sensitivity.amount}: {counts} {others}")
    if (declared, other_column.type, other.dtype) != (sensitivity, column.type, exact.dtype):
        seen.too_far.append(f"keys {place}: another sensitivity or type")
    return Sealed(other, declared), other_column


def _watched_rows(kind: type[UnitRows], seen: Seen) -> Callable[[UnitRows], Iterator[Any]]:
    """Record the rows that a fit reads in its first pass; neighbours must differ in one of them."""
    first: list[int] = []

    def weighted_chunks(self: UnitRows) -> Iterator[Any]:
        watched = not first
        first.append(id(self))
        for features, target, weights in _CHUNKS[kind](self):
            if watched:
                seen.rows.update(map(tuple, np.column_stack([features, target]).tolist()))
            yield features, target, weights

    return weighted_chunks


@contextmanager
def _captured(seen: Seen) -> Iterator[None]:
    """Collect warnings and log records."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not record.name.startswith(("py4j", "asyncio", "matplotlib")):
                seen.logged.append(f"{record.name} {record.levelname} {record.getMessage()}")

    handler, root = Handler(), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        seen.warned = [f"{each.category.__name__}: {each.message}" for each in caught]
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


# What is compared -----------------------------------------------------------------------------------------------------


def _typed(value: Any) -> Any:
    """A value with its type, so that 1, 1.0 and True are three."""
    return type(value).__name__, repr(value)


def _described(value: Any) -> Any:
    """A result as nested plain values: types, dtypes and texts of everything that can be read off it."""
    if isinstance(value, Receipt):
        # The ledger draws the id of an entry; the rest is the receipt's.
        return "Receipt", {k: _ENTRY.sub("entry", repr(v)) for k, v in value.to_dict().items()}
    if isinstance(value, np.ndarray):
        return "array", str(value.dtype), value.shape, repr(value.tolist())
    if isinstance(value, dict):
        return "dict", [(_typed(key), _described(each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return type(value).__name__, [_described(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        parts = [(each.name, _described(getattr(value, each.name))) for each in fields(value) if each.repr]
        return type(value).__name__, parts
    if hasattr(value, "get_params"):  # an estimator
        fitted = {k: v for k, v in vars(value).items() if k.endswith("_") and not k.startswith("_")}
        return type(value).__name__, sorted((k, _described(v)) for k, v in fitted.items())
    return _typed(value)
