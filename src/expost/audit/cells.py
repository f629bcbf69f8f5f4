"""Ways to cut the space of outcomes into cells, each a function of the outcome alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

__all__ = ["Features", "Partition", "partitions"]

_MOST_CELLS = 2000  # among more distinct outcomes than this, single ones are too rare to say much
_LEAST_SEEN = 20  # an outcome seen less often would be chosen for its luck
_LEAVES = 64
_LEVELS = 200

Features = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Partition(Protocol):
    """A numbering of outcomes."""

    @property
    def count(self) -> int:
        """How many cells there are."""
        ...

    def cells(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        """The cell of each row."""
        ...


def partitions(left: NDArray[np.float64], right: NDArray[np.float64], features: Features | None) -> Iterator[Partition]:
    """The partitions worth trying on these outcomes; the whole space is one, for outcomes that only one side has."""
    yield _Whole()
    values = np.concatenate([left, right])
    distinct = _Distinct.learn(values)
    if distinct is not None:
        yield distinct
    if len(left) and len(right):
        yield _Tree.learn(values, np.r_[np.zeros(len(left)), np.ones(len(right))], features)
    if len(values) and features is not None:
        yield _Levels.learn(values, features)


@dataclass(frozen=True)
class _Whole:
    """One cell."""

    count: int = 1

    def cells(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        return np.zeros(len(values), dtype=np.intp)


@dataclass(frozen=True)
class _Levels:
    """Outcomes by the first of the pair's own features, such as a likelihood ratio: between two quantiles a cell."""

    edges: NDArray[np.float64]
    features: Features

    @property
    def count(self) -> int:
        return len(self.edges) + 1

    @classmethod
    def learn(cls, values: NDArray[np.float64], features: Features) -> _Levels:
        first = features(values).reshape(len(values), -1)[:, 0]
        return cls(np.unique(np.quantile(first, np.linspace(0, 1, _LEVELS))), features)

    def cells(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        return np.searchsorted(self.edges, self.features(values).reshape(len(values), -1)[:, 0])


@dataclass(frozen=True)
class _Distinct:
    """Each outcome seen often enough to judge is a cell of its own, all others together are one more."""

    known: NDArray[Any]

    @property
    def count(self) -> int:
        return len(self.known) + 1

    @classmethod
    def learn(cls, values: NDArray[np.float64]) -> _Distinct | None:
        outcomes, counts = np.unique(_packed(values), return_counts=True)
        known = outcomes[counts >= _LEAST_SEEN]
        return cls(known) if 0 < len(known) <= _MOST_CELLS else None

    def cells(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        packed = _packed(values)
        place = np.minimum(np.searchsorted(self.known, packed), len(self.known) - 1)
        return np.where(self.known[place] == packed, place, len(self.known))


def _packed(values: NDArray[np.float64]) -> NDArray[Any]:
    """Each row as one scalar that sorts and compares."""
    rows = np.ascontiguousarray(values + 0.0)  # + 0.0 turns -0.0 into 0.0
    return rows.ravel() if rows.shape[1] == 1 else rows.view(f"S{8 * rows.shape[1]}").ravel()


@dataclass(frozen=True)
class _Tree:
    """The leaves of a small classification tree that learned to tell the two inputs apart."""

    tree: DecisionTreeClassifier
    features: Features | None

    @property
    def count(self) -> int:
        return int(self.tree.tree_.node_count)

    @classmethod
    def learn(cls, values: NDArray[np.float64], label: NDArray[Any], features: Features | None) -> _Tree:
        smallest = max(20, len(values) // 2000)
        tree = DecisionTreeClassifier(max_leaf_nodes=_LEAVES, min_samples_leaf=smallest, random_state=0)
        return cls(tree.fit(_columns(values, features), label), features)

    def cells(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        leaves: NDArray[np.intp] = self.tree.apply(_columns(values, self.features))
        return leaves


def _columns(values: NDArray[np.float64], features: Features | None) -> NDArray[np.float64]:
    """What the tree may split on: the outcome itself, then what an attacker would compute from it."""
    columns = [values]
    if values.shape[1] > 1:
        columns.append(values - np.roll(values, 1, axis=1))
        columns.append(np.c_[values.mean(axis=1), values.std(axis=1), np.abs(values).max(axis=1)])
    columns.append(_lowest_bit(values))
    if features is not None:
        columns.append(features(values).reshape(len(values), -1))
    return np.clip(np.concatenate(columns, axis=1), -1e30, 1e30)  # trees work in float32


def _lowest_bit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The exponent of the last set bit of each fraction: where textbook float noise leaks (Mir12); 0 for integers."""
    fractional = values != np.floor(values)
    lowest = np.zeros_like(values)
    if fractional.any():
        mantissa, exponent = np.frexp(values[fractional])
        digits = np.ldexp(mantissa, 53).astype(np.int64)
        lowest[fractional] = exponent - 53 + np.log2((digits & -digits).astype(np.float64))
    return lowest
