"""Propose-test-release: test privately that the data are far from instability, then answer with little or no noise."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import ApproxGuarantee, ApproxLoss, InvalidRequest, Norm, Sealed, Sensitivity, unseal
from expost.core.rational import probability as read_probability
from expost.core.rational import rational
from expost.noise.bits import BitSource, resolve_bits
from expost.noise.exponential_quantile import LatticeBounds, SortedRecords, is_replace, read_share, records_per_unit
from expost.noise.lattice import add_exactly
from expost.noise.lattice_sampler import sample_laplace
from expost.noise.parameter import sensitivity_in, share_noise_parameters
from expost.noise.selection_mechanism import read_scores

__all__ = ["ProposedQuantile", "StableMode", "passing_line"]

_FARTHEST = 1 << 61
_MARGIN = 1 + 1e-9  # for logarithms computed in floats
_REFUSED = -1  # how ``StableMode.simulate`` marks a run that answered nothing


def passing_line(epsilon: Fraction, delta: Fraction) -> int:
    """Return the smallest line that discrete Laplace noise of scale 1 / epsilon exceeds with probability at most delta.

    >>> passing_line(Fraction(1), Fraction(1, 10**6))
    13
    """
    # P(noise > t) = a^(t+1) / (1 + a), a = exp(-epsilon).
    tail = (math.log(1 / delta) - math.log1p(math.exp(-epsilon))) / float(epsilon)
    return max(math.ceil(tail * _MARGIN) - 1, 0)


def _test_distance(distance: int, epsilon: Fraction, delta: Fraction, runs: int, bits: BitSource) -> NDArray[np.bool_]:
    """Test a distance that one unit moves by at most 1: with noise it must pass a line that 0 passes too rarely."""
    noise = sample_laplace(1 / epsilon, runs, bits=bits)
    # A cap moves with its distance by at most 1 too, and keeps the sum within 64 bits.
    passed: NDArray[np.bool_] = (min(distance, _FARTHEST) + noise > passing_line(epsilon, delta)).astype(bool)
    return passed


@dataclass(frozen=True)
class _TestedMechanism:
    """What both mechanisms share: exact parameters, the promise and the bill."""

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", rational(self.epsilon, "epsilon"))
        object.__setattr__(self, "delta", read_probability(self.delta, "delta"))

    @property
    def guarantee(self) -> ApproxGuarantee:
        """The promise before the run."""
        return ApproxGuarantee(self.epsilon, self.delta)

    @property
    def loss(self) -> ApproxLoss:
        """The bill of one release."""
        return ApproxLoss(self.epsilon, self.delta)


@share_noise_parameters
@dataclass(frozen=True)
class StableMode(_TestedMechanism):
    """The most common category, exactly, if it leads by enough; else nothing.

    Guarantee: (epsilon, delta)-DP, known before the run; a refusal is an answer too.
    Adjacency: whichever one the sensitivity was computed for.
    Sensitivity: L1 of the histogram (1 for add/remove, 2 for replace, times the records a unit has).
    Accuracy: the true mode, or None; needed_lead(...) is a lead that suffices.
    Numerics: exact; integer counts and noise, the line of the test is rounded up.
    Reference: DL09, section 3 (the scheme); DR14, Propositions 7.2 and 7.3 (distance to instability);
        docs/proofs/propose-test-release.md (integers, this distance).

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> StableMode(1, 1e-6).release(Sealed([40, 300, 10], Sensitivity(1)), bits=SeededBits(1))
    1
    >>> StableMode(1, 1e-6).release(Sealed([40, 41, 10], Sensitivity(1)), bits=SeededBits(1)) is None
    True
    """

    @share_noise_parameters
    def release(self, sealed: Sealed, *, bits: BitSource | None = None) -> int | None:
        """Release the index of the most common category, or None; ``sealed`` has one count per category."""
        mode = int(self.simulate(unseal(sealed), sealed.sensitivity, runs=1, bits=bits)[0])
        return None if mode == _REFUSED else mode

    @share_noise_parameters
    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.intp]:
        """Run on counts that the caller has anyway: one index per run, -1 where nothing was answered."""
        counts = read_scores(exact)
        if counts.size < 2:
            raise InvalidRequest("Expected at least two categories", do="Pass their counts")
        distance = self._count_units(counts, sensitivity)
        passed = _test_distance(distance, self.epsilon, self.delta, runs, resolve_bits(bits))
        return np.where(passed, int(np.argmax(counts)), _REFUSED)

    def _count_units(self, counts: NDArray[Any], sensitivity: Sensitivity) -> int:
        """Count the units that must change, at least, before an adjacent table can have another mode."""
        # The lead must be lost before another category can win; the unit that loses the last of it is not counted.
        second, first = (int(count) for count in sorted(counts.tolist())[-2:])
        # docs/proofs/propose-test-release.md: one unit moves the lead by at most its L1 sensitivity.
        moved = sensitivity_in(Norm.L1, sensitivity, counts.size)
        return max(math.ceil((first - second) / moved) - 1, 0)

    @share_noise_parameters
    def needed_lead(self, sensitivity: Sensitivity, failure_probability: float | Fraction) -> int:
        """Return a lead over the second category that passes the test except with ``failure_probability``."""
        share = float(read_probability(failure_probability, "failure_probability"))
        # The noise falls below -t with probability at most exp(-epsilon t), so a distance of line + 1 + t passes.
        below = max(math.ceil(math.log(1 / share) / float(self.epsilon)), 0)
        steps = passing_line(self.epsilon, self.delta) + 1 + below
        return math.ceil((steps + 1) * Fraction(sensitivity.amount))


@share_noise_parameters
@dataclass(frozen=True)
class ProposedQuantile(_TestedMechanism):
    """A quantile under Laplace noise for a *proposed* local sensitivity, if the data are far from exceeding it.

    Half of epsilon tests how many units would have to change before one unit could move the quantile by more than the
    proposal; the other half pays for noise of scale proposal / (epsilon / 2).

    Guarantee: (epsilon, delta)-DP, known before the run; a refusal is an answer too.
    Adjacency: replace-one, or add/remove (the rank then moves with the number of records, which the windows cover).
    Sensitivity: the number of records one unit has; the records themselves are clamped to public bounds.
    Accuracy: None, or an error of at most half_width(...) with probability 1 - failure_probability.
    Numerics: exact; integer records and noise, the line of the test is rounded up.
    Reference: DL09, section 3; DR14, Proposition 7.2; docs/proofs/propose-test-release.md (windows of ranks).

    Parameters
    ----------
    proposal : int
        The proposed local sensitivity in lattice units, at least 1.

    Examples
    --------
    >>> from expost.noise import SeededBits
    >>> ages = Sealed(list(range(20, 60)) * 50, Sensitivity(1))
    >>> median = ProposedQuantile(1, 1e-6, LatticeBounds(0, 120), proposal=2)
    >>> abs(median.release(ages, bits=SeededBits(1)) - 39) < 30
    True
    """

    bounds: LatticeBounds
    _: KW_ONLY
    proposal: int
    probability: Fraction = Fraction(1, 2)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "probability", read_share(self.probability))
        if isinstance(self.proposal, bool) or not isinstance(self.proposal, int) or self.proposal < 1:
            raise InvalidRequest("Expected a proposal of at least 1", got=self.proposal, do="Pass it in lattice units")

    @share_noise_parameters
    def release(self, sealed: Sealed, *, bits: BitSource | None = None) -> int | None:
        """Release the noisy quantile of the records within the bounds, in lattice units, or None."""
        passed, values = self.simulate(unseal(sealed), sealed.sensitivity, runs=1, bits=bits)
        return int(values[0]) if passed[0] else None

    @share_noise_parameters
    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Run on records that the caller has anyway: which runs passed the test, and their values."""
        source, records = resolve_bits(bits), SortedRecords.read(exact, self.bounds)
        rank, half = records.rank(self.probability), self.epsilon / 2
        passed = _test_distance(self._count_units(records, rank, sensitivity), half, self.delta, runs, source)
        # Drawn whether or not the test passed: the bits used must not depend on the outcome.
        noise = sample_laplace(self.proposal / half, runs, bits=source)
        noisy = np.clip(add_exactly(records.at(np.array([rank])), noise), self.bounds.low, self.bounds.high)
        return passed, np.where(passed, noisy, self.bounds.low).astype(np.int64)

    def _count_units(self, records: SortedRecords, rank: int, sensitivity: Sensitivity) -> int:
        """Find the number of units k whose change may open a window of (k + 1) units' records beyond the proposal."""
        group, symmetric = records_per_unit(sensitivity), not is_replace(sensitivity)
        # Bisection: a wider window can only be larger, so the property is monotone in k.
        low, high = -1, len(records) // group + 1  # beyond it the window spans the bounds
        while high - low > 1:
            middle = (low + high) // 2
            reach = (middle + 1) * group
            # Adding or removing records moves the rank too, so the window is taken on both sides at once.
            if symmetric:
                left, right = records.at(np.array([rank - reach, rank + reach])).tolist()
                widest = right - left
            else:
                widest = records.widest_window(rank, reach)
            low, high = (low, middle) if widest > self.proposal else (middle, high)
        return high

    @share_noise_parameters
    def half_width(self, failure_probability: float | Fraction) -> int:
        """Return how far an answer is from the quantile at most, except with ``failure_probability``."""
        share = float(read_probability(failure_probability, "failure_probability"))
        return math.ceil(2 * self.proposal / float(self.epsilon) * math.log(1 / share) * _MARGIN)
