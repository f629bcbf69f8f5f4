"""Which rows a step sees, and what seeing them costs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from expost.accounting import GaussianEvent, PoissonSampled, Repeat
from expost.core import InvalidRequest
from expost.noise import BitSource, uniform_below
from expost.noise.poisson_sample import poisson_sample

__all__ = ["Batches", "Disjoint", "Full", "Poisson", "batches_named"]

Index = NDArray[np.intp] | slice

_ROWS_AHEAD = 1 << 14  # about so many are sampled at a time: what a call costs by itself is then little
_MOST_AHEAD = 32  # steps that are sampled at a time


class Batches(Protocol):
    """A way to choose batches whose law depends on public numbers alone.

    ``expected_size`` is what sums are divided by; the true size of a batch is private and never used.
    """

    @property
    def rows(self) -> int:
        """The public number of rows."""
        ...

    @property
    def expected_size(self) -> Fraction:
        """The public number of rows a batch is expected to have."""
        ...

    @property
    def period(self) -> int:
        """Steps after which drawing may begin anew without costing more."""
        ...

    def event(self, noise_multiplier: Fraction, steps: int) -> Repeat:
        """What ``steps`` noisy sums over such batches cost, under add/remove adjacency."""
        ...

    def draw(self, rows: int, bits: BitSource) -> Iterator[Index]:
        """Batches of a table of this many rows, without end; an empty batch is a batch."""
        ...


@dataclass(frozen=True)
class Poisson:
    """Each row is in each batch independently, with probability ``rate``.

    >>> Poisson(Fraction(1, 100), 60_000).expected_size
    Fraction(600, 1)
    """

    rate: Fraction
    rows: int

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InvalidRequest("Expected a batch size between 1 and the number of rows", do="Lower batch_size")

    @property
    def expected_size(self) -> Fraction:
        """The rate times the public number of rows."""
        return self.rate * self.rows

    @property
    def period(self) -> int:
        """Every step is drawn for itself."""
        return 1

    def event(self, noise_multiplier: Fraction, steps: int) -> Repeat:
        """Sampled Gaussian steps (ACG16; MTZ19, Theorem 4)."""
        step = GaussianEvent(noise_multiplier)
        return Repeat(step if self.rate == 1 else PoissonSampled(self.rate, step), steps)

    def draw(self, rows: int, bits: BitSource) -> Iterator[Index]:
        """Fresh coins for every row at every step; those of several steps are thrown at once, which is faster."""
        steps = max(1, min(_ROWS_AHEAD // max(math.ceil(self.rate * rows), 1), _MOST_AHEAD))
        while True:
            places = poisson_sample(self.rate, steps * rows, bits=bits)
            borders = np.searchsorted(places, np.arange(steps + 1) * rows)
            for step, (start, stop) in enumerate(itertools.pairwise(borders)):
                yield places[start:stop] - step * rows


@dataclass(frozen=True)
class Disjoint:
    """Each pass deals the rows at random into ``parts`` batches that do not overlap.

    A row goes to one batch of a pass, chosen by its own die, so adding or removing it leaves all other batches as they
    are: a pass costs what one step costs (parallel composition). Later passes are dealt anew and add up. No
    amplification is claimed: shuffled batches do not have that of Poisson ones.

    >>> Disjoint(10, 60_000).event(Fraction(2), 25).count
    3
    """

    parts: int
    rows: int

    @property
    def expected_size(self) -> Fraction:
        """The public number of rows over the number of parts."""
        return Fraction(self.rows, self.parts)

    @property
    def period(self) -> int:
        """A pass, once begun, is charged whole."""
        return self.parts

    def event(self, noise_multiplier: Fraction, steps: int) -> Repeat:
        """One Gaussian step for each pass begun (DR14, parallel composition; docs/proofs/sgd-gradient.md)."""
        return Repeat(GaussianEvent(noise_multiplier), -(-steps // self.parts))

    def draw(self, rows: int, bits: BitSource) -> Iterator[Index]:
        """One pass after the other."""
        while True:
            part = uniform_below(self.parts, rows, bits=bits)
            order = np.argsort(part, kind="stable")
            borders = np.searchsorted(part[order], np.arange(self.parts + 1))
            for start, stop in itertools.pairwise(borders):
                yield order[start:stop]


@dataclass(frozen=True)
class Full:
    """Every row in every batch.

    >>> Full(60_000).event(Fraction(2), 25).count
    25
    """

    rows: int

    @property
    def expected_size(self) -> Fraction:
        """The public number of rows."""
        return Fraction(self.rows)

    @property
    def period(self) -> int:
        """Every step is alike."""
        return 1

    def event(self, noise_multiplier: Fraction, steps: int) -> Repeat:
        """Gaussian steps."""
        return Repeat(GaussianEvent(noise_multiplier), steps)

    def draw(self, rows: int, bits: BitSource) -> Iterator[Index]:
        """All rows, always."""
        while True:
            yield slice(None)


def batches_named(name: str, *, rows: int, batch_size: int) -> Batches:
    """The batches a caller named, for a public number of rows and an expected size.

    >>> batches_named("poisson", rows=1000, batch_size=10)
    Poisson(rate=Fraction(1, 100), rows=1000)
    """
    if not 1 <= batch_size <= rows:
        raise InvalidRequest("Expected batch_size between 1 and the number of rows", got=batch_size, do="Change it")
    match name:
        case "poisson":
            return Poisson(Fraction(batch_size, rows), rows)
        case "disjoint":
            return Disjoint(-(-rows // batch_size), rows)
        case "full":
            return Full(rows)
    raise InvalidRequest("Expected batches to be poisson, disjoint or full", got=name, do="Name one of them")
