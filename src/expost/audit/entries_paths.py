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
from expost.audit.pair_attack import Outcomes, Pair
from expost.audit.planted_fault import GAUSSIAN_PATH, GAUSSIAN_STREAM, PATHS, RADIAL
from expost.audit.privacy_claim import ExPost
from expost.core import Ladder, Norm, Sealed, Sensitivity, epsilon, zcdp
from expost.noise import DiscreteLaplacePath, GaussianPath, GeometricPath, RadialLaplacePath
from expost.noise.bits import BitSource
from expost.noise.gaussian_stream import GaussianStream

__all__ = ["entries"]

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


def _stop_at(target: float, blocks: Blocks, runs: int, bits: BitSource) -> Outcomes:
    """Read rung by rung and stop once the noisy value reaches a target, billed by the last rung."""
    rows = blocks(runs, bits)
    reached = rows >= target
    last = np.where(reached.any(axis=0), reached.argmax(axis=0), len(rows) - 1)
    seen = np.where(np.arange(len(rows))[:, None] <= last, rows, -99)  # rungs that were not read stay unknown
    return Outcomes.of(np.vstack([last, seen]).T, _LEVELS[last])


def _sample_prefix(rungs: int, blocks: Blocks, runs: int, bits: BitSource) -> Outcomes:
    """Read the first rungs of a path."""
    return Outcomes.of(blocks(runs, bits)[:rungs].T)


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
        Pair.of(f"all of {rungs} rungs", epsilon(_LADDER[rungs - 1]), partial(_sample_prefix, rungs), left, right)
        for rungs in (1, 2, 3)
    ]

    def read_first_rung(exact: Sequence[int], bits: BitSource) -> Any:
        return DiscreteLaplacePath(Sealed(np.array(exact), Sensitivity(1)), _LADDER, bits=bits).at(0)

    still, moved = [0] * 10, [1] + [0] * 9
    return (
        *prefixes,
        Pair.of("stopped by its own noise", ExPost(epsilon(1)), partial(_stop_at, 2), left, right),  # type: ignore[arg-type]
        Pair.repeated("ten coordinates of one path", epsilon(Fraction(1, 4)), read_first_rung, still, moved),
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
        Pair.of("the first rung", zcdp(Fraction(1, 4)), partial(_sample_prefix, 1), left, right),
        Pair.of("all rungs", zcdp(1), partial(_sample_prefix, 3), left, right),
        Pair.of("stopped by its own noise", ExPost(zcdp(1)), partial(_stop_at, 1.5), left, right),
    )


def _geometric_pairs() -> Sequence[Pair]:
    """Attack the noise moved up by the sensitivity, which must not be much likelier than the noise; the reverse is not claimed."""

    def sample_noise(rungs: int, shift: int, runs: int, bits: BitSource) -> Outcomes:
        path = GeometricPath(Sensitivity(1), _LADDER, size=runs, bits=bits)
        return Outcomes.of(path.block(0, rungs).T + shift)

    return [
        Pair.of(f"{rungs} rungs shifted", epsilon(_LADDER[rungs - 1]), partial(sample_noise, rungs), 1, 0, one_way=True)
        for rungs in (1, 3)
    ]


def _radial_pairs() -> Sequence[Pair]:
    """Attack a real-number claim: floats are rounded to a grid first, because their low bits are known to leak."""
    still, moved = (Sealed(np.array(exact), Sensitivity(1, Norm.L2)) for exact in ([0, 0], [0.6, 0.8]))

    def read_rungs(rung: int, sealed: Sealed, bits: BitSource) -> Any:
        return np.round(RadialLaplacePath(sealed, _LADDER, bits=bits).block(0, rung + 1).ravel(), 3)

    def sample_rung(sealed: Sealed, runs: int, bits: BitSource) -> Outcomes:
        return Outcomes.of(RadialLaplacePath.simulate(sealed, 1, runs=runs, bits=bits).round(3))

    def compare_distances(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.linalg.norm(values - (0.6, 0.8), axis=1) - np.linalg.norm(values, axis=1))

    return [
        Pair.of("one rung", epsilon(1), sample_rung, still, moved, features=compare_distances),
        Pair.repeated("rungs up to 0", epsilon(_LADDER[0]), partial(read_rungs, 0), still, moved),
        Pair.repeated("rungs up to 2", epsilon(_LADDER[2]), partial(read_rungs, 2), still, moved),
    ]


def _stream_pairs() -> Sequence[Pair]:
    """Attack a noise multiplier of 1, which is 1/2-zCDP per release; the costs of two releases add up."""
    step = Sensitivity(100, Norm.L2)

    def sample_releases(releases: int, exact: int, runs: int, bits: BitSource) -> Outcomes:
        stream = GaussianStream(1, step, size=runs, bits=bits)
        sealed = Sealed(np.full(runs, exact), step)
        return Outcomes.of(np.stack([stream.release(sealed) for _ in range(releases)], axis=1))

    return (
        Pair.of("one release", zcdp(Fraction(1, 2)), partial(sample_releases, 1), 0, 100),
        Pair.of("two releases", zcdp(1), partial(sample_releases, 2), 0, 100),
    )
