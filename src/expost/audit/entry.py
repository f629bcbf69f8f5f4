"""One mechanism in the audit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from expost.audit.law import LawPair
from expost.audit.pair import Pair
from expost.audit.plant import Noise

__all__ = ["Entry"]


def _none() -> Sequence[LawPair]:
    return ()


@dataclass(frozen=True)
class Entry:
    """A mechanism by its dotted name, with its worst-case pairs and, where they can be written out, its laws.

    ``pairs`` and ``laws`` are called when the audit runs, so that listing the entries costs nothing. ``also`` names
    further public objects that this entry attacks through the same code (an alias, a thin wrapper). ``noise`` is where the
    mechanism decides how much noise it draws: planting faults there measures what the attack would notice.

    >>> Entry("expost.noise.LaplaceMechanism", pairs=lambda: ()).short_name
    'noise.LaplaceMechanism'
    """

    mechanism: str
    pairs: Callable[[], Sequence[Pair]]
    laws: Callable[[], Sequence[LawPair]] = _none
    also: tuple[str, ...] = ()
    noise: tuple[Noise, ...] = ()

    @property
    def short_name(self) -> str:
        """The name without the package."""
        return self.mechanism.removeprefix("expost.")

    @property
    def names(self) -> frozenset[str]:
        """All names that this entry covers."""
        return frozenset((self.mechanism, *self.also))
