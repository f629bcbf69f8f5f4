"""Statistics released with noise scaled to their smooth sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.core.guarantee import PureGuarantee
from expost.core.loss import PureLoss
from expost.core.sealed import Sealed, unseal
from expost.core.sensitivity import Sensitivity
from expost.noise.bits import BitSource
from expost.noise.smooth_bound import smooth_quantile_bound
from expost.noise.smooth_sensitivity import SmoothNoise
from expost.noise.sorted_records import Bounds, SortedRecords, is_replace, read_share, records_per_unit

__all__ = ["SmoothInterquartileRange", "SmoothQuantile", "SmoothVariance"]


class _Smooth:
    """What the three statistics share: the noise, the promise and one run."""

    epsilon: Fraction
    bounds: Bounds
    power: int

    @property
    def noise(self) -> SmoothNoise:
        """The noise and its constants."""
        return SmoothNoise(self.epsilon, self.power)

    @property
    def guarantee(self) -> PureGuarantee:
        """The promise."""
        return self.noise.guarantee

    @property
    def loss(self) -> PureLoss:
        """The bill of one release."""
        return self.noise.loss

    def release(self, sealed: Sealed, *, bits: BitSource | None = None) -> int:
        """The noisy statistic in lattice units, clamped to its public range; ``sealed`` holds the integer records."""
        return int(self.simulate(unseal(sealed), sealed.sensitivity, runs=1, bits=bits)[0])

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.int64]:
        """Independent runs on records the caller knows anyway: for audits and planning."""
        raise NotImplementedError


@dataclass(frozen=True)
class SmoothQuantile(_Smooth):
    """A quantile of integer records (the median unless told otherwise) under noise that fits the data at hand.

    Where many records crowd around the quantile the noise is tiny; where there is a hole it is large.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: replace-one, or add/remove (the rank then moves with the number of records, which the bound covers).
    Sensitivity: the number of records one unit has; the records themselves are clamped to public bounds.
    Accuracy: noise of scale steepness times the smooth sensitivity, which is private; compare with
        ExponentialQuantile, whose rank error is bounded beforehand.
    Numerics: see SmoothNoise.
    Reference: NRS07, Claim 3.3 and Lemma 2.5; docs/proofs/smooth-sensitivity.md.

    >>> from expost.core import Adjacency
    >>> from expost.noise import SeededBits
    >>> ages = Sealed(list(range(20, 60)) * 50, Sensitivity(1, adjacency=Adjacency.REPLACE_ONE))
    >>> 30 <= SmoothQuantile(1, Bounds(0, 120)).release(ages, bits=SeededBits(1)) <= 50
    True
    """

    epsilon: Fraction
    bounds: Bounds
    probability: Fraction = Fraction(1, 2)
    power: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "probability", read_share(self.probability))
        object.__setattr__(self, "epsilon", self.noise.epsilon)

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.int64]:
        """Independent runs on records the caller knows anyway: for audits and planning."""
        records = SortedRecords.read(exact, self.bounds)
        rank = records.rank(self.probability)
        bound = smooth_quantile_bound(records, rank, self.noise.smoothness, sensitivity)
        return self.noise.add(int(records.at(np.array([rank]))[0]), bound, self.bounds, runs=runs, bits=bits)


@dataclass(frozen=True)
class SmoothInterquartileRange(_Smooth):
    """The distance of the upper from the lower quartile: a measure of spread that outliers do not move.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: replace-one, or add/remove.
    Sensitivity: the number of records one unit has; the records themselves are clamped to public bounds.
    Accuracy: as SmoothQuantile; the bounds of the two quartiles add.
    Numerics: see SmoothNoise.
    Reference: NRS07, Claim 3.3 and Lemma 2.5; docs/proofs/smooth-sensitivity.md (sums of smooth bounds).

    >>> from expost.core import Adjacency
    >>> from expost.noise import SeededBits
    >>> ages = Sealed(list(range(20, 60)) * 50, Sensitivity(1, adjacency=Adjacency.REPLACE_ONE))
    >>> 0 <= SmoothInterquartileRange(1, Bounds(0, 120)).release(ages, bits=SeededBits(1)) <= 120
    True
    """

    epsilon: Fraction
    bounds: Bounds
    power: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", self.noise.epsilon)

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.int64]:
        """Independent runs on records the caller knows anyway: for audits and planning."""
        records = SortedRecords.read(exact, self.bounds)
        ranks = [records.rank(Fraction(quarter, 4)) for quarter in (1, 3)]
        low, high = records.at(np.array(ranks)).tolist()
        # A sum of two smooth bounds is a smooth bound of the difference.
        bound = sum(smooth_quantile_bound(records, rank, self.noise.smoothness, sensitivity) for rank in ranks)
        return self.noise.add(high - low, bound, Bounds(0, self.bounds.width), runs=runs, bits=bits)


@dataclass(frozen=True)
class SmoothVariance(_Smooth):
    """The variance of integer records in lattice units, times n squared: n sum x^2 - (sum x)^2, an integer.

    The local sensitivity shrinks only as far as the mean is away from the bounds: at best a quarter of the global
    one, which is about what the heavier noise costs. LaplaceMechanism on sum x and sum x^2 is usually as good; this
    is for data known to sit in the middle of wide bounds.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: replace-one only; the number of records, at least two, is public.
    Sensitivity: the number of records one unit has; the records themselves are clamped to public bounds.
    Accuracy: noise of scale steepness times the smooth sensitivity, which is private.
    Numerics: see SmoothNoise.
    Reference: NRS07, Lemma 2.5; docs/proofs/smooth-sensitivity.md (this bound).

    >>> from expost.core import Adjacency
    >>> from expost.noise import SeededBits
    >>> records = Sealed([4, 5, 6] * 100, Sensitivity(1, adjacency=Adjacency.REPLACE_ONE))
    >>> SmoothVariance(1, Bounds(0, 10)).release(records, bits=SeededBits(1)) >= 0
    True
    """

    epsilon: Fraction
    bounds: Bounds
    power: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", self.noise.epsilon)

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.int64]:
        """Independent runs on records the caller knows anyway: for audits and planning."""
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
        return self.noise.add(spread, bound, Bounds(0, -(-count * count * width * width // 4)), runs=runs, bits=bits)

    def _smooth_bound(self, count: int, mean: float, group: int) -> float:
        """The maximum over k of exp(-k smoothness) A_k, A_k the local sensitivity after k units moved the mean."""
        width, smoothness = self.bounds.width, self.noise.smoothness
        # A_k never exceeds four times A_0, so later terms cannot win.
        reach = min(count // group + 1, math.ceil(2 / smoothness))
        k = np.arange(reach + 1)
        # One record moves the statistic by at most (n - 1) max(r, width - r)^2, r the mean of the others.
        far = max(mean, width - mean) + width / (count - 1) + ((k + 1) * group - 1) * width / count
        local = group * (count - 1) * np.minimum(far, width) ** 2
        return float(np.max(np.exp(-smoothness * k) * local))
