"""What type a release has, and how many bits it draws, depends on public facts: never on an exact value."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from expost.core import Adjacency, Ladder, Norm, Sealed, Sensitivity, approx, zcdp
from expost.noise import (
    AboveThreshold,
    BitSource,
    DiscreteLaplacePath,
    ExponentialMechanism,
    GaussianMechanism,
    GaussianPath,
    LaplaceMechanism,
    NoisyMax,
    PermuteAndFlip,
    RandomizedResponse,
    SeededBits,
    StableMode,
)
from expost.noise.exponential_quantile import ExponentialQuantile, LatticeBounds
from expost.noise.gaussian_stream import GaussianStream
from expost.noise.lattice import add_noise, read_integers
from expost.noise.propose_test_release import ProposedQuantile
from expost.noise.rising_threshold import ReducedAboveThreshold, RenewedThreshold
from expost.noise.smooth_sensitivity import SmoothQuantile
from expost.noise.spherical_noise import SphericalLaplaceMechanism

EDGES = [0, 2**31, 2**53, 2**62, 2**63 - 2, 2**63, 2**64, 2**70, 2**200]
L1, L2, LINF = (Sensitivity(1, norm) for norm in (Norm.L1, Norm.L2, Norm.LINF))
WIDE = Sensitivity(2**40, Norm.L1)
RANGE = LatticeBounds(0, 2**40)
LADDER = Ladder.of([0.1, 0.5, 2])


class CountedBits(BitSource):
    """Seeded bits that count how many bytes are drawn."""

    private = False

    def __init__(self) -> None:
        self._bits, self.drawn = SeededBits(3), 0

    def _fill(self, out: memoryview) -> None:
        self.drawn += len(out)
        self._bits._fill(out)


Run = Callable[[Any, BitSource], Any]


def _threshold(rule: Any, **where: Any) -> Run:
    def ask(exact: Any, bits: BitSource) -> Any:
        session = rule.open(bits=bits)
        return [session.ask(Sealed(int(query), L1), **where).above for query in np.asarray(exact, object).ravel()[:1]]

    return ask


VECTORS: dict[str, Run] = {
    "laplace": lambda exact, bits: LaplaceMechanism(1).release(Sealed(exact, L1), bits=bits),
    "wide laplace": lambda exact, bits: LaplaceMechanism(Fraction(1, 10**5)).release(Sealed(exact, WIDE), bits=bits),
    "gaussian": lambda exact, bits: GaussianMechanism(zcdp(0.1)).release(Sealed(exact, L2), bits=bits),
    "approx gaussian": lambda exact, bits: GaussianMechanism(approx(1, 1e-6)).release(Sealed(exact, L2), bits=bits),
    "spherical": lambda exact, bits: SphericalLaplaceMechanism(1).release(Sealed(exact, L2), bits=bits),
    "laplace path": lambda exact, bits: DiscreteLaplacePath(Sealed(exact, L1), LADDER, bits=bits).block(0, 3),
    "laplace path, one rung": lambda exact, bits: DiscreteLaplacePath(Sealed(exact, L1), LADDER, bits=bits).at(1),
    "refined path": lambda exact, bits: _refined(DiscreteLaplacePath(Sealed(exact, L1), LADDER, bits=bits)),
    "gaussian path": lambda exact, bits: GaussianPath(Sealed(exact, L2), LADDER, bits=bits).release(1),
    "gaussian path, estimate": lambda exact, bits: GaussianPath(Sealed(exact, L2), LADDER, bits=bits).at(2),
    "stream": lambda exact, bits: GaussianStream(40, L2, size=2, bits=bits).release(Sealed(exact, L2)),
}
CHOICES: dict[str, Run] = {
    "exponential": lambda exact, bits: ExponentialMechanism(1).release(Sealed(exact, LINF), bits=bits),
    "permute and flip": lambda exact, bits: PermuteAndFlip(1).release(Sealed(exact, LINF), bits=bits),
    "noisy max": lambda exact, bits: NoisyMax(1).release(Sealed(exact, LINF), bits=bits),
    "stable mode": lambda exact, bits: StableMode(1, 1e-6).release(Sealed(exact, L1), bits=bits) is None,
    "exponential quantile": lambda exact, bits: ExponentialQuantile(1, RANGE).release(Sealed(exact, L1), bits=bits),
    "smooth quantile": lambda exact, bits: SmoothQuantile(1, RANGE).release(Sealed(exact, L1), bits=bits),
    "proposed quantile": lambda exact, bits: type(
        ProposedQuantile(1, 1e-6, RANGE, proposal=2).release(Sealed(exact, L1), bits=bits)
    ),
    "randomized response": lambda exact, bits: RandomizedResponse(1, categories=3).release(
        Sealed(exact, Sensitivity(1, adjacency=Adjacency.REPLACE_ONE)), bits=bits
    ),
    "above threshold": _threshold(
        AboveThreshold(threshold=2**80, sensitivity=L1, epsilon_threshold=1, epsilon_query=1)
    ),
    "reduced threshold": _threshold(ReducedAboveThreshold(threshold=2**80, sensitivity=L1, ladder=LADDER), rung=1),
    "renewed threshold": _threshold(RenewedThreshold(sensitivity=L1, span=1, ladder=LADDER), rung=0),
}
GIVEN: dict[str, Callable[[int], Any]] = {
    "objects": lambda value: np.array([value, 0], dtype=object),
    "a list": lambda value: [value, 0],
    "int64": lambda value: np.array([value, 0], dtype=np.int64),
    "uint64": lambda value: np.array([value, 0], dtype=np.uint64),
}
FITS = {"int64": 2**63, "uint64": 2**64}


def _refined(path: DiscreteLaplacePath) -> Any:
    path.refine(5)
    return path.at(3)


def _shape_of(found: Any) -> Any:
    """Everything about a value but the value: type, dtype, shape, the types inside, and how it is written."""
    if not isinstance(found, np.ndarray):
        return type(found)
    written = "object" if "dtype=object" in repr(found) else "plain"
    return found.dtype, found.shape, {type(each) for each in found.ravel().tolist()}, written


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("mechanism", [*VECTORS, *CHOICES])
def test_neighbours_have_one_type_and_draw_as_many_bits(mechanism: str, given: str) -> None:
    run = {**VECTORS, **CHOICES}[mechanism]
    seen = {}
    for edge in EDGES:
        for exact in (edge - 1, edge, edge + 1):
            if 0 <= exact < FITS.get(given, 2**300):
                bits = CountedBits()
                found = run(GIVEN[given](exact), bits)
                drawn = bits.drawn if mechanism in VECTORS or mechanism == "randomized response" else None
                seen[exact] = _shape_of(found), drawn

    assert len(set(map(repr, seen.values()))) == 1, seen


@pytest.mark.parametrize("mechanism", [name for name in VECTORS if name not in ("stream",) and "path" not in name])
def test_a_single_answer_is_a_python_integer_whatever_it_is(mechanism: str) -> None:
    for exact in (0, 2**62, 2**63, 2**70, np.int64(5), np.int64(2**63 - 1)):
        assert type(VECTORS[mechanism](exact, SeededBits(1))) is int


def test_the_type_of_an_array_does_not_tell_a_coordinate_that_reached_2_to_the_62() -> None:
    for mechanism, norm in ((LaplaceMechanism(Fraction(1, 10)), Norm.L1), (GaussianMechanism(zcdp(0.01)), Norm.L2)):
        found = {
            str(mechanism.release(Sealed(np.array([exact, 0]), Sensitivity(2**53, norm)), bits=SeededBits(seed)).dtype)
            for exact in (511 * 2**53, 512 * 2**53)
            for seed in range(20)
        }
        assert found == {"int64"}


def test_a_sum_stops_at_the_largest_integer_and_is_never_further_from_the_answer() -> None:
    rng = np.random.default_rng(1)
    edge = 2**63 - 1
    exact = np.array([edge, -edge, edge - 5, 5 - edge, 0, 7])
    for noise in (
        rng.integers(-(2**62), 2**62, (50, 6)),
        np.array([[2**70, -(2**70), 9, -9, 2**80, -3]], dtype=object),
    ):
        total = add_noise(exact[None], noise)
        right = exact.astype(object)[None] + noise.astype(object)

        assert total.dtype == np.int64
        assert (total.astype(object) == np.clip(right, -edge, edge)).all()


@pytest.mark.parametrize("wrong", [[1, 2.0], [True], [[1], [2, 3]], "12", None, np.array([1.0]), [np.float64(1)]])
def test_what_is_not_an_integer_is_refused(wrong: Any) -> None:
    from expost.core import InvalidRequest

    with pytest.raises(InvalidRequest, match="exact integers"):
        read_integers(wrong)
