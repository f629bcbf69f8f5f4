"""Above-threshold whose noise shrinks from query to query: early stops cost less."""

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
from expost.noise.geometric_path import GeometricPath
from expost.noise.lattice import add_exactly, compact_integers, distance_in
from expost.noise.one_holder import OneHolder
from expost.noise.path import check_rung

__all__ = ["ReducedAboveThreshold", "ReducedSession"]

_LARGEST_GAP = (1 << 62) - 1  # a gap above it is shown as this


@dataclass(frozen=True, kw_only=True)
class ReducedAboveThreshold:
    """Asks query after query at privacy levels that rise along a ladder; the first answer "above" ends the session.

    The noise on the threshold is one geometric path: at a higher rung it is the same noise with a part taken away,
    so the rungs passed cost nothing beyond the last one. The noise on a query is fresh. ``threshold_share`` of each
    level goes to the threshold, the rest to the query. ``monotone`` says that one unit moves all queries in the same
    direction; ``span`` that it moves them within one interval that contains 0 and is so long, as counts of right and wrong are.

    Guarantee: pure ex-post, known only after the run: the level of the rung at which it stopped; if it has not
        stopped, the threshold's share of the last level used. At most the cap of the ladder.
    Adjacency: whichever one the sensitivity was computed for; ``monotone`` and ``span`` must hold under it.
    Sensitivity: of each single query, declared once; a query with a larger one is refused. Of an interval its longer side.
    Accuracy: that of AboveThreshold at the level of the rung; false_alarm_margin(...), from the exact law of the noise.
    Numerics: exact; integer noise, integer comparisons.
    Reference: WRWR22, section 4 (two-sided noise on reals); docs/proofs/above-threshold.md (one-sided, on integers).

    >>> from expost.noise import SeededBits
    >>> rule = ReducedAboveThreshold(
    ...     threshold=100, sensitivity=Sensitivity(1), ladder=Ladder.of([0.1, 0.5, 1])
    ... )
    >>> session = rule.open(bits=SeededBits(1))
    >>> session.ask(Sealed(0, Sensitivity(1)), rung=0).above, session.loss
    (False, PureLoss(epsilon=Fraction(1, 20)))
    >>> session.ask(Sealed(400, Sensitivity(1)), rung=1).above, session.loss
    (True, PureLoss(epsilon=Fraction(1, 2)))
    """

    threshold: int
    sensitivity: Sensitivity
    ladder: Ladder
    threshold_share: Fraction = Fraction(1, 2)
    monotone: bool = False
    span: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold_share", probability(self.threshold_share, "threshold_share"))
        if isinstance(self.threshold, bool) or not isinstance(self.threshold, int | np.integer):
            raise InvalidRequest(
                "Expected threshold to be an integer", got=self.threshold, do="Pass it in lattice units"
            )
        if self.span is not None:
            check_span(self.span, self.sensitivity)
            if self.monotone:
                raise InvalidRequest("Expected a span or monotone queries", do="Leave one of them out")

    @property
    def guarantee(self) -> PureGuarantee:
        """The promise: what a session can cost at most."""
        return PureGuarantee(self.ladder.cap)

    def query_scale(self, rung: int) -> Fraction:
        """The scale of the noise on a query asked at this rung."""
        # docs/proofs/above-threshold.md, step 3: the threshold's shift and the query's own move, as in AboveThreshold;
        # together no more than the span (Intervals).
        return self._moves / ((1 - self.threshold_share) * self.ladder[rung])

    def threshold_scale(self, rung: int) -> Fraction:
        """The scale of the noise on the threshold at this rung."""
        return self._reach / (self.threshold_share * self.ladder[rung])

    @property
    def _reach(self) -> Fraction:
        return distance_in(Norm.L1, self.sensitivity, 1)

    @property
    def _moves(self) -> Fraction:
        """How far the threshold's shift and a query's own move are together, at most."""
        if self.span is not None:
            return Fraction(self.span)
        return self._reach if self.monotone else 2 * self._reach

    def false_alarm_margin(self, failure_probability: float | Fraction, *, rung: int) -> int:
        """The smallest m such that a query at threshold - m or below is answered "above" with this probability at most."""
        check_rung(self.ladder, rung)
        share = float(probability(failure_probability, "failure_probability"))
        return one_sided_margin(self.threshold_scale(rung), self.query_scale(rung), share)

    def open(self, *, bits: BitSource | None = None) -> ReducedSession:
        """A session that answers queries."""
        return ReducedSession(self, bits=bits)

    def simulate(self, queries: object, *, runs: int, bits: BitSource | None = None) -> NDArray[np.int64]:
        """Independent sessions on queries the caller knows anyway, the t-th asked at rung t; one session a row.

        Columns: the rung of the answer "above" (-1 if there was none), and its gap (-1 if there is none).
        """
        batch = ReducedBatch(self, runs, source_of(bits))
        stopped = np.full((runs, 2), -1, dtype=np.int64)
        for rung, query in enumerate(compact_integers(queries).tolist()):
            above, gaps = batch.step(query, rung)
            stopped[above, 0] = rung
            stopped[above, 1] = gaps[above]
        return stopped


