"""Tests of one trained model with Laplace noise: when one is worth its price, and what it shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.core import Sealed, Sensitivity, Target
from expost.models.tabular.rung_schedule import MOST_PROFILES
from expost.models.tabular.score_sum import MeasuredScore, ScoreSum
from expost.models.tabular.table_profile import TableProfile
from expost.noise import BitSource
from expost.noise.laplace_path import DiscreteLaplacePath

__all__ = ["Confirmation", "LaplaceTest", "find_threshold"]

# The constants below were chosen on the tables adult and diamonds.
_TEST_SHARE = 0.5  # of the training's epsilon, for the test of a model: beyond it more training pays more
_SPARE = 1.0  # scales of noise that a test has in addition to its margin, so that it passes more often than not
_RESERVE = Fraction(1, 5)  # of a rung's epsilon, which must be left for a test of its model
_MOST_LOOKS = 3  # at one model
_FINER = 1.25  # the least growth of epsilon from look to look
_FADING = 1.3  # growth of the deviation of an earlier score, where it is combined with a later one
_HOPEFUL = 1.5  # deviations below the target from which on more of a rung measures its score
_HOPELESS = 3.0  # deviations that separate a plateau from the target
_EARLIEST = Fraction(4, 100), Fraction(1, 5)  # epsilon, and share of the cap, before which no plateau is told
_RUNGS_BACK = 2  # a plateau is told from the gain over this many rungs
_FAR, _NEAR = 0.12, 0.25  # shares of a rung that measure its score: far from the target, and near it
_DIGITS = 3
_WITHOUT_ERRORS = 2.0  # times the surplus of a model without errors, by which noise may have hidden it


def find_threshold(level: Fraction, sensitivity: Fraction, failure: float) -> int:
    """Return a number that discrete Laplace noise of this level reaches with probability ``failure`` at most.

    P(noise >= t) is a^t / (1 + a) with a = exp(-level / sensitivity), exactly (docs/proofs/lattice-laplace.md).

    >>> find_threshold(Fraction(1), Fraction(1), 0.05)
    3
    """
    rate = float(level / sensitivity)
    # One part in a million covers the float errors of the quotient and of the logarithm.
    return max(0, math.ceil(-math.log(failure * (1 + math.exp(-rate))) / rate * (1 + 1e-6)))


class LaplaceTest:
    """The deciding sum of one model under discrete Laplace noise, which shrinks from look to look.

    Guarantee: pure ex-post: all looks together cost the epsilon of the last one.
    Adjacency: add/remove of one unit.
    Sensitivity: that of the sum's lattice; it has one entry, so its L1 and L2 sensitivities are equal.
    Accuracy: a model whose exact sum is negative passes a reading with its failure probability at most.
    Numerics: exact integers; the sum is rounded down.
    Reference: docs/proofs/tabular-models.md, Theorem 3; docs/proofs/lattice-laplace.md.
    """

    def __init__(self, sums: ScoreSum, total: NDArray[np.int64], bits: BitSource) -> None:
        self._sums, self._bits = sums, bits
        self._sensitivity = Fraction(sums.deciding.sensitivity.amount)
        self._sealed = Sealed(total, Sensitivity(self._sensitivity))
        self._path: DiscreteLaplacePath | None = None

    @property
    def _unit(self) -> float:
        """Return a lattice unit in rows times the measure's unit."""
        return self._sums.height / self._sums.deciding.unit

    def look(self, level: Fraction) -> float:
        """Return the sum with the noise of this level, above that of the look before."""
        if self._path is None:
            self._path = DiscreteLaplacePath(self._sealed, [level], bits=self._bits)
            return int(self._path.at(0)[0]) * self._unit
        return int(self._path.at(self._path.refine(level))[0]) * self._unit

    def margin(self, level: Fraction, failure: float) -> float:
        """Return what the noise of a reading reaches with this probability at most."""
        return find_threshold(level, self._sensitivity, failure) * self._unit

    def deviation(self, level: Fraction) -> float:
        """Return the standard deviation of the noise of a reading."""
        return math.sqrt(2) * float(self._sensitivity / level) * self._unit


