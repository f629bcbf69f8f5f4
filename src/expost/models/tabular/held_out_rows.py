"""Promises about a population: rows that are dealt to training and to one test, and what sampling may hide from that test."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri, rel_entr

from expost.core import Measure, Target
from expost.data.row_identity import Names, RowCensus, RowIdentity
from expost.models.tabular.score_confirmation import Confirmation, OpenSums
from expost.models.tabular.score_sum import MeasuredScore, ScoreSum
from expost.models.tabular.table_profile import RowBlocks, TableProfile
from expost.models.tabular.tabular_rows import RowChunk
from expost.noise import BitSource

__all__ = [
    "HELD_OUT",
    "SAMPLED",
    "SURE",
    "DealtRows",
    "HeldOutConfirmation",
    "find_sampling_deviation",
    "find_sampling_margin",
]

HELD_OUT = 0.3
"""The probability with which a row is held out for the test."""
SAMPLED = 0.5
"""Share of the failure probability for sampling; the rest is for noise."""
SURE = 1.3
"""Deviations below what the training suggests, at which the one test must still pass to be worth making."""
_ODDS = HELD_OUT / (1 - HELD_OUT)
_WORDS, _SIDE_BITS = 4, 32
_COUNTED = 0.1  # of that, for each of the three counts that bound the number of rows held out


class DealtRows:
    """Rows dealt to training and to testing, each by itself and the same in every reading (docs/proofs/row-identity.md).

    Parameters
    ----------
    blocks : callable
        Reads all rows.
    bits : BitSource
        Draws the secret that decides.
    """

    def __init__(self, blocks: RowBlocks, bits: BitSource) -> None:
        self._blocks = blocks
        self._identity = RowIdentity(np.asarray(bits.words(_WORDS), np.uint64).tobytes())
        census = RowCensus()
        for rows in blocks():
            census.add(self._name(rows))
        self._census = census.finish()

    def training(self) -> Iterator[RowChunk]:
        """Yield the rows that a model learns from."""
        return self._read(held_out=False)

    def held_out(self) -> Iterator[RowChunk]:
        """Yield the rows that a model is tested with."""
        return self._read(held_out=True)

    def _read(self, *, held_out: bool) -> Iterator[RowChunk]:
        dealt = self._census.start_pass(self._identity)
        for rows in self._blocks():
            sides = (dealt.next_coins(self._name(rows)) >> np.uint64(_SIDE_BITS)) < HELD_OUT * 2.0**_SIDE_BITS
            yield RowChunk(*(part[sides == held_out] for part in rows))

    def _name(self, rows: RowChunk) -> Names:
        return self._identity.name_rows([rows.features, np.asarray(rows.targets)])

    def __repr__(self) -> str:
        return "<rows of a private table>"


def find_sampling_margin(sums: ScoreSum, profile: TableProfile, failure: float) -> float:
    """Return what the deciding sum over the rows held out exceeds by chance with this probability at most.

    It holds for a model that misses the target on the population. ``profile`` is that of the rows of the training.
    """
    assert sums.target is not None
    rest = _COUNTED * failure
    unlikely, chance = -math.log(rest), -math.log(failure - 3 * rest)
    trained = profile.most_rows(1 - float(ndtri(rest)))
    # (1 - s) n - sqrt(n L / 2) <= trained except with probability exp(-L), and likewise for the rows held out.
    root = math.sqrt(unlikely / 2)
    rows = ((root + math.sqrt(root**2 + 4 * (1 - HELD_OUT) * trained)) / (2 * (1 - HELD_OUT))) ** 2
    tested = HELD_OUT * rows + root * math.sqrt(rows)
    if sums.target.measure is not Measure.ACCURACY:
        return sums.span * math.sqrt(tested * chance / 2)
    level = float(sums.target.tolerance)

    def find_excess(share: float) -> float:
        return tested * float(rel_entr(share, level) + rel_entr(1 - share, 1 - level)) - chance

    if find_excess(1.0) <= 0:
        return tested * (1 - level)
    return tested * (float(brentq(find_excess, level, 1.0)) - level) * (1 + 1e-9)


def find_sampling_deviation(sums: ScoreSum, tested: TableProfile) -> float:
    """Return about how far the deciding sum over the rows held out is from what the training suggests, by chance.

    Zero for other scores than the accuracy: their margins are worst cases, many times that wide.
    """
    if sums.target is None or sums.target.measure is not Measure.ACCURACY:
        return 0.0
    level = float(sums.target.tolerance)
    return math.sqrt(tested.rows * level * (1 - level))


class HeldOutConfirmation(Confirmation):
    """Tests one model on rows that it has not seen, so that the promise is about the population that rows are drawn from.

    The rows held out are read by nothing else than the looks at this model. So the model is independent of them, and its score
    on them differs from that on the population by sampling alone (docs/proofs/tabular-models.md, Theorem 7).
    """

    def __init__(self, target: Target, failure_probability: Fraction, cap: Fraction) -> None:
        super().__init__(target, failure_probability * Fraction(1 - SAMPLED), cap, most_models=1)
        self._sampled = float(failure_probability) * SAMPLED
        self._whole: TableProfile | None = None

    def find_tested(self, profile: TableProfile) -> TableProfile:
        """Return the profile of the rows held out."""
        counted = math.hypot(profile.rows_error, math.sqrt(profile.rows / (1 - HELD_OUT) / HELD_OUT))
        return replace(profile, rows=profile.rows * _ODDS, rows_error=counted * _ODDS)

    def confirm(
        self,
        score: MeasuredScore,
        sums: ScoreSum,
        profile: TableProfile,
        source: OpenSums,
        trained: Fraction,
        *,
        following: Fraction | None,
    ) -> str:
        """Test the model if that is worth its price; return why the training ends, or an empty text if it goes on."""
        if profile is not self._whole:
            self._whole, self._part = profile, self.find_tested(profile)
        self._hidden = find_sampling_margin(sums, profile, self._sampled)
        sampling = find_sampling_deviation(sums, self._part)

        def lower(surplus: float, deviation: float) -> tuple[float, float]:
            """Return a sum over the rows held out that is likely to be exceeded, since they test one model only."""
            found = math.hypot(deviation * _ODDS, sampling)
            return surplus * _ODDS - SURE * found, found

        surplus, deviation = lower(score.surplus, score.deviation)
        guide = None if score.guide is None else lower(*score.guide)
        scaled = replace(score, surplus=surplus, deviation=deviation, guide=guide, predictions=None)
        reason = super().confirm(scaled, sums, self._part, source, trained, following=following)
        return reason if reason or not self.looks else _TESTED_ONCE


_TESTED_ONCE = "the model did not pass its test; rows that are held out test one model only, so that the promise is about a population"
