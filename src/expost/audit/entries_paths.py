"""Attacks on gradual release: prefixes, stopping rules, coordinates together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
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
    """One entry a path."""
    return (
        AuditEntry("expost.noise.DiscreteLaplacePath", _laplace, _laplace_laws, noise=PATHS),
        AuditEntry("expost.noise.GaussianPath", _gaussian, noise=GAUSSIAN_PATH),
        AuditEntry("expost.noise.GeometricPath", _geometric, noise=PATHS),
        AuditEntry("expost.noise.RadialLaplacePath", _radial, noise=RADIAL),
        AuditEntry("expost.noise.gaussian_stream.GaussianStream", _stream, noise=GAUSSIAN_STREAM),
    )


def stopped(blocks: Blocks, target: float) -> Sampler:
    """Runs that read rung by rung and stop as soon as the noisy value reaches a target; billed by the last rung."""

    def sampler(runs: int, bits: BitSource) -> Outcomes:
        rows = blocks(runs, bits)
        reached = rows >= target
        last = np.where(reached.any(axis=0), reached.argmax(axis=0), len(rows) - 1)
        seen = np.where(np.arange(len(rows))[:, None] <= last, rows, -99)  # what was not read is not known
        return Outcomes.of(np.vstack([last, seen]).T, _LEVELS[last])

    return sampler


def _prefix(blocks: Blocks, rungs: int) -> Sampler:
    return lambda runs, bits: Outcomes.of(blocks(runs, bits)[:rungs].T)


def _coordinates_are_runs(exact: int, path: Any, norm: Norm) -> Blocks:
    """One path whose coordinates, each with its own coins, serve as independent runs."""

    def blocks(runs: int, bits: BitSource) -> NDArray[Any]:
        sealed = Sealed(np.full(runs, exact), Sensitivity(1, norm))
        rows: NDArray[Any] = path(sealed, _LADDER, bits=bits).block(0, len(_LADDER))
        return rows

    return blocks


def _laplace() -> Sequence[Pair]:
    left, right = (_coordinates_are_runs(exact, DiscreteLaplacePath, Norm.L1) for exact in (0, 1))
    prefixes = [
        Pair(f"all of {rungs} rungs", epsilon(_LADDER[rungs - 1]), _prefix(left, rungs), _prefix(right, rungs))
        for rungs in (1, 2, 3)
    ]
    still, moved = (repeat(_vector_run(exact)) for exact in ([0] * 10, [1] + [0] * 9))
    return (
        *prefixes,
        Pair("stopped by its own noise", ExPost(epsilon(1)), stopped(left, 2), stopped(right, 2)),  # type: ignore[arg-type]
        Pair("ten coordinates of one path", epsilon(Fraction(1, 4)), still, moved, slow=True),
    )


def _vector_run(exact: Sequence[int]) -> Callable[[BitSource], Any]:
    sealed = Sealed(np.array(exact), Sensitivity(1))
    return lambda bits: DiscreteLaplacePath(sealed, _LADDER, bits=bits).at(0)


def _laplace_laws() -> Sequence[LawPair]:
    low, high, near, wide = Fraction(3, 4), Fraction(1, 3), range(-10, 11), range(-45, 46)
    left, right = (Law(laplace_path_law(center, low, high, coarse=near, fine=near)) for center in (0, 1))
    first, second = (
        _first_rung(laplace_path_law(center, low, high, coarse=range(-3, 4), fine=wide), error=high**44)
        for center in (0, 1)
    )
    return (
        LawPair("both rungs together", left, right, ratio=1 / high),
        LawPair("the first rung alone", first, second, ratio=1 / low),
    )


def _first_rung(law: dict[Any, Fraction], *, error: Fraction) -> Law:
    sums: dict[int, Fraction] = {}
    for (coarse, _), p in law.items():
        sums[coarse] = sums.get(coarse, Fraction(0)) + p
    return Law(sums, error=error)


def _gaussian() -> Sequence[Pair]:
    left, right = (_coordinates_are_runs(exact, GaussianPath, Norm.L2) for exact in (0, 1))
    return (
        Pair("the first rung", zcdp(Fraction(1, 4)), _prefix(left, 1), _prefix(right, 1)),
        Pair("all rungs", zcdp(1), _prefix(left, 3), _prefix(right, 3)),
        Pair("stopped by its own noise", ExPost(zcdp(1)), stopped(left, 1.5), stopped(right, 1.5)),
    )


def _geometric() -> Sequence[Pair]:
    """Return the noise moved up by the sensitivity must not be much likelier than the noise; the reverse is not claimed."""

    def noise(shift: int, rungs: int) -> Sampler:
        def sampler(runs: int, bits: BitSource) -> Outcomes:
            path = GeometricPath(Sensitivity(1), _LADDER, size=runs, bits=bits)
            return Outcomes.of(path.block(0, rungs).T + shift)

        return sampler

    return [
        Pair(f"{rungs} rungs shifted", epsilon(_LADDER[rungs - 1]), noise(1, rungs), noise(0, rungs), one_way=True)
        for rungs in (1, 3)
    ]


def _radial() -> Sequence[Pair]:
    """Real-number claim: the floats are rounded to a grid first, their low bits are known to leak."""

    def run(exact: Sequence[float], rung: int) -> Callable[[BitSource], Any]:
        sealed = Sealed(np.array(exact), Sensitivity(1, Norm.L2))
        return lambda bits: np.round(RadialLaplacePath(sealed, _LADDER, bits=bits).block(0, rung + 1).ravel(), 3)

    def pair(rung: int) -> Pair:
        left, right = (repeat(run(exact, rung)) for exact in ([0, 0], [0.6, 0.8]))
        return Pair(f"rungs up to {rung}", epsilon(_LADDER[rung]), left, right, slow=True)

    def one_rung(exact: Sequence[float]) -> Sampler:
        sealed = Sealed(np.array(exact), Sensitivity(1, Norm.L2))
        return lambda runs, bits: Outcomes.of(RadialLaplacePath.simulate(sealed, 1, runs=runs, bits=bits).round(3))

    def nearer(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.linalg.norm(values - (0.6, 0.8), axis=1) - np.linalg.norm(values, axis=1))

    alone = Pair("one rung", epsilon(1), one_rung([0, 0]), one_rung([0.6, 0.8]), features=nearer)
    return alone, pair(0), pair(2)


def _stream() -> Sequence[Pair]:
    """Return a noise multiplier of 1 is 1/2-zCDP a release; two releases in a row add."""

    def runs_of(exact: int, releases: int) -> Sampler:
        def sampler(runs: int, bits: BitSource) -> Outcomes:
            step = Sensitivity(100, Norm.L2)
            stream = GaussianStream(1, step, size=runs, bits=bits)
            sealed = Sealed(np.full(runs, exact), step)
            return Outcomes.of(np.stack([stream.release(sealed) for _ in range(releases)], axis=1))

        return sampler

    return (
        Pair("one release", zcdp(Fraction(1, 2)), runs_of(0, 1), runs_of(100, 1)),
        Pair("two releases", zcdp(1), runs_of(0, 2), runs_of(100, 2)),
    )