class Confirmation:
    """Decides when a model is tested, at which epsilon, and when a training is given up.

    It reads released numbers only. The first reading may err with half of the failure probability, the second with a quarter,
    and so on, whichever models they are at, so all of them together with the whole.
    """

    def __init__(self, target: Target, failure_probability: Fraction, cap: Fraction) -> None:
        self._target, self._failure, self._cap = target, float(failure_probability), cap
        self._history: list[tuple[float, float]] = []  # scores, each combined with those before
        self._scores: list[tuple[float, float]] = []  # each by itself
        self._profile: TableProfile | None = None
        self._hopeless = 0
        self._doubt = 0.0  # how much less a look saw than what was measured before
        self.looks = 0
        self.spent = Fraction(0)
        self.met = False
        self.margin = 0.0
        self.seen: tuple[float, float] | None = None
        """What the last look at the last model saw, with its deviation."""

    @property
    def measure_share(self) -> float:
        """Return the share of the next rung that measures its score."""
        near = not self._history or self._history[-1][0] + _HOPEFUL * self._history[-1][1] >= 0
        return _NEAR if near else _FAR

    def affords(self, trained: Fraction) -> bool:
        """Return whether a training of this epsilon leaves enough for a test."""
        return trained * (1 + _RESERVE) + self.spent <= self._cap

    def confirm(
        self,
        score: MeasuredScore,
        sums: ScoreSum,
        profile: TableProfile,
        open_test: Callable[[], LaplaceTest],
        trained: Fraction,
        *,
        last: bool,
    ) -> str:
        """Test the model if that is worth its price; return why the training ends, or an empty text if it goes on."""
        guess, deviation = self._combine(score, profile)
        extra = sums.find_margin(profile, self._failure / (10 * MOST_PROFILES))
        left = self._cap - trained - self.spent
        limit = left if last else min(left, trained * Fraction(_TEST_SHARE))
        test: LaplaceTest | None = None
        level, self.seen = Fraction(0), None
        wanted = self._find_need(guess - extra, sums.height)
        if last and self._find_need(guess + deviation - extra, sums.height) <= limit:
            wanted = min(wanted, float(limit))  # nothing else is left to do with the rest of the cap
        for _ in range(_MOST_LOOKS):
            if wanted > limit:
                break
            test = open_test() if test is None else test
            level, before = min(limit, _short(wanted)), level
            allowed = self._next_failure()
            self.looks += 1
            self.spent += level - before
            seen = test.look(level)
            self.seen = seen, test.deviation(level)
            margin = test.margin(level, allowed) + extra
            self.margin = margin / profile.rows / sums.surplus_of_one(profile)
            if seen >= margin:
                self.met = True
                return "met"
            both = _weigh((guess, deviation), self.seen)
            wanted = max(self._find_need(both[0] - extra, sums.height), float(level) * _FINER)
        if test is not None:
            self._doubt = max(0.0, guess - both[0]) if score.guide is not None else 0.0
            guess, deviation = both
        return self._judge(guess, deviation, extra, sums, profile, trained, last=last)

    def _combine(self, score: MeasuredScore, profile: TableProfile) -> tuple[float, float]:
        """Return the surplus of the last model from its own score and from those of the models before.

        Scores under another profile are left out: a regression's terms are cut off elsewhere then.
        """
        surplus, deviation = (score.surplus, score.deviation) if score.guide is None else score.guide
        surplus -= self._doubt
        self._scores.append((surplus, deviation))
        fresh, self._profile = profile is not self._profile, profile
        if self._history and not (fresh and score.guide is not None):
            before, noise = self._history[-1]
            surplus, deviation = _weigh((surplus, deviation), (before, noise * _FADING))
        return surplus, deviation

    def _next_failure(self) -> float:
        # A tenth of the failure probability is for profiles whose noise hides more than the margin allows.
        return 0.9 * self._failure / 2.0 ** (self.looks + 1)

    def _find_need(self, surplus: float, height: float) -> float:
        """Return the epsilon at which a sum of this size is likely to pass the next look."""
        if surplus <= 0:
            return math.inf
        return (-math.log(2 * self._next_failure()) + _SPARE) * height / surplus

    def _judge(
        self,
        guess: float,
        deviation: float,
        extra: float,
        sums: ScoreSum,
        profile: TableProfile,
        trained: Fraction,
        *,
        last: bool,
    ) -> str:
        """Return why the training is given up, or an empty text."""
        left = float(self._cap - trained - self.spent)
        self._history.append((guess, deviation))
        # Scores by themselves: a combined one lags behind while the model improves.
        surplus, noise = self._scores[-1]
        early = len(self._scores) <= _RUNGS_BACK or trained < min(_EARLIEST[0], _EARLIEST[1] * self._cap)
        if not early and self._find_need(_WITHOUT_ERRORS * sums.best_surplus(profile), sums.height) > left:
            return _NO_MODEL
        gain = math.inf if early else max(surplus - self._scores[-1 - _RUNGS_BACK][0], 0.0)
        # What the profile's noise adds to the margin falls faster than epsilon rises: at the cap little of it is left.
        best = max(surplus, guess) + gain + _HOPELESS * noise - extra * float(trained / self._cap)
        self._hopeless = self._hopeless + 1 if self._find_need(best, sums.height) > left else 0
        if self._hopeless >= _RUNGS_BACK:
            return _OUT_OF_REACH
        return _SPENT if last else ""


_NO_MODEL = (
    "out of reach: with this cap and so many rows the margin of the test is larger than all errors that the target allows; "
    "raise max_epsilon, lower the target, or narrow target_bounds if there are any"
)
_OUT_OF_REACH = (
    "out of reach: the score stays below the target plus the margin of its test at the cap; lower the target, raise "
    "max_epsilon, or narrow target_bounds if there are any"
)
_SPENT = "the cap is spent"


def _weigh(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """Return the mean of two estimates, weighted by their precisions, and its deviation."""
    weights = first[1] ** -2, second[1] ** -2
    whole = weights[0] + weights[1]
    return (first[0] * weights[0] + second[0] * weights[1]) / whole, whole**-0.5


def _short(level: float) -> Fraction:
    """Return a level of few digits, rounded up."""
    grid = Fraction(10) ** (math.floor(math.log10(level)) - _DIGITS + 1)
    return math.ceil(Fraction(level) / grid) * grid
