"""Private feature selection: the columns that vary most with the target, picked without releasing any score."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from expost.core import (
    Adjacency,
    InvalidRequest,
    Loss,
    Norm,
    Outcome,
    PlanContext,
    PureLoss,
    Receipt,
    Release,
    Sealed,
    Sensitivity,
    Unit,
    explain_arguments,
    share_parameters,
)
from expost.data.row_source import RowSource, plain_numbers
from expost.data.value_place import label_codes
from expost.models.estimator import WRONG_ARGUMENTS, PrivateEstimator, read_target_bounds
from expost.models.preparation.column_moments import BOX_BITS, BoundedColumns
from expost.models.preparation.private_transformer import PrivateTransformer
from expost.noise import BitSource, TopSelection

__all__ = ["ColumnChoice", "SelectKBest"]


@dataclass(frozen=True)
class ColumnChoice:
    """Picks the columns whose covariance with the target is largest in magnitude. Only which columns is released.

    The score of a column is the number of rows times its covariance with the target, |sum (z - mean z)(t - mean t)|, both
    scaled to [-1, 1] by public bounds; with classes, the sum of that over the indicators of the classes, which is how far
    the class means spread around the mean. It is its own plan.

    Guarantee: pure DP with the given epsilon, known before the run.
    Adjacency: add/remove or replace-one, one row, as the table is described.
    Sensitivity: Linf, 4 per score under add/remove and 8 under replace-one, plus one grid unit of rounding.
    Accuracy: none is promised.
    Numerics: exact integer sums; scores are rounded to the grid in exact arithmetic; exact coins.
    Reference: docs/proofs/column-moments.md (sensitivity); MS20, Theorem 1; DR14, Theorem 3.16.
    """

    columns: BoundedColumns
    target_bounds: tuple[float, float] | None
    classes: int
    picks: int
    epsilon: Fraction
    adjacency: Adjacency
    terms: dict[str, Any]
    question: str = "columns that vary most with the target"

    def __post_init__(self) -> None:
        # One that no sampler can draw is refused here, before anything is spent.
        self._mechanism.round.rate(self.sensitivity, candidates=self.columns.width)

    def plan(self, dataset: Any, context: PlanContext) -> ColumnChoice:
        """Return itself."""
        return self

    @property
    def _mechanism(self) -> TopSelection:
        return TopSelection(self.epsilon, picks=self.picks)

    @property
    def sensitivity(self) -> Sensitivity:
        """Return the most that one row can move a score."""
        most = 4 if self.adjacency is Adjacency.ADD_REMOVE else 8
        return Sensitivity(most * 2**BOX_BITS + 1, Norm.LINF, self.adjacency)

    @property
    def worst_case(self) -> Loss:
        """Return the bill, which is known before the run."""
        return PureLoss(self.epsilon)

    def measure(self, source: RowSource) -> Sealed:
        """Compute the scores exactly and seal them."""
        return Sealed(self.score_columns(source), self.sensitivity)

    def score_columns(self, source: RowSource) -> NDArray[Any]:
        """Return the exact score of each column, in grid units. SECRET: the caller must seal it."""
        outputs, width = self.classes or 1, self.columns.width
        total = source.fold(self._sum_chunks, operator.add)
        rows, sums, totals = int(total[0]), total[1 : 1 + width], total[1 + width : 1 + width + outputs]
        cross = total[1 + width + outputs :].reshape(width, outputs)
        # rows * cross - sums * totals = rows * (sum of products of deviations), with 40 fractional bits.
        spread = np.abs(rows * cross - np.outer(sums, totals)).sum(axis=1)
        scores: NDArray[Any] = (spread // max(rows, 1)) >> BOX_BITS
        return scores

    def _sum_chunks(self, chunks: Iterable[tuple[Any, Any, Any]]) -> NDArray[Any]:
        """Sum rows, columns, targets and their products, flat."""
        outputs, width = self.classes or 1, self.columns.width
        total: NDArray[Any] = np.zeros(1 + width + outputs + width * outputs, dtype=object)
        for features, target, _ in chunks:
            grid, aims = self.columns.grid_rows(features), self._grid_targets(target)
            # Integers up to 2^20 in chunks of 2^13 rows: products and their sums are exact in float64.
            parts = np.array([len(grid)]), grid.sum(axis=0), aims.sum(axis=0), (grid.T @ aims).ravel()
            total += np.concatenate(parts).astype(np.int64)
        return total

    def _grid_targets(self, target: Any) -> NDArray[np.float64]:
        """Return one column of targets in [-1, 1], or one indicator per class, as integers of 2^-BOX_BITS."""
        if self.target_bounds is None:
            indicators: NDArray[np.float64] = (np.asarray(target)[:, None] == np.arange(self.classes)) * 2.0**BOX_BITS
            return indicators
        low, high = self.target_bounds
        return BoundedColumns((low,), (high,)).grid_rows(np.asarray(target)[:, None])

    def climb(self, sealed: Sealed, bits: BitSource | None) -> Release[NDArray[np.intp]]:
        """Pick the columns."""
        picked = np.sort(self._mechanism.release(sealed, bits=bits))
        receipt = Receipt(
            question=self.question,
            method="rounds of permute-and-flip by covariance with the target",
            promise=self.worst_case.promise(),
            bill=self.worst_case,
            adjacency=self.adjacency,
            unit=Unit.row(),
            outcome=Outcome.FIXED,
            terms=self.terms,
            citations=("MS20, Theorem 1", "DR14, Theorem 3.16", "docs/proofs/column-moments.md"),
        )
        return Release(picked, receipt)


@share_parameters(PrivateTransformer, PrivateEstimator, raises=WRONG_ARGUMENTS)
class SelectKBest(SelectorMixin, PrivateTransformer):  # type: ignore[misc]
    """Keep the k columns that vary most with the target, chosen privately.

    The score of a column is its covariance with the target in units of the public bounds or, with ``classes``, how far the
    means of the classes spread. No score is released, only which columns were picked: each of the k picks costs
    ``epsilon / k``. Bounds that are far too wide make a column look flat; put ``expost.StandardScaler`` first if they are.
    Missing values count as the middle of the bounds, and a label that is none of the classes belongs to no class.

    Parameters
    ----------
    k : int, default 10
        How many columns to keep.
    target_bounds : (low, high) or float, optional
        Public bounds of a numeric target. Give this or ``classes``.
    classes : sequence, optional
        The public classes of the target.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 6))
    >>> y = X[:, 2] - X[:, 4] + 0.1 * rng.normal(size=5000)
    >>> select = SelectKBest(k=2, epsilon=1.0, bounds=(-1, 1), target_bounds=2.0, simulation_seed=1).fit(X, y)
    >>> select.get_support(indices=True).tolist()
    [2, 4]
    """

    _needs_target = True

    @explain_arguments
    def __init__(
        self,
        k: int = 10,
        *,
        epsilon: float | None = None,
        bounds: Any = None,
        target_bounds: Any = None,
        classes: Sequence[Any] | None = None,
        ledger: str | None = None,
        account: str | None = None,
        simulation_seed: int | None = None,
    ) -> None:
        self._store_arguments(locals())

    def _build_query(self, source: RowSource, adjacency: Adjacency, columns: BoundedColumns) -> ColumnChoice:
        epsilon, _ = self._read_levels()
        count = self.k
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= source.width:
            raise InvalidRequest(
                f"Expected k to be a whole number from 1 to {source.width}, the number of columns",
                got=count,
                do="Keep fewer",
            )
        classes = self._read_classes()
        return ColumnChoice(
            columns=columns,
            target_bounds=read_target_bounds(self.target_bounds) if classes is None else None,
            classes=0 if classes is None else len(classes),
            picks=int(count),
            epsilon=epsilon,
            adjacency=adjacency,
            terms={"columns": source.width, "kept": int(count), "values clipped to": "public bounds"},
        )

    def _count_outputs(self, width: int) -> int:
        return int(self.k)

    def _read_classes(self) -> NDArray[Any] | None:
        """Return the classes, or None for a numeric target; raise unless exactly one of both is declared."""
        if (self.classes is None) == (self.target_bounds is None):
            raise InvalidRequest(
                "Expected either target_bounds, for a numeric target, or classes",
                do="Pass target_bounds=(low, high) or classes=[...]",
            )
        if self.classes is None:
            return None
        classes = np.asarray(list(self.classes) if _is_list(self.classes) else [])
        if classes.ndim != 1 or len(set(classes.tolist())) != len(classes) or len(classes) < 2:
            raise InvalidRequest("Expected at least two different classes", do="Pass classes=[...], the public ones")
        return classes

    def _read_target(self, y: Any) -> Any:
        self._read_classes()  # before the rows
        return self._target_code()(self._read_vector(y))

    def _target_code(self) -> Callable[[Any], Any]:
        classes = self._read_classes()
        return plain_numbers if classes is None else partial(label_codes, classes=classes)

    def _keep_release(self, value: NDArray[np.intp]) -> None:
        self._picked = value

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self, "release_")
        return np.isin(np.arange(self.n_features_in_), self._picked)

    transform = PrivateTransformer.transform  # not that of SelectorMixin, whose messages may repeat cells

    def _transform_matrix(self, matrix: Any) -> Any:
        return matrix[:, self._picked]


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)
