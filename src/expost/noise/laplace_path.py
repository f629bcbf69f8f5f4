"""Gradual release under discrete Laplace noise, and the one-sided geometric noise of thresholds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Ladder, Norm, PureLoss, Sealed, Sensitivity
from expost.core.rational import rational
from expost.noise.bits import BitSource, resolve_bits
from expost.noise.enclosure import Enclosure, Real, UniformReals, bound_minus_log_complement, bound_ratio
from expost.noise.jump_noise import JumpNoise, check_rates
from expost.noise.lattice import add_noise
from expost.noise.lattice_sampler import draw_geometric, draw_laplace
from expost.noise.parameter import Parameter, share_noise_parameters
from expost.noise.release_path import AnswerPath, ReleasePath, check_norm, check_rung, read_ladder

__all__ = ["DiscreteLaplacePath", "GeometricPath", "draw_less_noise"]

_ERROR = 2.0**-46  # of a float exponent h, times 1 + h: rates are rounded once, the logs are below 100


@share_noise_parameters
class DiscreteLaplacePath(AnswerPath):
    """An exact integer answer under discrete Laplace noise that shrinks rung by rung.

    Rung r adds noise of P(k) proportional to exp(-|k| epsilon_r / sensitivity) to every coordinate. Going up the
    ladder removes noise that was added on top of the next rung's, so a rung reveals nothing about the answer that the
    rung above it does not: showing every rung up to r costs epsilon_r, not the sum. Each coordinate has its own coins.

    Guarantee: pure ex-post, known only after the run: loss ``epsilon_r`` of the last rung read, at most the cap.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: L1, over all coordinates together, in lattice units.
    Accuracy: |error| > t with probability 2 a^(t+1) / (1 + a) per coordinate, a = exp(-epsilon_r / sensitivity).
    Numerics: exact; integers, rational epsilons, no float decides an outcome.
    Reference: LNRWW17, Theorem 2.7 (on the reals); docs/proofs/lattice-laplace.md (on the lattice).

    Examples
    --------
    >>> from expost.noise.bits import SeededBits
    >>> path = DiscreteLaplacePath(Sealed(41, Sensitivity(1)), Ladder.of([0.1, 1, 10]), bits=SeededBits(1))
    >>> path.at(2)
    array([41], dtype=object)
    >>> path.block(0, 3).shape
    (3, 1)
    >>> path.loss(1)
    PureLoss(epsilon=Fraction(1, 1))
    """

    _kind = "discrete Laplace path"

    def __init__(
        self, sealed: Sealed, ladder: Ladder | Iterable[float | Fraction], *, bits: BitSource | None = None
    ) -> None:
        super().__init__()
        self._sensitivity = check_norm(sealed, Norm.L1)
        self._set_answer(sealed, ladder, bits)
        self._noise = JumpNoise.draw(
            self._ladder, self._sensitivity, self._size, order=2, sampler=draw_laplace, bits=self._bits
        )

    def loss(self, rung: int) -> PureLoss:
        return PureLoss(self._ladder[check_rung(self._ladder, rung)])

    def at(self, rung: int) -> NDArray[Any]:
        return add_noise(self._exact, self._noise.at(check_rung(self._ladder, rung)))

    def block(self, start: int, stop: int) -> NDArray[Any]:
        return add_noise(self._exact[None], self._noise.block(*self._check_block(start, stop)))

    def refine(self, to_epsilon: float | Fraction) -> int:
        """Add a rung above the top, which may be chosen after seeing the others, and return its index.

        The noise of the new rung is drawn given the top rung's by the backward kernel, so the longer path has the law
        it would have had from the start, and reading it up to the new rung costs ``to_epsilon``
        (docs/proofs/lattice-laplace.md). Two refinements of one path are two rungs of one ladder, never two answers.

        Parameters
        ----------
        to_epsilon : float or Fraction
            The level of the new rung, above the cap of the ladder.
        """
        level = rational(to_epsilon, "to_epsilon")
        with self._draw_alone():
            cap = self._ladder.cap
            if level <= cap:
                raise InvalidRequest("Expected a level above the top rung", got=level, do="Raise it")
            longer = Ladder((*self._ladder.rungs, level))
            check_rates(longer, self._sensitivity)
            # Proposals of the backward kernel have the rate of the gap, so the gap must be one that can be sampled.
            check_rates(Ladder((level - cap,)), self._sensitivity)
            # Conditional on the old top rung, never fresh: two independent answers would cost the sum of their levels.
            top = draw_less_noise(self._noise.top, cap / self._sensitivity, level / self._sensitivity, self._bits)
            self._noise = self._noise.extend(top, len(self._ladder) - 1)
            self._ladder = longer
            return len(longer) - 1

    def state(self) -> bytes:
        noise = self._noise
        # The jumps are kept, not the answers: rungs that were not read yet must not change after a restart.
        arrays = {"top": noise.top, "rungs": noise.rungs, "coordinates": noise.coordinates, "sizes": noise.sizes}
        return self._pack({"sensitivity": str(self._sensitivity)}, arrays)

    @classmethod
    def from_state(cls, state: bytes, *, bits: BitSource | None = None) -> Self:
        path, facts, arrays = cls._unpack(state, bits)
        path._sensitivity = Fraction(facts["sensitivity"])
        path._noise = JumpNoise(*(arrays[name] for name in ("top", "rungs", "coordinates", "sizes")))
        return path


@share_noise_parameters
class GeometricPath(ReleasePath):
    """Non-negative integer noise, P(g) proportional to exp(-g epsilon_r / sensitivity) at rung r, each from the next.

    It carries no answer: a test adds it to its threshold and keeps it secret.

    Guarantee: one-sided, known only after the run: moving the noise of every rung up to r by d <= sensitivity, all in
        the same direction d > 0, changes the probability of those rungs by a factor of at most exp(epsilon_r).
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: of the value that the threshold is compared with, in lattice units.
    Accuracy: noise > t with probability a^(t+1) per coordinate, a = exp(-epsilon_r / sensitivity); never below 0.
    Numerics: exact; integers, rational epsilons, no float decides an outcome.
    Reference: docs/proofs/geometric-path.md.

    Parameters
    ----------
    sensitivity : Sensitivity
        Of the value that the threshold is compared with, in lattice units.
    size : int, default 1
        The number of coordinates.

    Examples
    --------
    >>> from expost.noise.bits import SeededBits
    >>> path = GeometricPath(Sensitivity(1), Ladder.of([0.1, 1]), bits=SeededBits(1))
    >>> bool((path.block(0, 2) >= 0).all())
    True
    """

    _kind = "geometric path"

    def __init__(
        self,
        sensitivity: Sensitivity,
        ladder: Ladder | Iterable[float | Fraction],
        *,
        size: int = 1,
        bits: BitSource | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(sensitivity, Sensitivity):
            raise InvalidRequest("Expected a Sensitivity", got=sensitivity, do="Pass Sensitivity(amount)")
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InvalidRequest("Expected at least one coordinate", got=size, do="Pass size >= 1")
        source = resolve_bits(bits)
        self._ladder, self._size, self.private = read_ladder(ladder), size, source.private
        # One coordinate moves by at most this, whatever the norm: every norm agrees in one dimension.
        amount = Fraction(sensitivity.amount)
        self._noise = JumpNoise.draw(self._ladder, amount, size, order=1, sampler=draw_geometric, bits=source)

    def at(self, rung: int) -> NDArray[Any]:
        return _narrow_integers(self._noise.at(check_rung(self._ladder, rung)))

    def block(self, start: int, stop: int) -> NDArray[Any]:
        return _narrow_integers(self._noise.block(*self._check_block(start, stop)))


def _narrow_integers(values: NDArray[Any]) -> NDArray[Any]:
    """Convert noise to int64 if it fits: only for noise that is kept secret, whose type nobody sees."""
    if values.dtype == object and all(-(1 << 63) <= value < 1 << 63 for value in values.flat):
        return values.astype(np.int64)
    return values


def draw_less_noise(noise: NDArray[Any], rate: Fraction, finer: Fraction, bits: BitSource) -> NDArray[Any]:
    """Draw discrete Laplace noise of rate ``finer``, given the noise of the more private ``rate``: the backward kernel.

    If the noise at rate e is k, the noise at rate f > e is k with probability exp(-(f - e) (|k| + 1)) (1 - exp(-2 e)) /
    (1 - exp(-2 f)), and else j with probability proportional to exp(-f |j| - e |k - j|) (docs/proofs/lattice-laplace.md).
    The second law is drawn by rejection from discrete Laplace proposals of rate f - e, kept with probability
    exp(-e (|j| + |k - j| - |k|)). Both parts need at most two proposals per coordinate on average, whatever e and f.
    """
    gap = finer - rate
    # Both expm1 are negative, so their ratio is positive; expm1 keeps the digits that 1 - exp(-2 e) would lose.
    log_ratio = math.log(math.expm1(-2 * float(finer)) / math.expm1(-2 * float(rate)))
    h = float(gap) * (np.abs(noise).astype(float) + 1) + log_ratio

    def stay_exponent(place: int) -> Real:
        return partial(_bound_stay_exponent, abs(int(noise[place])), rate, finer)

    stays = UniformReals(bits.words(len(noise)), bits).exceed(h, (1 + h) * _ERROR, stay_exponent)
    pending, less = np.flatnonzero(~stays), noise.copy()
    # A rejected coordinate is proposed again from the same known noise, so the law given it is exact.
    while pending.size:
        known = noise[pending]
        steps = draw_laplace(Parameter.constant(1 / gap, (len(pending),)), bits)  # along the sign of the known noise
        if steps.dtype == object:
            less = less.astype(object)
        less[pending] = np.where(known < 0, -steps, steps)
        pending = pending[~_flip_kept(steps, np.abs(known), rate, bits)]
    return less


def _bound_stay_exponent(magnitude: int, rate: Fraction, finer: Fraction, length: int) -> Enclosure:
    """Bound -ln of the probability that the noise does not change between the two rates."""
    gap = (finer - rate) * (magnitude + 1) * (1 << length)
    # Each end takes the bounds of the two logarithms that point its own way.
    (low, high), (finer_low, finer_high) = (bound_minus_log_complement(2 * each, length) for each in (rate, finer))
    return math.floor(gap) + low - finer_high, math.ceil(gap) + high - finer_low


def _flip_kept(steps: NDArray[Any], magnitudes: NDArray[Any], rate: Fraction, bits: BitSource) -> NDArray[np.bool_]:
    """Flip coins of probability exp(-rate * detour), the detour of a step beyond 0 or beyond the known noise."""
    # |j| + |k - j| - |k| is 0 between 0 and k, and twice the overshoot outside.
    detours = 2 * np.maximum(np.maximum(-steps, steps - magnitudes), 0).astype(float)
    h = float(rate) * detours

    def exact(place: int) -> Real:
        step, magnitude = int(steps[place]), int(magnitudes[place])
        return partial(bound_ratio, rate * 2 * max(-step, step - magnitude, 0))

    return UniformReals(bits.words(len(steps)), bits).exceed(h, (1 + h) * _ERROR, exact)
