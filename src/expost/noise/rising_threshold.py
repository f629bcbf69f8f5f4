"""Above-threshold at privacy levels that rise from query to query, so that early stops cost less.

The noise on the threshold is kept and shrinks (``ReducedAboveThreshold``), or is fresh for every query
(``RenewedThreshold``, for ladders whose levels rise fast).
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from expost.core import (
    InvalidRequest,
    Ladder,
    Norm,
    PureGuarantee,
    PureLoss,
    Sealed,
    Sensitivity,
    SingleOwner,
    share_parameters,
)
from expost.core.rational import probability
from expost.noise.above_threshold import LARGEST_GAP, AboveThreshold, Crossing, one_sided_margin, read_query
from expost.noise.bits import BitSource, resolve_bits
from expost.noise.laplace_path import GeometricPath
from expost.noise.lattice import add_exactly, read_compact_integers
from expost.noise.lattice_sampler import sample_geometric
from expost.noise.parameter import sensitivity_in, share_noise_parameters
from expost.noise.release_path import check_rung

__all__ = ["ReducedAboveThreshold", "RenewedThreshold", "RisingBatch", "RisingSession"]


@dataclass(frozen=True, kw_only=True)
class _RisingRule(abc.ABC):
    """What both rules share: the ladder of levels, sessions and simulations."""

    repeats_rungs: ClassVar[bool]
    """Whether a rung may be asked again."""

    sensitivity: Sensitivity
    ladder: Ladder

    @property
    def guarantee(self) -> PureGuarantee:
        """The promise: what a session can cost at most."""
        return PureGuarantee(self.ladder.cap)

    @property
    def _reach(self) -> Fraction:
        return sensitivity_in(Norm.L1, self.sensitivity, 1)

    @share_noise_parameters
    @abc.abstractmethod
    def query_scale(self, rung: int) -> Fraction:
        """Return the scale of the noise on a query asked at this rung."""

    @share_noise_parameters
    @abc.abstractmethod
    def threshold_scale(self, rung: int) -> Fraction:
        """Return the scale of the noise on the threshold at this rung."""

    @share_noise_parameters
    @abc.abstractmethod
    def open_barrier(self, runs: int, bits: BitSource) -> Callable[[int], NDArray[Any]]:
        """Return a function from the rung to the noisy thresholds of several sessions; called once per query."""

    @share_noise_parameters
    @abc.abstractmethod
    def level_spent(self, rung: int, *, stopped: bool) -> Fraction:
        """Return what a session costs whose last query was at this rung.

        Parameters
        ----------
        stopped : bool
            Whether that query was answered "above".
        """

    @share_noise_parameters
    def false_alarm_margin(self, failure_probability: float | Fraction, *, rung: int) -> int:
        """Return the smallest m such that a query at threshold - m or below is answered "above" only so often."""
        # Both noises have their exact law at this rung, whatever was asked below it.
        check_rung(self.ladder, rung)
        share = float(probability(failure_probability, "failure_probability"))
        return one_sided_margin(self.threshold_scale(rung), self.query_scale(rung), share)

    @share_noise_parameters
    def open(self, *, bits: BitSource | None = None) -> RisingSession:
        """Open a session that answers queries."""
        return RisingSession(self, bits=bits)

    @share_noise_parameters
    def simulate(self, queries: object, *, runs: int, bits: BitSource | None = None) -> NDArray[np.int64]:
        """Run independent sessions on queries that the caller has anyway, the t-th asked at rung t.

        A row per session has the rung of the answer "above" and its gap, -1 where there is none.
        """
        batch = RisingBatch(self, runs, resolve_bits(bits))
        stopped = np.full((runs, 2), -1, dtype=np.int64)
        for rung, query in enumerate(read_compact_integers(queries).tolist()):
            above, gaps = batch.step(query, rung)
            stopped[above, 0] = rung
            stopped[above, 1] = gaps[above]
        return stopped


@share_noise_parameters
@share_parameters(AboveThreshold)
@dataclass(frozen=True, kw_only=True)
class ReducedAboveThreshold(_RisingRule):
    """Asks query after query at privacy levels that rise along a ladder; the first answer "above" ends the session.

    The noise on the threshold is one geometric path: at a higher rung it is the same noise with a part removed, so the
    rungs passed cost nothing beyond the last one. The noise on a query is fresh.

    Guarantee: pure ex-post, known only after the run: the level of the rung at which it stopped; if it has not
        stopped, the threshold's share of the last level used. At most the cap of the ladder.
    Adjacency: whichever one the sensitivity was computed for; ``monotone`` and ``span`` must hold under it.
    Sensitivity: of each single query, declared once; a query with a larger one is refused. Of an interval its longer side.
    Accuracy: that of AboveThreshold at the level of the rung; false_alarm_margin(...), from the exact law of the noise.
    Numerics: exact; integer noise, integer comparisons.
    Reference: WRWR22, section 4 (two-sided noise on reals); docs/proofs/above-threshold.md (one-sided, on integers).

    Parameters
    ----------
    threshold_share : float or Fraction, default 1/2
        The share of each level that goes to the threshold; the rest goes to the query.
    span : int, optional
        The length of an interval that contains 0 and within which one unit moves all queries, as for counts of right
        and wrong answers. Not together with ``monotone``.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> rule = ReducedAboveThreshold(threshold=100, sensitivity=Sensitivity(1), ladder=Ladder.of([0.1, 0.5, 1]))
    >>> session = rule.open(bits=SeededBits(1))
    >>> session.ask(Sealed(0, Sensitivity(1)), rung=0).above, session.loss
    (False, PureLoss(epsilon=Fraction(1, 20)))
    >>> session.ask(Sealed(400, Sensitivity(1)), rung=1).above, session.loss
    (True, PureLoss(epsilon=Fraction(1, 2)))
    """

    repeats_rungs = True

    threshold: int
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
            _check_span(self.span, self._reach)
            if self.monotone:
                raise InvalidRequest("Expected a span or monotone queries", do="Leave one of them out")

    def query_scale(self, rung: int) -> Fraction:
        # docs/proofs/above-threshold.md, step 3: the threshold's shift and the query's own move, as in AboveThreshold;
        # together no more than the span (Intervals).
        moves = self._reach if self.monotone else 2 * self._reach
        if self.span is not None:
            moves = Fraction(self.span)
        return moves / ((1 - self.threshold_share) * self.ladder[rung])

    def threshold_scale(self, rung: int) -> Fraction:
        # As step 1 of docs/proofs/above-threshold.md, at the share of this rung.
        return self._reach / (self.threshold_share * self.ladder[rung])

    def open_barrier(self, runs: int, bits: BitSource) -> Callable[[int], NDArray[Any]]:
        levels = Ladder(tuple(self.threshold_share * rung for rung in self.ladder))
        # One path for all rungs: a fresh threshold per rung would be charged once per rung, the path only at its last one.
        path = GeometricPath(self.sensitivity, levels, size=runs, bits=bits)
        return lambda rung: add_exactly(read_compact_integers([self.threshold]), path.at(rung))

    def level_spent(self, rung: int, *, stopped: bool) -> Fraction:
        # docs/proofs/above-threshold.md: "below" never uses up the query's share.
        return self.ladder[rung] if stopped else self.ladder[rung] * self.threshold_share


@share_noise_parameters
@dataclass(frozen=True, kw_only=True)
class RenewedThreshold(_RisingRule):
    """Asks at most one query per rung whether it reaches zero; the first answer "above" ends the session.

    A query is asked with noise Q - Z, both geometric and fresh: Q at the whole level of the rung, Z at what answers
    "below" may cost more than at the rung before. One unit must move all queries within one interval that contains 0
    and is ``span`` long. Then an answer "above" and the answers "below" before it have privacy losses of opposite sign,
    and the session costs the larger of the two, not their sum.

    Guarantee: pure ex-post, known only after the run: the level of the last rung asked, whatever the answer. At most the
        cap of the ladder.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: the longer side of the interval in which one unit moves every query; a query with a larger one is refused.
    Accuracy: false_alarm_margin(...), from the exact law of the noise.
    Numerics: exact; integer noise, integer comparisons.
    Reference: docs/proofs/sgd-validation.md, Theorem 1.

    Parameters
    ----------
    sensitivity : Sensitivity
        The longer side of the interval.
    span : int
        The length of the interval, between the sensitivity and twice as much.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> rule = RenewedThreshold(sensitivity=Sensitivity(1), span=1, ladder=Ladder.of([0.1, 0.5, 1]))
    >>> session = rule.open(bits=SeededBits(1))
    >>> session.ask(Sealed(-100, Sensitivity(1)), rung=0).above, session.loss
    (False, PureLoss(epsilon=Fraction(1, 10)))
    >>> session.ask(Sealed(100, Sensitivity(1)), rung=2).above, session.loss
    (True, PureLoss(epsilon=Fraction(1, 1)))
    """

    repeats_rungs = False

    span: int

    def __post_init__(self) -> None:
        _check_span(self.span, self._reach)

    def query_scale(self, rung: int) -> Fraction:
        # docs/proofs/sgd-validation.md: an answer "above" costs the level of its rung.
        return self.span / self.ladder[rung]

    def threshold_scale(self, rung: int) -> Fraction:
        # Fresh noise per rung pays only for what this rung adds to the ones below it.
        return self.span / (self._level_below(rung) - (self._level_below(rung - 1) if rung else 0))

    def _level_below(self, rung: int) -> Fraction:
        """Return what answers "below" up to this rung would cost a unit that moves them by the whole span."""
        # docs/proofs/sgd-validation.md, Theorem 1: none moves them further than the sensitivity, and the part left to
        # the next rung's answer "above" is a loss of opposite sign.
        alone = self.ladder[rung] * self.span / self._reach
        return min(alone, self.ladder[rung + 1]) if rung + 1 < len(self.ladder) else alone

    def open_barrier(self, runs: int, bits: BitSource) -> Callable[[int], NDArray[Any]]:
        return lambda rung: sample_geometric(self.threshold_scale(rung), runs, bits=bits)

    def level_spent(self, rung: int, *, stopped: bool) -> Fraction:
        return self.ladder[rung]


class RisingBatch:
    """Several independent sessions of one rule in step: one array operation per query."""

    def __init__(self, rule: _RisingRule, runs: int, bits: BitSource) -> None:
        self._rule, self._runs, self._bits = rule, runs, bits
        self._barrier = rule.open_barrier(runs, bits)
        self.unfinished = np.ones(runs, dtype=bool)

    def step(self, query: int, rung: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return which sessions answer "above" now, and their gaps."""
        # Fresh for every query: noise that is used twice would reveal the difference of two queries.
        noise = sample_geometric(self._rule.query_scale(rung), self._runs, bits=self._bits)
        gaps = add_exactly(add_exactly(read_compact_integers([query]), noise), -self._barrier(rung))
        # Finished sessions draw noise too, and their gaps are not shown.
        above = self.unfinished & (gaps >= 0).astype(bool)
        self.unfinished &= ~above
        return above, np.where(above, np.minimum(gaps, LARGEST_GAP), -1).astype(np.int64)


