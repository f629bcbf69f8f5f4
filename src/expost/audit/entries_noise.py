"""Attacks on the mechanisms of fixed epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Protocol

import numpy as np

from expost.audit.audit_registry import AuditEntry
from expost.audit.noise_laws import (
    choice_law,
    laplace_law,
    noisy_max_law,
    permute_and_flip_law,
    proposed_law,
    response_law,
)
from expost.audit.output_law import Law, LawPair
from expost.audit.pair_attack import Outcomes, Pair
from expost.audit.planted_fault import CHOICES, GAUSSIAN, LAPLACE, PROPOSED, RECORDS, RESPONSE, SMOOTH, SPHERICAL
from expost.audit.privacy_claim import Claim
from expost.core import Adjacency, Guarantee, Norm, PureGuarantee, Sensitivity, approx, zcdp
from expost.noise import (
    ExponentialMechanism,
    ExponentialQuantile,
    GaussianMechanism,
    LaplaceMechanism,
    LatticeBounds,
    NoisyMax,
    PermuteAndFlip,
    ProposedQuantile,
    RandomizedResponse,
    SmoothInterquartileRange,
    SmoothNoise,
    SmoothQuantile,
    SmoothVariance,
    SphericalLaplaceMechanism,
    StableMode,
)
from expost.noise.bits import BitSource, SeededBits

__all__ = ["entries"]

_ONE, _HALF, _THIRD = Fraction(1), Fraction(1, 2), Fraction(1, 3)
_REPLACE = Sensitivity(1, adjacency=Adjacency.REPLACE_ONE)
_ADD = Sensitivity(1)


class _Mechanism(Protocol):
    @property
    def guarantee(self) -> Guarantee: ...

    def simulate(self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None) -> Any: ...


def entries() -> Iterable[AuditEntry]:
    """List one entry per mechanism."""
    return (
        AuditEntry("expost.noise.LaplaceMechanism", _laplace_pairs, _laplace_laws, noise=LAPLACE),
        AuditEntry("expost.noise.GaussianMechanism", _gaussian_pairs, noise=GAUSSIAN),
        AuditEntry("expost.noise.SphericalLaplaceMechanism", _spherical_pairs, noise=SPHERICAL),
        AuditEntry(
            "expost.noise.ExponentialMechanism",
            lambda: _selection_pairs(ExponentialMechanism),
            lambda: _selection_laws(choice_law),
            noise=CHOICES,
        ),
        AuditEntry(
            "expost.noise.PermuteAndFlip",
            lambda: _selection_pairs(PermuteAndFlip),
            lambda: _selection_laws(permute_and_flip_law),
            noise=CHOICES,
        ),
        AuditEntry("expost.noise.NoisyMax", lambda: _selection_pairs(NoisyMax), _noisy_max_laws, noise=CHOICES),
        AuditEntry("expost.noise.ExponentialQuantile", _exponential_quantile, noise=RECORDS),
        AuditEntry("expost.noise.RandomizedResponse", _response_pairs, _response_laws, noise=RESPONSE),
        AuditEntry("expost.noise.SmoothNoise", _smooth_noise, noise=SMOOTH),
        AuditEntry("expost.noise.SmoothQuantile", _smooth_quantile, noise=SMOOTH),
        AuditEntry("expost.noise.SmoothInterquartileRange", _smooth_range, noise=SMOOTH),
        AuditEntry("expost.noise.SmoothVariance", _smooth_variance, noise=SMOOTH),
        AuditEntry("expost.noise.StableMode", _stable_mode, _stable_mode_laws, noise=PROPOSED),
        AuditEntry("expost.noise.ProposedQuantile", _proposed_quantile, _proposed_quantile_laws, noise=PROPOSED),
    )


def _build_pair(
    mechanism: _Mechanism, name: str, left: object, right: object, sensitivity: Sensitivity, claim: Claim | None = None
) -> Pair:
    """Build a pair of one mechanism on two adjacent answers."""

    def sample_answers(exact: object, runs: int, bits: BitSource) -> Outcomes:
        return Outcomes.of(mechanism.simulate(exact, sensitivity, runs=runs, bits=bits))

    promise = mechanism.guarantee if claim is None else claim
    return Pair(name, promise, partial(sample_answers, left), partial(sample_answers, right))


# ---------------------------------------------------------------------------------------------------------- noise


def _laplace_pairs() -> Sequence[Pair]:
    return (
        _build_pair(LaplaceMechanism(_ONE), "one count, 0 or 1", 0, 1, Sensitivity(1)),
        _build_pair(LaplaceMechanism(_HALF), "two coordinates move", [0, 0], [7, -3], Sensitivity(10)),
        _build_pair(LaplaceMechanism(_ONE), "one of three moves", [5, 5, 5], [5, 6, 5], Sensitivity(1)),
        _build_pair(LaplaceMechanism(_ONE), "a fine grid", 0, 1 << 20, Sensitivity(1 << 20)),
    )


def _laplace_laws() -> Sequence[LawPair]:
    a, ends = Fraction(2, 3), (-12, 12)
    left, right = (Law(laplace_law(center, a, ends)) for center in (0, 3))
    return (LawPair("a clamped integer moves by 3", left, right, ratio=a**-3),)


def _gaussian_pairs() -> Sequence[Pair]:
    l2 = Sensitivity(10, Norm.L2)
    return (
        _build_pair(GaussianMechanism(zcdp(_HALF)), "one number, zCDP", 0, 10, l2),
        _build_pair(GaussianMechanism(zcdp(_HALF)), "two coordinates, zCDP", [0, 0], [6, 8], l2),
        # A delta that a sample of this size can see at all.
        _build_pair(GaussianMechanism(approx(1, Fraction(1, 100))), "one number", 0, 10, l2),
        _build_pair(GaussianMechanism(approx(1, Fraction(1, 100))), "small integers", 0, 1, Sensitivity(1, Norm.L2)),
        _build_pair(GaussianMechanism(approx(3, Fraction(1, 100))), "a large epsilon", [0, 0], [6, 8], l2),
    )


def _spherical_pairs() -> Sequence[Pair]:
    """Attack with the whole move along one axis and along a diagonal; odd and even dimensions are sampled differently."""
    l2 = Sensitivity(10, Norm.L2)
    mechanism = SphericalLaplaceMechanism(_ONE)
    return (
        _build_pair(mechanism, "one number", 0, 10, l2),
        _build_pair(mechanism, "two coordinates", [0, 0], [6, 8], l2),
        _build_pair(mechanism, "one of three", [0, 0, 0], [0, 10, 0], l2),
    )


# ------------------------------------------------------------------------------------------------------ selection

_SCORES = Sensitivity(1, Norm.LINF)


def _selection_pairs(kind: Callable[..., _Mechanism]) -> Sequence[Pair]:
    """Attack one kind of selection, with general scores and with monotone ones."""
    general, monotone = kind(Fraction(2)), kind(_ONE, monotone=True)
    one_up = [1] + [0] * 5
    return (
        _build_pair(general, "two candidates swap", [1, 0], [0, 1], _SCORES),
        _build_pair(general, "one falls, five rise", one_up, [0] + [1] * 5, _SCORES),
        _build_pair(monotone, "one of forty rises", [0] * 40, [1] + [0] * 39, _SCORES),
        _build_pair(monotone, "all but one of forty rise", [0] * 40, [0] + [1] * 39, _SCORES),
    )


def _selection_laws(law: Callable[[Sequence[int], Fraction], dict[Any, Fraction]]) -> Sequence[LawPair]:
    a = Fraction(3, 5)

    def build_pair(name: str, left: Sequence[int], right: Sequence[int], moves: int) -> LawPair:
        ours, theirs = (Law(law([max(side) - score for score in side], a)) for side in (left, right))
        return LawPair(name, ours, theirs, ratio=a**-moves)

    return (
        build_pair("two candidates swap", (1, 0), (0, 1), 2),
        build_pair("one falls, four rise", (2, 1, 1, 1, 1), (1, 2, 2, 2, 2), 2),
        build_pair("monotone: one of six rises", (0,) * 6, (1, 0, 0, 0, 0, 0), 1),
    )


def _noisy_max_laws() -> Sequence[LawPair]:
    a, window = _HALF, 60

    def build_pair(name: str, left: Sequence[int], right: Sequence[int], moves: int) -> LawPair:
        ours, theirs = (Law(noisy_max_law(side, a, window), error=8 * a**window) for side in (left, right))
        return LawPair(name, ours, theirs, ratio=a**-moves)

    return (
        build_pair("two candidates swap", (1, 0), (0, 1), 2),
        build_pair("one falls, three rise", (1, 0, 0, 0), (0, 1, 1, 1), 2),
        build_pair("monotone: one of four rises", (0, 0, 0, 0), (1, 0, 0, 0), 1),
    )


def _exponential_quantile() -> Sequence[Pair]:
    median = ExponentialQuantile(_ONE, LatticeBounds(0, 6))
    lower = ExponentialQuantile(_ONE, LatticeBounds(0, 6), Fraction(1, 4))
    top = ExponentialQuantile(Fraction(2), LatticeBounds(0, 200))
    even = [0] * 4 + [6] * 4
    return (
        _build_pair(median, "a record arrives", even, [*even, 6], _ADD),
        _build_pair(median, "a record crosses", even, [*even[:-1], 0], _REPLACE),
        _build_pair(lower, "lower quartile, a record arrives", even, [0, *even], _ADD),
        _build_pair(top, "the top rises, all else falls", [199], [199, 200], _ADD),
    )


# ------------------------------------------------------------------------------------------------------- response


def _response_pairs() -> Sequence[Pair]:
    return (
        _build_pair(RandomizedResponse(_ONE), "yes or no", [0], [1], _REPLACE),
        _build_pair(RandomizedResponse(_ONE, categories=4), "four categories", [0, 2], [3, 2], _REPLACE),
        _build_pair(
            RandomizedResponse(_ONE, categories=3),
            "a unit with two records",
            [0, 0],
            [1, 2],
            Sensitivity(2, adjacency=Adjacency.REPLACE_ONE),
        ),
    )


def _response_laws() -> Sequence[LawPair]:
    left, right = (Law(response_law(truth, 4, _THIRD)) for truth in (0, 1))
    return (LawPair("four categories", left, right, ratio=1 / _THIRD),)


# ------------------------------------------------------------------------------------------------------ smoothness


# Of epsilon, by the proof: how far the answer may move in units of the scale (a second copy, on purpose).
_SLIDES = {2: 0.7071, 4: 0.27}
_FOUR = Fraction(4)  # a larger loss, which a sample sees more of


def _smooth_noise() -> Sequence[Pair]:
    small = [pair for power in (2, 4) for pair in _smooth_noise_of(SmoothNoise(_ONE, power))]
    return [*small, *(_smooth_slide(SmoothNoise(_FOUR, power)) for power in (2, 4))]


def _smooth_slide(noise: SmoothNoise) -> Pair:
    bound, wide = 1000, LatticeBounds(-(1 << 40), 1 << 40)

    def sample_sums(exact: int, runs: int, bits: BitSource) -> Outcomes:
        return Outcomes.of(noise.add(exact, bound, wide, runs=runs, bits=bits))

    claim, name = _allowed_by_proof(noise, bound, bound, bound), f"power {noise.power}, the answer moves, by its proof"
    return Pair(name, claim, partial(sample_sums, 0), partial(sample_sums, bound))


def _smooth_noise_of(noise: SmoothNoise) -> Sequence[Pair]:
    near, far = 10.0, 10.0 * math.exp(noise.smoothness)

    wide = LatticeBounds(-(1 << 40), 1 << 40)

    def sample_sums(exact: int, bound: float, runs: int, bits: BitSource) -> Outcomes:
        return Outcomes.of(noise.add(exact, bound, wide, runs=runs, bits=bits))

    start, moves = partial(sample_sums, 0, near), {"the answer moves": (10, near), "the scale moves": (0, far)}
    return [
        Pair(f"power {noise.power}, {name}", noise.guarantee, start, partial(sample_sums, *move))
        for name, move in (moves | {"both move": (10, far)}).items()
    ]


def _smooth_quantile() -> Sequence[Pair]:
    wide = LatticeBounds(-2000, 3000)
    torn, crossed = [0] * 15 + [1000] * 15, [0] * 14 + [1000] * 16
    crowded = [50] * 30
    return (
        _build_pair(SmoothQuantile(_ONE, wide), "a hole at the median", torn, crossed, _REPLACE),
        _build_pair(SmoothQuantile(_ONE, wide, power=2), "the same under Cauchy", torn, crossed, _REPLACE),
        _build_pair(SmoothQuantile(_ONE, wide), "a hole, a record leaves", torn, torn[1:], _ADD),
        _build_pair(SmoothQuantile(_ONE, wide), "a crowd, one outlier", crowded, [*crowded[1:], 3000], _REPLACE),
        _by_proof(SmoothQuantile(_FOUR, LatticeBounds(-(10**6), 10**6)), "a hole, by its proof", torn, crossed),
    )


def _smooth_range() -> Sequence[Pair]:
    torn, spread = [0] * 10 + [100] * 30, SmoothInterquartileRange(_ONE, LatticeBounds(0, 100))
    lower = [0] * 40 + [1000] * 40 + [10**5] * 80
    sharp = SmoothInterquartileRange(_FOUR, LatticeBounds(-(10**6), 10**6))
    return (
        _build_pair(spread, "a record crosses at the lower quartile", torn, [*torn[1:], 100], _REPLACE),
        _build_pair(spread, "a record leaves", [0, *torn], torn, _ADD),
        _by_proof(sharp, "a hole at the lower quartile, by its proof", lower, [*lower[1:], 1000]),
    )


def _smooth_variance() -> Sequence[Pair]:
    middle = [5] * 20
    low, more = [0] * 90 + [100] * 10, [0] * 89 + [100] * 11
    return (
        _build_pair(
            SmoothVariance(_ONE, LatticeBounds(0, 10)),
            "from the middle to the edge",
            middle,
            [*middle[1:], 10],
            _REPLACE,
        ),
        _build_pair(SmoothVariance(_ONE, LatticeBounds(0, 10)), "at the edge", [0] * 20, [0] * 19 + [10], _REPLACE),
        _by_proof(SmoothVariance(_FOUR, LatticeBounds(0, 100)), "one more at the edge, by its proof", low, more),
    )


def _by_proof(mechanism: Any, name: str, left: Sequence[int], right: Sequence[int]) -> Pair:
    """Build a pair of two tables at which the proof allows less than epsilon: the cost of its noise at these two answers."""
    (ours, at), (theirs, there) = (_answer_and_bound(mechanism, records) for records in (left, right))
    return _build_pair(
        mechanism, name, left, right, _REPLACE, _allowed_by_proof(mechanism.noise, theirs - ours, at, there)
    )


def _allowed_by_proof(noise: SmoothNoise, move: int, at: float, there: float) -> PureGuarantee:
    """Compute the loss that the proof allows when the answer moves by ``move`` and the bound from ``at`` to ``there``.

    docs/proofs/smooth-sensitivity.md bounds the loss by the worst move of the answer and of the scale, and few tables
    have both. At given moves it allows the largest ratio of the two densities 1 / (scale^power + |x|^power).
    """
    power, slide = noise.power, _SLIDES[noise.power] * float(noise.epsilon)
    x = np.linspace(-1, 1, 2_000_001) * 40 * max(at, there) / slide

    def log_density(center: float, bound: float) -> Any:
        scale = bound / slide
        return (power - 1) * np.log(scale) - np.log(scale**power + np.abs(x - center) ** power)

    worst = float(np.abs(log_density(0.0, at) - log_density(move, there)).max())
    return PureGuarantee(min(noise.epsilon, Fraction(math.ceil(worst * 10**4) + 1, 10**4)))


def _answer_and_bound(mechanism: Any, records: Sequence[int]) -> tuple[int, float]:
    """Record the exact answer and its smooth bound, as the mechanism passes them to its noise."""
    noted: list[tuple[int, float]] = []
    kept = SmoothNoise.add

    def note_call(noise: SmoothNoise, exact: int, bound: float, *rest: Any, **options: Any) -> Any:
        noted.append((exact, bound))
        return kept(noise, exact, bound, *rest, **options)

    SmoothNoise.add = note_call  # type: ignore[method-assign, assignment]
    try:
        mechanism.simulate(records, _REPLACE, runs=1, bits=SeededBits(1))
    finally:
        SmoothNoise.add = kept  # type: ignore[method-assign]
    return noted[0]


# -------------------------------------------------------------------------------------------- propose-test-release

_DELTA = Fraction(1, 100)  # large enough for a sample to see


def _stable_mode() -> Sequence[Pair]:
    mode = StableMode(_ONE, _DELTA)
    replace = Sensitivity(2, adjacency=Adjacency.REPLACE_ONE)
    return (
        _build_pair(mode, "another mode", [10, 10], [10, 11], _ADD),
        _build_pair(mode, "a small lead", [10, 14], [10, 15], _ADD),
        _build_pair(mode, "one record moves over", [10, 12], [11, 11], replace),
    )


def _stable_mode_laws() -> Sequence[LawPair]:
    a, line = _HALF, 4
    delta = a ** (line + 1) / (1 + a)
    laws = {
        (lead, winner): Law(proposed_law(max(lead - 1, 0), line, a, {winner: Fraction(1)}))
        for lead, winner in ((1, "first"), (1, "second"), (5, "first"), (6, "first"))
    }
    return (
        LawPair("another mode", laws[1, "first"], laws[1, "second"], ratio=1 / a, delta=delta),
        LawPair("a lead of five or six", laws[5, "first"], laws[6, "first"], ratio=1 / a, delta=delta),
    )


def _proposed_quantile() -> Sequence[Pair]:
    jumpy = [10, 10, 10, 10, 20, 20, 20]
    left, right = [5] * 3 + [10] * 4 + [11] * 7, [5] * 2 + [10] * 4 + [11] * 8  # test and quantile move together
    quantile = ProposedQuantile(Fraction(2), _DELTA, LatticeBounds(0, 30), proposal=1)

    def sample_answers(sensitivity: Sensitivity, records: Sequence[int], runs: int, bits: BitSource) -> Outcomes:
        passed, values = quantile.simulate(records, sensitivity, runs=runs, bits=bits)
        return Outcomes.of(np.where(passed, values, -1))

    replaced, removed = partial(partial, sample_answers, _REPLACE), partial(partial, sample_answers, _ADD)
    return (
        Pair("near a hole", quantile.guarantee, replaced(jumpy), replaced([*jumpy[1:], 20])),
        Pair("both stages move", quantile.guarantee, replaced(left), replaced(right)),
        Pair("a record leaves", quantile.guarantee, removed(left), removed(left[1:])),
    )


def _proposed_quantile_laws() -> Sequence[LawPair]:
    a, line, ends = _HALF, 3, (-20, 20)
    delta = a ** (line + 1) / (1 + a)
    near, moved, far = (laplace_law(center, a, ends) for center in (0, 1, 9))
    stable, still = (Law(proposed_law(distance, line, a, values)) for distance, values in ((6, near), (5, moved)))
    broken, jumped = (Law(proposed_law(0, line, a, values)) for values in (near, far))
    return (
        LawPair("the quantile moves by the proposal", stable, still, ratio=a**-2, delta=delta),
        LawPair("it moves by more, and the test detects it", broken, jumped, ratio=a**-2, delta=delta),
    )
