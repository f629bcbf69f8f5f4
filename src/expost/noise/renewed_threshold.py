"""Above-threshold with fresh noise for every query: for ladders whose levels rise fast."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.core.guarantee import PureGuarantee
from expost.core.ladder import Ladder
from expost.core.loss import PureLoss
from expost.core.rational import probability
from expost.core.sealed import Sealed
from expost.core.sensitivity import Norm, Sensitivity
from expost.noise.above_threshold import Crossing, check_query, check_span, one_sided_margin, single_integer
from expost.noise.bits import BitSource, source_of
from expost.noise.geometric import geometric
from expost.noise.lattice import add_exactly, compact_integers, distance_in
from expost.noise.one_holder import OneHolder
from expost.noise.path import check_rung

__all__ = ["RenewedSession", "RenewedThreshold"]

_LARGEST_GAP = (1 << 62) - 1  # a gap above it is shown as this


@dataclass(frozen=True, kw_only=True)
class RenewedThreshold:
    """Asks at most one query a rung whether it reaches zero; the first answer "above" ends the session.

    A query is asked with noise Q - Z, both geometric and fresh: Q at the whole level of the rung, Z at what answers
    "below" may cost more than at the rung before. One unit must move all queries within one interval that contains 0 and
    is ``span`` long. Then an answer "above" and the answers "below" before it are dear in opposite directions, and the
    session costs the dearer of the two, not their sum.

    Guarantee: pure ex-post, known only after the run: the level of the last rung asked, whatever the answer. At most the
        cap of the ladder.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: the longer side of the interval in which one unit moves every query; a query with a larger one is refused.
    Accuracy: false_alarm_margin(...), from the exact law of the noise.
    Numerics: exact; integer noise, integer comparisons.
    Reference: docs/proofs/sgd-validation.md, Theorem 1.

    >>> from expost.noise import SeededBits
    >>> rule = RenewedThreshold(sensitivity=Sensitivity(1), span=1, ladder=Ladder.of([0.1, 0.5, 1]))
    >>> session = rule.open(bits=SeededBits(1))
    >>> session.ask(Sealed(-100, Sensitivity(1)), rung=0).above, session.loss
    (False, PureLoss(epsilon=Fraction(1, 10)))
    >>> session.ask(Sealed(100, Sensitivity(1)), rung=2).above, session.loss
    (True, PureLoss(epsilon=Fraction(1, 1)))
    """

    sensitivity: Sensitivity
    span: int
    ladder: Ladder

    def __post_init__(self) -> None:
        check_span(self.span, self.sensitivity)

    @property
    def _reach(self) -> Fraction:
        return distance_in(Norm.L1, self.sensitivity, 1)

    @property
    def guarantee(self) -> PureGuarantee:
        """The promise: what a session can cost at most."""
        return PureGuarantee(self.ladder.cap)

    def query_scale(self, rung: int) -> Fraction:
        """The scale of the noise that speaks for a query."""
        # docs/proofs/sgd-validation.md: an answer "above" costs the level of its rung.
        return self.span / self.ladder[rung]

    def threshold_scale(self, rung: int) -> Fraction:
        """The scale of the noise that speaks against it."""
        return self.span / (self._below(rung) - (self._below(rung - 1) if rung else 0))

    def _below(self, rung: int) -> Fraction:
        """What answers "below" up to this rung would cost a unit that moves them by the whole span."""
        # docs/proofs/sgd-validation.md, Theorem 1: none moves them further than the sensitivity, and what is left to the next
        # rung's answer "above" is dear in the other direction.
        alone = self.ladder[rung] * self.span / self._reach
        return min(alone, self.ladder[rung + 1]) if rung + 1 < len(self.ladder) else alone

    def false_alarm_margin(self, failure_probability: float | Fraction, *, rung: int) -> int:
        """The smallest m such that a query at -m or below is answered "above" with this probability at most."""
        check_rung(self.ladder, rung)
        share = float(probability(failure_probability, "failure_probability"))
        return one_sided_margin(self.threshold_scale(rung), self.query_scale(rung), share)

    def open(self, *, bits: BitSource | None = None) -> RenewedSession:
        """A session that answers queries."""
        return RenewedSession(self, bits=bits)

    def simulate(self, queries: object, *, runs: int, bits: BitSource | None = None) -> NDArray[np.int64]:
        """Independent sessions on queries the caller knows anyway, the t-th asked at rung t; one session a row.

        Columns: the rung of the answer "above" (-1 if there was none), and its gap (-1 if there is none).
        """
        source = source_of(bits)
        stopped = np.full((runs, 2), -1, dtype=np.int64)
        for rung, query in enumerate(compact_integers(queries).tolist()):
            gaps = self.gaps(query, rung, runs, source)
            above = (stopped[:, 0] < 0) & (gaps >= 0)
            stopped[above, 0], stopped[above, 1] = rung, gaps[above]
        return stopped

    def gaps(self, query: int, rung: int, runs: int, bits: BitSource) -> NDArray[np.int64]:
        """By how much noisy copies of a query reach zero; -1 for those that do not."""
        noise = geometric(self.query_scale(rung), runs, bits=bits)
        against = geometric(self.threshold_scale(rung), runs, bits=bits)
        found = add_exactly(add_exactly(compact_integers([query]), noise), -against)
        shown: NDArray[np.int64] = np.clip(found, -1, _LARGEST_GAP).astype(np.int64)
        return shown


class RenewedSession:
    """One run; every rung is asked once at most, and rungs rise.

    >>> RenewedThreshold(sensitivity=Sensitivity(1), span=2, ladder=Ladder.of([1])).open().loss
    PureLoss(epsilon=Fraction(0, 1))
    """

    def __init__(self, rule: RenewedThreshold, *, bits: BitSource | None = None) -> None:
        self.rule, self._bits = rule, source_of(bits)
        self._rung, self._stopped, self._holder = -1, False, OneHolder()

    @property
    def last(self) -> int:
        """The rung asked last; -1 before the first."""
        return self._rung

    @property
    def loss(self) -> PureLoss:
        """What the answers given so far cost."""
        return PureLoss(self.rule.ladder[self._rung] if self._rung >= 0 else Fraction(0))

    def ask(self, sealed: Sealed, *, rung: int) -> Crossing:
        """Whether a sealed integer reaches zero at the level of this rung, and the gap if it does."""
        check_query(sealed, self.rule.sensitivity)
        query = single_integer(sealed)
        with self._holder.alone():
            if self._stopped:
                raise InvalidRequest(
                    "Expected a session that has not stopped", do="Open a new one, which is billed anew"
                )
            if not self._rung < rung < len(self.rule.ladder):
                raise InvalidRequest("Expected a rung of the ladder above the last one asked", got=rung, do="Go up")
            self._rung = rung  # before there is an answer: one that an interrupt kept from its caller is paid for
            gap = int(self.rule.gaps(query, rung, 1, self._bits)[0])
            self._stopped = gap >= 0
        return Crossing(self._stopped, gap if self._stopped else None)

    def __repr__(self) -> str:
        return "<renewed above-threshold session>"

    def _refuse(self, *_: object) -> Any:
        raise TypeError("Expected a session to stay where it is; a copy would be billed once for two.")

    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = _refuse
