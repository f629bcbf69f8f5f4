"""Attacks on the mechanisms of fixed epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from expost import noise
from expost.audit import noise_laws as laws
from expost.audit.audit_registry import AuditEntry
from expost.audit.output_law import Law, LawPair
from expost.audit.pair_attack import Outcomes, Pair
from expost.audit.planted_fault import CHOICES, GAUSSIAN, LAPLACE, PROPOSED, RECORDS, RESPONSE, SMOOTH, SPHERICAL
from expost.audit.privacy_claim import Claim
from expost.core import Adjacency, Norm, PureGuarantee, Sensitivity, approx, zcdp
from expost.noise import LatticeBounds, SmoothNoise
from expost.noise.bits import BitSource, SeededBits

__all__ = ["entries"]

_ONE, _HALF, _THIRD = Fraction(1), Fraction(1, 2), Fraction(1, 3)
_REPLACE = Sensitivity(1, adjacency=Adjacency.REPLACE_ONE)
_ADD = Sensitivity(1)
_TEN = Sensitivity(10, Norm.L2)
_DELTA = Fraction(1, 100)  # large enough for a sample to see


def entries() -> Iterable[AuditEntry]:
    """List one entry per mechanism."""
    return (
        AuditEntry("expost.noise.LaplaceMechanism", _laplace_pairs, _laplace_laws, noise=LAPLACE),
        AuditEntry("expost.noise.GaussianMechanism", _gaussian_pairs, noise=GAUSSIAN),
        AuditEntry("expost.noise.SphericalLaplaceMechanism", _spherical_pairs, noise=SPHERICAL),
        _selection_entry("ExponentialMechanism", partial(_selection_laws, laws.choice_law)),
        _selection_entry("PermuteAndFlip", partial(_selection_laws, laws.permute_and_flip_law)),
        _selection_entry("NoisyMax", _noisy_max_laws),
        AuditEntry("expost.noise.TopSelection", _top_pairs, _top_laws, noise=CHOICES),
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
    mechanism: Any, name: str, left: object, right: object, sensitivity: Sensitivity, claim: Claim | None = None
) -> Pair:
    """Build a pair of one mechanism on two adjacent answers."""

    def sample_answers(exact: object, runs: int, bits: BitSource) -> Outcomes:
        return Outcomes.of(mechanism.simulate(exact, sensitivity, runs=runs, bits=bits))

    return Pair.of(name, mechanism.guarantee if claim is None else claim, sample_answers, left, right)


# ---------------------------------------------------------------------------------------------------------- noise


def _laplace_pairs() -> Sequence[Pair]:
    one, half = noise.LaplaceMechanism(_ONE), noise.LaplaceMechanism(_HALF)
    return (
        _build_pair(one, "one count, 0 or 1", 0, 1, Sensitivity(1)),
        _build_pair(half, "two coordinates move", [0, 0], [7, -3], Sensitivity(10)),
        _build_pair(one, "one of three moves", [5, 5, 5], [5, 6, 5], Sensitivity(1)),
        _build_pair(one, "a fine grid", 0, 1 << 20, Sensitivity(1 << 20)),
    )


def _laplace_laws() -> Sequence[LawPair]:
    a, ends = Fraction(2, 3), (-12, 12)
    left, right = (Law(laws.laplace_law(center, a, ends)) for center in (0, 3))
    return (LawPair("a clamped integer moves by 3", left, right, ratio=a**-3),)


def _gaussian_pairs() -> Sequence[Pair]:
    half, one, three = (noise.GaussianMechanism(claim) for claim in (zcdp(_HALF), approx(1, _DELTA), approx(3, _DELTA)))
    return (
        _build_pair(half, "one number, zCDP", 0, 10, _TEN),
        _build_pair(half, "two coordinates, zCDP", [0, 0], [6, 8], _TEN),
        _build_pair(one, "one number", 0, 10, _TEN),
        _build_pair(one, "small integers", 0, 1, Sensitivity(1, Norm.L2)),
        _build_pair(three, "a large epsilon", [0, 0], [6, 8], _TEN),
    )


def _spherical_pairs() -> Sequence[Pair]:
    """Attack with the whole move along one axis and along a diagonal; odd and even dimensions are sampled differently."""
    mechanism = noise.SphericalLaplaceMechanism(_ONE)
    return (
        _build_pair(mechanism, "one number", 0, 10, _TEN),
        _build_pair(mechanism, "two coordinates", [0, 0], [6, 8], _TEN),
        _build_pair(mechanism, "one of three", [0, 0, 0], [0, 10, 0], _TEN),
    )


# ------------------------------------------------------------------------------------------------------ selection


def _selection_entry(name: str, build_laws: Callable[[], Sequence[LawPair]]) -> AuditEntry:
    """Attack one kind of selection, with general scores and with monotone ones."""
    kind, scores = getattr(noise, name), Sensitivity(1, Norm.LINF)

    def build_pairs() -> Sequence[Pair]:
        general, monotone = kind(Fraction(2)), kind(_ONE, monotone=True)
        return (
            _build_pair(general, "two candidates swap", [1, 0], [0, 1], scores),
            _build_pair(general, "one falls, five rise", [1] + [0] * 5, [0] + [1] * 5, scores),
            _build_pair(monotone, "one of forty rises", [0] * 40, [1] + [0] * 39, scores),
            _build_pair(monotone, "all but one of forty rise", [0] * 40, [0] + [1] * 39, scores),
        )

    return AuditEntry(f"expost.noise.{name}", build_pairs, build_laws, noise=CHOICES)


def _selection_laws(law: Callable[..., dict[Any, Fraction]]) -> Sequence[LawPair]:
    a = Fraction(3, 5)

    def build_pair(name: str, left: Sequence[int], right: Sequence[int], moves: int) -> LawPair:
        ours, theirs = (Law(law([max(side) - score for score in side], a)) for side in (left, right))
        return LawPair(name, ours, theirs, ratio=a**-moves)

    return (
        build_pair("two candidates swap", (1, 0), (0, 1), 2),
        build_pair("one falls, four rise", (2, 1, 1, 1, 1), (1, 2, 2, 2, 2), 2),
        build_pair("monotone: one of six rises", (0,) * 6, (1, 0, 0, 0, 0, 0), 1),
    )


def _top_pairs() -> Sequence[Pair]:
    one, both = (noise.TopSelection(Fraction(2), picks=picks) for picks in (1, 2))
    scores = Sensitivity(1, Norm.LINF)

    def ask_first(exact: object, runs: int, bits: BitSource) -> Outcomes:
        # Which of the others was picked says nothing more, and would spread the outcomes thin.
        return Outcomes.of((one.simulate(exact, scores, runs=runs, bits=bits)[:, 0] == 0).astype(float))

    return (
        _build_pair(both, "two of three, one falls", [1, 0, 0], [0, 1, 1], scores),
        Pair.of("one of many falls, the others rise", one.guarantee, ask_first, [1] + [0] * 30, [0] + [1] * 30),
    )


def _top_laws() -> Sequence[LawPair]:
    a = Fraction(3, 5)

    def build_law(scores: Sequence[int]) -> Law:
        chances: dict[Any, Fraction] = {}
        for first, p in laws.permute_and_flip_law([max(scores) - each for each in scores], a).items():
            left = [index for index in range(len(scores)) if index != first]
            best = max(scores[index] for index in left)
            for place, q in laws.permute_and_flip_law([best - scores[index] for index in left], a).items():
                chances[first, left[place]] = p * q
        return Law(chances)

    # Two rounds, in each of which a gap can move by two.
    return (
        LawPair("two of three, one falls", build_law((1, 0, 0)), build_law((0, 1, 1)), ratio=a**-4),
        LawPair("two of four swap", build_law((1, 1, 0, 0)), build_law((0, 0, 1, 1)), ratio=a**-4),
    )


def _noisy_max_laws() -> Sequence[LawPair]:
    a, window = _HALF, 60

    def build_pair(name: str, left: Sequence[int], right: Sequence[int], moves: int) -> LawPair:
        ours, theirs = (Law(laws.noisy_max_law(side, a, window), error=8 * a**window) for side in (left, right))
        return LawPair(name, ours, theirs, ratio=a**-moves)

    return (
        build_pair("two candidates swap", (1, 0), (0, 1), 2),
        build_pair("one falls, three rise", (1, 0, 0, 0), (0, 1, 1, 1), 2),
        build_pair("monotone: one of four rises", (0, 0, 0, 0), (1, 0, 0, 0), 1),
    )


def _exponential_quantile() -> Sequence[Pair]:
    median = noise.ExponentialQuantile(_ONE, LatticeBounds(0, 6))
    lower = noise.ExponentialQuantile(_ONE, LatticeBounds(0, 6), Fraction(1, 4))
    top = noise.ExponentialQuantile(Fraction(2), LatticeBounds(0, 200))
    even = [0] * 4 + [6] * 4
    return (
        _build_pair(median, "a record arrives", even, [*even, 6], _ADD),
        _build_pair(median, "a record crosses", even, [*even[:-1], 0], _REPLACE),
        _build_pair(lower, "lower quartile, a record arrives", even, [0, *even], _ADD),
        _build_pair(top, "the top rises, all else falls", [199], [199, 200], _ADD),
    )


def _response_pairs() -> Sequence[Pair]:
    two, three, four = (noise.RandomizedResponse(_ONE, categories=categories) for categories in (2, 3, 4))
    two_records = Sensitivity(2, adjacency=Adjacency.REPLACE_ONE)
    return (
        _build_pair(two, "yes or no", [0], [1], _REPLACE),
        _build_pair(four, "four categories", [0, 2], [3, 2], _REPLACE),
        _build_pair(three, "a unit with two records", [0, 0], [1, 2], two_records),
    )


def _response_laws() -> Sequence[LawPair]:
    left, right = (Law(laws.response_law(truth, 4, _THIRD)) for truth in (0, 1))
    return (LawPair("four categories", left, right, ratio=1 / _THIRD),)


# ------------------------------------------------------------------------------------------------------ smoothness

# Of epsilon, by the proof: how far the answer may move in units of the scale (a second copy, on purpose).
_SLIDES = {2: 0.7071, 4: 0.27}
_FOUR = Fraction(4)  # a larger loss, which a sample sees more of


def _smooth_noise() -> Sequence[Pair]:
    """Attack the noise when the answer, its smooth bound, or both move; then at what the proof allows one move."""
    wide = LatticeBounds(-(1 << 40), 1 << 40)

    def sample_sums(law: SmoothNoise, side: tuple[int, float], runs: int, bits: BitSource) -> Outcomes:
        return Outcomes.of(law.add(*side, wide, runs=runs, bits=bits))

    pairs = []
    for law in (SmoothNoise(_ONE, 2), SmoothNoise(_ONE, 4)):
        near, far = 10.0, 10.0 * math.exp(law.smoothness)
        moves = {"the answer moves": (10, near), "the scale moves": (0, far), "both move": (10, far)}
        pairs += [
            Pair.of(f"power {law.power}, {name}", law.guarantee, partial(sample_sums, law), (0, near), side)
            for name, side in moves.items()
        ]
    for law in (SmoothNoise(_FOUR, 2), SmoothNoise(_FOUR, 4)):
        name, claim = f"power {law.power}, the answer moves, by its proof", _allowed_by_proof(law, 1000, 1000, 1000)
        pairs.append(Pair.of(name, claim, partial(sample_sums, law), (0, 1000), (1000, 1000)))
    return pairs


def _smooth_quantile() -> Sequence[Pair]:
    wide = LatticeBounds(-2000, 3000)
    torn, crossed, crowded = [0] * 15 + [1000] * 15, [0] * 14 + [1000] * 16, [50] * 30
    median, cauchy = noise.SmoothQuantile(_ONE, wide), noise.SmoothQuantile(_ONE, wide, power=2)
    return (
        _build_pair(median, "a hole at the median", torn, crossed, _REPLACE),
        _build_pair(cauchy, "the same under Cauchy", torn, crossed, _REPLACE),
        _build_pair(median, "a hole, a record leaves", torn, torn[1:], _ADD),
        _build_pair(median, "a crowd, one outlier", crowded, [*crowded[1:], 3000], _REPLACE),
        _by_proof(noise.SmoothQuantile(_FOUR, LatticeBounds(-(10**6), 10**6)), "a hole, by its proof", torn, crossed),
    )


def _smooth_range() -> Sequence[Pair]:
    torn, spread = [0] * 10 + [100] * 30, noise.SmoothInterquartileRange(_ONE, LatticeBounds(0, 100))
    lower = [0] * 40 + [1000] * 40 + [10**5] * 80
    sharp = noise.SmoothInterquartileRange(_FOUR, LatticeBounds(-(10**6), 10**6))
    return (
        _build_pair(spread, "a record crosses at the lower quartile", torn, [*torn[1:], 100], _REPLACE),
        _build_pair(spread, "a record leaves", [0, *torn], torn, _ADD),
        _by_proof(sharp, "a hole at the lower quartile, by its proof", lower, [*lower[1:], 1000]),
    )


def _smooth_variance() -> Sequence[Pair]:
    small = noise.SmoothVariance(_ONE, LatticeBounds(0, 10))
    sharp = noise.SmoothVariance(_FOUR, LatticeBounds(0, 100))
    low, more = [0] * 90 + [100] * 10, [0] * 89 + [100] * 11
    return (
        _build_pair(small, "from the middle to the edge", [5] * 20, [5] * 19 + [10], _REPLACE),
        _build_pair(small, "at the edge", [0] * 20, [0] * 19 + [10], _REPLACE),
        _by_proof(sharp, "one more at the edge, by its proof", low, more),
    )


def _by_proof(mechanism: Any, name: str, left: Sequence[int], right: Sequence[int]) -> Pair:
    """Build a pair of two tables at which the proof allows less than epsilon: the cost of its noise at these two answers."""
    (ours, at), (theirs, there) = (_answer_and_bound(mechanism, records) for records in (left, right))
    claim = _allowed_by_proof(mechanism.noise, theirs - ours, at, there)
    return _build_pair(mechanism, name, left, right, _REPLACE, claim)


def _allowed_by_proof(law: SmoothNoise, move: int, at: float, there: float) -> PureGuarantee:
    """Compute the loss that the proof allows when the answer moves by ``move`` and the bound from ``at`` to ``there``.

    docs/proofs/smooth-sensitivity.md bounds the loss by the worst move of the answer and of the scale, and few tables
    have both. At given moves it allows the largest ratio of the two densities 1 / (scale^power + |x|^power).
    """
    power, slide = law.power, _SLIDES[law.power] * float(law.epsilon)
    x = np.linspace(-1, 1, 2_000_001) * 40 * max(at, there) / slide

    def log_density(center: float, bound: float) -> Any:
        scale = bound / slide
        return (power - 1) * np.log(scale) - np.log(scale**power + np.abs(x - center) ** power)

    worst = float(np.abs(log_density(0.0, at) - log_density(move, there)).max())
    return PureGuarantee(min(law.epsilon, Fraction(math.ceil(worst * 10**4) + 1, 10**4)))


def _answer_and_bound(mechanism: Any, records: Sequence[int]) -> tuple[int, float]:
    """Record the exact answer and its smooth bound, as the mechanism passes them to its noise."""
    with patch.object(SmoothNoise, "add", autospec=True, side_effect=SmoothNoise.add) as added:
        mechanism.simulate(records, _REPLACE, runs=1, bits=SeededBits(1))
    _, exact, bound, *_ = added.call_args_list[0].args
    return exact, bound


# -------------------------------------------------------------------------------------------- propose-test-release


def _stable_mode() -> Sequence[Pair]:
    mode = noise.StableMode(_ONE, _DELTA)
    return (
        _build_pair(mode, "another mode", [10, 10], [10, 11], _ADD),
        _build_pair(mode, "a small lead", [10, 14], [10, 15], _ADD),
        _build_pair(mode, "one record moves over", [10, 12], [11, 11], Sensitivity(2, adjacency=Adjacency.REPLACE_ONE)),
    )


def _stable_mode_laws() -> Sequence[LawPair]:
    a, line = _HALF, 4
    delta = a ** (line + 1) / (1 + a)

    def law(lead: int, winner: str) -> Law:
        return Law(laws.proposed_law(max(lead - 1, 0), line, a, {winner: Fraction(1)}))

    return (
        LawPair("another mode", law(1, "first"), law(1, "second"), ratio=1 / a, delta=delta),
        LawPair("a lead of five or six", law(5, "first"), law(6, "first"), ratio=1 / a, delta=delta),
    )


def _proposed_quantile() -> Sequence[Pair]:
    jumpy = [10, 10, 10, 10, 20, 20, 20]
    left, right = [5] * 3 + [10] * 4 + [11] * 7, [5] * 2 + [10] * 4 + [11] * 8  # test and quantile move together
    quantile = noise.ProposedQuantile(Fraction(2), _DELTA, LatticeBounds(0, 30), proposal=1)

    def sample_answers(sensitivity: Sensitivity, records: Sequence[int], runs: int, bits: BitSource) -> Outcomes:
        passed, values = quantile.simulate(records, sensitivity, runs=runs, bits=bits)
        return Outcomes.of(np.where(passed, values, -1))

    replaced, removed = partial(sample_answers, _REPLACE), partial(sample_answers, _ADD)
    return (
        Pair.of("near a hole", quantile.guarantee, replaced, jumpy, [*jumpy[1:], 20]),
        Pair.of("both stages move", quantile.guarantee, replaced, left, right),
        Pair.of("a record leaves", quantile.guarantee, removed, left, left[1:]),
    )


def _proposed_quantile_laws() -> Sequence[LawPair]:
    a, line, ends = _HALF, 3, (-20, 20)
    delta = a ** (line + 1) / (1 + a)
    near, moved, far = (laws.laplace_law(center, a, ends) for center in (0, 1, 9))
    stable, still = (Law(laws.proposed_law(distance, line, a, values)) for distance, values in ((6, near), (5, moved)))
    broken, jumped = (Law(laws.proposed_law(0, line, a, values)) for values in (near, far))
    return (
        LawPair("the quantile moves by the proposal", stable, still, ratio=a**-2, delta=delta),
        LawPair("it moves by more, and the test detects it", broken, jumped, ratio=a**-2, delta=delta),
    )
