"""Attacks on gradual release: prefixes, stopping rules, coordinates together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.audit.audit_registry import AuditEntry
from expost.audit.noise_laws import laplace_path_law
from expost.audit.output_law import Law, LawPair
from expost.audit.pair_attack import Outcomes, Pair, Sampler, repeat
from expost.audit.planted_fault import GAUSSIAN_PATH, GAUSSIAN_STREAM, PATHS, RADIAL
from expost.audit.privacy_claim import ExPost
from expost.core import Ladder, Norm, Sealed, Sensitivity, epsilon, zcdp
from expost.noise import DiscreteLaplacePath, GaussianPath, GeometricPath, RadialLaplacePath
from expost.noise.bits import BitSource
from expost.noise.gaussian_stream import GaussianStream

__all__ = ["entries", "stopped"]

_LADDER = Ladder.of([Fraction(1, 4), Fraction(1, 2), Fraction(1)])
_LEVELS = np.array([float(rung) for rung in _LADDER])

Blocks = Callable[[int, BitSource], NDArray[Any]]  # runs and bits to an array of rungs by runs


def entries() -> Iterable[AuditEntry]:
    """List one entry per path."""
    return (
        AuditEntry("expost.noise.DiscreteLaplacePath", _laplace_pairs, _laplace_laws, noise=PATHS),
        AuditEntry("expost.noise.GaussianPath", _gaussian_pairs, noise=GAUSSIAN_PATH),
        AuditEntry("expost.noise.GeometricPath", _geometric_pairs, noise=PATHS),
        AuditEntry("expost.noise.RadialLaplacePath", _radial_pairs, noise=RADIAL),
        AuditEntry("expost.noise.gaussian_stream.GaussianStream", _stream_pairs, noise=GAUSSIAN_STREAM),
    )


def stopped(blocks: Blocks, target: float) -> Sampler:
    """Sample runs that read rung by rung and stop once the noisy value reaches a target, billed by the last rung."""

    def sample_runs(runs: int, bits: BitSource) -> Outcomes:
        rows = blocks(runs, bits)
        reached = rows >= target
        last = np.where(reached.any(axis=0), reached.argmax(axis=0), len(rows) - 1)
        seen = np.where(np.arange(len(rows))[:, None] <= last, rows, -99)  # rungs that were not read stay unknown
        return Outcomes.of(np.vstack([last, seen]).T, _LEVELS[last])

    return sample_runs


def _sample_prefix(blocks: Blocks, rungs: int) -> Sampler:
    """Sample the first rungs of a path."""
    return lambda runs, bits: Outcomes.of(blocks(runs, bits)[:rungs].T)


def _draw_blocks(exact: int, path: Any, norm: Norm) -> Blocks:
    """Draw one path whose coordinates, which have independent noise, serve as independent runs."""

    def draw_rungs(runs: int, bits: BitSource) -> NDArray[Any]:
        sealed = Sealed(np.full(runs, exact), Sensitivity(1, norm))
        rows: NDArray[Any] = path(sealed, _LADDER, bits=bits).block(0, len(_LADDER))
        return rows

    return draw_rungs


def _laplace_pairs() -> Sequence[Pair]:
    left, right = (_draw_blocks(exact, DiscreteLaplacePath, Norm.L1) for exact in (0, 1))
    prefixes = [
        Pair(
            f"all of {rungs} rungs",
            epsilon(_LADDER[rungs - 1]),
            _sample_prefix(left, rungs),
            _sample_prefix(right, rungs),
        )
        for rungs in (1, 2, 3)
    ]

    def read_first_rung(exact: Sequence[int], bits: BitSource) -> Any:
        return DiscreteLaplacePath(Sealed(np.array(exact), Sensitivity(1)), _LADDER, bits=bits).at(0)

    still, moved = (repeat(partial(read_first_rung, exact)) for exact in ([0] * 10, [1] + [0] * 9))
    return (
        *prefixes,
        Pair("stopped by its own noise", ExPost(epsilon(1)), stopped(left, 2), stopped(right, 2)),  # type: ignore[arg-type]
        Pair("ten coordinates of one path", epsilon(Fraction(1, 4)), still, moved, slow=True),
    )


def _laplace_laws() -> Sequence[LawPair]:
    low, high, near, wide = Fraction(3, 4), Fraction(1, 3), range(-10, 11), range(-45, 46)
    left, right = (Law(laplace_path_law(center, low, high, coarse=near, fine=near)) for center in (0, 1))

    def sum_over_second(center: int) -> Law:
        sums: dict[int, Fraction] = {}
        for (coarse, _), p in laplace_path_law(center, low, high, coarse=range(-3, 4), fine=wide).items():
            sums[coarse] = sums.get(coarse, Fraction(0)) + p
        return Law(sums, error=high**44)

    return (
        LawPair("both rungs together", left, right, ratio=1 / high),
        LawPair("the first rung alone", sum_over_second(0), sum_over_second(1), ratio=1 / low),
    )


def _gaussian_pairs() -> Sequence[Pair]:
    left, right = (_draw_blocks(exact, GaussianPath, Norm.L2) for exact in (0, 1))
    return (
        Pair("the first rung", zcdp(Fraction(1, 4)), _sample_prefix(left, 1), _sample_prefix(right, 1)),
        Pair("all rungs", zcdp(1), _sample_prefix(left, 3), _sample_prefix(right, 3)),
        Pair("stopped by its own noise", ExPost(zcdp(1)), stopped(left, 1.5), stopped(right, 1.5)),
    )


def _geometric_pairs() -> Sequence[Pair]:
    """Attack the noise moved up by the sensitivity, which must not be much likelier than the noise; the reverse is not claimed."""

    def sample_noise(rungs: int, shift: int, runs: int, bits: BitSource) -> Outcomes:
        path = GeometricPath(Sensitivity(1), _LADDER, size=runs, bits=bits)
        return Outcomes.of(path.block(0, rungs).T + shift)

    pairs = []
    for rungs in (1, 3):
        left, right = partial(sample_noise, rungs, 1), partial(sample_noise, rungs, 0)
        pairs.append(Pair(f"{rungs} rungs shifted", epsilon(_LADDER[rungs - 1]), left, right, one_way=True))
    return pairs


def _radial_pairs() -> Sequence[Pair]:
    """Attack a real-number claim: floats are rounded to a grid first, because their low bits are known to leak."""
    still, moved = (Sealed(np.array(exact), Sensitivity(1, Norm.L2)) for exact in ([0, 0], [0.6, 0.8]))

    def read_rungs(sealed: Sealed, rung: int, bits: BitSource) -> Any:
        return np.round(RadialLaplacePath(sealed, _LADDER, bits=bits).block(0, rung + 1).ravel(), 3)

    def sample_rung(sealed: Sealed, runs: int, bits: BitSource) -> Outcomes:
        return Outcomes.of(RadialLaplacePath.simulate(sealed, 1, runs=runs, bits=bits).round(3))

    def compare_distances(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.linalg.norm(values - (0.6, 0.8), axis=1) - np.linalg.norm(values, axis=1))

    left, right = partial(sample_rung, still), partial(sample_rung, moved)
    pairs = [Pair("one rung", epsilon(1), left, right, features=compare_distances)]
    for rung in (0, 2):
        slow_left, slow_right = (repeat(partial(read_rungs, sealed, rung)) for sealed in (still, moved))
        pairs.append(Pair(f"rungs up to {rung}", epsilon(_LADDER[rung]), slow_left, slow_right, slow=True))
    return pairs


def _stream_pairs() -> Sequence[Pair]:
    """Attack a noise multiplier of 1, which is 1/2-zCDP per release; the costs of two releases add up."""
    step = Sensitivity(100, Norm.L2)

    def sample_releases(exact: int, releases: int, runs: int, bits: BitSource) -> Outcomes:
        stream = GaussianStream(1, step, size=runs, bits=bits)
        sealed = Sealed(np.full(runs, exact), step)
        return Outcomes.of(np.stack([stream.release(sealed) for _ in range(releases)], axis=1))

    return (
        Pair("one release", zcdp(Fraction(1, 2)), partial(sample_releases, 0, 1), partial(sample_releases, 100, 1)),
        Pair("two releases", zcdp(1), partial(sample_releases, 0, 2), partial(sample_releases, 100, 2)),
    )
