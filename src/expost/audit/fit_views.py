"""What the parts of a fit release, many runs at once: minima of tilted risks, noisy moments, noisy minima, tests.

A fit is a composition: each of its parts has a claim of its own, and everything else is computed from what they release.
Attacks on the parts see every scale and every noise of the fit, with a thousand times the runs that whole fits allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.audit.cells import Features
from expost.audit.claim import Claim, ExPost
from expost.audit.many_minima import ManyMinima
from expost.audit.pair import Outcomes, Pair, Sampler
from expost.core import Ladder, PureGuarantee, Sealed
from expost.data.matrix import UnitRows
from expost.models.linear.hypotheses import OutputHypotheses
from expost.models.linear.objective import TiltedRisk
from expost.models.linear.risk import ExactRisk
from expost.models.linear.tilt import GaussianTilt, SphericalTilt
from expost.noise import AboveThreshold, DiscreteLaplacePath, GaussianPath, ReducedAboveThreshold
from expost.noise.bits import BitSource
from expost.noise.copies import sealed_copies

__all__ = ["hypotheses_pair", "path_pair", "reduced_pair", "rule_pair", "tilt_pair"]

Sides = tuple[UnitRows, UnitRows]

_EVERYWHERE = 1e300  # a ball that no hypothesis leaves
_RISING = [0] * 8 + [1], [1] * 8 + [0]  # all queries rise but the last, which falls: the worst case


def tilt_pair(
    name: str,
    risk: TiltedRisk,
    epsilon: Fraction,
    sides: Sides,
    *,
    target_scale: float = 1.0,
    claim: Claim | None = None,
) -> Pair:
    """Minima of a tilted risk on two neighbouring tables; the search sees how much likelier each tilt is."""
    solvers = [ManyMinima(rows, risk.loss, risk.penalty, target_scale) for rows in sides]

    def fits(minima: ManyMinima) -> Sampler:
        def sampler(runs: int, bits: BitSource) -> Outcomes:
            return Outcomes.of(risk.simulate(minima, epsilon, runs=runs, bits=bits).round(9))

        return sampler

    left, right = map(fits, solvers)
    return Pair(name, claim or PureGuarantee(epsilon), left, right, features=_likelihood(risk, *solvers))


def _likelihood(risk: TiltedRisk, left: ManyMinima, right: ManyMinima) -> Features:
    """How much longer the one tilt is than the other that lead to an outcome, in the norm in which tilts grow rare."""
    order, power = (
        (2, 1) if isinstance(risk.law, SphericalTilt) else (2, 2) if isinstance(risk.law, GaussianTilt) else (1, 1)
    )

    def ratio(theta: NDArray[np.float64]) -> NDArray[np.float64]:
        ours, theirs = (np.linalg.norm(each.slopes(theta), ord=order, axis=1) ** power for each in (left, right))
        return np.asarray(theirs - ours)

    return ratio


def path_pair(
    name: str,
    kind: type[DiscreteLaplacePath] | type[GaussianPath],
    sides: tuple[Sealed, Sealed],
    ladder: Ladder,
    claim: Claim,
) -> Pair:
    """The first rung of a path of sealed numbers, as many copies of them as there are runs."""

    def released(sealed: Sealed) -> Sampler:
        def sampler(runs: int, bits: BitSource) -> Outcomes:
            rows = kind(sealed_copies(sealed, runs), ladder, bits=bits).at(0)
            return Outcomes.of(np.asarray(rows, np.float64).reshape(runs, -1))

        return sampler

    left, right = map(released, sides)
    return Pair(name, claim, left, right, features=_nearer(kind, sides))


def _nearer(kind: type[DiscreteLaplacePath] | type[GaussianPath], sides: tuple[Sealed, Sealed]) -> Features:
    """How much likelier an outcome is on the left, from exact answers that the audit made itself."""
    if kind is GaussianPath:
        one, other = (_clear(kind, sealed, Fraction(10**6)) for sealed in sides)
        return lambda values: np.asarray((values - (one + other) / 2) @ (one - other))
    one, other = (_clear(kind, sealed, Fraction(100)) for sealed in sides)
    return lambda values: np.asarray(np.abs(values - other).sum(axis=1) - np.abs(values - one).sum(axis=1))


def _clear(kind: Any, sealed: Sealed, level: Fraction) -> NDArray[np.float64]:
    """The sealed numbers under hardly any noise."""
    return np.asarray(kind(sealed, Ladder((level,))).at(0), np.float64)


class _Copies:
    """A risk whose minimum is sealed so many times over."""

    def __init__(self, risk: ExactRisk, copies: int) -> None:
        self._risk, self._copies, self.dimension = risk, copies, risk.dimension

    def seal_minimum(self, *terms: Any) -> Sealed:
        return sealed_copies(self._risk.seal_minimum(*terms), self._copies)


def hypotheses_pair(name: str, risks: tuple[ExactRisk, ExactRisk], level: Fraction, *, sensitivity: float) -> Pair:
    """Minima under the noise of one level of output perturbation."""

    def released(risk: ExactRisk) -> Sampler:
        def sampler(runs: int, bits: BitSource) -> Outcomes:
            copies: Any = _Copies(risk, runs)
            made = OutputHypotheses(copies, Ladder((level,)), sensitivity=sensitivity, radius=_EVERYWHERE, bits=bits)
            return Outcomes.of(made.block(0, 1).reshape(runs, -1))

        return sampler

    left, right = map(released, risks)
    return Pair(name, PureGuarantee(level), left, right)


def rule_pair(name: str, rule: AboveThreshold, *, lists: tuple[Sequence[int], Sequence[int]] = _RISING) -> Pair:
    """The sessions of a test whose queries move by the whole sensitivity, in the worst directions."""
    left, right = (_around(rule, each) for each in lists)

    def sessions(queries: Sequence[int]) -> Sampler:
        def sampler(runs: int, bits: BitSource) -> Outcomes:
            answers, _ = rule.simulate(queries, runs=runs, bits=bits)
            hits, unfinished = (answers == 1).sum(axis=1), answers[:, -1] == 0
            per_hit = float(rule.epsilon_threshold + rule.epsilon_query)
            return Outcomes.of(answers, hits * per_hit + unfinished * float(rule.epsilon_threshold))

        return sampler

    return Pair(name, ExPost(rule.guarantee), sessions(left), sessions(right))


def reduced_pair(name: str, rule: ReducedAboveThreshold, lists: tuple[Sequence[int], Sequence[int]]) -> Pair:
    """The same for a test whose noise shrinks; as many queries as there are rungs."""
    levels = np.array([float(rung) for rung in rule.ladder] + [float(rule.ladder.cap * rule.threshold_share)])
    left, right = (_around(rule, each) for each in lists)

    def sessions(queries: Sequence[int]) -> Sampler:
        def sampler(runs: int, bits: BitSource) -> Outcomes:
            stopped = rule.simulate(queries, runs=runs, bits=bits)
            unit = int(rule.sensitivity.amount)
            return Outcomes.of(np.minimum(stopped // np.array([1, unit]), 6), levels[stopped[:, 0]])

        return sampler

    return Pair(name, ExPost(rule.guarantee), sessions(left), sessions(right))


def _around(rule: AboveThreshold | ReducedAboveThreshold, moves: Sequence[int]) -> list[int]:
    """Queries one sensitivity below the threshold, each moved up by so many sensitivities."""
    unit = int(rule.sensitivity.amount)
    return [rule.threshold + (move - 1) * unit for move in moves]
