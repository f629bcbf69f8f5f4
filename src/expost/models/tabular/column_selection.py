"""Columns that are kept for a training: those that vary most with the target, chosen from one noisy release."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Ladder, Loss, PlanContext, PureLoss, Receipt, Release
from expost.core.release import add_losses
from expost.models.tabular.encoded_shape import EncodedShape
from expost.models.tabular.laplace_sum import LaplaceSum
from expost.models.tabular.lattice_sum import LatticeSum
from expost.models.tabular.table_encoder import TableEncoder
from expost.models.tabular.table_model import TableModel
from expost.models.tabular.table_profile import RowBlocks, sum_blocks
from expost.models.tabular.tabular_rows import RowChunk
from expost.noise import BitSource
from expost.noise.mechanism import largest_mu

__all__ = ["ColumnSelection", "SelectFirst", "read_select", "selection_noise", "split_for_selection"]

Floats = NDArray[np.float64]
_SIDE = 0.5  # weight of counts, means and squares in a row's vector, beside 1 for the products that decide
_SHARE = Fraction(1, 10)  # of a given epsilon, or of its squared Gaussian parameter
# In a training to a score, whatever the cap, so that prices are monotone: the Gaussian release has the noise of this epsilon.
_EPSILON, _PURE_EPSILON = Fraction(3, 100), Fraction(1, 20)
_DELTA_SHARE = 16
_SURE = 3.0  # deviations below which the variance of a feature is not told from zero
_LEAST_VARIANCE = 1e-4
_VALUES = 1 << 22  # of the vectors of a block of rows


def read_select(select: Any, columns: int) -> int | None:
    """Return how many columns to keep, or None for all.

    >>> read_select(2, 5), read_select(5, 5)
    (2, None)
    """
    if select is None:
        return None
    if isinstance(select, bool) or not isinstance(select, int | np.integer) or not 1 <= select <= columns:
        raise InvalidRequest(
            f"Expected select to be a whole number from 1 to {columns}, the number of declared columns",
            got=select,
            do="Pass how many columns to keep, or leave it out",
        )
    return None if select == columns else int(select)


def selection_noise(cap: Fraction, delta: Fraction, *, fixed: bool) -> Fraction:
    """Return the noise multiplier of a selection before Newton steps, at a given epsilon or in a training to a score."""
    if fixed:
        square = float(_SHARE) * largest_mu(float(cap), float(delta)) ** 2
    else:
        square = largest_mu(float(_EPSILON), float(delta) / _DELTA_SHARE) ** 2
    return Fraction(math.ceil(10**4 / math.sqrt(square)), 10**4)


def split_for_selection(cap: Fraction, *, fixed: bool) -> tuple[Fraction, Fraction]:
    """Return epsilon of a pure selection, and what is left for the training.

    >>> split_for_selection(Fraction(1), fixed=True)
    (Fraction(1, 10), Fraction(9, 10))
    """
    epsilon = cap * _SHARE if fixed else _PURE_EPSILON
    if 2 * epsilon > cap:
        raise InvalidRequest(
            f"Expected a cap of at least {float(2 * epsilon)} with select", got=float(cap), do="Raise max_epsilon"
        )
    return epsilon, cap - epsilon


@dataclass(frozen=True, kw_only=True)
class ColumnSelection:
    """Chooses the ``picks`` columns whose features explain most of the target, one column at a time.

    A row's vector has a one, its target t (one entry per class if there are several), its features f, their squares
    and the products t f. The sum of these vectors is released once; everything else follows from it. The score of a column
    is the sum over its features of squared covariance over variance, less what noise adds to it on average.

    Guarantee: one Gaussian event of ``noise``, or pure epsilon-DP with ``epsilon``, known before the run.
    Adjacency: add/remove of one unit, whose rows share a weight of 1.
    Sensitivity: L2 or L1, that of ``LatticeSum`` and ``LaplaceSum`` for vectors of length ``longest``.
    Accuracy: none promised.
    Numerics: exact integer sums and noise; scores are floats computed from released numbers.
    Reference: docs/proofs/column-selection.md.
    """

    encoder: TableEncoder
    picks: int
    classes: int | None
    rows_per_unit: int
    noise: Fraction | None = None
    epsilon: Fraction = Fraction(0)

    @cached_property
    def shape(self) -> EncodedShape:
        """Return the public set that the encoded rows lie in."""
        return EncodedShape.of(self.encoder)

    @property
    def outputs(self) -> int:
        """Return the number of targets: one for a number and for two classes."""
        return 1 if self.classes in (None, 2) else int(self.classes or 1)

    @cached_property
    def lattice(self) -> LatticeSum | LaplaceSum:
        """Return the lattice of the sum."""
        # |t| <= 1, so products are no longer than the features, and so are the squares of features within [-1, 1].
        size = 1 + self.outputs + self.shape.width * (2 + self.outputs)
        if self.noise is None:
            return LaplaceSum(size, _SIDE * 2 + (2 * _SIDE + 1) * self.shape.absolute_length, self.rows_per_unit)
        longest = math.sqrt(_SIDE**2 * 2 + (2 * _SIDE**2 + 1) * self.shape.squared_length)
        return LatticeSum(size, longest, self.rows_per_unit)

    def write_vectors(self, rows: RowChunk) -> Floats:
        """Return the vectors of rows."""
        features = np.asarray(rows.features, np.float64)
        if self.classes is None:
            targets = np.asarray(rows.targets, np.float64)[:, None]
        elif self.outputs == 1:
            known = np.asarray(rows.targets)
            targets = np.where(known < 0, 0.0, 2.0 * known - 1.0)[:, None]
        else:
            targets = (np.asarray(rows.targets)[:, None] == np.arange(self.classes)).astype(np.float64)
        products = (targets[:, :, None] * features[:, None, :]).reshape(len(features), -1)
        sides = [np.ones((len(features), 1)), targets, features, features**2]
        return np.concatenate([_SIDE * each for each in sides] + [products], axis=1)

    def release_sums(self, blocks: RowBlocks, bits: BitSource) -> Floats:
        """Return the noisy sums over all rows."""
        lattice = self.lattice
        total = sum_blocks(blocks, self._sum_chunks)
        if isinstance(lattice, LaplaceSum):
            return lattice.release(total, self.epsilon, bits)
        assert self.noise is not None
        return lattice.release(total, self.noise, bits)

    def _sum_chunks(self, chunks: Iterable[RowChunk]) -> NDArray[np.int64]:
        lattice = self.lattice
        total, step = lattice.start(), max(1, _VALUES // lattice.size)
        for rows in chunks:
            for start in range(0, len(rows.targets), step):
                part = RowChunk(*(each[start : start + step] for each in rows))
                lattice.add(total, self.write_vectors(part), part.weights)
        return total

    def score_columns(self, sums: Floats) -> Floats:
        """Return the score of each column, from the released sums alone."""
        width, outputs = self.shape.width, self.outputs
        ends = np.cumsum([1, outputs, width, width])
        count, targets, features, squares = np.split(sums[: ends[-1]] / _SIDE, ends[:-1])
        rows = max(float(count[0]), 1.0)
        means, middles = np.clip(features / rows, -1.0, 1.0), np.clip(targets / rows, -1.0, 1.0)
        products = sums[ends[-1] :].reshape(outputs, width) / rows
        error = self._deviation / rows
        # Indicators are their own squares, so that one formula serves all features.
        variances = np.maximum(squares / rows - means**2, max(_SURE * error, _LEAST_VARIANCE))
        explained = ((products - np.outer(middles, means)) ** 2 - error**2).sum(axis=0) / variances
        return np.asarray(np.add.reduceat(explained, self.shape.starts), np.float64)

    @property
    def _deviation(self) -> float:
        """Return the standard deviation of the noise of an entry."""
        if isinstance(self.lattice, LaplaceSum):
            return self.lattice.deviation(self.epsilon)
        assert self.noise is not None
        return self.lattice.deviation(self.noise)

    def choose(self, blocks: RowBlocks, bits: BitSource) -> tuple[str, ...]:
        """Return the columns with the largest scores, in the order of the encoder."""
        scores = self.score_columns(self.release_sums(blocks, bits))
        best = np.sort(np.argsort(-scores, kind="stable")[: self.picks])
        return tuple(self.encoder.names_in[place] for place in best)

    def describe(self, chosen: tuple[str, ...]) -> Mapping[str, Any]:
        """Return the lines of a receipt about the choice."""
        return {"selected columns": list(chosen), "selected from": f"{len(self.encoder.names_in)} declared columns"}


@dataclass(frozen=True, kw_only=True)
class SelectFirst:
    """A training on the columns that a selection chooses: first the choice, then the training with them.

    ``train`` returns the training with some columns; it raises nothing that it did not raise for all of them. ``whole`` is
    the training with all columns. With Newton steps the selection is a Gaussian event that the schedule of the training
    has among its own; a pure one is added to the bill.

    Guarantee: that of the training, which has the selection among its events, or is pure and has its epsilon added.
    Adjacency: add/remove of one unit.
    Sensitivity: that of each stage.
    Accuracy: that of the training.
    Numerics: that of each stage.
    Reference: docs/proofs/column-selection.md.
    """

    selection: ColumnSelection
    read: Callable[[Any], RowBlocks]
    train: Callable[[tuple[str, ...]], Any]
    whole: Any

    @property
    def question(self) -> str:
        return str(self.whole.question)

    def plan(self, dataset: Any, context: PlanContext) -> SelectFirst:
        """Return this plan, with the tests that the accounts can be charged for at the least price."""
        return replace(
            self,
            train=lambda chosen: self.train(chosen).plan(dataset, context),
            whole=self.whole.plan(dataset, context),
        )

    @property
    def _added(self) -> PureLoss | None:
        """Return what the selection adds to the bill of the training."""
        return PureLoss(self.selection.epsilon) if self.selection.noise is None else None

    @property
    def worst_case(self) -> Loss:
        return add_losses(self.whole.worst_case, self._added)

    @property
    def event(self) -> Any:
        """Return all releases that the cap allows; None for a pure training, whose loss says it all."""
        return None if self._added else self.whole.event

    def event_of(self, receipt: Receipt) -> Any:
        """Return the releases that ran."""
        return None if self._added else self.whole.event_of(receipt)

    def check(self) -> None:
        """Raise ``InvalidRequest`` if the noise of a stage cannot be drawn; reads no rows."""
        self.whole.check()
        lattice = self.selection.lattice
        if isinstance(lattice, LaplaceSum):
            lattice.check_levels(Ladder((self.selection.epsilon,)))
        elif self.selection.noise is not None:
            lattice.check_noise(self.selection.noise)

    def measure(self, dataset: Any) -> Any:
        return dataset

    def climb(self, sealed: Any, bits: BitSource) -> Release[TableModel]:
        """Choose the columns, then train with them."""
        chosen = self.selection.choose(self.read(sealed), bits)
        training = self.train(chosen)
        release: Release[TableModel] = training.climb(training.measure(sealed), bits)
        receipt = release.receipt
        parts = dict(receipt.breakdown)
        if self._added is not None:
            parts = {"selection": self.selection.epsilon, **(parts or {"training": receipt.bill.amounts()["epsilon"]})}
        changed = replace(
            receipt,
            promise=self.worst_case.promise(),
            bill=add_losses(receipt.bill, self._added),
            breakdown=parts,
            terms={**receipt.terms, **self.selection.describe(chosen)},
            citations=(*receipt.citations, "docs/proofs/column-selection.md"),
        )
        return replace(release, receipt=changed)
