"""Two neighbouring inputs of a mechanism, and how to run it on each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expost.audit.cells import Features
from expost.audit.claim import Claim
from expost.core import InvalidRequest
from expost.noise.bits import BitSource

__all__ = ["Outcomes", "Pair", "Sampler", "repeat"]


@dataclass(frozen=True)
class Outcomes:
    """What independent runs put out: one row a run, and for ex-post claims the bill of each.

    >>> Outcomes.of([3, 4, 5]).values.shape
    (3, 1)
    """

    values: NDArray[np.float64]
    bills: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, values: ArrayLike, bills: ArrayLike | None = None) -> Outcomes:
        """Outcomes from anything array-like; one dimension means one number a run."""
        table = np.asarray(values).astype(np.float64)
        table = table.reshape(len(table), -1)
        paid = None if bills is None else np.asarray(bills).astype(np.float64)
        if paid is not None and paid.shape != (len(table),):
            raise InvalidRequest("Expected one bill a run", do="Pass as many bills as outcomes")
        if paid is not None and np.isnan(paid).any():
            raise InvalidRequest("Expected bills that are numbers", got="nan", do="Bill in the unit of the claim")
        return cls(table, paid)

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, start: int, stop: int) -> Outcomes:
        """Some of the runs."""
        return Outcomes(self.values[start:stop], None if self.bills is None else self.bills[start:stop])


Sampler = Callable[[int, BitSource], Outcomes]


@dataclass(frozen=True)
class Pair:
    """A mechanism on two neighbouring inputs, chosen to be as bad as possible, and what it claims there.

    ``left`` and ``right`` are called with a number of runs and a source of bits. ``slow`` says that they loop in
    Python, so that a profile asks for fewer runs; ``most_runs`` caps them in the quick profile, which larger
    profiles lift (at least 100 are needed to say anything). ``one_way`` claims only that nothing is much likelier on the left.
    ``features`` adds columns to what the search for a bad event sees.

    >>> from expost.core import PureGuarantee
    >>> coin = lambda runs, bits: Outcomes.of(bits.words(runs, np.uint8) % 2)
    >>> Pair("a fair coin", PureGuarantee(1), coin, coin).name
    'a fair coin'
    """

    name: str
    claim: Claim
    left: Sampler
    right: Sampler
    slow: bool = False
    most_runs: int | None = None
    one_way: bool = False
    features: Features | None = field(default=None, repr=False)


def repeat(run: Callable[[BitSource], Any]) -> Sampler:
    """A sampler from a function that runs once and returns a number, a tuple, or ``(outcome, bill)`` as ``Outcomes``.

    For mechanisms without a batched way; mark the pair ``slow=True``.

    >>> from expost.noise.bits import SeededBits
    >>> len(repeat(lambda bits: 7)(3, SeededBits(1)))
    3
    """

    def sampler(runs: int, bits: BitSource) -> Outcomes:
        results = [run(bits) for _ in range(runs)]
        if results and isinstance(results[0], Outcomes):
            bills = [result.bills for result in results]
            paid = None if bills[0] is None else np.concatenate(bills)
            return Outcomes(np.concatenate([result.values for result in results]), paid)
        return Outcomes.of(np.array(results, dtype=np.float64))

    return sampler
