"""A linear fit in public words: the accuracy asked for, the problem, the plan's receipt, and the model released."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from expost.accounting.concentrated import ConcentratedTotal
from expost.accounting.privacy_event import ConcentratedEvent, PrivacyEvent
from expost.core import (
    ApproxGuarantee,
    ApproxLoss,
    BudgetExceeded,
    InvalidRequest,
    Loss,
    Measure,
    Norm,
    Outcome,
    Plan,
    PureLoss,
    Receipt,
    Release,
    Target,
    ZeroConcentratedLoss,
)
from expost.core.question_cap import QuestionCap, read_cap
from expost.core.rational import probability, rational
from expost.data.row_source import RowSource, cut_spans, plain_numbers
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows, grid_numbers
from expost.models.estimator import read_column_bounds
from expost.models.linear.fit_neighbours import REPLACED_ROWS, FitNeighbours
from expost.models.linear.row_loss import RowLoss
from expost.noise import system_bits

__all__ = ["Aim", "ApproxPrice", "FitPlan", "FitTerms", "LinearModel", "Problem", "UnitReading", "bill_for"]

_MEASURES = {"r2": Measure.R2, "rmse": Measure.RMSE, "accuracy": Measure.ACCURACY, "log_loss": Measure.LOG_LOSS}
Law = TypeVar("Law")
T = TypeVar("T")
_LEAST_EPSILON = Fraction(1, 10**9)  # the noise of a fit is about 2^31 / epsilon grid steps, and 2^76 can be drawn


@dataclass(frozen=True)
class Aim:
    """An accuracy with a cap on its cost, or a fixed epsilon.

    >>> print(Aim.of(excess_risk=0.01, failure_probability=0.1, max_epsilon=1).target)
    excess risk <= 0.01 with probability 0.9
    >>> Aim.of(failure_probability=0.1, max_epsilon=1)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected exactly one of excess_risk, score and epsilon. Pass the one you need.
    """

    target: Target | None
    epsilon: Fraction | None
    failure_probability: Fraction
    cap: Fraction

    @classmethod
    def of(
        cls,
        *,
        excess_risk: object = None,
        score: object = None,
        epsilon: object = None,
        failure_probability: object,
        max_epsilon: object,
        scores: tuple[str, ...] = tuple(_MEASURES),
    ) -> Aim:
        """Read the arguments of an estimator; ``scores`` are the names of the scores that it offers."""
        if sum(given is not None for given in (excess_risk, score, epsilon)) != 1:
            raise InvalidRequest("Expected exactly one of excess_risk, score and epsilon", do="Pass the one you need")
        failure = probability(failure_probability, "failure_probability")
        if epsilon is not None:
            level = rational(epsilon, "epsilon")
            if level < _LEAST_EPSILON:
                raise InvalidRequest(
                    "Expected epsilon of at least 1e-9", got=epsilon, do="Raise it: noise drowns the model"
                )
            return cls(None, level, failure, level)
        if excess_risk is not None:
            measure, tolerance = Measure.EXCESS_RISK, rational(excess_risk, "excess_risk")
        else:
            do = f'Pass a pair such as ("{scores[0]}", 0.5)' if scores else "Pass excess_risk or epsilon"
            if not (isinstance(score, tuple | list) and len(score) == 2 and score[0] in scores):
                names = ", ".join(scores) or "none"
                raise InvalidRequest(f"Expected score to be a name of {names} and a number", do=do)
            measure, tolerance = _MEASURES[score[0]], rational(score[1], "score")
            if measure in (Measure.R2, Measure.ACCURACY) and tolerance >= 1:
                raise InvalidRequest(f"Expected a score of {score[0]} below 1", got=score[1], do=do)
        return cls(Target(measure, tolerance, failure), None, failure, read_cap(max_epsilon))

    @property
    def tolerance(self) -> float:
        """Return the accuracy asked for as a float, rounded down: for a loss that is the strict side."""
        assert self.target is not None
        return float(self.target.tolerance) * (1 - 1e-12)

    @property
    def is_score(self) -> bool:
        """Return whether a score is asked for, and not an excess risk or an epsilon."""
        return self.target is not None and self.target.measure is not Measure.EXCESS_RISK

    def choose_law(
        self, laws: Sequence[Law], *, risk: Callable[[Law, Fraction], float], price: Callable[[Law], Fraction]
    ) -> tuple[Law, Fraction]:
        """Return the law of the least epsilon or, at a given epsilon, of the least risk; public numbers alone decide."""
        given = self.epsilon
        if given is not None:
            return min(laws, key=lambda law: risk(law, given)), given
        law, epsilon = min(((law, price(law)) for law in laws), key=lambda each: each[1])
        return law, self.check_price(epsilon)

    def check_price(self, epsilon: Fraction) -> Fraction:
        """Return ``epsilon`` if the cap allows it; raise ``BudgetExceeded``, before the data is touched, otherwise."""
        if epsilon > self.cap:
            own = f" ({self.cap.source})" if isinstance(self.cap, QuestionCap) else ""
            raise BudgetExceeded(
                f"Expected a target that costs at most {PureLoss(self.cap).text(down=True)}{own}",
                got=str(PureLoss(epsilon)),
                do="Raise max_epsilon, or ask for less accuracy",
            )
        return epsilon


@dataclass(frozen=True)
class FitTerms:
    """What every linear estimator is asked: the arguments that do not depend on the method."""

    aim: Aim
    regularization: float
    norm: Norm = Norm.L1
    feature_bound: float | None = None
    column_bounds: Any = None
    intercept: bool = False
    target_bounds: tuple[float, float] = (-1.0, 1.0)
    declared_rows: int | None = None
    """A public number that stands for a private number of rows."""

    def describe(self, source: RowSource) -> Problem:
        """Return the problem that these terms pose for rows of this public shape."""
        lows, highs = read_column_bounds(self.column_bounds, source.width, source.names)
        if self.feature_bound is not None:
            bound = self.feature_bound
        elif lows is None:
            bound = 1.0
        else:  # large enough for every row within the column bounds
            bound = float(source.width) if self.norm is Norm.L1 else math.sqrt(source.width)
        ball = UnitBall(source.width, self.norm, bound, lows, highs, self.intercept)
        rows = source.rows if self.declared_rows is None else self.declared_rows
        neighbours = FitNeighbours(source.adjacency, source.unit, source.rows_per_unit)
        return Problem(ball, rows, self.regularization, self.aim, self.target_bounds, neighbours)


@dataclass(frozen=True)
class Problem:
    """One regularized linear problem, described by public numbers.

    Inside, rows and targets are divided by their bounds: with coef = half_width * shrinkage / bound * theta the
    caller's risk is half_width^2 times the risk of theta under ``penalty``. Targets are centered on the middle of
    their bounds first.
    """

    ball: UnitBall
    rows: int
    """The public number that sums are divided by; 0 if there is none yet and rows must be counted."""
    regularization: float
    aim: Aim
    target_bounds: tuple[float, float] = (-1.0, 1.0)
    neighbours: FitNeighbours = REPLACED_ROWS

    def __post_init__(self) -> None:
        rational(self.regularization, "regularization")
        rational(self.ball.bound, "feature_bound")

    @cached_property
    def penalty(self) -> float:
        """Return the penalty on theta that equals the caller's penalty on coef."""
        return self.regularization * (self.ball.shrinkage / self.ball.bound) ** 2

    @cached_property
    def half_width(self) -> float:
        """Return half the width of the target bounds: the unit of targets inside."""
        return (self.target_bounds[1] - self.target_bounds[0]) / 2

    @cached_property
    def target_middle(self) -> float:
        """Return the middle of the target bounds."""
        return (self.target_bounds[1] + self.target_bounds[0]) / 2

    @property
    def risk_unit(self) -> float:
        """Return what one unit of risk inside is worth outside."""
        return self.half_width**2

    @property
    def goal(self) -> float:
        """Return the excess risk allowed, in the units inside."""
        return self.aim.tolerance / self.risk_unit

    def read_targets(self, target: Any) -> NDArray[np.float64]:
        """Clip numeric targets to their bounds and put them on the grid, centered. Missing ones count as the middle."""
        return _targets_to_grid(target, self.half_width, self.target_middle)

    def model(self, theta: Any) -> LinearModel:
        """Return the model for raw rows."""
        reading = UnitReading(self.ball, np.asarray(theta, np.float64), self.target_bounds)
        coefficients, intercept = self.ball.unscale_coefficients(theta, self.half_width)
        return LinearModel(coefficients, intercept + self.target_middle, reading=reading)

    @property
    def terms(self) -> dict[str, Any]:
        """Return the public conditions on a receipt."""
        clipped = f"{self.ball.norm.value} norm at most {self.ball.bound:.6g}"
        symmetric = self.target_middle == 0
        exact = self.neighbours.adjacency.public_size
        own = "rows" if self.neighbours.unit.is_row else "units"
        most = {} if self.neighbours.unit.is_row else {"rows per unit": f"at most {self.neighbours.rows_per_unit}"}
        return {
            own: self.rows if exact else f"{self.rows} declared, their true number is private",
            **most,
            "features": self.ball.width,
            "rows clipped to": clipped + (" after scaling by public bounds" if self.ball.lows is not None else ""),
            "targets clipped to": self.half_width if symmetric else list(self.target_bounds),
            "regularization": self.regularization,
            "intercept": self.ball.intercept,
            "grid": f"2^-{GRID_BITS} of each bound",
        }


