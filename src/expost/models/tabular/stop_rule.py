"""When a training on a table ends whose score is tested with Gaussian noise."""

from __future__ import annotations

from fractions import Fraction

from scipy.special import ndtri

from expost.core import Measure, Target
from expost.models.tabular.rank_tree import AucSum
from expost.models.tabular.rung_schedule import MOST_PROFILES
from expost.models.tabular.score_sum import MeasuredScore, ScoreSum, bound_score
from expost.models.tabular.table_profile import TableProfile

__all__ = ["FIXED_TEST", "NEAR_NUMERIC_TEST", "StopRule", "certify_score"]

_PLAUSIBLE = 1.0  # deviations below the target from which on a test may be passed at the next rung
# Shares of a rung for measuring the score; near the target the measurement decides. A squared error can be as large as the
# square of the target's range, so that of a regression needs more.
FIXED_TEST, _FAR_TEST, _NEAR_TEST, NEAR_NUMERIC_TEST = 0.06, 0.15, 0.5, 0.75
_COUNTED = 2.0  # deviations of the noisy number of rows, which it must have for a model to be confirmed
_CLEARLY = 1.0  # deviations above the target from which on a model is kept and measured again
_MOST_LOOKS = 2  # then the training goes on: a better model is easier to confirm
_POWERED = 0.25  # a test's margin may be this part of the errors that the target allows
_HOPELESS = 3.0  # deviations that separate a plateau from the target
_RUNGS_BACK = 2  # a plateau is told from the gain over this many rungs


class StopRule:
    """Decides after each rung whether the target is met or out of reach, where tests have Gaussian noise.

    A test may be passed only at a rung whose predecessor came near the target, and whose margin is a small part of the
    errors that the target allows: tests without a chance would use up the failure probability. The first one may err
    with half of it, the second with a quarter, and so on, so all of them together with the whole.

    A model that was measured clearly above the target is confirmed: it is kept, and whole rungs measure it again. These
    measurements are combined. The one that made it a candidate is left out, because it was chosen for being high.
    """

    def __init__(self, target: Target | None, failure_probability: Fraction) -> None:
        self._target, self._failure = target, float(failure_probability)
        self._history: list[tuple[float, float]] = []
        self._tests = 0
        self._flat = 0
        self.confirming = False
        self._looks = 0  # measurements of the candidate after the one that made it one
        self.met = False
        self.margin = 0.0

    @property
    def test_share(self) -> float:
        """Return the share of the next rung that measures its score."""
        if self._target is None:
            return FIXED_TEST
        near = NEAR_NUMERIC_TEST if self._numeric or self._target.measure is Measure.AUC else _NEAR_TEST
        return near if self._near else _FAR_TEST

    @property
    def _numeric(self) -> bool:
        """Return whether the target is that of a regression."""
        return self._target is not None and self._target.measure in (Measure.R2, Measure.RMSE, Measure.MAE)

    @property
    def first_look(self) -> bool:
        """Return whether the next measurement of a candidate is the first one that counts."""
        return self._looks == 0

    @property
    def _near(self) -> bool:
        """Return whether the last measured score is near the target, or above it."""
        return bool(self._history) and self._history[-1][0] + _PLAUSIBLE * self._history[-1][1] >= 0

    def judge(self, score: MeasuredScore, sums: ScoreSum | AucSum, profile: TableProfile, *, last: bool) -> str:
        """Return why the training ends, or an empty text if it goes on."""
        if self._target is None:
            return "" if not last else "one rung"
        surplus, deviation = score.surplus / profile.rows, score.deviation / profile.rows
        allowed = self._failure / 2 ** (self._tests + 1)
        # A tenth of the failure probability is for profiles whose noise hides more than the margin allows.
        extra = sums.find_margin(profile, self._failure / (10 * MOST_PROFILES))
        self.margin = (-float(ndtri(allowed * 0.9)) * deviation + extra / profile.rows) / sums.surplus_of_one(profile)
        near = self._near or not self._history or self.confirming
        self._history.append((surplus, deviation))
        if near and self.margin <= _POWERED * sums.errors_allowed:
            self._tests += 1
            if score.passes(allowed * 0.9, extra):
                self.met = True
                return "met"
        if last:
            return "the cap is spent"
        self._looks = self._looks + 1 if self.confirming else 0
        # Regressions train on instead: their margin needs a fresh profile too, and their scores rise longer.
        counted = profile.rows >= _COUNTED * profile.rows_error  # else a score per row says nothing
        clear = not self._numeric and counted and surplus >= _CLEARLY * deviation
        self.confirming = clear and self._looks < _MOST_LOOKS
        if len(self._history) > _RUNGS_BACK:
            gain = max(surplus - self._history[-1 - _RUNGS_BACK][0], 0.0)
            self._flat = self._flat + 1 if surplus + gain + _HOPELESS * deviation < 0 else 0
            if self._flat >= _RUNGS_BACK:
                return "out of reach: more privacy budget improves the score too little"
        return ""


def certify_score(
    score: MeasuredScore,
    failure_probability: Fraction,
    *,
    stops: int,
    target_bounds: tuple[float, float] = (-1.0, 1.0),
) -> float | None:
    """Return the score that holds except with the failure probability, whatever rung a training stopped at; None for R^2.

    With at most ``stops`` last rungs, half of its share of the failure probability is enough for each; all of it for one.
    """
    name, (value, deviation) = next(iter(score.values.items()))
    if name == "r2":
        return None  # its denominator is an estimate without a proved error
    if name == "auc":
        return score.certified
    failure = float(failure_probability) / (1 if stops == 1 else 2 * stops)
    reach = -float(ndtri(failure)) * deviation
    return bound_score(name, value, reach, target_bounds)
