"""Scores in the user's measure as sums over rows, with the noise that a test of them needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from expost.core import InvalidRequest, Measure, Target
from expost.core.rational import probability, rational
from expost.models.descent.score_head import row_sums
from expost.models.tabular.lattice_sum import LatticeSum
from expost.models.tabular.prediction_limits import PREDICTION_BINS, count_predictions, narrow_limits
from expost.models.tabular.table_profile import TableProfile

__all__ = [
    "LARGEST_LOSS",
    "LEAST_PROBABILITY",
    "NUMERIC_MEASURES",
    "MeasuredScore",
    "ScoreSum",
    "bound_score",
    "clip_predictions",
    "combine_scores",
    "compute_chances",
    "find_deviations",
    "find_reach",
    "limit_predictions",
    "read_score",
]

Floats = NDArray[np.float64]
LEAST_PROBABILITY = 0.002
"""Predicted probabilities are at least this, so that the log loss of a row is bounded."""
LARGEST_LOSS = -math.log(LEAST_PROBABILITY)
_SIDE = 0.3  # length of the other measures' part of a vector, beside 1 for the test's: they cost 4 % of its noise
_COUNTED = 0.5  # length of the counts of predictions, beside 1 for the guide
_USUAL_REACH = 4.0  # deviations of a model's predictions
_NEAR_REACH = (
    0.625  # of it, towards the end of the target's range that is nearer to its middle: distances are shorter there
)
_CUT = 6.0  # variances, or squared errors allowed, at which a row's term is cut off for the guide
_CLEAR = 0.1  # relative deviation up to which a measured variance is used
_SHOWN = 0.5  # relative deviation up to which it is shown
_FINEST = 10**6
_CLASSIFIER = {"accuracy": Measure.ACCURACY, "log_loss": Measure.LOG_LOSS, "auc": Measure.AUC}
NUMERIC_MEASURES = (Measure.R2, Measure.RMSE, Measure.MAE)
"""The measures of a regression."""
_REGRESSOR = {"r2": Measure.R2, "rmse": Measure.RMSE, "mae": Measure.MAE}


def read_score(score: Any, failure_probability: Any, *, classifier: bool) -> Target | None:
    """Return the target of ``score=("accuracy", 0.9)``; None for None.

    >>> print(read_score(("r2", 0.8), 0.1, classifier=False))
    r2 >= 0.8 with probability 0.9
    """
    measures = _CLASSIFIER if classifier else _REGRESSOR
    failure = probability(failure_probability, "failure_probability")
    if score is None:
        return None
    names = ", ".join(measures)
    name, value = score if isinstance(score, tuple | list) and len(score) == 2 else (None, None)
    if not isinstance(name, str) or name not in measures:
        example = '("accuracy", 0.9)' if classifier else '("r2", 0.8)'
        others = _REGRESSOR if classifier else _CLASSIFIER
        other = "Regressor" if classifier else "Classifier"
        raise InvalidRequest(
            f"Expected score to be a pair of a measure ({names}) and a number",
            got=score if name is None else name,
            do=f"Pass {example}" + (f"; {name} is a score of expost.{other}" if name in others else ""),
        )
    wanted = rational(value, "score", do=f"Pass a positive number for {name}")
    if name in ("accuracy", "auc", "r2") and not wanted < 1:
        raise InvalidRequest(f"Expected a score of {name} below 1", got=value, do="Pass a smaller one")
    if wanted.denominator > _FINEST:
        wanted = wanted.limit_denominator(_FINEST)
    return Target(measures[name], wanted, failure)


def compute_chances(scores: Floats) -> Floats:
    """Return the probabilities (classes x rows) of scores (outputs x rows); none is below ``LEAST_PROBABILITY``.

    Those of a row depend on its own scores only, bit for bit, so that tests and predictions agree. Beyond 250 classes the
    least probability is half of an even share.
    """
    if len(scores) == 1:
        second = expit(scores[0])
        chances = np.stack([1 - second, second])
    else:
        chances = np.exp(scores - np.maximum.reduce(scores, axis=0))
        chances /= row_sums(chances)
    floor = min(LEAST_PROBABILITY, 0.5 / len(chances))
    mixed: Floats = floor + (1 - len(chances) * floor) * chances
    return mixed


def find_reach(target: Target | None, profile: TableProfile) -> float:
    """Return how far a regression's predictions may be from the middle.

    A model with an R^2 of t predicts values that spread sqrt(t) times as far as the target. Four times that is out of reach
    of nearly all of them, and a smaller range makes the score easier to test.
    """
    if target is None or target.measure is not Measure.R2:
        return 2.0
    return min(2.0, _USUAL_REACH * math.sqrt(float(target.tolerance)) * profile.target_spread)


def bound_score(name: str, value: float, reach: float, target_bounds: tuple[float, float]) -> float | None:
    """Return the worst score within ``reach`` of a measured one; None for a loss if all models keep that.

    >>> bound_score("rmse", 3.0, 1.0, (0.0, 10.0)), bound_score("rmse", 3.0, 9.0, (0.0, 10.0))
    (4.0, None)
    """
    if name not in ("log loss", "rmse", "mae"):
        return float(max(value - reach, 0.0))
    largest = LARGEST_LOSS if name == "log loss" else target_bounds[1] - target_bounds[0]
    return float(value + reach) if value + reach < largest else None


def find_deviations(failure: float) -> float:
    """Return the deviations that each of four tails of a profile's Gaussian noise exceeds as seldom as this in all."""
    return -float(ndtri(failure / 4))