def _targets_to_grid(target: Any, half_width: float, middle: float) -> NDArray[np.float64]:
    """Return targets less the middle of their bounds, clipped, in grid units of the half width."""
    return grid_numbers(half_width)(target if middle == 0 else plain_numbers(target) - middle)


def bill_for(epsilon: Fraction, delta: Fraction | None) -> Loss:
    """Return a pure loss or, with a delta, an (epsilon, delta) loss.

    >>> str(bill_for(Fraction(1, 2), Fraction(1, 1000)))
    'epsilon 0.5, delta 0.001'
    """
    return PureLoss(epsilon) if delta is None else ApproxLoss(epsilon, delta)


class FitPlan:
    """Base of the plans of linear fits. A plan is made of public numbers and does not change once it is made."""

    _problem: Problem
    _loss: RowLoss
    _grid_target: Callable[[Any], NDArray[np.float64]] | None = None
    """How targets are read; as numbers by default."""
    _weighs_rows = False
    """Whether the rows of one person share a weight; other plans take single rows only."""
    _adds_rows = False
    """Whether the number of rows may be private; other plans replace rows."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" not in vars(cls):
            return
        build = cls.__init__

        @functools.wraps(build)
        def build_once(self: Any, *args: Any, **kwargs: Any) -> None:
            build(self, *args, **kwargs)
            if type(self).__init__ is build_once:  # not where a subclass goes on
                self.check_neighbours(self._problem)
                object.__setattr__(self, "_is_complete", True)

        cls.__init__ = build_once  # type: ignore[method-assign]

    def __setattr__(self, name: str, value: object) -> None:
        # The worst case was charged for the plan as it was made.
        if "_is_complete" in vars(self):
            raise AttributeError(f"Cannot set {name!r} because a plan is frozen once it is made.")
        super().__setattr__(name, value)

    @property
    def question(self) -> str:
        """Return the question in public words."""
        return f"linear model minimising {self._loss.name}"

    @property
    def worst_case(self) -> Loss:
        """Return the most that the fit can cost: the cap, unless a plan overrides it."""
        return PureLoss(self._problem.aim.cap)

    def charge_to(self, definitions: frozenset[str]) -> Plan:
        """Return the form of this plan that accounts of these privacy definitions can pay for."""
        return self

    @classmethod
    def check_neighbours(cls, problem: Problem) -> None:
        """Refuse tables that this kind of plan has no proof for, from public facts."""
        neighbours = problem.neighbours
        if not neighbours.unit.is_row and not cls._weighs_rows:
            raise InvalidRequest(
                "Expected a method that weighs the rows of a person",
                do='Pass excess_risk= or epsilon= with method="auto", or describe the table with unit="row"',
            )
        if not neighbours.adjacency.public_size and not cls._adds_rows:
            raise InvalidRequest(
                "Expected a method for rows that are added or removed",
                do='Pass method="auto", or describe the table with adjacency="replace-one" and rows=...',
            )

    def measure(self, source: RowSource) -> Any:
        """Return the rows as the fit reads them."""
        return self._unit_rows(source)

    def _unit_rows(self, source: RowSource) -> UnitRows:
        """Return gridded rows; which rows a person keeps is drawn afresh, as for statistics."""
        secret = b"" if source.unit.is_row else system_bits().words(4).tobytes()
        target = self._grid_target or self._problem.read_targets
        rows = replace(source, rows=self._problem.rows)
        return UnitRows(rows, self._problem.ball, target, secret=secret)

    def climb(self, sealed: Any, bits: Any) -> Release[Any]:
        """Fit, and return the model with its receipt."""
        raise NotImplementedError

    def release_model(self, theta: Any, **terms: Any) -> Release[LinearModel]:
        """Return the linear model of these coefficients with its receipt; ``terms`` as for ``release_value``."""
        return self.release_value(self._problem.model(theta), **terms)

    def release_value(
        self,
        value: T,
        *,
        method: str,
        generation: Fraction,
        testing: Fraction = Fraction(0),
        met: bool = True,
        achieved: float | None = None,
        **facts: Any,
    ) -> Release[T]:
        """Return a model with a receipt for what it cost; ``facts`` are fields of the receipt that are not the usual ones."""
        target = self._problem.aim.target
        if target is None:
            outcome = Outcome.FIXED
        elif not met:
            outcome = Outcome.NOT_MET
        else:
            outcome = Outcome.TESTED if testing else Outcome.CERTIFIED
        usual: dict[str, Any] = {
            "promise": self.worst_case.promise(),
            "bill": PureLoss(generation + testing),
            "breakdown": {"generation": generation, "testing": testing},
            "terms": self._problem.terms,
        }
        receipt = Receipt(
            question=self.question,
            method=method,
            adjacency=self._problem.neighbours.adjacency,
            unit=self._problem.neighbours.unit,
            outcome=outcome,
            target=target,
            achieved=achieved if achieved is not None and math.isfinite(achieved) else None,
            achieved_measure=Measure.EXCESS_RISK if target is None else None,
            **(usual | facts),
        )
        return Release(value, receipt)


@dataclass(frozen=True)
class ApproxPrice:
    """A plan of at most rho, charged as the (epsilon, delta) that its cap implies (CKS20, Proposition 12).

    Delta is chosen before the run, so the whole run is one (epsilon, delta)-private mechanism, which adds up with
    others (DR14, Theorem 3.16). Of the pair nothing is given back where it stops early: an epsilon for the rho that was
    seen would need a delta that holds for all stopping points at once (docs/proofs/gaussian-ridge.md). An account over
    Renyi orders is charged the rho itself, of which the unused part comes back (docs/proofs/filters.md, Theorem 1).
    """

    inner: Plan
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        cap = self.inner.worst_case
        if not isinstance(cap, ZeroConcentratedLoss):
            raise InvalidRequest("Expected a request billed in zCDP", got=cap.definition, do="Pay for it as it is")
        if ConcentratedTotal(cap.rho, Fraction(0)).epsilon(self.delta) > self.epsilon:
            raise InvalidRequest("Expected an epsilon that the cap implies", got=self.epsilon, do="Raise it")

    @property
    def question(self) -> str:
        return self.inner.question

    @property
    def worst_case(self) -> Loss:
        """Return what is held and, stopped early or not, paid."""
        return ApproxLoss(self.epsilon, self.delta)

    @property
    def event(self) -> PrivacyEvent:
        """Return the whole rho."""
        return ConcentratedEvent(self.inner.worst_case.amounts()["rho"])

    def event_of(self, receipt: Receipt) -> PrivacyEvent:
        """Return the rho that was used."""
        return ConcentratedEvent(Fraction(receipt.terms["rho"]))

    def measure(self, source: Any) -> Any:
        return self.inner.measure(source)

    def climb(self, sealed: Any, bits: Any) -> Release[Any]:
        """Return the inner plan's release, its receipt in this currency."""
        release = self.inner.climb(sealed, bits)
        receipt = release.receipt
        rho = receipt.bill.amounts()["rho"]
        paid = replace(
            receipt,
            promise=ApproxGuarantee(self.epsilon, self.delta),
            bill=ApproxLoss(self.epsilon, self.delta),
            terms={**receipt.terms, "held as": str(receipt.promise), "came to": str(receipt.bill), "rho": str(rho)},
            breakdown={},
            citations=(*receipt.citations, "CKS20, Proposition 12"),
        )
        return replace(release, receipt=paid)


