"""What a run with a public ladder has reserved so far, and how it reserves more."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

__all__ = ["FIRST_STAGE", "HoldStages"]

FIRST_STAGE = Fraction(1, 16)
"""The part of a climb's cap that is held at the start: more than a pilot can use (``accuracy.interval.split_cap``)."""


@dataclass(frozen=True)
class HoldStages:
    """Reserves the epsilon of the next rungs before they are drawn.

    The ledger holds one stage at a time instead of the whole cap, so that an interrupted run is charged for the stage
    it was in. That a run needed a further stage is a fact about rungs below it, which that stage's charge covers
    (docs/proofs/staged-holds.md).

    Parameters
    ----------
    cover : callable
        Takes an epsilon, tries to hold at least as much, and returns what is held now.
    spent : Fraction, default 0
        What the run has drawn before the ladder that ``reach`` is asked about.

    Examples
    --------
    >>> stages = HoldStages(lambda amount: min(max(amount, Fraction(1, 4)), Fraction(1)))
    >>> stages.reach([Fraction(1, 8), Fraction(1, 4), Fraction(1, 2)], 0)
    2
    >>> stages.after(Fraction(7, 8)).reach([Fraction(1, 8), Fraction(1, 4), Fraction(1, 2)], 2)
    1
    """

    cover: Callable[[Fraction], Fraction]
    spent: Fraction = Fraction(0)

    def reach(self, costs: Sequence[Fraction], start: int) -> int:
        """Reserve what rung ``start`` costs and return the first rung beyond what is held.

        That is at most ``start`` if no more could be reserved: the climb then ends below it.

        Parameters
        ----------
        costs : sequence of Fraction
            What the run will have cost after each rung of the ladder, in rising order.
        start : int
            The next rung to draw.
        """
        if start >= len(costs):
            return len(costs)
        return bisect.bisect_right(costs, self.held_after(costs[start]))

    def held_after(self, amount: Fraction) -> Fraction:
        """Try to reserve this much more, and return how much more is held now.

        Parameters
        ----------
        amount : Fraction
            The epsilon that the next part of the run may draw.
        """
        return self.cover(self.spent + amount) - self.spent

    def after(self, cost: Fraction) -> HoldStages:
        """Return the stages for what follows a part that cost this much.

        Parameters
        ----------
        cost : Fraction
            The epsilon that was drawn since.
        """
        return replace(self, spent=self.spent + cost)