def limit_predictions(middle: float, reach: float) -> tuple[float, float]:
    """Return how far predictions may be below and above the middle of the target.

    The most expensive row of a test has its target at the far end of the range and its prediction at the other side of the
    middle, where few predictions are far away. So those are limited further, the more the middle is off that of the range.

    >>> limit_predictions(-0.5, 0.8), limit_predictions(0.0, 0.8)
    ((-0.5, 0.8), (-0.8, 0.8))
    """
    near = max(_NEAR_REACH, 1 - 2 * abs(middle)) * reach
    low, high = (near, reach) if middle < 0 else (reach, near)
    return max(-low, -1 - middle), min(high, 1 - middle)


def clip_predictions(
    scores: Floats, profile: TableProfile, reach: float, limits: tuple[float, float] | None = None
) -> Floats:
    """Return predictions in [-1, 1] of scores in units of the target's spread; ``limits`` replace those of the reach.

    >>> clip_predictions(np.array([-9.0, 0.5]), TableProfile(1.0, np.zeros(1), np.ones(1), 1.0), 2.0).tolist()
    [-1.0, 0.5]
    """
    ends = limit_predictions(profile.target_middle, reach) if limits is None else limits
    moved = np.clip(scores * profile.target_spread, *ends)
    found: Floats = np.clip(moved + profile.target_middle, -1.0, 1.0)
    return found


@dataclass(frozen=True)
class MeasuredScore:
    """A released score: the sum that decides, its deviation, and all measures with theirs.

    ``surplus`` is the noisy sum over rows of how far each is above the target; it is not negative if the target is met.
    ``guide`` is an estimate of the surplus with less noise, if there is one: large terms are cut off in it, so it may
    decide what to do next and never that a target is met.
    """

    surplus: float
    deviation: float
    values: dict[str, tuple[float, float]]
    precision: float | None = None
    """How much it counts next to other measurements, where ``deviation`` depends on its noise."""
    certified: float | None = None
    """The score that holds at a 64th of the failure probability, where that does not follow from ``values``."""
    guide: tuple[float, float] | None = None
    predictions: tuple[Floats, float] | None = None
    """Noisy numbers of predictions by their distance from the middle, with their deviation, if there is a guide."""
    baseline: tuple[float, float] | None = None
    """Root of the mean squared distance of a numeric target from its mean, if the noise does not hide it."""

    def passes(self, failure_probability: float, margin: float = 0.0) -> bool:
        """Return whether the target is met, wrongly with this probability at most."""
        return self.surplus - margin >= -float(ndtri(failure_probability)) * self.deviation