@dataclass(frozen=True, eq=False)
class UnitReading:
    """How a fit read raw rows, and its coefficients for rows read so. All of it is public or released.

    Rows are clipped to the public bounds, missing values filled and the rest rounded exactly as in the fit. So an
    accuracy that was tested or certified on the rows of the fit is the accuracy of the predictions for them.

    >>> reading = UnitReading(UnitBall(width=1, bound=2.0), np.array([1.0]), target_bounds=(-10.0, 10.0))
    >>> reading.compute_scores(np.array([[1.0], [2.0], [1e300], [np.nan]])).tolist()
    [5.0, 10.0, 10.0, 0.0]
    """

    ball: UnitBall
    coefficients: NDArray[np.float64]
    target_bounds: tuple[float, float] = (-1.0, 1.0)

    def compute_scores(self, features: Any) -> NDArray[np.float64]:
        """Return the scores of raw rows, in the units of the targets."""
        weights = self.coefficients * 2.0**-GRID_BITS
        scores = np.empty(features.shape[0])
        for start, stop in cut_spans(*features.shape):
            scores[start:stop] = self.ball.grid_rows(features[start:stop]) @ weights
        low, high = self.target_bounds
        return scores * ((high - low) / 2) + (high + low) / 2

    def clip_targets(self, targets: Any) -> NDArray[np.float64]:
        """Return numeric targets as the fit read them: clipped to their bounds, missing ones in the middle."""
        low, high = self.target_bounds
        half, middle = (high - low) / 2, (high + low) / 2
        return _targets_to_grid(targets, half, middle) * (half * 2.0**-GRID_BITS) + middle


@dataclass(frozen=True, eq=False)
class LinearModel:
    """Coefficients and intercept for raw rows; private as its receipt states.

    The coefficients hold for rows within the public bounds. ``predict`` reads rows as the fit did, where that is known.

    >>> LinearModel(np.array([1.0, 2.0]), 0.5).predict(np.array([[1.0, 1.0]]))
    array([3.5])
    """

    coefficients: NDArray[np.float64]
    intercept: float = 0.0
    limits: tuple[float, float] | None = None
    """Predictions are clipped to this interval, where the accuracy was tested so."""
    reading: UnitReading | None = None
    """How the fit read rows; None for a model made by hand."""

    def predict(self, features: Any) -> NDArray[np.float64]:
        """Return the scores of raw rows."""
        if self.reading is None:
            scores: NDArray[np.float64] = features @ self.coefficients + self.intercept
        else:
            scores = self.reading.compute_scores(features)
        return scores if self.limits is None else np.clip(scores, *self.limits)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LinearModel)
            and np.array_equal(self.coefficients, other.coefficients)
            and self.intercept == other.intercept
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LinearModel({len(self.coefficients)} coefficients, intercept {self.intercept:.4g})"
