"""Linear regression from noisy moments: X'X and X'y under Laplace or Gaussian noise, with free certificates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from expost.accounting.concentrated import ConcentratedTotal
from expost.accuracy.climb import climb
from expost.accuracy.noise_envelope import GaussianEnvelope, NoiseEnvelope
from expost.accuracy.noise_norm import too_rare
from expost.accuracy.ridge_certificate import (
    CertifiedCoefficients,
    ExcessRiskCertificate,
    SquaredErrorCertificate,
    is_short,
)
from expost.core import (
    InvalidRequest,
    Ladder,
    Loss,
    Measure,
    Plan,
    PureLoss,
    Release,
    Sealed,
    Step,
    ZeroConcentratedLoss,
)
from expost.core.rational import rational, round_up
from expost.data.row_source import RowSource
from expost.data.second_moment import EuclideanLayout, MomentLayout, Moments, measure_least_curvature
from expost.data.unit_ball import GRID_BITS
from expost.models.linear.linear_fit import ApproxPrice, FitPlan, LinearModel, Problem
from expost.noise import BitSource, DiscreteLaplacePath, GaussianPath
from expost.noise.jump_noise import check_rates
from expost.noise.parameter import check_gaussian_ladder

__all__ = ["SQUARED_DISTANCE", "AdaptiveRidge", "CertifiedRidge", "GaussianRidge", "RidgeRelease", "rho_for"]

Floats = NDArray[np.float64]

SQUARED_DISTANCE = Fraction(9, 2)
"""How far one row can move (x x', x y), squared, in the Euclidean norm."""

# The climb under Laplace noise.
_RATIO = 1.01
_LANDING_RATIO = 1.07  # landings closer than this would cost more failures than they save
_EARLY = 10  # landings at levels where only zero coefficients can be certified
_LANDINGS = 40  # rungs at which the certificate is tried; the failure probability is shared among them
_SPAN = 300.0  # for scores the first rung is this far below the cap
_SURE = 3.0  # of the noise that suffices for the longest coefficients; the failures of all landings make it larger
_ZERO_FAILURE = 0.05  # share of a landing's failure probability for the test of zero coefficients
_SQUARE_FAILURE = 0.1  # share of a landing's failure probability for the noise of y^2
# The climb under Gaussian noise.
_GAUSSIAN_RUNGS = 24
_GAUSSIAN_SPAN = 2000  # the first rung's rho is this far below the cap's: a factor of 45 in the noise
_SAME_LAW = 1e-9  # more than the distance between lattice and real Gaussians of this variance; part of every failure
# The penalty chosen by the noise.
_CURVATURE_SHARE = Fraction(1, 10)  # of rho, for the smallest eigenvalue: one number needs little
_CURVATURE_FAILURE = 0.25  # of the failure probability
_MIXES = np.linspace(0.0, 1.0, 9)

_CERTIFIED_CITATIONS = ("LNRWW17, Theorem 2.7", "docs/proofs/ridge-certificate.md", "docs/proofs/moments.md")
_GAUSSIAN_CITATIONS = ("docs/proofs/gaussian-ridge.md", "docs/proofs/gaussian-path.md", "BS16, Lemma 2.3")
_ADAPTIVE_CITATIONS = ("Wang18, Algorithm 2", "docs/proofs/gaussian-ridge.md", "BS16, Lemma 2.3")


@dataclass(frozen=True, eq=False)
class RidgeRelease(LinearModel):
    """A model together with the noisy moments it was made of: every other penalty is free post-processing."""

    moments: Moments | None = None

    @classmethod
    def of(cls, model: LinearModel, moments: Moments) -> RidgeRelease:
        """Return a model with the moments it was made of."""
        return cls(model.coefficients, model.intercept, model.limits, model.reading, moments)


class CertifiedRidge(FitPlan):
    """Releases X'X and X'y (and y'y where a score is asked for) with less and less noise, until a certificate holds.

    Guarantee: pure ex-post DP, known only after the run: the rung at which the climb stopped; at most the cap.
    Adjacency: that of the problem: a row or a person is replaced, or added or removed; a number of rows is public.
    Sensitivity: 4 (L1) for rows of 1-norm and targets at most 1; 17/4 with y'y, 6 with the sum of y too. Added or
        removed: 2, 3 and 4.
    Accuracy: excess risk, RMSE or R^2 within the target except with the failure probability, over all landings.
    Numerics: exact integer moments and exact noise; the certificate is computed in floats from released numbers.
    Reference: LNRWW17, Theorem 2.7; docs/proofs/ridge-certificate.md; docs/proofs/moments.md.
    """

    question = "ridge regression"
    _adds_rows = _weighs_rows = True

    def __init__(self, problem: Problem, *, rungs: int | None = None) -> None:
        self._problem, aim = problem, problem.aim
        self._measure = None if aim.target is None else aim.target.measure
        self._dimension, self._all_failures = problem.ball.dimension, float(aim.failure_probability)
        if self._measure is Measure.R2 and not problem.neighbours.unit.is_row:
            raise InvalidRequest("Expected another score than r2 for weighted rows", do='Pass score=("rmse", ...)')
        self._layout = MomentLayout(
            problem.ball,
            with_square=self._measure in (Measure.RMSE, Measure.R2),
            with_sum=self._measure is Measure.R2,
            adjacency=problem.neighbours.adjacency,
        )
        # The lattice's Laplace is within a grid unit of a real one, in each of the entries.
        amount = float(self._layout.sensitivity.amount) / 4.0**GRID_BITS
        self._unit_scale = amount / problem.rows * (1 + 1e-9 * self._dimension)
        self._ladder = self._build_ladder(rungs)
        check_rates(self._ladder, Fraction(self._layout.sensitivity.amount))
        self._landings = self._build_landings()
        late = int(np.count_nonzero(self._landings >= self._first))
        self._failure = self._all_failures / late  # of one landing
        self._envelope = self._build_envelope()

    def _build_ladder(self, rungs: int | None) -> Ladder:
        """Return the ladder, and remember the first rung at which coefficients other than zero can be certified."""
        aim, self._first = self._problem.aim, 0
        if aim.epsilon is not None:
            return Ladder((aim.epsilon,))
        least, certifiable, most = aim.cap / Fraction(_SPAN), Fraction(0), aim.cap
        if self._measure is Measure.EXCESS_RISK:
            # Zero coefficients meet the target if the gradient there is no longer than this.
            self._short_gradient = math.sqrt(2 * self._problem.penalty * self._problem.goal)
            unit = self._unit_scale / self._short_gradient
            reach = float(NoiseEnvelope.of(self._dimension, 0.2).reach(np.zeros(1))[0])
            certifiable = round_up(reach * unit)
            failure, noisy = self._all_failures * _ZERO_FAILURE, 0.9 * math.sqrt(2 * self._dimension)
            lengths = np.geomspace(1e-2, 1e4, 200).tolist()
            short = next((each for each in lengths if is_short(noisy, each, self._dimension, failure)), math.inf)
            if math.isinf(short):
                raise too_rare(failure)
            # Below this level not even data whose best coefficients are zero can be certified.
            least = min(round_up(short * unit), certifiable)
            # Noise this small is certified for the longest coefficients that can be best: no landing is needed above.
            longest = np.array([0.5 / math.sqrt(self._problem.penalty)])
            most = min(most, round_up(_SURE * float(NoiseEnvelope.of(self._dimension, 0.2).reach(longest)[0]) * unit))
        lowest = aim.check_price(least)
        ladder = Ladder.geometric(lowest, max(lowest, most), rungs=rungs, ratio=_RATIO)
        levels = tuple(ladder)
        self._first = next((rung for rung, level in enumerate(levels) if level >= certifiable), len(levels) - 1)
        return ladder

    def _build_landings(self) -> NDArray[np.intp]:
        """Return the rungs at which the certificate is tried."""
        last, first = len(self._ladder) - 1, self._first
        # No more than the table of noise covers, when the failure probability is shared among them.
        covered = self._all_failures / NoiseEnvelope.least_failure(self._dimension)
        most = max(1, min(_LANDINGS, math.floor(covered * (1 - 2 * _SQUARE_FAILURE))))
        early = np.linspace(0, first, min(first, _EARLY), endpoint=False)
        span = math.log(self._ladder[last] / self._ladder[first])
        count = min(last - first + 1, most, math.ceil(span / math.log(_LANDING_RATIO)) + 1)
        late = np.linspace(last, first, count)  # downwards, so that a single one is the last: the rung of a miss
        return np.unique(np.concatenate([early, late]).round().astype(np.intp))

    def _build_envelope(self) -> NoiseEnvelope:
        """Bound the noise of one landing. Where the table has no bound, refuse here, before anything is paid."""
        share = 1 - 2 * _SQUARE_FAILURE if self._problem.aim.is_score else 1 - _ZERO_FAILURE
        least = NoiseEnvelope.least_failure(self._dimension)
        if self._failure * share < least:
            raise InvalidRequest(
                f"Expected a failure probability of at least {least / share:.2g} for this method and number of columns",
                got=self._all_failures,
                do='Allow more failures, or pass method="objective" for an excess risk and method="test" for a score',
            )
        return NoiseEnvelope.of(self._dimension, self._failure * share)

    @property
    def worst_case(self) -> Loss:
        return PureLoss(self._ladder.cap)

    def measure(self, source: RowSource) -> Sealed:
        return self._layout.measure(self._unit_rows(source).scale_to_weights())

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[LinearModel]:
        path = DiscreteLaplacePath(sealed, self._ladder, bits=bits)
        seen: dict[int, CertifiedCoefficients] = {}

        def accepts(values: NDArray[Any], start: int) -> NDArray[np.bool_]:
            verdicts = np.zeros(len(values), dtype=bool)
            for rung in self._landings[(self._landings >= start) & (self._landings < start + len(values))]:
                seen[int(rung)] = self._certify_rung(values[rung - start], int(rung))
                if self._meets_target(seen[int(rung)]):
                    verdicts[rung - start] = True
                    break
            return verdicts

        rung = climb(path, accepts)
        last = len(self._ladder) - 1 if rung is None else rung
        return self._build_release(path.at(last), seen, last, met=rung is not None)

    def _certify_rung(self, values: NDArray[Any], rung: int) -> CertifiedCoefficients:
        """Return the best coefficients at one rung, with a bound on what the target measures, in the caller's units."""
        moments = self._layout.unpack(values, self._problem.rows)
        scale, penalty = self._unit_scale / float(self._ladder[rung]), self._problem.penalty
        if moments.square is not None:
            own = self._failure * _SQUARE_FAILURE
            reach = -math.log(2 * own)  # one-sided: the noise of y^2 is below -reach with probability own
            best = SquaredErrorCertificate(penalty, self._envelope, reach).best(
                moments.gram, moments.cross, moments.square, scale=scale
            )
            return CertifiedCoefficients(best.theta, self._score_bound(best.bound, moments, scale, own))
        certified = CertifiedCoefficients(np.zeros(self._dimension), math.inf)
        if self._problem.aim.target is None:
            best = ExcessRiskCertificate(penalty, self._envelope).shrink(moments.gram, moments.cross, scale=scale)
            return CertifiedCoefficients(best.theta, best.bound * self._problem.risk_unit)
        if rung >= self._first:
            best = ExcessRiskCertificate(penalty, self._envelope).best(moments.gram, moments.cross, scale=scale)
            certified = CertifiedCoefficients(best.theta, best.bound * self._problem.risk_unit)
            if self._meets_target(certified):
                return certified
        # Zero coefficients, where the exact gradient there is surely short enough.
        share = self._all_failures * _ZERO_FAILURE / len(self._landings)
        noisy = float(np.linalg.norm(moments.cross)) / scale
        if is_short(noisy, self._short_gradient / scale, self._dimension, share):
            return CertifiedCoefficients(np.zeros(self._dimension), self._problem.aim.tolerance)
        return certified

    def _score_bound(self, squared_error: float, moments: Moments, scale: float, failure: float) -> float:
        """Return the target's own measure from a bound on the mean squared error."""
        if self._measure is Measure.RMSE:
            return self._problem.half_width * math.sqrt(max(squared_error, 0.0))
        # Var y >= y^2 - (mean y)^2 with both bounded on the side that counts: three tails, one of them paid above.
        assert moments.square is not None and moments.total is not None
        reach = -math.log(failure) * scale
        variance = moments.square - reach - (abs(moments.total) + reach) ** 2
        return 1 - max(squared_error, 0.0) / variance if variance > 0 else -math.inf

    def _meets_target(self, certified: CertifiedCoefficients) -> bool:
        """Return whether a certificate is good enough."""
        target = self._problem.aim.target
        if target is None:
            return True
        if target.measure.is_loss:
            return certified.bound <= self._problem.aim.tolerance
        return certified.bound >= float(target.tolerance) * (1 + 1e-12)

    def _build_release(
        self, values: NDArray[Any], seen: dict[int, CertifiedCoefficients], last: int, *, met: bool
    ) -> Release[LinearModel]:
        """Return the model of the last rung with its receipt."""
        problem, certified, bill = self._problem, seen[last], self._ladder[last]
        release = self.release_model(
            certified.theta,
            method="gradual release of moments, residual certificate",
            generation=bill,
            met=met,
            achieved=certified.bound,
            rung=last,
            rungs=len(self._ladder),
            citations=_CERTIFIED_CITATIONS,
        )
        steps = tuple(
            Step(self._ladder[rung], each.bound, min(each.bound, 0.0), max(each.bound, 0.0))
            for rung, each in sorted(seen.items())
            if math.isfinite(each.bound)
        )
        return _with_moments(release, self._layout.unpack(values, problem.rows), steps)


def _with_moments(
    release: Release[LinearModel], moments: Moments, climb: tuple[Step, ...] = ()
) -> Release[LinearModel]:
    """Return a release with the moments that its model was made of."""
    return replace(release, value=RidgeRelease.of(release.value, moments), climb=climb)


class _RhoPlan(FitPlan):
    """A plan billed in zCDP: accounts that count in epsilon and delta pay the pair that its cap implies."""

    _delta: Fraction
    _layout: EuclideanLayout
    _adds_rows = _weighs_rows = True

    def charge_to(self, definitions: frozenset[str]) -> Plan:
        return ApproxPrice(self, self._problem.aim.cap, self._delta) if definitions == {"approx"} else self

    def _rho_terms(self, rho: Fraction) -> dict[str, Any]:
        """Return the terms of a receipt with the epsilon that rho implies."""
        epsilon = ConcentratedTotal(rho, Fraction(0)).epsilon(self._delta)
        return self._problem.terms | {"delta": self._delta, "epsilon at delta": epsilon}

    def _moment_deviation(self, rho: Fraction) -> float:
        """Return the standard deviation of the noise on mean moments."""
        return math.sqrt(float(self._layout.squared_distance) / (2 * float(rho))) / self._problem.rows * (1 + 1e-9)


class GaussianRidge(_RhoPlan):
    """Releases X'X and X'y under Gaussian noise of growing precision until a certificate holds.

    Guarantee: zCDP, known only after the run: the rho of the last rung read, at most the cap, which is the largest rho
        that implies (max_epsilon, delta)-DP.
    Adjacency: that of the problem: a row or a person is replaced, or added or removed; a number of rows is public.
    Sensitivity: sqrt(9/2) for (x x', x y) of rows and targets within 1, sqrt(2) where rows are added or removed (L2).
    Accuracy: excess risk within the target except with the failure probability, over all rungs.
    Numerics: exact integer moments and noise; the certificate is computed in floats from released numbers.
    Reference: docs/proofs/gaussian-ridge.md; docs/proofs/gaussian-path.md; CKS20, Theorem 4; BS16, Lemma 2.3.
    """

    question = "ridge regression"

    def __init__(self, problem: Problem, delta: Fraction) -> None:
        if problem.aim.is_score:
            raise InvalidRequest("Expected an excess risk or an epsilon with delta", do="Leave delta out for scores")
        self._problem, self._delta = problem, delta
        self._layout = EuclideanLayout(problem.ball, problem.neighbours.adjacency)
        cap = rho_for(problem.aim.cap, delta)
        if problem.aim.target is None:
            self._ladder = Ladder((cap,))
        else:
            self._ladder = Ladder.geometric(cap / _GAUSSIAN_SPAN, cap, rungs=_GAUSSIAN_RUNGS)
        check_gaussian_ladder(self._ladder, self._layout.sensitivity.amount)

    @property
    def worst_case(self) -> Loss:
        return ZeroConcentratedLoss(self._ladder.cap)

    def measure(self, source: RowSource) -> Sealed:
        return self._layout.measure(self._unit_rows(source).scale_to_weights())

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[LinearModel]:
        problem = self._problem
        path = GaussianPath(sealed, self._ladder, bits=bits)
        failure = float(problem.aim.failure_probability) / len(self._ladder) * (1 - _SAME_LAW)
        certificate = ExcessRiskCertificate(problem.penalty, GaussianEnvelope.of(problem.ball.dimension, failure))
        seen: list[CertifiedCoefficients] = []

        def accepts(values: NDArray[Any], start: int) -> NDArray[np.bool_]:
            for offset, row in enumerate(values):
                moments = self._layout.unpack(row, problem.rows)
                deviation = self._moment_deviation(self._ladder[start + offset])
                find = certificate.shrink if problem.aim.target is None else certificate.best
                best = find(moments.gram, moments.cross, scale=deviation)
                seen.append(CertifiedCoefficients(best.theta, best.bound * problem.risk_unit))
            given = problem.aim.target is None
            return np.array([given or each.bound <= problem.aim.tolerance for each in seen[start:]])

        # One rung at a time: every rung that is read is drawn afresh, and paid.
        rung = climb(cast(Any, path), accepts, block=1)  # estimates are floats, which the certificate reads alike
        last = len(self._ladder) - 1 if rung is None else rung
        rho = self._ladder[last]
        release = self.release_model(
            seen[last].theta,
            method="moments under discrete Gaussian noise, residual certificate",
            generation=rho,
            bill=ZeroConcentratedLoss(rho),
            met=rung is not None,
            achieved=seen[last].bound,
            rung=last,
            rungs=len(self._ladder),
            citations=_GAUSSIAN_CITATIONS,
            terms=self._rho_terms(rho),
        )
        pairs = zip(self._ladder, seen[: last + 1], strict=False)
        steps = tuple(Step(level, each.bound, 0.0, each.bound) for level, each in pairs)
        return _with_moments(release, self._layout.unpack(path.at(last), problem.rows), steps)


class AdaptiveRidge(_RhoPlan):
    """Least squares from noisy X'X and X'y, with no more penalty than their noise needs.

    A noisy matrix may be nearly singular where the exact one is not. A tenth of the budget reads the smallest
    eigenvalue of X'X; the penalty is what it lacks to twice the length of the noise, and 0 where it lacks nothing.

    Guarantee: zCDP, known before the run: the largest rho that implies (epsilon, delta)-DP.
    Adjacency: that of the problem: a row or a person is replaced, or added or removed; a number of rows is public.
    Sensitivity: 1 for the smallest eigenvalue of X'X (Weyl); sqrt(9/2) for (x x', x y) of rows and targets within 1,
        sqrt(2) where rows are added or removed (L2).
    Accuracy: the excess risk over least squares without a penalty that holds with the failure probability, where the
        curvature that is left is certain to be positive; otherwise none is reported.
    Numerics: exact integer moments and noise; the eigenvalue's float error is part of its sensitivity.
    Reference: Wang18, Algorithm 2 (the idea; constants ours); docs/proofs/gaussian-ridge.md; CKS20, Theorem 4;
        BS16, Lemma 2.3.
    """

    question = "linear regression"

    def __init__(self, problem: Problem, delta: Fraction) -> None:
        if problem.aim.epsilon is None:
            raise InvalidRequest(
                "Expected a regularization with an accuracy target",
                do="Give one, or pass epsilon and delta and let the noise choose it",
            )
        self._problem, self._delta = problem, delta
        self._rho = rho_for(problem.aim.epsilon, delta)
        self._layout = EuclideanLayout(problem.ball, problem.neighbours.adjacency)
        # The eigenvalue is on a far coarser grid: where the noise of the moments fits, its own does.
        check_gaussian_ladder(Ladder((self._rho * (1 - _CURVATURE_SHARE),)), self._layout.sensitivity.amount)
        self._failure = float(problem.aim.failure_probability) * (1 - _SAME_LAW)

    @property
    def worst_case(self) -> Loss:
        return ZeroConcentratedLoss(self._rho)

    def measure(self, source: RowSource) -> tuple[Sealed, Sealed]:
        rows, neighbours = self._unit_rows(source).scale_to_weights(), self._problem.neighbours
        least = measure_least_curvature(rows, adjacency=neighbours.adjacency, crowd=neighbours.crowd)
        return least, self._layout.measure(rows)

    def climb(self, sealed: tuple[Sealed, Sealed], bits: BitSource | None) -> Release[LinearModel]:
        problem, (least_sealed, both) = self._problem, sealed
        share = self._rho * _CURVATURE_SHARE
        noisy = float(GaussianPath(least_sealed, Ladder((share,)), bits=bits).at(0)[0])
        values = GaussianPath(both, Ladder((self._rho - share,)), bits=bits).at(0)
        moments = self._layout.unpack(values, problem.rows)
        envelope = GaussianEnvelope.of(problem.ball.dimension, self._failure * (1 - _CURVATURE_FAILURE))
        deviation = self._moment_deviation(self._rho * (1 - _CURVATURE_SHARE))
        slack, least = envelope.matrix * deviation, self._least_eigenvalue(noisy, least_sealed)
        # The smallest penalty under which noisy curvature stays above its noise in every direction.
        penalty = max(2 * slack - least, 0.0)
        eigenvalues, vectors = np.linalg.eigh(moments.gram)
        turned = vectors.T @ moments.cross
        theta = turned / np.maximum(eigenvalues + penalty, slack)
        # The excess risk of theta over least squares without a penalty, in the eigenbasis of the noisy matrix.
        residual = (eigenvalues * theta - turned) ** 2
        reach = deviation * float(envelope.reach(np.array([np.linalg.norm(theta)]))[0])
        curvatures = _MIXES[:, None] * (eigenvalues - slack) + (1 - _MIXES[:, None]) * least
        curvatures = curvatures[curvatures.min(axis=1) > 0]
        bound = math.inf
        if len(curvatures):
            lengths = np.sqrt((residual / curvatures).sum(axis=1)) + reach / np.sqrt(curvatures.min(axis=1))
            bound = float((lengths**2 / 2).min()) * problem.risk_unit
        return self._build_release(vectors @ theta, moments, penalty, bound)

    def _least_eigenvalue(self, noisy: float, sealed: Sealed) -> float:
        """Bound the smallest eigenvalue of the mean of x x' from below."""
        amount = float(sealed.sensitivity.amount)
        deviation = amount / math.sqrt(2 * float(self._rho * _CURVATURE_SHARE))
        # P(normal > t) <= exp(-t^2 / 2) / 2.
        tail = math.sqrt(2 * math.log(1 / (2 * self._failure * _CURVATURE_FAILURE)))
        lowest = noisy - (deviation * tail * (1 + 1e-9) + amount - 2.0**GRID_BITS + 1)
        return max(lowest * 2.0**-GRID_BITS / self._problem.rows, 0.0)

    def _build_release(self, theta: Floats, moments: Moments, penalty: float, bound: float) -> Release[LinearModel]:
        """Return the model with its receipt, which names the penalty."""
        problem, curvature = self._problem, self._rho * _CURVATURE_SHARE
        scale = (problem.ball.shrinkage / problem.ball.bound) ** 2
        chosen = {"regularization": penalty / scale, "regularization chosen by": "noisy smallest eigenvalue"}
        release = self.release_model(
            theta,
            method="moments under discrete Gaussian noise, adaptive penalty",
            generation=self._rho,
            bill=ZeroConcentratedLoss(self._rho),
            achieved=bound,
            breakdown={"generation": self._rho - curvature, "curvature": curvature},
            citations=_ADAPTIVE_CITATIONS,
            terms=self._rho_terms(self._rho) | chosen,
        )
        return _with_moments(release, moments)


def rho_for(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return a rho, as large as six digits allow, that implies (epsilon, delta)-DP (CKS20, Proposition 12).

    >>> rho = rho_for(Fraction(1), Fraction(1, 10**6))
    >>> ConcentratedTotal(rho, Fraction(0)).epsilon(Fraction(1, 10**6)) <= 1 and rho > Fraction(1, 100)
    True
    """
    low, high = 0.0, float(epsilon)  # rho-zCDP with rho > epsilon implies no epsilon at a useful delta
    for _ in range(60):
        middle = (low + high) / 2
        fits = middle > 0 and ConcentratedTotal(Fraction(middle), Fraction(0)).epsilon(delta) <= float(epsilon)
        low, high = (middle, high) if fits else (low, middle)
    digits = math.floor(math.log10(low)) - 5 if low > 0 else 0
    grid = Fraction(10) ** digits
    rho = math.floor(Fraction(low) / grid) * grid
    if rho <= 0:
        raise InvalidRequest("Expected an epsilon and delta that this noise can reach", got=epsilon, do="Raise delta")
    return rational(rho, "rho")