class ReducedBatch:
    """Several independent sessions of one rule in step: one array operation a query."""

    def __init__(self, rule: ReducedAboveThreshold, runs: int, bits: BitSource) -> None:
        self._rule, self._bits = rule, bits
        levels = Ladder(tuple(rule.threshold_share * rung for rung in rule.ladder))
        self._path = GeometricPath(rule.sensitivity, levels, size=runs, bits=bits)
        self.unfinished = np.ones(runs, dtype=bool)

    def step(self, query: int, rung: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which sessions answer "above" now, and their gaps."""
        noise = geometric(self._rule.query_scale(rung), self._path.size, bits=self._bits)
        barrier = add_exactly(compact_integers([self._rule.threshold]), self._path.at(rung))
        gaps = add_exactly(add_exactly(compact_integers([query]), noise), -barrier)
        above = self.unfinished & (gaps >= 0).astype(bool)
        self.unfinished &= ~above
        return above, np.where(above, np.minimum(gaps, _LARGEST_GAP), -1).astype(np.int64)


class ReducedSession:
    """One run of reduced above-threshold; rungs never go down.

    >>> rule = ReducedAboveThreshold(threshold=0, sensitivity=Sensitivity(1), ladder=Ladder.of([1]))
    >>> rule.open().loss
    PureLoss(epsilon=Fraction(0, 1))
    """

    def __init__(self, rule: ReducedAboveThreshold, *, bits: BitSource | None = None) -> None:
        self.rule = rule
        self._batch = ReducedBatch(rule, 1, source_of(bits))
        self._rung, self._holder = -1, OneHolder()

    @property
    def last(self) -> int:
        """The rung asked last; -1 before the first."""
        return self._rung

    @property
    def loss(self) -> PureLoss:
        """What the answers given so far cost."""
        if self._rung < 0:
            return PureLoss(Fraction(0))
        level = self.rule.ladder[self._rung]
        # docs/proofs/above-threshold.md: "below" never uses up the query's share.
        return PureLoss(level * self.rule.threshold_share if self._batch.unfinished[0] else level)

    def ask(self, sealed: Sealed, *, rung: int) -> Crossing:
        """Whether a sealed integer reaches the threshold at the level of this rung, and the gap if it does."""
        check_query(sealed, self.rule.sensitivity)
        query = single_integer(sealed)
        with self._holder.alone():
            if not self._batch.unfinished[0]:
                raise InvalidRequest(
                    "Expected a session that has not stopped", do="Open a new one, which is billed anew"
                )
            if not max(self._rung, 0) <= rung < len(self.rule.ladder):
                raise InvalidRequest("Expected a rung of the ladder, not below the last one", got=rung, do="Go up only")
            self._rung = rung  # before there is an answer: one that an interrupt kept from its caller is paid for
            above, gaps = self._batch.step(query, rung)
        return Crossing(bool(above[0]), int(gaps[0]) if above[0] else None)

    def __repr__(self) -> str:
        return "<reduced above-threshold session>"

    def _refuse(self, *_: object) -> Any:
        raise TypeError("Expected a session to stay where it is; a copy would reuse its noise.")

    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = _refuse
