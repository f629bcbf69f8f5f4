"""Smooth sensitivity: noise scaled to a smooth bound on the local sensitivity, and statistics released with it."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Sensitivity, share_parameters
from expost.noise.bits import BitSource, resolve_bits
from expost.noise.enclosure import bound_ratio, is_below
from expost.noise.exponential_quantile import LatticeBounds, SortedRecords, is_replace, read_share, records_per_unit
from expost.noise.mechanism import PureMechanism, SealedMechanism
from expost.noise.parameter import share_noise_parameters

__all__ = [
    "SmoothInterquartileRange",
    "SmoothNoise",
    "SmoothQuantile",
    "SmoothVariance",
    "sample_heavy_tail",
    "smooth_quantile_bound",
]

_LEAST_SCALE = 4
"""Below this the envelope of the rejection, and the constants of docs/proofs/smooth-sensitivity.md, would differ."""
_ENVELOPE = {2: Fraction(5, 2), 4: Fraction(151, 50)}  # docs/proofs/smooth-sensitivity.md, the sampler
_CAP = 1 << 62  # a larger magnitude is shown as this one
_WORD = 64
_FLOAT_ERROR = 2.0**-45  # relative: a handful of roundings of 2^-53 each

# docs/proofs/smooth-sensitivity.md: per unit of epsilon, how far the answer may move in units of the scale, and how
# far the logarithm of the scale may move; the worst point of the two together costs at most epsilon.
_SLIDE = {2: Fraction(7071, 10**4), 4: Fraction(27, 100)}
_STRETCH = {2: Fraction(7071, 10**4), 4: Fraction(1, 6)}
_SCALE_BITS = 30
_ROUNDING = Fraction(1, 1 << _SCALE_BITS)  # relative; rounding of the scale and floats of the smooth bound, both sides
_LARGEST = 1000  # the smooth bound has a factor exp(smoothness), which must stay a float
_FLOATS = 1 + 1e-11  # the smooth bound errs by less than 1e-12


def sample_heavy_tail(scale: Fraction, runs: int, *, power: int, bits: BitSource | None = None) -> NDArray[np.int64]:
    """Draw integers with P(k) proportional to 1 / (scale^power + |k|^power), power 2 (Cauchy) or 4.

    The law is exact for every rational scale of at least 4: a proposal with rational survival scale / (scale + n) is
    drawn by inverting a uniform real, and kept with a rational probability; both use floats only where their error
    cannot change the outcome. Magnitudes stop at 2^62.
    """
    if power not in _ENVELOPE or scale < _LEAST_SCALE:
        raise InvalidRequest(f"Expected power 2 or 4 and a scale of at least {_LEAST_SCALE}", do="Use a finer grid")
    source, sampler = resolve_bits(bits), _HeavyTail(scale, power)
    values = np.empty(runs, dtype=np.int64)
    pending = np.arange(runs)
    while pending.size:
        sizes, wide = sampler.propose(pending.size, source)
        negative = (source.words(pending.size, np.uint8) & 1).astype(bool)
        kept = sampler.flip_coins(sizes, wide, source) & ~(negative & (sizes == 0))  # there is no negative zero
        values[pending] = np.where(negative, -sizes, sizes)
        pending = pending[~kept]
    return values


class _HeavyTail:
    """Proposals of a heavy-tailed law and the coins that keep them."""

    def __init__(self, scale: Fraction, power: int) -> None:
        self._scale, self._power = scale, power
        self._float = float(scale)

    def propose(self, count: int, bits: BitSource) -> tuple[NDArray[np.int64], dict[int, int]]:
        """Draw floor(scale (1 - U) / U) for uniform reals U: P(n or more) = scale / (scale + n).

        The dictionary has the exact sizes of those shown as 2^62.
        """
        words = bits.words(count)
        uniform = (words.astype(np.float64) + 0.5) * 2.0**-_WORD
        value = self._float / uniform - self._float
        # 64 bits determine U to half a unit of 2^-64, the rest is rounding; both relative to scale / U.
        error = self._float / uniform * (_FLOAT_ERROR + 2.0**-_WORD / uniform)
        sure = (np.floor(value - error) == np.floor(value + error)) & (value < 2.0**53)
        sizes = np.where(sure, np.floor(value), 0).astype(np.int64)
        wide = {}
        for place in np.flatnonzero(~sure).tolist():
            size = self._propose_exactly(int(words[place]), bits)
            sizes[place] = min(size, _CAP)
            if size > _CAP:
                wide[place] = size
        return sizes, wide

    def _propose_exactly(self, prefix: int, bits: BitSource) -> int:
        """Compute the proposal of a uniform real that begins with 64 bits, drawing as many more as needed."""
        above, below = self._scale.numerator, self._scale.denominator
        length = _WORD
        while True:
            # scale (1 - U) / U falls in U: the next larger prefix gives the lower end.
            low = above * ((1 << length) - prefix - 1) // (below * (prefix + 1))
            if prefix and low == above * ((1 << length) - prefix) // (below * prefix):
                return low
            prefix, length = prefix << _WORD | bits.integer(_WORD), length + _WORD

    def flip_coins(self, sizes: NDArray[np.int64], wide: dict[int, int], bits: BitSource) -> NDArray[np.bool_]:
        """Decide which proposals are kept: exact coins of probability target over envelope."""
        words = bits.words(len(sizes))
        # The chance in units of the scale, r = n / s; ``chance`` has it as an exact fraction.
        r = sizes.astype(np.float64)
        r[list(wide)] = list(wide.values())
        r /= self._float
        chance = (1 + r) * (1 + r + 1 / self._float) / (1 + r**self._power) / float(_ENVELOPE[self._power])
        excess = words.astype(np.float64) * 2.0**-_WORD - chance
        coins = excess < 0
        for place in np.flatnonzero(np.abs(excess) <= 2 * _FLOAT_ERROR).tolist():
            exact = partial(bound_ratio, self.chance(wide.get(place, int(sizes[place]))))
            coins[place] = is_below(int(words[place]), _WORD, exact, bits)
        return coins

    def chance(self, size: int) -> Fraction:
        """Return target over envelope: (s + n)(s + n + 1) s^(power - 2) / (c (s^power + n^power)), at most 1."""
        s, n, power = self._scale, size, self._power
        return (s + n) * (s + n + 1) * Fraction(s ** (power - 2)) / (_ENVELOPE[power] * Fraction(s**power + n**power))


@share_noise_parameters
@dataclass(frozen=True)
class SmoothNoise(PureMechanism):
    """Adds integers of law 1 / (scale^power + |k|^power) with scale = steepness * S, S a smooth bound.

    S must bound the local sensitivity and change by at most a factor exp(smoothness) between adjacent tables. Power 4
    has a variance and the lighter tail; power 2 (Cauchy) allows four times the smoothness at less than half the scale.

    Guarantee: pure DP with the given epsilon, known before the run, if S is smooth as stated.
    Adjacency: the one under which S is smooth.
    Sensitivity: local, through S; nothing global is assumed.
    Accuracy: depends on S, which is private; the noise has the scale steepness * S.
    Numerics: the noise is exact; S is computed in floats and rounded up to a dyadic scale, a relative error below
        2^-31 that is inside the smoothness.
    Reference: NRS07, Definition 2.1 and Lemma 2.5 (framework, constants epsilon / (2 (power + 1)) for both moves);
        docs/proofs/smooth-sensitivity.md (sharper constants, on integers).

    Parameters
    ----------
    epsilon : float or Fraction
        The privacy level, from about 1e-7 to 1000.

    Examples
    --------
    >>> noise = SmoothNoise(1, power=2)
    >>> round(noise.smoothness, 3), round(float(noise.steepness), 3)
    (0.707, 1.414)
    """

    power: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.power not in _SLIDE:
            raise InvalidRequest("Expected power 2 or 4", got=self.power, do="Pass 4 for the lighter tail")
        if self._exact_smoothness() <= 0:
            raise InvalidRequest("Expected a larger epsilon", got=f"{float(self.epsilon):.3g}", do="Pass at least 1e-7")
        if self.epsilon > _LARGEST:
            raise InvalidRequest(
                f"Expected epsilon of at most {_LARGEST}", got=f"{float(self.epsilon):.3g}", do="Lower it"
            )

    def _exact_smoothness(self) -> Fraction:
        return _STRETCH[self.power] * self.epsilon - _ROUNDING

    @property
    def smoothness(self) -> float:
        """How fast the logarithm of S may change between adjacent tables, rounded down."""
        return float(self._exact_smoothness()) * (1 - 1e-15)

    @property
    def steepness(self) -> Fraction:
        """The scale of the noise in units of S."""
        return 1 / (_SLIDE[self.power] * self.epsilon)

    @share_noise_parameters
    def scale(self, smooth_bound: float) -> Fraction:
        """Return the scale of the noise for a smooth bound."""
        # Rounded up to a dyadic number: more noise than needed, and a denominator that exact coins can afford.
        raw = max(float(self.steepness) * smooth_bound * _FLOATS, float(_LEAST_SCALE))
        return Fraction(math.ceil(Fraction(raw) * (1 << _SCALE_BITS)), 1 << _SCALE_BITS)

    @share_noise_parameters
    def add(
        self, exact: int, smooth_bound: float, bounds: LatticeBounds, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.int64]:
        """Add noise to an exact answer, independently in each run.

        Parameters
        ----------
        exact : int
            The exact answer, within the bounds.
        bounds : LatticeBounds
            The public range to which noisy answers are clamped.
        """
        noise = sample_heavy_tail(self.scale(smooth_bound), runs, power=self.power, bits=bits)
        # |exact| < 2^53 and |noise| <= 2^62: the sum fits.
        return np.clip(exact + noise, bounds.low, bounds.high)


def smooth_quantile_bound(records: SortedRecords, rank: int, smoothness: float, sensitivity: Sensitivity) -> float:
    """Bound how far the quantiles of adjacent tables differ, by a bound that itself changes slowly between them.

    Replace-one: max over i, j >= 0 of exp(-b (i + j)) (x_{m+j} - x_{m-i}), times exp(smoothness); b is the smoothness
    per record. Add/remove also moves the rank, and the bound is the symmetric max over j of
    exp(-b j) (x_{m+j} - x_{m-j}). Proofs: docs/proofs/smooth-sensitivity.md; replace-one is NRS07, Claim 3.3, for one
    record per unit.

    >>> from expost.core import Adjacency
    >>> records = SortedRecords.read(range(0, 1001, 10), LatticeBounds(0, 1000))
    >>> round(smooth_quantile_bound(records, 51, 1.0, Sensitivity(1, adjacency=Adjacency.REPLACE_ONE)), 6)
    10.0
    """
    decay = smoothness / records_per_unit(sensitivity)
    # Beyond n + 1 ranks an arm is constant at the bound, beyond the other limit its weight is below any difference
    # of integers that is not zero; both limits are functions of public numbers and of n.
    reach = min(len(records) + 1, math.ceil((math.log(records.bounds.width) + 40) / decay))
    steps = np.arange(reach + 1)
    center = int(records.at(np.array([rank]))[0])
    down = (center - records.at(rank - steps)).astype(np.float64)
    up = (records.at(rank + steps) - center).astype(np.float64)
    if is_replace(sensitivity):
        best = _best_pair(down, up, decay)
    else:
        best = float(np.max(np.exp(-decay * np.arange(len(up))) * (up + down)))
    return math.exp(smoothness) * best


def _best_pair(down: NDArray[np.float64], up: NDArray[np.float64], decay: float) -> float:
    """Maximize exp(-decay (i + j)) (down_i + up_j) over i, j.

    The best j falls as i rises (a larger down_i makes waiting for up_j more costly), so halving the rows halves the
    remaining columns: n log n in all (NRS07, section 3.1).
    """
    weights = np.exp(-decay * np.arange(len(up)))
    best, rows = 0.0, [(0, len(down) - 1, 0, len(up) - 1)]
    while rows:
        first, last, left, right = rows.pop()
        middle = (first + last) // 2
        column = weights[left : right + 1] * (down[middle] + up[left : right + 1])
        at = left + int(np.argmax(column))
        best = max(best, float(weights[middle] * column[at - left]))
        if first < middle:
            rows.append((first, middle - 1, at, right))
        if middle < last:
            rows.append((middle + 1, last, left, at))
    return best


class _SmoothStatistic(PureMechanism, SealedMechanism[int]):
    """What the three statistics share: the noise, the promise and the bill."""

    bounds: LatticeBounds
    power: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", self.noise.epsilon)  # the noise refuses an epsilon or power out of range

    @property
    def noise(self) -> SmoothNoise:
        """The noise and its constants."""
        return SmoothNoise(self.epsilon, self.power)


@share_noise_parameters
@share_parameters(SmoothNoise)
@dataclass(frozen=True)
class SmoothQuantile(_SmoothStatistic):
    """A quantile of integer records under noise that fits the data at hand.

    Where many records lie close to the quantile the noise is tiny; where there is a gap it is large.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: replace-one, or add/remove (the rank then moves with the number of records, which the bound covers).
    Sensitivity: the number of records one unit has; the records themselves are clamped to public bounds.
    Accuracy: noise of scale steepness times the smooth sensitivity, which is private; compare with
        ExponentialQuantile, whose rank error is bounded beforehand.
    Numerics: see SmoothNoise.
    Reference: NRS07, Claim 3.3 and Lemma 2.5; docs/proofs/smooth-sensitivity.md.

    Examples
    --------
    >>> from expost.core import Adjacency, Sealed
    >>> from expost.noise import SeededBits
    >>> ages = Sealed(list(range(20, 60)) * 50, Sensitivity(1, adjacency=Adjacency.REPLACE_ONE))
    >>> 30 <= SmoothQuantile(1, LatticeBounds(0, 120)).release(ages, bits=SeededBits(1)) <= 50
    True
    """

    bounds: LatticeBounds
    _: KW_ONLY
    probability: Fraction = Fraction(1, 2)
    power: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "probability", read_share(self.probability))
        super().__post_init__()

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.int64]:
        records = SortedRecords.read(exact, self.bounds)
        rank = records.rank(self.probability)
        bound = smooth_quantile_bound(records, rank, self.noise.smoothness, sensitivity)
        return self.noise.add(int(records.at(np.array([rank]))[0]), bound, self.bounds, runs=runs, bits=bits)


@share_noise_parameters
@share_parameters(SmoothNoise)
@dataclass(frozen=True)
class SmoothInterquartileRange(_SmoothStatistic):
    """The distance between the upper and the lower quartile: a measure of spread that outliers do not move.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: replace-one, or add/remove.
    Sensitivity: the number of records one unit has; the records themselves are clamped to public bounds.
    Accuracy: as SmoothQuantile; the bounds of the two quartiles add.
    Numerics: see SmoothNoise.
    Reference: NRS07, Claim 3.3 and Lemma 2.5; docs/proofs/smooth-sensitivity.md (sums of smooth bounds).

    Examples
    --------
    >>> from expost.core import Adjacency, Sealed
    >>> from expost.noise import SeededBits
    >>> ages = Sealed(list(range(20, 60)) * 50, Sensitivity(1, adjacency=Adjacency.REPLACE_ONE))
    >>> 0 <= SmoothInterquartileRange(1, LatticeBounds(0, 120)).release(ages, bits=SeededBits(1)) <= 120
    True
    """

    bounds: LatticeBounds
    power: int = 4

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.int64]:
        records = SortedRecords.read(exact, self.bounds)
        ranks = [records.rank(Fraction(quarter, 4)) for quarter in (1, 3)]
        low, high = records.at(np.array(ranks)).tolist()
        # A sum of two smooth bounds is a smooth bound of the difference.
        bound = sum(smooth_quantile_bound(records, rank, self.noise.smoothness, sensitivity) for rank in ranks)
        return self.noise.add(high - low, bound, LatticeBounds(0, self.bounds.width), runs=runs, bits=bits)


@share_noise_parameters
@share_parameters(SmoothNoise)
@dataclass(frozen=True)
class SmoothVariance(_SmoothStatistic):
    """The variance of integer records in lattice units, times n squared: n sum x^2 - (sum x)^2, an integer.

    The local sensitivity shrinks only as far as the mean is away from the bounds: at best a quarter of the global
    one, which is about what the heavier noise costs. LaplaceMechanism on sum x and sum x^2 is usually as good; this
    is for data known to lie in the middle of wide bounds.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: replace-one only; the number of records, at least two, is public.
    Sensitivity: the number of records one unit has; the records themselves are clamped to public bounds.
    Accuracy: noise of scale steepness times the smooth sensitivity, which is private.
    Numerics: see SmoothNoise.
    Reference: NRS07, Lemma 2.5; docs/proofs/smooth-sensitivity.md (this bound).

    Examples
    --------
    >>> from expost.core import Adjacency, Sealed
    >>> from expost.noise import SeededBits
    >>> records = Sealed([4, 5, 6] * 100, Sensitivity(1, adjacency=Adjacency.REPLACE_ONE))
    >>> SmoothVariance(1, LatticeBounds(0, 10)).release(records, bits=SeededBits(1)) >= 0
    True
    """

    bounds: LatticeBounds
    power: int = 4

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.int64]:
        records = SortedRecords.read(exact, self.bounds)
        count, width = len(records), self.bounds.width
        if not is_replace(sensitivity) or count < 2:
            raise InvalidRequest("Expected replace-one adjacency and at least two records", do="Make n public")
        if count * count * width * width >= 1 << 53:
            raise InvalidRequest("Expected n times the width of the bounds below 2^26", do="Use a coarser grid")
        shifted = records.values - self.bounds.low
        total = int(shifted.sum())
        spread = count * int((shifted * shifted).sum()) - total * total
        bound = self._smooth_bound(count, total / count, records_per_unit(sensitivity))
        limits = LatticeBounds(0, -(-count * count * width * width // 4))
        return self.noise.add(spread, bound, limits, runs=runs, bits=bits)

    def _smooth_bound(self, count: int, mean: float, group: int) -> float:
        """Maximize exp(-k smoothness) A_k over k, A_k the local sensitivity after k units moved the mean."""
        width, smoothness = self.bounds.width, self.noise.smoothness
        # A_k never exceeds four times A_0, so later terms cannot win.
        reach = min(count // group + 1, math.ceil(2 / smoothness))
        k = np.arange(reach + 1)
        # One record moves the statistic by at most (n - 1) max(r, width - r)^2, r the mean of the others.
        far = max(mean, width - mean) + width / (count - 1) + ((k + 1) * group - 1) * width / count
        local = group * (count - 1) * np.minimum(far, width) ** 2
        return float(np.max(np.exp(-smoothness * k) * local))
