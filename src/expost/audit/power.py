"""How small a fault an attack notices, measured by planting faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from expost.audit.attack import attack
from expost.audit.entry import Entry
from expost.audit.pair import Pair
from expost.audit.plant import planted
from expost.audit.table import Profile, bits_of, profile_of
from expost.core import InvalidRequest

__all__ = ["FACTORS", "catches", "smallest_fault"]

FACTORS = tuple(Fraction(percent, 100) for percent in (90, 80, 70, 50, 25))
_TRIES = 200  # pairs of the whole table, which share its failure probability


def smallest_fault(entry: Entry, profile: str | Profile = "quick", *, factors: Sequence[Fraction] = FACTORS) -> float:
    """The missing share of noise of the smallest planted fault that the entry's attack calls a violation; 0 if none is.

    Faults are tried from the smallest on, at the failure probability that the whole table leaves to a pair.

    >>> from expost.audit.registry import all_entries
    >>> (laplace,) = [entry for entry in all_entries() if entry.short_name == "noise.LaplaceMechanism"]
    >>> smallest_fault(laplace, Profile(4000, 100), factors=[Fraction(9, 10), Fraction(1, 2)])
    0.5
    """
    if not entry.noise:
        raise InvalidRequest(
            "Expected an entry that says where its noise is", got=entry.short_name, do="Declare noise="
        )
    return next((float(1 - factor) for factor in factors if catches(entry, factor, profile)), 0.0)


def catches(entry: Entry, factor: Fraction, profile: str | Profile = "quick") -> bool:
    """Whether the attack calls the mechanism broken when all of its noise is multiplied by this factor."""
    settings = profile_of(profile)
    with planted(entry.noise, factor):
        return any(_violations(entry, settings))


def _violations(entry: Entry, profile: Profile) -> Iterator[bool]:
    bits = bits_of(entry, seed=0)
    for pair in _telling(entry.pairs()):
        yield attack(pair, profile.runs_of(pair), bits=bits, failure_probability=1e-3 / _TRIES).violated


def _telling(pairs: Sequence[Pair]) -> Sequence[Pair]:
    """The pairs that run in batches, those without a cap first; the others only where there is none of these.

    Whole fits see far less in far more time: leaving them out can only understate what is caught.
    """
    batched = [pair for pair in pairs if not pair.slow]
    return sorted(batched or pairs, key=lambda pair: pair.most_runs is not None)
