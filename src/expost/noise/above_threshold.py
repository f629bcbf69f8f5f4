"""Above-threshold: answers a stream of integer queries by "below" until one is above."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Norm, PureGuarantee, PureLoss, Sealed, Sensitivity, SingleOwner, unseal
from expost.core.rational import probability, rational
from expost.noise.bits import BitSource, resolve_bits
from expost.noise.lattice import add_exactly, read_compact_integers
from expost.noise.lattice_sampler import sample_geometric, sample_laplace
from expost.noise.parameter import sensitivity_in, share_noise_parameters

__all__ = ["AboveThreshold", "Crossing", "SessionBatch", "ThresholdSession", "one_sided_margin", "read_query"]

LARGEST_GAP = (1 << 62) - 1
"""A gap above it is shown as this."""
_MARGIN = 1 + 1e-9  # for logarithms computed in floats


@dataclass(frozen=True)
class Crossing:
    """One answer: whether the noisy query reached the noisy threshold, and if so by how much.

    Parameters
    ----------
    above : bool
        Whether the threshold was reached.
    gap : int, optional
        By how many lattice units; None for an answer "below".

    Examples
    --------
    >>> Crossing(above=True, gap=3)
    Crossing(above=True, gap=3)
    """

    above: bool
    gap: int | None = None


@share_noise_parameters
@dataclass(frozen=True, kw_only=True)
class AboveThreshold:
    """Reports which queries reach a threshold, at a price for those that do, not for those that do not.

    Query noise is fresh for every query, threshold noise for every segment between two answers "above". Both are
    one-sided: a geometric law on 0, 1, 2, ... A ``two_sided`` rule uses discrete Laplace noise instead; with equal
    shares that is Algorithm 2 of LNRWW17. With an answer "above" the noisy gap is released too, at no further price.

    Guarantee: pure ex-post, known only after the run: hits * (epsilon_threshold + epsilon_query), plus
        epsilon_threshold if queries were asked since the last hit; at most the cap at ``hits`` = the limit.
    Adjacency: whichever one the sensitivity was computed for; ``monotone`` must hold under it.
    Sensitivity: of each single query, declared once; a query with a larger one is refused.
    Accuracy: false_alarm_margin(...) and miss_margin(...), from the exact law of the noise.
    Numerics: exact; integer noise, integer comparisons.
    Reference: docs/proofs/above-threshold.md (one-sided noise on integers, gap, refresh); LNRWW17, Lemma 2.8 and
        Algorithm 2 (two-sided); LWLLC24 (one-sided noise on reals); DWZK19 (gap).

    Parameters
    ----------
    sensitivity : Sensitivity
        The largest one of a single query.
    epsilon_threshold : float or Fraction
        What the noise on the threshold costs, > 0.
    epsilon_query : float or Fraction
        What an answer "above" costs on top, > 0.
    hits : int, default 1
        How many answers "above" are paid for.
    two_sided : bool, default False
        Whether the noise is discrete Laplace, as in LNRWW17.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> rule = AboveThreshold(threshold=100, sensitivity=Sensitivity(1), epsilon_threshold=0.5, epsilon_query=1)
    >>> session = rule.open(bits=SeededBits(1))
    >>> [session.ask(Sealed(query, Sensitivity(1))).above for query in (10, 40, 190)]
    [False, False, True]
    >>> session.loss
    PureLoss(epsilon=Fraction(3, 2))
    """

    threshold: int
    sensitivity: Sensitivity
    epsilon_threshold: Fraction
    epsilon_query: Fraction
    hits: int = 1
    monotone: bool = False
    two_sided: bool = False

    def __post_init__(self) -> None:
        for name in ("epsilon_threshold", "epsilon_query"):
            object.__setattr__(self, name, rational(getattr(self, name), name))
        for name in ("threshold", "hits"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise InvalidRequest(f"Expected {name} to be an integer", got=value, do="Pass it in lattice units")
        if self.hits < 1:
            raise InvalidRequest("Expected at least one hit", got=self.hits, do="Pass the number of answers to pay for")

    @classmethod
    @share_noise_parameters
    def paper2017(cls, threshold: int, sensitivity: Sensitivity, *, epsilon: float | Fraction) -> AboveThreshold:
        """Make InteractiveAboveThreshold as printed: noise of scale 2 / epsilon on the threshold, 4 / epsilon on queries.

        Half of epsilon, the price of the session, pays for the threshold.

        Examples
        --------
        >>> AboveThreshold.paper2017(0, Sensitivity(1), epsilon=1).query_scale
        Fraction(4, 1)
        """
        half = rational(epsilon, "epsilon") / 2
        return cls(
            threshold=threshold, sensitivity=sensitivity, epsilon_threshold=half, epsilon_query=half, two_sided=True
        )

    @property
    def guarantee(self) -> PureGuarantee:
        """The promise: what a session can cost at most."""
        return PureGuarantee(self.hits * (self.epsilon_threshold + self.epsilon_query))

    @property
    def threshold_scale(self) -> Fraction:
        """The scale of the noise on the threshold, in lattice units."""
        # docs/proofs/above-threshold.md, step 1: shifting the threshold by the sensitivity costs epsilon_threshold.
        return sensitivity_in(Norm.L1, self.sensitivity, 1) / self.epsilon_threshold

    @property
    def query_scale(self) -> Fraction:
        """The scale of the noise on a query, in lattice units."""
        # Step 3: at a hit the query's noise makes up for the shifted threshold and for the query's own move; queries
        # that move together leave one of the two.
        moves = 1 if self.monotone else 2
        return moves * sensitivity_in(Norm.L1, self.sensitivity, 1) / self.epsilon_query

    @share_noise_parameters
    def open(self, *, bits: BitSource | None = None) -> ThresholdSession:
        """Open a session that answers queries."""
        return ThresholdSession(self, bits=bits)

    @share_noise_parameters
    def simulate(
        self, queries: object, *, runs: int, bits: BitSource | None = None
    ) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
        """Run independent sessions on queries that the caller has anyway: for audits and planning.

        One session per row, one query per column: answers (1 above, 0 below, -1 not answered because the hits were
        used up) and gaps (-1 where there is none).
        """
        batch = SessionBatch(self, runs, resolve_bits(bits))
        steps = [batch.step(query) for query in read_compact_integers(queries).tolist()]
        answers = np.stack([above for above, _ in steps], axis=1)
        return answers, np.stack([gap for _, gap in steps], axis=1)

    @share_noise_parameters
    def false_alarm_margin(self, failure_probability: float | Fraction, *, queries: int) -> int:
        """Return an m such that no query at threshold - m or below is answered "above".

        Parameters
        ----------
        queries : int
            How many queries there are.
        """
        # A union bound over the queries of a segment.
        share = float(probability(failure_probability, "failure_probability")) / queries
        if self.two_sided:
            return self._two_sided_margin(share)
        return one_sided_margin(self.threshold_scale, self.query_scale, share)

    @share_noise_parameters
    def miss_margin(self, failure_probability: float | Fraction) -> int:
        """Return an m such that a query at threshold + m or above is answered "above"."""
        share = float(probability(failure_probability, "failure_probability"))
        if self.two_sided:
            return self._two_sided_margin(share)
        # Below means Q < T - m, hence T > m: probability a^(m+1).
        return max(math.ceil(float(self.threshold_scale) * math.log(1 / share) * _MARGIN) - 1, 0)

    def _two_sided_margin(self, share: float) -> int:
        # P(query noise - threshold noise >= m): split m so that both tails exp(-./scale) are equal.
        return math.ceil((float(self.threshold_scale) + float(self.query_scale)) * math.log(2 / share) * _MARGIN)


class SessionBatch:
    """Several independent sessions of one rule in step: one array operation per query."""

    def __init__(self, rule: AboveThreshold, runs: int, bits: BitSource) -> None:
        self._rule, self._bits = rule, bits
        self._sample = sample_laplace if rule.two_sided else sample_geometric
        self.hits = np.zeros(runs, dtype=np.int64)
        self._barrier = self._draw_barrier(runs)

    def step(self, query: int | NDArray[np.int64]) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
        """Answer one query in all sessions, or one query per session; gaps are -1 where there is none."""
        unfinished = self.hits < self._rule.hits
        gaps = self._draw_gaps(read_compact_integers(np.atleast_1d(query)), len(self.hits))
        # Finished sessions draw noise too, and their gaps are not shown.
        above = unfinished & (gaps >= 0).astype(bool)
        self.hits += above
        self._renew_barriers(above)
        shown = np.where(above, np.minimum(gaps, LARGEST_GAP), -1).astype(np.int64)
        return np.where(unfinished, above.astype(np.int8), np.int8(-1)), shown

    def first_above(self, queries: NDArray[Any]) -> tuple[int, int] | None:
        """Find the first of several queries of one session that reaches the threshold, and its gap."""
        gaps = self._draw_gaps(queries, len(queries))
        reached = np.flatnonzero((gaps >= 0).astype(bool))
        if not reached.size:
            return None
        self.hits += 1
        self._renew_barriers(np.ones(1, dtype=bool))
        return int(reached[0]), int(min(gaps[reached[0]], LARGEST_GAP))

    def _draw_barrier(self, count: int) -> NDArray[Any]:
        """Draw noisy thresholds."""
        noise = self._sample(self._rule.threshold_scale, count, bits=self._bits)
        return add_exactly(read_compact_integers([self._rule.threshold]), noise)

    def _draw_gaps(self, queries: NDArray[Any], count: int) -> NDArray[Any]:
        """Draw query noise and return the distances of the noisy queries from the noisy thresholds."""
        noise = self._sample(self._rule.query_scale, count, bits=self._bits)
        return add_exactly(add_exactly(queries, noise), -self._barrier)

    def _renew_barriers(self, above: NDArray[np.bool_]) -> None:
        """Draw the threshold of the next segment: the noise of the last one was used up by the hit."""
        fresh = self._draw_barrier(int(np.count_nonzero(above)))
        # Values beyond 62 bits are Python integers; an int64 array could not hold them.
        if fresh.dtype != self._barrier.dtype:
            self._barrier = self._barrier.astype(object)
        self._barrier[above] = fresh


@share_noise_parameters
class ThresholdSession(SingleOwner):
    """One run of above-threshold; it answers until its hits are used up.

    Parameters
    ----------
    rule : AboveThreshold
        The threshold, the noise and the price.

    Examples
    --------
    >>> rule = AboveThreshold(threshold=0, sensitivity=Sensitivity(1), epsilon_threshold=1, epsilon_query=1)
    >>> rule.open().loss
    PureLoss(epsilon=Fraction(0, 1))
    """

    def __init__(self, rule: AboveThreshold, *, bits: BitSource | None = None) -> None:
        super().__init__()
        self.rule = rule
        self._batch = SessionBatch(rule, 1, resolve_bits(bits))
        self._open_segment = False

    @property
    def hits_left(self) -> int:
        """How many answers "above" are still paid for."""
        return self.rule.hits - int(self._batch.hits[0])

    @property
    def loss(self) -> PureLoss:
        """What the answers given so far cost."""
        # docs/proofs/above-threshold.md: a segment that ended in a hit, and one that has only seen "below".
        per_hit = self.rule.epsilon_threshold + self.rule.epsilon_query
        unfinished = self.rule.epsilon_threshold if self._open_segment else 0
        return PureLoss(int(self._batch.hits[0]) * per_hit + unfinished)

    def ask(self, sealed: Sealed) -> Crossing:
        """Ask whether a sealed integer reaches the threshold.

        Parameters
        ----------
        sealed : Sealed
            A single integer, within the declared sensitivity.
        """
        query = read_query(sealed, self.rule.sensitivity)
        with self._draw_alone():
            self._check_hits_left()
            self._open_segment = True  # before there is an answer: one that an interrupt loses is paid for
            answers, gaps = self._batch.step(query)
            above = bool(answers[0])
            self._open_segment = not above
        return Crossing(above, int(gaps[0]) if above else None)

    def ask_until_above(self, queries: Sequence[Sealed]) -> tuple[int, Crossing] | None:
        """Ask one query after the other up to the first that reaches the threshold.

        The same law as ``ask`` in a loop that stops at a hit, but all noise is drawn at once; the noise of queries
        after the hit is discarded unseen.

        Parameters
        ----------
        queries : sequence of Sealed
            Single integers, within the declared sensitivity.

        Examples
        --------
        >>> rule = AboveThreshold(threshold=0, sensitivity=Sensitivity(1), epsilon_threshold=9, epsilon_query=9)
        >>> rule.open().ask_until_above([Sealed(value, Sensitivity(1)) for value in (-900, -900, 900, -900)])[0]
        2
        """
        exact = [read_query(query, self.rule.sensitivity) for query in queries]
        with self._draw_alone():
            self._check_hits_left()
            if not queries:
                return None
            # All queries are drawn before the first hit is known; a lost answer is paid for as in ``ask``.
            self._open_segment = True
            found = self._batch.first_above(read_compact_integers(exact))
            self._open_segment = found is None
        return None if found is None else (found[0], Crossing(True, found[1]))

    def _check_hits_left(self) -> None:
        if not self.hits_left:
            raise InvalidRequest(
                "Cannot answer because all hits of this session are used up",
                do="Open a new session, which is billed again",
            )

    def __repr__(self) -> str:
        return f"<above-threshold session, {self.hits_left} hits left>"


def read_query(sealed: Sealed, declared: Sensitivity) -> int:
    """Read a sealed query; one that a unit can move further than declared is refused."""
    given = sealed.sensitivity
    # Equal unit and adjacency too: a sensitivity of 1 row is not one of 1 person.
    if given.amount > declared.amount or (given.adjacency, given.unit) != (declared.adjacency, declared.unit):
        raise InvalidRequest(
            "Expected a query within the declared sensitivity", got=given.amount, do="Declare the largest one"
        )
    values = read_compact_integers(unseal(sealed))
    if values.size != 1:
        raise InvalidRequest("Expected a single integer per query", do="Ask one query after the other")
    return int(values.item())


def one_sided_margin(threshold_scale: Fraction, query_scale: Fraction, share: float) -> int:
    """Return the smallest m such that a query m below the threshold is answered "above" with probability <= ``share``.

    >>> one_sided_margin(Fraction(5), Fraction(2), 0.01)
    8
    """
    t, q = float(threshold_scale), float(query_scale)
    # P(Q >= m + T) = b^m (1 - a) / (1 - a b), a and b the decays of threshold and query noise.
    together = -math.expm1(-1 / t) / -math.expm1(-1 / t - 1 / q)
    return max(math.ceil(q * math.log(together / share) * _MARGIN), 0)