@share_noise_parameters
class RisingSession(SingleOwner):
    """One run of a rule whose levels rise; rungs never go down, and the first answer "above" ends it.

    Parameters
    ----------
    rule : ReducedAboveThreshold or RenewedThreshold
        The ladder and the noise.

    Examples
    --------
    >>> RenewedThreshold(sensitivity=Sensitivity(1), span=2, ladder=Ladder.of([1])).open().loss
    PureLoss(epsilon=Fraction(0, 1))
    """

    def __init__(self, rule: _RisingRule, *, bits: BitSource | None = None) -> None:
        super().__init__()
        self.rule = rule
        self._batch = RisingBatch(rule, 1, resolve_bits(bits))
        self._rung = -1

    @property
    def last(self) -> int:
        """The rung asked last; -1 before the first."""
        return self._rung

    @property
    def loss(self) -> PureLoss:
        """What the answers given so far cost."""
        if self._rung < 0:
            return PureLoss(Fraction(0))
        return PureLoss(self.rule.level_spent(self._rung, stopped=not self._batch.unfinished[0]))

    def ask(self, sealed: Sealed, *, rung: int) -> Crossing:
        """Ask whether a sealed integer reaches the threshold at the level of a rung.

        Parameters
        ----------
        sealed : Sealed
            A single integer, within the declared sensitivity.
        rung : int
            The index of the rung: above the last one asked (``ReducedAboveThreshold`` also accepts the same one).
        """
        query = read_query(sealed, self.rule.sensitivity)
        with self._draw_alone():
            if not self._batch.unfinished[0]:
                raise InvalidRequest(
                    "Cannot answer because this session has stopped", do="Open a new one, which is billed again"
                )
            lowest = max(self._rung, 0) if self.rule.repeats_rungs else self._rung + 1
            if not lowest <= rung < len(self.rule.ladder):
                raise InvalidRequest(
                    f"Expected a rung from {lowest} to {len(self.rule.ladder) - 1}", got=rung, do="Go up the ladder"
                )
            self._rung = rung  # before there is an answer: one that an interrupt loses is paid for
            above, gaps = self._batch.step(query, rung)
        return Crossing(bool(above[0]), int(gaps[0]) if above[0] else None)

    def __repr__(self) -> str:
        return f"<session of {type(self.rule).__name__}, last rung {self._rung}>"


def _check_span(span: int, reach: Fraction) -> None:
    """Refuse the length of an interval that contains 0 and whose longer side is not the sensitivity."""
    if isinstance(span, bool) or not isinstance(span, int | np.integer) or not reach <= span <= 2 * reach:
        raise InvalidRequest(
            "Expected a span between the sensitivity and twice as much", got=span, do="Pass the interval's length"
        )
