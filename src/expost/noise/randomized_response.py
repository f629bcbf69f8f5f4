"""Randomised response: each person's category, true or a lie, by a public rule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expost.core.adjacency import Adjacency
from expost.core.errors import InvalidRequest
from expost.core.sealed import Sealed, unseal
from expost.core.sensitivity import Sensitivity
from expost.noise.bernoulli import bernoulli_exp
from expost.noise.bits import BitSource, source_of
from expost.noise.lattice import compact_integers
from expost.noise.pure_mechanism import PureMechanism
from expost.noise.uniform import draw_uniform

__all__ = ["RandomizedResponse"]


@dataclass(frozen=True)
class RandomizedResponse(PureMechanism):
    """Keeps each record's category with probability proportional to 1, makes it any other one with exp(-epsilon).

    Records are numbers from 0 to ``categories`` - 1. The answer has one entry a record, so the number of records is
    public.

    Guarantee: pure DP with the given epsilon for all records of one unit together, known before the run.
    Adjacency: replace-one only; under add/remove the length of the answer would tell who takes part.
    Sensitivity: the number of records one unit has.
    Accuracy: estimate(...) is unbiased; its standard error is standard_error(...).
    Numerics: exact; a proposal is uniform, and a lie is kept with an exact coin of probability exp(-epsilon).
    Reference: War65 and DR14, Claim 3.5 (two categories); for several, the probabilities of one answer under two
        truths are in the ratio 1, exp(epsilon) or exp(-epsilon) by construction.

    >>> from expost.noise import SeededBits
    >>> records = Sealed([0, 2, 1], Sensitivity(1, adjacency=Adjacency.REPLACE_ONE))
    >>> RandomizedResponse(2, categories=3).release(records, bits=SeededBits(1)).shape
    (3,)
    """

    categories: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.categories, bool) or not isinstance(self.categories, int) or self.categories < 2:
            raise InvalidRequest("Expected at least two categories", got=self.categories, do="Pass their number")

    def release(self, sealed: Sealed, *, bits: BitSource | None = None) -> NDArray[np.int64]:
        """One category a record, true or not."""
        answers: NDArray[np.int64] = self.simulate(unseal(sealed), sealed.sensitivity, runs=1, bits=bits)[0]
        return answers

    def simulate(
        self, exact: object, sensitivity: Sensitivity, *, runs: int, bits: BitSource | None = None
    ) -> NDArray[np.int64]:
        """Independent runs on records the caller knows anyway, one a row: for audits and planning."""
        if sensitivity.adjacency is not Adjacency.REPLACE_ONE:
            raise InvalidRequest(
                "Expected replace-one adjacency",
                got=sensitivity.adjacency.value,
                do="Make the number of records public",
            )
        records = self._records(exact)
        truth = np.tile(records.ravel(), runs)
        answers = self._answers(truth, self.epsilon / sensitivity.amount, source_of(bits))
        return answers.reshape(runs, *records.shape)

    def _records(self, exact: object) -> NDArray[np.int64]:
        records = compact_integers(exact)
        # A category out of range is counted as the nearest one: an error would tell that it is there.
        clamped: NDArray[np.int64] = np.clip(records, 0, self.categories - 1).astype(np.int64)
        return clamped

    def _answers(self, truth: NDArray[np.int64], epsilon: Fraction, bits: BitSource) -> NDArray[np.int64]:
        """The truth moved around the circle of categories: by 0, or by a step that an exact coin keeps.

        Steps are drawn without a look at the truth, so neither their number nor their time depends on it.
        """
        steps = np.empty_like(truth)
        pending = np.arange(truth.size)
        while pending.size:
            proposed = draw_uniform(np.full(pending.size, self.categories, dtype=np.uint64), bits)
            steps[pending] = proposed
            pending = pending[(proposed != 0) & ~bernoulli_exp(epsilon, pending.size, bits=bits)]
        answers: NDArray[np.int64] = (truth + steps) % self.categories
        return answers

    def _probabilities(self, records_per_unit: int) -> tuple[float, float]:
        """The probability of the truth and of each lie."""
        lie = math.exp(-self.epsilon / records_per_unit)
        total = 1 + (self.categories - 1) * lie
        return 1 / total, lie / total

    def estimate(self, answers: ArrayLike, *, records_per_unit: int = 1) -> NDArray[np.float64]:
        """The share of each category among the true records, unbiased; post-processing, so entries may leave [0, 1]."""
        seen: NDArray[Any] = np.bincount(np.asarray(answers).ravel(), minlength=self.categories)
        truth, lie = self._probabilities(records_per_unit)
        shares: NDArray[np.float64] = (seen / max(seen.sum(), 1) - lie) / (truth - lie)
        return shares

    def standard_error(self, records: int, *, records_per_unit: int = 1) -> float:
        """The largest standard error of one entry of ``estimate``, whatever the records."""
        truth, lie = self._probabilities(records_per_unit)
        # A sum of coins of probability truth or lie; each has a variance of at most that of the one nearer to 1/2.
        worst = max(p * (1 - p) for p in (truth, lie))
        return math.sqrt(worst / records) / (truth - lie)
