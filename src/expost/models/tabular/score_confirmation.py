"""Tests of trained models with Laplace noise: when one is worth its price, and when a training is given up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from expost.core import Measure, Target
from expost.models.tabular.laplace_test import LaplaceTest, find_threshold, shorten_level
from expost.models.tabular.rung_schedule import MOST_PROFILES
from expost.models.tabular.score_sum import NUMERIC_MEASURES, MeasuredScore, ScoreSum, find_deviations
from expost.models.tabular.table_profile import TableProfile
from expost.models.tabular.target_mean import TargetMean

__all__ = ["Confirmation", "OpenSums", "find_needed_sum"]

# The constants below were chosen on the tables adult, diamonds, gss, nlswork, cps and nycflights13.
# Of the training's epsilon, for the test of a model: beyond it more training pays more. The score of a regression rises less
# from rung to rung than the margin of its test falls with epsilon.
_TEST_SHARE, _NUMERIC_SHARE = 0.5, 1.2
_SPARE = {False: 1.0, True: 0.3}  # scales of noise that a test has in addition to its margin
_RESERVE = Fraction(1, 5)  # of a rung's epsilon, which must be left for a test of its model
# Of the failure probability that is left, for the next model that is tested; of that of a model, for each look at it. The
# surplus of a regression is known badly before: there are more looks at a model, and fewer models.
_MODELS = {False: 0.6, True: 0.7}
_LOOKS = {False: (0.65, 0.35), True: (0.4, 0.25, 0.2, 0.15)}
_FINER = (
    1.6  # growth of epsilon from look to look; fixed before the first one, since later noise depends on earlier noise
)
_ENOUGH = {False: 0.3, True: 0.0}  # scales above the margin of a later look from which on it is worth its price
_FADING = 1.3  # growth of the deviation of an earlier score, where it is combined with a later one
_HOPEFUL = 1.5  # deviations below the target from which on more of a rung measures its score
# Deviations that separate a plateau from the target: of measured scores, of looks, and of scores beyond some epsilon. There the
# target must be likely to be reached, not only possible. Accuracies rise for longer: what they gained last counts twice.
_HOPELESS, _LOOKED, _LIKELY, _COSTLY = {False: 3.0, True: 2.0}, 0.5, 0.5, Fraction(1, 5)
_GAINS = {False: 2.0, True: 1.0}
_BIASED = 2.0  # deviations between a look and a guide from which on the cut-off terms of the guide explain them
_CENTERED = 0.05  # of a surplus, which the distance between the middle and the mean may hide
_EARLIEST = Fraction(4, 100)  # epsilon before which no plateau is told
# That epsilon is for this many rows or more. Fewer rows need a larger one, in proportion, for as little noise: before it, and
# up to this share of the cap, a model has not learned yet. A training is costly only beyond the second epsilon, likewise.
_USUAL_ROWS, _LEARNED, _MOST_LEARNING = 20_000, Fraction(6, 100), Fraction(1, 2)
_RUNGS_BACK = 2  # a plateau is told from the gain over this many rungs
_FAR, _NEAR = 0.12, 0.25  # shares of a rung that measure its score: far from the target, and near it
_COUNTED = 3.0  # deviations by which the count of the rows may be too low, where it says that they are too few
_WITHOUT_ERRORS = 2.0  # times the surplus of a model without errors, by which noise may have hidden it


@dataclass(frozen=True)
class OpenSums:
    """Opens the sums of the model trained last: the deciding one, and that of targets around a number."""

    open_test: Callable[[ScoreSum], LaplaceTest]
    open_mean: Callable[[float], LaplaceTest]


class Confirmation:
    """Decides when a model is tested, at which epsilon, and when a training is given up.

    It reads released numbers only. Each model that is tested has a share of the failure probability, and each of the looks at
    it a share of that. Their levels are fixed before the first one: the noise of the second depends on that of the first.
    """

    def __init__(
        self,
        target: Target,
        failure_probability: Fraction,
        cap: Fraction,
        rows_per_unit: int = 1,
        *,
        most_models: int | None = None,
    ) -> None:
        self._target, self._failure, self._cap = target, float(failure_probability), cap
        self._history: list[tuple[float, float]] = []  # scores, each combined with those before
        self._scores: list[tuple[float, float]] = []  # each by itself
        self._profile: TableProfile | None = None
        self._mean = TargetMean(self._failure / 20, rows_per_unit)
        self._hopeless = 0
        self._most_models = most_models
        self._hidden = 0.0  # what sums may be too large by for other reasons than noise, besides the middle of R^2
        self._doubt = 0.0  # how much less looks saw than the guide, beyond what noise explains
        self._looked = Fraction(0)
        self._models = 0
        self.looks = 0
        self.met = False
        self.margin = 0.0
        self.seen: tuple[float, float] | None = None
        """What the last look at the last model saw, with its deviation."""

    @property
    def _numeric(self) -> bool:
        """Return whether the target is that of a regression."""
        return self._target.measure in NUMERIC_MEASURES

    @property
    def spent(self) -> Fraction:
        """Return what all looks and readings cost."""
        return self._looked + self._mean.spent

    @property
    def measure_share(self) -> float:
        """Return the share of the next rung that measures its score."""
        near = not self._history or self._history[-1][0] + _HOPEFUL * self._history[-1][1] >= 0
        return _NEAR if near else _FAR

    def find_tested(self, profile: TableProfile) -> TableProfile:
        """Return the profile of the rows that models are tested with: those of the training."""
        return profile

    def confirm(
        self,
        score: MeasuredScore,
        sums: ScoreSum,
        profile: TableProfile,
        source: OpenSums,
        trained: Fraction,
        *,
        following: Fraction | None,
    ) -> str:
        """Test the model if that is worth its price; return why the training ends, or an empty text if it goes on.

        ``following`` is the epsilon of the training after its next rung, None if there is none.
        """
        last = self._is_last(following)
        later = 0.0 if last or following is None else float(self._cap - following - self.spent)
        share = _NUMERIC_SHARE if sums.guided else _TEST_SHARE

        def find_limit(wanted: float) -> Fraction:
            """Return what a test may cost: all that is left if the next rung would leave too little for it."""
            left = self._cap - trained - self.spent
            return left if last or wanted > later else min(left, trained * Fraction(share))

        measured, deviation = self._combine(score, profile)
        sums, lost = sums.narrow(score, measured, profile)
        measured -= lost
        centered, guess, extra = self._center(sums, measured, profile)
        need = self._find_need((1 - _CENTERED) * guess, sums.height)
        if self._target.measure is Measure.R2 and extra > _CENTERED * guess and need <= find_limit(need):
            reach, off = find_deviations(self._profile_failure), sums.find_off(_CENTERED * guess, profile)
            at = self._mean.find_level(off, profile, reach)
            if at is not None and need + float(at) <= find_limit(need):
                self._mean.read(at, profile, reach, source.open_mean)
                centered, guess, extra = self._center(sums, measured, profile)
        self.seen = None
        wanted, left = self._find_need(guess - extra, sums.height), find_limit(math.inf)
        if last and self._find_need(guess + deviation - extra, sums.height) <= left:
            wanted = min(wanted, float(left))  # nothing else is left to do with the rest of the cap
        if wanted <= find_limit(wanted):
            level = min(find_limit(wanted), shorten_level(wanted))
            guess, deviation = self._look((guess, deviation), source.open_test(centered), centered, level, left, extra)
            self.margin /= profile.rows * sums.surplus_of_one(profile)
        # Looks have spent more: the next rung must still fit under the cap.
        last = self._is_last(following)
        return "met" if self.met else self._judge(guess, deviation, sums, profile, trained, last=last)

    def _is_last(self, following: Fraction | None) -> bool:
        """Return whether a training of this epsilon would leave too little for a test."""
        return following is None or following * (1 + _RESERVE) + self.spent > self._cap

    def _look(
        self,
        guess: tuple[float, float],
        test: LaplaceTest,
        sums: ScoreSum,
        level: Fraction,
        left: Fraction,
        extra: float,
    ) -> tuple[float, float]:
        """Test one model, twice if the second test is likely to pass; return its surplus and the deviation of it."""
        both, before, failures = guess, Fraction(0), self._next_failures()
        self._models += 1
        levels = [shorten_level(float(level) * _FINER**number) for number in range(len(failures))]
        for failure, at in zip(failures, (level, *levels[1:]), strict=True):
            enough = (-math.log(2 * failure) + _ENOUGH[self._numeric]) * sums.height
            hoped = both[0] + both[1] if self._numeric else both[0]  # another look is cheaper than another model
            if at > left or (before and (hoped - extra) * float(at) < enough):
                break
            self._looked += at - before
            before = at
            self.looks += 1
            seen = test.look(at)
            self.seen, self.margin = (seen, test.deviation(at)), test.margin(at, failure) + extra
            self.met = seen >= self.margin
            if self.met:
                break
            biased = sums.guided and guess[0] - seen > _BIASED * math.hypot(guess[1], self.seen[1])
            both = self.seen if biased else _weigh(guess, self.seen)
        if both == self.seen:  # the rest may be noise
            self._doubt += guess[0] - seen - _BIASED * math.hypot(guess[1], both[1])
        return both

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

    @property
    def _profile_failure(self) -> float:
        """Return the failure probability of a profile: all of them, and all readings, have a twentieth each."""
        return self._failure / (20 * MOST_PROFILES)

    def _next_failures(self) -> tuple[float, ...]:
        """Return the failure probabilities of the looks at the next model."""
        return _share_failure(self._target, self._failure, self._models, most_models=self._most_models)

    def _find_need(self, surplus: float, height: float) -> float:
        """Return the epsilon at which a sum of this size is likely to pass the next look."""
        if surplus <= 0:
            return math.inf
        return (-math.log(2 * self._next_failures()[0]) + _SPARE[self._numeric]) * height / surplus

    def _center(self, sums: ScoreSum, guess: float, profile: TableProfile) -> tuple[ScoreSum, float, float]:
        """Return sums around the target's mean, the surplus around it, and what the sums may still be too large by."""
        if self._target.measure is not Measure.R2:
            return sums, guess, self._hidden
        extra = sums.find_margin(profile, self._profile_failure)
        excess = sums.find_excess(profile, self._profile_failure, self._mean.error)
        if extra <= excess:
            return sums, guess, extra
        shift = self._mean.value - profile.target_middle
        return replace(sums, shift=shift), guess - sums.find_excess(profile, 1.0, shift), excess

    def _judge(
        self,
        guess: float,
        deviation: float,
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
        # The epsilon that means as much noise with usual rows.
        learning = trained * Fraction(min(1.0, profile.rows / _USUAL_ROWS))
        early = len(self._scores) <= _RUNGS_BACK or (learning < _EARLIEST and trained < _MOST_LEARNING * self._cap)
        perfect = sums.best_surplus(profile) * profile.most_rows(_COUNTED) / profile.rows
        if not early and self._find_need(_WITHOUT_ERRORS * perfect - self._hidden, sums.height) > left:
            return _NO_MODEL
        costly = trained >= _COSTLY and learning >= _LEARNED and (self._numeric or not early)
        gain = math.inf if early else max(surplus - self._scores[-1 - _RUNGS_BACK][0], 0.0)
        if costly:
            if self._numeric:
                before, blurred = self._scores[-2] if len(self._scores) > 1 else (surplus, 0.0)
                gain = max(surplus - before - blurred, 0.0)
            best = guess + _GAINS[self._numeric] * gain + _LIKELY * deviation
        else:
            best = max(surplus, guess) + gain + _HOPELESS[self._numeric] * noise
        if sums.guided and self.seen is not None:
            # A look cuts off nothing, and is more precise than what a rung measures: it decides at once.
            best = guess + gain + _LOOKED * deviation
        if costly or (sums.guided and self.seen is not None):
            self._hopeless = _RUNGS_BACK - 1
        self._hopeless = self._hopeless + 1 if self._find_need(best - self._hidden, sums.height) > left else 0
        if self._hopeless >= _RUNGS_BACK:
            return _OUT_OF_REACH
        return _SPENT if last else ""


_NO_MODEL = (
    "out of reach: with this cap and so many rows the margin of the test is larger than all errors that the target allows; "
    "raise max_epsilon, or narrow target_bounds if there are any"
)
_OUT_OF_REACH = (
    "out of reach: no model was better than the target by the margin of its test at the cap; raise max_epsilon, or narrow "
    "target_bounds if there are any"
)
_SPENT = "the cap is spent"


def find_needed_sum(
    sums: ScoreSum,
    failure_probability: Fraction,
    *,
    cap: Fraction,
    first: Fraction,
    epsilon: Fraction | None,
    most_models: int | None = None,
) -> float:
    """Return the noisy sum that the first test of the first model needs in a training that costs ``epsilon``.

    ``first`` is the price of the first rung. Without an epsilon the test has all that the cap leaves after that rung.
    """
    assert sums.target is not None
    share = Fraction(_NUMERIC_SHARE if sums.guided else _TEST_SHARE)
    level = cap - first if epsilon is None else epsilon * share / (1 + share)
    if level <= 0 or (epsilon is not None and epsilon - level < first):
        return math.inf
    failure = _share_failure(sums.target, float(failure_probability), 0, most_models=most_models)[0]
    lattice = sums.deciding
    return find_threshold(level, Fraction(lattice.sensitivity.amount), failure) * sums.height / lattice.unit


def _share_failure(target: Target, failure: float, models: int, *, most_models: int | None = None) -> tuple[float, ...]:
    """Return the failure probabilities of the looks at a model, after this many others; all of it for the only one."""
    whole, numeric = failure * (0.9 if target.measure is Measure.R2 else 1.0), target.measure in NUMERIC_MEASURES
    own = 1.0 if most_models == 1 else _MODELS[numeric] * (1 - _MODELS[numeric]) ** models
    return tuple(whole * own * share for share in _LOOKS[numeric])


def _weigh(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """Return the mean of two estimates, weighted by their precisions, and its deviation."""
    weights = first[1] ** -2, second[1] ** -2
    whole = weights[0] + weights[1]
    return (first[0] * weights[0] + second[0] * weights[1]) / whole, whole**-0.5
