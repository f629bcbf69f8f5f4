"""Ridge regression from gradually released moments, stopped by a free certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.climb import climb
from expost.accuracy.noise_envelope import NoiseEnvelope
from expost.accuracy.rare_failure import too_rare
from expost.accuracy.ridge_certificate import Certified, ExcessRiskCertificate, SquaredErrorCertificate
from expost.accuracy.short_vector import is_short
from expost.core import InvalidRequest, Ladder, Loss, Measure, Outcome, PureGuarantee, PureLoss, Release, Sealed, Step
from expost.core.rational import round_up
from expost.data.matrix import GRID_BITS, RowSource
from expost.data.moments import MomentLayout, Moments
from expost.models.linear.model import LinearModel
from expost.models.linear.problem import Problem
from expost.noise import BitSource, DiscreteLaplacePath

__all__ = ["CertifiedRidge", "RidgeRelease"]

_RATIO = 1.01
_LANDING_RATIO = 1.07  # landings closer than this would cost more failures than they save
_EARLY = 10  # landings at levels where only zero coefficients can be certified
_LANDINGS = 40  # rungs at which the certificate is asked; the failure probability is shared among them
_SPAN = 300.0  # the first rung is at most this far below the cap
_ZERO_FAILURE = 0.05  # share of a landing's failure probability for the test of zero coefficients
_SQUARE_FAILURE = 0.1  # share of a landing's failure probability for the noise of y^2
_CITATIONS = ("LNRWW17, Theorem 2.7", "docs/proofs/ridge-certificate.md", "docs/proofs/moments.md")


@dataclass(frozen=True, eq=False)
class RidgeRelease(LinearModel):
    """A model together with the noisy moments it was made of: every other penalty is free post-processing."""

    moments: Moments | None = None

    @classmethod
    def of(cls, model: LinearModel, moments: Moments) -> RidgeRelease:
        """A model with the moments it was made of."""
        return cls(model.coefficients, model.intercept, model.limit, model.reading, moments)


class CertifiedRidge:
    """Releases X'X and X'y (and y'y where a score is asked for) with less and less noise, until a certificate holds.

    Guarantee: pure ex-post DP, known only after the run: the rung at which the climb stopped; at most the cap.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: 4 (L1) for rows of 1-norm and targets at most 1; 17/4 with y'y, 6 with the sum of y too.
    Accuracy: excess risk, RMSE or R^2 within the target except with the failure probability, over all landings.
    Numerics: exact integer moments and exact noise; the certificate is computed in floats from released numbers.
    Reference: LNRWW17, Theorem 2.7; docs/proofs/ridge-certificate.md; docs/proofs/moments.md.
    """

    question = "ridge regression"

    def __init__(self, problem: Problem, *, rungs: int | None = None) -> None:
        self._problem = problem
        measure = None if problem.aim.target is None else problem.aim.target.measure
        self._layout = MomentLayout(
            problem.ball, with_square=measure in (Measure.RMSE, Measure.R2), with_sum=measure is Measure.R2
        )
        self._ladder = self._build_ladder(rungs)
        self._first = self._first_rung()
        self._landings = self._build_landings()
        self._envelope = self._build_envelope()

    # The ladder ---------------------------------------------------------------------------------------------------

    def _scale(self, level: Fraction | float) -> float:
        """The scale of the noise on the mean moments at this level."""
        width = self._problem.ball.dimension
        amount = float(self._layout.sensitivity.amount) / 4.0**GRID_BITS
        # The lattice's Laplace is within a grid unit of a real one, in each of the entries.
        return amount / (float(level) * self._problem.rows) * (1 + 1e-9 * width)

    def _build_ladder(self, rungs: int | None) -> Ladder:
        aim = self._problem.aim
        if aim.epsilon is not None:
            return Ladder((aim.epsilon,))
        lowest = aim.afford(max(self._least(), aim.cap / Fraction(_SPAN)))
        return Ladder.geometric(lowest, aim.cap, rungs=rungs, ratio=_RATIO)

    @property
    def _most_landings(self) -> int:
        """No more than the table of noise covers, when the failure probability is shared among them."""
        dimension = self._problem.ball.dimension
        covered = float(self._problem.aim.failure_probability) / NoiseEnvelope.least_failure(dimension)
        return max(1, min(_LANDINGS, math.floor(covered * (1 - 2 * _SQUARE_FAILURE))))

    def _least(self) -> Fraction:
        """Below this level not even data whose best coefficients are zero can be certified."""
        target = self._problem.aim.target
        assert target is not None
        if target.measure is not Measure.EXCESS_RISK:
            return Fraction(0)
        return min(self._least_for_zero(), self._least_for_envelope())

    def _least_for_zero(self) -> Fraction:
        width, failure = self._problem.ball.dimension, float(self._problem.aim.failure_probability) * _ZERO_FAILURE
        lengths = np.geomspace(1e-2, 1e4, 200).tolist()
        noisy = 0.9 * math.sqrt(2 * width)
        short = next((each for each in lengths if is_short(noisy, each, width, failure)), math.inf)
        if math.isinf(short):
            raise too_rare(failure)
        return round_up(short * self._scale(1) / self._short_gradient)

    def _least_for_envelope(self) -> Fraction:
        reach = float(NoiseEnvelope.of(self._problem.ball.dimension, 0.2).reach(np.zeros(1))[0])
        return round_up(reach * self._scale(1) / self._short_gradient)

    @property
    def _short_gradient(self) -> float:
        """Zero coefficients meet the target if the gradient there is no longer than this."""
        return math.sqrt(2 * self._problem.penalty * self._problem.aim.tolerance / self._problem.risk_unit)

    def _build_landings(self) -> NDArray[np.intp]:
        last, first = len(self._ladder) - 1, self._first
        early = np.linspace(0, first, min(first, _EARLY), endpoint=False)
        span = math.log(self._ladder[last] / self._ladder[first])
        count = min(last - first + 1, self._most_landings, math.ceil(span / math.log(_LANDING_RATIO)) + 1)
        late = np.linspace(last, first, count)  # downwards, so that a single one is the last: the rung of a miss
        return np.unique(np.concatenate([early, late]).round().astype(np.intp))

    def _first_rung(self) -> int:
        """The first rung at which coefficients other than zero can be certified."""
        target = self._problem.aim.target
        if target is None or target.measure is not Measure.EXCESS_RISK:
            return 0
        least = self._least_for_envelope()
        return next((rung for rung, level in enumerate(self._ladder) if level >= least), len(self._ladder) - 1)

    @property
    def _failure(self) -> float:
        """The failure probability of one landing."""
        late = int(np.count_nonzero(self._landings >= self._first))
        return float(self._problem.aim.failure_probability) / late

    @property
    def _scored(self) -> bool:
        """Whether the target is a score, for which y'y is released too."""
        target = self._problem.aim.target
        return target is not None and target.measure is not Measure.EXCESS_RISK

    def _build_envelope(self) -> NoiseEnvelope:
        """The bound on the noise of one landing; refused here, before anything is paid, where the table has none."""
        share = 1 - 2 * _SQUARE_FAILURE if self._scored else 1 - _ZERO_FAILURE
        dimension, least = self._problem.ball.dimension, NoiseEnvelope.least_failure(self._problem.ball.dimension)
        if self._failure * share < least:
            raise InvalidRequest(
                f"Expected a failure probability of at least {least / share:.2g} for this method and number of columns",
                got=float(self._problem.aim.failure_probability),
                do='Allow more failures, or pass method="objective" for an excess risk and method="test" for a score',
            )
        return NoiseEnvelope.of(dimension, self._failure * share)

    @property
    def worst_case(self) -> Loss:
        return PureLoss(self._ladder.cap)

    # The way ------------------------------------------------------------------------------------------------------

    def check(self, source: RowSource) -> None:
        self._problem.check(source)

    def measure(self, source: RowSource) -> Sealed:
        return self._layout.measure(self._problem.unit_rows(source))

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[LinearModel]:
        path = DiscreteLaplacePath(sealed, self._ladder, bits=bits)
        seen: dict[int, Certified] = {}

        def accepts(values: NDArray[Any], start: int) -> NDArray[np.bool_]:
            verdicts = np.zeros(len(values), dtype=bool)
            for rung in self._landings[(self._landings >= start) & (self._landings < start + len(values))]:
                seen[int(rung)] = self._certify(values[rung - start], int(rung))
                if self._good_enough(seen[int(rung)]):
                    verdicts[rung - start] = True
                    break
            return verdicts

        rung = climb(path, accepts)
        last = len(self._ladder) - 1 if rung is None else rung
        return self._release(path.at(last), seen, last, met=rung is not None)

    # The certificate ----------------------------------------------------------------------------------------------

    def _certify(self, values: NDArray[Any], rung: int) -> Certified:
        """The best coefficients at one rung; the bound is on what the target measures, in the caller's units."""
        moments = self._layout.unpack(values, self._problem.rows)
        scale, failure = self._scale(self._ladder[rung]), self._failure
        dimension, penalty = self._problem.ball.dimension, self._problem.penalty
        if moments.square is None:
            if rung < self._first:
                return self._zero_or(Certified(np.zeros(dimension), math.inf), moments.cross, scale)
            best = ExcessRiskCertificate(penalty, self._envelope).best(moments.gram, moments.cross, scale=scale)
            certified = Certified(best.theta, best.bound * self._problem.risk_unit)
            return certified if self._good_enough(certified) else self._zero_or(certified, moments.cross, scale)
        own = failure * _SQUARE_FAILURE
        reach = -math.log(2 * own)  # one-sided: the noise of y^2 is below -reach with probability own
        best = SquaredErrorCertificate(penalty, self._envelope, reach).best(
            moments.gram, moments.cross, moments.square, scale=scale
        )
        return Certified(best.theta, self._score(best.bound, moments, scale, own))

    def _zero_or(self, certified: Certified, cross: NDArray[np.float64], scale: float) -> Certified:
        """Zero coefficients where the exact gradient there is surely short enough; what was found otherwise."""
        noisy = float(np.linalg.norm(cross)) / scale
        share = float(self._problem.aim.failure_probability) * _ZERO_FAILURE / len(self._landings)
        if not is_short(noisy, self._short_gradient / scale, len(cross), share):
            return certified
        return Certified(np.zeros(len(cross)), self._problem.aim.tolerance)

    def _score(self, squared_error: float, moments: Moments, scale: float, failure: float) -> float:
        """The target's own measure from a bound on the mean squared error."""
        assert self._problem.aim.target is not None
        if self._problem.aim.target.measure is Measure.RMSE:
            return self._problem.target_bound * math.sqrt(max(squared_error, 0.0))
        # Var y >= y^2 - (mean y)^2 with both bounded on the side that counts: three tails, one of them paid above.
        assert moments.square is not None and moments.total is not None
        reach = -math.log(failure) * scale
        variance = moments.square - reach - (abs(moments.total) + reach) ** 2
        return 1 - max(squared_error, 0.0) / variance if variance > 0 else -math.inf

    def _good_enough(self, certified: Certified) -> bool:
        aim = self._problem.aim
        if aim.target is None:
            return True
        if aim.target.measure.is_loss:
            return certified.bound <= aim.tolerance
        return certified.bound >= float(aim.target.tolerance) * (1 + 1e-12)

    # What leaves --------------------------------------------------------------------------------------------------

    def _release(
        self, values: NDArray[Any], seen: dict[int, Certified], last: int, *, met: bool
    ) -> Release[LinearModel]:
        problem = self._problem
        certified = seen[last]
        outcome = Outcome.FIXED if problem.aim.target is None else Outcome.CERTIFIED if met else Outcome.NOT_MET
        bill = self._ladder[last]
        receipt = problem.receipt(
            question=self.question,
            method="gradual release of moments, residual certificate",
            promise=PureGuarantee(self._ladder.cap),
            bill=PureLoss(bill),
            outcome=outcome,
            achieved=certified.bound if math.isfinite(certified.bound) else None,
            rung=last,
            rungs=len(self._ladder),
            breakdown={"generation": bill, "testing": Fraction(0)},
            citations=_CITATIONS,
        )
        steps = tuple(
            Step(self._ladder[rung], each.bound, min(each.bound, 0.0), max(each.bound, 0.0))
            for rung, each in sorted(seen.items())
            if math.isfinite(each.bound)
        )
        model = problem.model(certified.theta)
        moments = self._layout.unpack(values, problem.rows)
        return Release(RidgeRelease.of(model, moments), receipt, climb=steps)