def combine_scores(first: MeasuredScore, second: MeasuredScore) -> MeasuredScore:
    """Return what two measurements of one model say together, each weighted by its precision.

    >>> both = combine_scores(MeasuredScore(8.0, 3.0, {}), MeasuredScore(2.0, 3.0, {}))
    >>> round(both.surplus, 2), round(both.deviation, 2)
    (5.0, 2.12)
    """
    weights = tuple(each.deviation**-2 if each.precision is None else each.precision for each in (first, second))
    whole = weights[0] + weights[1]
    surplus = (first.surplus * weights[0] + second.surplus * weights[1]) / whole
    deviation = math.hypot(first.deviation * weights[0], second.deviation * weights[1]) / whole
    values = {name: _combine(first.values[name], second.values[name]) for name in first.values if name in second.values}
    precision = None if first.precision is None else whole
    return MeasuredScore(surplus, deviation, values, precision, second.certified, baseline=second.baseline)


def _combine(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """Return the mean of two numbers with deviations, weighted by their precisions, and its deviation."""
    weights = first[1] ** -2, second[1] ** -2
    whole = weights[0] + weights[1]
    return (first[0] * weights[0] + second[0] * weights[1]) / whole, whole**-0.5


@dataclass(frozen=True)
class ScoreSum:
    """The sum that decides whether a target is met, and sums for the other measures, as one vector per row.

    Without a target the first entry is the main measure itself: correct predictions, or minus squared errors.

    Guarantee: none by itself; a release of the sum is one Gaussian event.
    Adjacency: add/remove of one unit, whose rows share a weight of 1.
    Sensitivity: that of ``LatticeSum`` for vectors of length sqrt(height^2 + side^2).
    Accuracy: ``MeasuredScore.passes``; a model that misses the target passes with the given probability at most.
    Numerics: scores are a row's own, bit for bit; sums are exact integers.
    Reference: docs/proofs/tabular-models.md, Theorem 2.
    """

    target: Target | None
    classes: int | None
    rows_per_unit: int = 1
    scale: float = 1.0
    """What an error of 1 is in the target's own units, for a regression."""
    middle: float = 0.0
    """The released middle of a numeric target, from which distances are measured."""
    reach: float = 2.0
    """How far predictions are from the middle at most."""
    shift: float = 0.0
    """What distances are measured from instead, minus the middle: the mean as it was read later."""
    center: float = 0.0
    """An accuracy from which the measured one is counted where none is asked for: the nearer, the less noise of the count."""
    side: float = _SIDE
    """The length of the other measures' part of a vector."""
    guided: bool = False
    """Whether a regression's sum has one more entry, in which large terms are cut off, in place of most of its precision.

    Predictions are then counted too, by their distance from the middle (``prediction_limits``).
    """
    limits: tuple[float, float] | None = None
    """How far predictions are below and above the middle at most, if they were narrowed. Default: those of the reach."""

    @property
    def _level(self) -> float:
        """Return the score asked for; errors in units of half the target's range."""
        if self.target is None:
            return self.center
        level = float(self.target.tolerance)
        return level / self.scale if self.target.measure in (Measure.RMSE, Measure.MAE) else level

    @property
    def ends(self) -> tuple[float, float]:
        """Return how far predictions are below and above the middle at most."""
        return limit_predictions(self.middle, self.reach) if self.limits is None else self.limits

    @cached_property
    def height(self) -> float:
        """Return how far one row can move the deciding sum."""
        measure = None if self.target is None else self.target.measure
        if self.classes is not None:
            if measure is Measure.LOG_LOSS:
                return max(self._level, LARGEST_LOSS - self._level)
            return max(self._level, 1 - self._level)
        # With a = target - middle and h = prediction - middle, the error is a - h; both ends of a and h are public or released.
        ends = (-1 - self.middle - self.shift, 1 - self.middle - self.shift)
        steps = tuple(end - self.shift for end in self.ends)
        if measure is Measure.MAE:
            return max(self._level, max(abs(a - h) for a in ends for h in steps) - self._level)
        largest = max((a - h) ** 2 for a in ends for h in steps)
        if measure is not Measure.R2:
            return max(largest - self._level**2, self._level**2)
        # (a - h)^2 - (1 - R) a^2 = R a^2 - 2 a h + h^2 is convex in a and in h, so it is largest at the ends. Its negative
        # is at most (1 - R) a^2, and at most (1 - R) h^2 / R.
        below = max((a - h) ** 2 - (1 - self._level) * a * a for a in ends for h in steps)
        above = (1 - self._level) * min(max(a * a for a in ends), max(h * h for h in steps) / self._level)
        return max(below, above)

    @property
    def span(self) -> float:
        """Return how far apart two rows' terms of the deciding sum can be; not for R^2."""
        measure = None if self.target is None else self.target.measure
        if self.classes is not None:
            return LARGEST_LOSS if measure is Measure.LOG_LOSS else 1.0
        error = max(abs(end - step) for end in (-1 - self.middle, 1 - self.middle) for step in self.ends)
        return error if measure is Measure.MAE else error**2

    @property
    def errors_allowed(self) -> float:
        """Return how far the target is from a perfect score, in its measure."""
        assert self.target is not None
        level = float(self.target.tolerance)
        return level if self.target.measure.is_loss else 1 - level

    def surplus_of_one(self, profile: TableProfile) -> float:
        """Return about how much surplus per row one unit of the measure is."""
        measure = None if self.target is None else self.target.measure
        if measure is Measure.R2:
            return profile.target_spread**2
        if measure is Measure.RMSE:  # r^2 - error^2 is about 2 r (r - error)
            return 2 * self._level / self.scale
        return 1 / self.scale if measure is Measure.MAE else 1.0

    @cached_property
    def lattice(self) -> LatticeSum:
        """Return the sum's lattice: entries are in units of ``height`` and of the side's largest values."""
        # Rounded down, the deciding sum is never above the exact one, however many rows there are.
        if self.guided:
            longest = math.sqrt(1 + 3 * self.side**2 + _COUNTED**2)
            return LatticeSum(4 + PREDICTION_BINS, longest, self.rows_per_unit, floor_first=True)
        return LatticeSum(3, math.sqrt(1 + 2 * self.side**2), self.rows_per_unit, floor_first=True)

    @cached_property
    def deciding(self) -> LatticeSum:
        """Return the lattice of the deciding sum alone, in units of ``height``, for a test with Laplace noise."""
        return LatticeSum(1, 1.0, self.rows_per_unit, floor_first=True)

    @property
    def _weight(self) -> float:
        """Return the length of the deciding entry."""
        return self.side if self.guided else 1.0

    def find_cut(self, profile_spread: float) -> float:
        """Return the size at which a row's term is cut off for the guide."""
        assert self.target is not None
        if self.target.measure is Measure.R2:
            return min(self.height, _CUT * profile_spread**2)
        if self.target.measure is Measure.RMSE:
            return min(self.height, _CUT * self._level**2)
        return min(self.height, math.sqrt(_CUT) * self._level)

    def narrow(self, score: MeasuredScore, surplus: float, profile: TableProfile) -> tuple[ScoreSum, float]:
        """Return sums whose test of a model is likely to be cheaper, and the surplus that this costs.

        They limit its predictions further.
        """
        if score.predictions is None:
            return self, 0.0
        squared = self.target is not None and self.target.measure is not Measure.MAE
        found, lost = narrow_limits(
            self.ends,
            score.predictions,
            surplus,
            profile.target_spread,
            lambda limits: replace(self, limits=limits).height,
            squared=squared,
        )
        return replace(self, limits=found), lost

    def terms(self, outcomes: Floats) -> Floats:
        """Return each row's term of the deciding sum, in units of ``height``."""
        return np.asarray(self._surplus(outcomes) / self.height, np.float64)

    def best_surplus(self, profile: TableProfile) -> float:
        """Return about the surplus of a model without errors on this many rows."""
        measure = None if self.target is None else self.target.measure
        if measure is Measure.RMSE:
            return profile.rows * self._level**2
        if measure in (Measure.MAE, Measure.LOG_LOSS):
            return profile.rows * self._level
        return profile.rows * (1 - self._level) * (profile.target_spread**2 if measure is Measure.R2 else 1.0)

    def find_margin(self, profile: TableProfile, failure: float) -> float:
        """Return what the deciding sum may be too large by for other reasons than its noise, except with this probability.

        The noise is a rounding of a Gaussian, to half a lattice unit; rows are rounded down. For R^2 distances are measured
        from a noisy middle c: they add up to n (c - mean)^2 more than those from the mean.
        """
        margin = self.height / (2 * self.lattice.unit)
        if self.target is not None and self.target.measure is Measure.R2:
            # A noisy sum over a noisy count misses the mean by (noise of the sum - mean * noise of the count) / noisy count.
            # Half of the failure probability is for that, on both sides; half for a count that is off.
            reach, counted = find_deviations(failure), profile.rows_error / profile.rows
            mean = min(1.0, abs(profile.target_middle) + reach * math.hypot(profile.target_error, counted))
            off = reach * math.hypot(profile.target_error, mean * counted)
            margin += self.find_excess(profile, failure, off)
        return margin

    def find_excess(self, profile: TableProfile, failure: float, off: float) -> float:
        """Return what squared distances from a number that is so far off the mean add to the deciding sum of R^2 at most."""
        return (1 - self._level) * profile.most_rows(find_deviations(failure)) * off**2

    def find_off(self, excess: float, profile: TableProfile) -> float:
        """Return how far from the mean distances may be measured for about this excess."""
        return math.sqrt(excess / ((1 - self._level) * profile.rows))

    def read_look(self, seen: tuple[float, float], profile: TableProfile) -> dict[str, tuple[float, float]]:
        """Return the main measure of a deciding sum with its deviation."""
        assert self.target is not None
        main, noise = seen[0] / profile.rows, seen[1] / profile.rows
        noise = math.hypot(noise, main * profile.rows_error / profile.rows)
        measure = self.target.measure
        if measure is Measure.R2:
            return {"r2": (self._level + main / profile.target_spread**2, noise / profile.target_spread**2)}
        if measure is Measure.RMSE:
            root = math.sqrt(max(self._level**2 - main, 0.0))
            return {"rmse": (root * self.scale, noise / (root + math.sqrt(root**2 + noise)) * self.scale)}
        if measure is Measure.MAE:
            return {"mae": ((self._level - main) * self.scale, noise * self.scale)}
        if measure is Measure.LOG_LOSS:
            return {"log loss": (self._level - main, noise)}
        return {"accuracy": (self._level + main, noise)}

    def vectors(self, outcomes: Floats, spread: float = 1.0) -> Floats:
        """Return the vectors of rows from their outcomes; ``spread`` is the target's, for what guides a training.

        Outcomes of a classifier are (correct, loss) in {0, 1} x [0, LARGEST_LOSS]; of a regression (prediction error,
        distance from the middle of all targets), both in [-2, 2].
        """
        first, second = outcomes[:, 0], outcomes[:, 1]
        surplus = self._surplus(outcomes)
        if self.classes is not None:
            sides = (first, second / LARGEST_LOSS)
        else:
            other = first if self.target is not None and self.target.measure is Measure.R2 else second
            sides = (np.abs(first) / 2, other**2 / 4)
        parts = [self._weight * surplus / self.height, self.side * sides[0], self.side * sides[1]]
        if self.guided:
            parts.append(np.clip(surplus / self.find_cut(spread), -1.0, 1.0))
            parts.append(_COUNTED * count_predictions(first + second, spread))
        return np.column_stack(parts)

    def _surplus(self, outcomes: Floats) -> Floats:
        """Return how far each row is above the target."""
        first, second = outcomes[:, 0], outcomes[:, 1]
        measure = None if self.target is None else self.target.measure
        if self.classes is not None:
            return self._level - second if measure is Measure.LOG_LOSS else first - self._level
        if measure is Measure.R2:
            return np.asarray((1 - self._level) * (second - self.shift) ** 2 - first**2, np.float64)
        if measure is Measure.MAE:
            return self._level - np.abs(first)
        return np.asarray(self._level**2 - first**2, np.float64)

    def deviation(self, noise: Fraction) -> float:
        """Return the standard deviation of the deciding sum, in rows times the measure's unit."""
        return self.lattice.deviation(noise) * self.height / self._weight

    def _read_guide(self, released: Floats, unit: float, profile: TableProfile) -> dict[str, Any]:
        """Return the sum whose large terms are cut off, and the counts of predictions, if they were released."""
        if not self.guided:
            return {}
        cut = self.find_cut(profile.target_spread)
        return {
            "guide": (float(released[3]) * cut, unit * cut),
            "predictions": (released[4:] / _COUNTED, unit / _COUNTED),
        }

    def read(self, released: Floats, noise: Fraction, profile: TableProfile) -> MeasuredScore:
        """Return the score of a released sum."""
        rows, unit = profile.rows, self.lattice.deviation(noise)
        counted = profile.rows_error / rows
        side_noise = unit / self.side / rows
        guide = self._read_guide(released, unit, profile)
        unit, surplus = unit / self._weight, float(released[0]) / self._weight * self.height
        sides = released[1:3] / self.side / rows
        measure = None if self.target is None else self.target.measure
        main, noise_of_main = surplus / rows, unit * self.height / rows

        def with_count(deviation: float, mean: float) -> float:
            """Return the deviation of a noisy sum over a noisy count, whose true ratio is about ``mean``."""
            return math.hypot(deviation, mean * counted)

        values: dict[str, tuple[float, float]] = {}
        main_noise = with_count(noise_of_main, main)
        if self.classes is not None:
            right, lost = float(sides[0]), float(sides[1]) * LARGEST_LOSS
            if measure is Measure.LOG_LOSS:
                values["log loss"] = (self._level - main, main_noise)
                values["accuracy"] = (right, with_count(side_noise, right))
            else:
                values["accuracy"] = (main + self._level, main_noise)
                values["log loss"] = (lost, with_count(side_noise * LARGEST_LOSS, lost))
            return MeasuredScore(surplus, unit * self.height, values)
        mean_error, side, side_unit = float(sides[0]) * 2, float(sides[1]) * 4, 4 * side_noise
        # The variance of the target, measured beside the score, or from the profile where that is mostly noise. Both sums
        # of a ratio are over the same rows, so that the noise of the count cancels out.
        around, around_noise = side, side_unit
        if measure is Measure.R2:
            around = (main + side) / (1 - self._level)
            around_noise = (noise_of_main + side_unit) / (1 - self._level)
        spread = around if around_noise < _CLEAR * around else profile.target_spread**2
        if measure is Measure.R2:
            squared, squared_noise = (1 - self._level) * spread - main, side_unit
            values["r2"] = (self._level + main / spread, (noise_of_main + abs(main) / spread * around_noise) / spread)
        else:
            squared, squared_noise = self._level**2 - main, noise_of_main if measure is None else main_noise
            if measure is Measure.MAE:
                squared, squared_noise = math.nan, math.nan
            else:
                missed = squared / spread
                found = (1 - missed, math.hypot(squared_noise, missed * side_unit) / spread)
                if measure is None:
                    values["r2"] = found
        if not math.isnan(squared):
            squared_noise = squared_noise if measure is Measure.RMSE else with_count(squared_noise, squared)
            values["rmse"] = self._root(squared, squared_noise)
            if measure is Measure.RMSE:
                values["r2"] = found
        if measure is Measure.MAE:
            values["mae"] = ((self._level - main) * self.scale, main_noise * self.scale)
        else:
            values["mae"] = (max(mean_error, 0.0) * self.scale, with_count(2 * side_noise, mean_error) * self.scale)
        shown = around_noise < _SHOWN * around
        baseline = self._root(around, with_count(around_noise, around)) if shown else None
        return MeasuredScore(surplus, unit * self.height, values, baseline=baseline, **guide)

    def _root(self, squared: float, deviation: float) -> tuple[float, float]:
        """Return the root of a mean square in the target's units, with its deviation; also where it is near 0."""
        root = math.sqrt(max(squared, 0.0))
        return root * self.scale, deviation / (root + math.sqrt(root**2 + deviation)) * self.scale
