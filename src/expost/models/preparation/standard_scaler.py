"""A private standard scaler: means and variances within public bounds, released once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from expost.core import Adjacency, explain_arguments, share_parameters
from expost.data.row_source import RowSource
from expost.models.estimator import WRONG_ARGUMENTS, PrivateEstimator, check_flag
from expost.models.preparation.column_moments import BoundedColumns, ColumnLayout, ColumnMoments, MomentRelease
from expost.models.preparation.private_transformer import TRANSFORMED_ROWS, PrivateTransformer

__all__ = ["ScaledColumns", "StandardScaler"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ScaledColumns:
    """Released means and variances of columns, in their own units."""

    rows: float
    means: Floats
    variances: Floats

    @classmethod
    def of(cls, moments: MomentRelease, deviation: float, columns: BoundedColumns) -> ScaledColumns:
        """Compute means and variances from released sums; ``deviation`` is that of the noise of each sum."""
        assert moments.squares is not None and moments.missing is not None
        present = np.maximum(moments.rows - np.maximum(moments.missing, 0.0), 1.0)
        mean = np.clip(moments.sums / present, -1.0, 1.0)
        # A variance below the noise cannot be told from zero: the noise stands for it, so that nothing is blown up.
        least = np.minimum(np.maximum(deviation / present, 2.0**-40), 1.0)
        variance = np.clip(moments.squares / present - mean**2, least, 1.0)
        unit = columns.half_widths
        return cls(max(moments.rows, 0.0), columns.middles + unit * mean, unit**2 * variance)

    def __repr__(self) -> str:
        return f"ScaledColumns({len(self.means)} columns)"


@share_parameters(PrivateTransformer, PrivateEstimator, raises=WRONG_ARGUMENTS)
class StandardScaler(OneToOneFeatureMixin, PrivateTransformer):  # type: ignore[misc]
    """Standardize columns by means and variances that are released under noise.

    ``sklearn.preprocessing.StandardScaler`` keeps exact means and variances, which are not private. This one spends
    ``epsilon`` on them. A row may be added or removed, so the number of rows is private and part of what is released; for
    a ``Dataset`` with replace-one adjacency it is public. A missing value is left out of means and variances; ``transform``
    replaces it by the mean, so it becomes 0. Values outside the bounds are moved to the nearest bound, in ``fit`` and in
    ``transform``. A variance that is smaller than its noise is replaced by the noise.

    Parameters
    ----------
    with_mean : bool, default True
        Subtract the mean.
    with_std : bool, default True
        Divide by the standard deviation.

    Attributes
    ----------
    mean_ : ndarray
        The released means.
    var_ : ndarray
        The released variances.
    scale_ : ndarray or None
        Their square roots; None without ``with_std``.
    n_samples_seen_ : int
        The released number of rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.normal(40, 10, 5000), rng.normal(3e4, 5e3, 5000)])
    >>> scaler = StandardScaler(epsilon=1.0, bounds=[(0, 100), (0, 1e5)], simulation_seed=1).fit(X)
    >>> abs(scaler.mean_ - [40, 3e4]) < [1, 1000]
    array([ True,  True])
    >>> scaler.transform(X).std(axis=0).round(1).tolist(), str(scaler.receipt_.bill)
    ([1.0, 1.0], 'epsilon 1')
    """

    @explain_arguments
    def __init__(
        self,
        *,
        epsilon: float | None = None,
        bounds: Any = None,
        delta: float = 0.0,
        with_mean: bool = True,
        with_std: bool = True,
        ledger: str | None = None,
        account: str | None = None,
        simulation_seed: int | None = None,
    ) -> None:
        self._store_arguments(locals())

    def _build_query(self, source: RowSource, adjacency: Adjacency, columns: BoundedColumns) -> ColumnMoments:
        check_flag(self.with_mean, "with_mean")
        check_flag(self.with_std, "with_std")
        epsilon, delta = self._read_levels()
        return ColumnMoments(
            question="means and variances of columns",
            columns=columns,
            layout=ColumnLayout(source.width, adjacency=adjacency),
            epsilon=epsilon,
            delta=delta,
            rows=source.rows if adjacency.public_size else None,
            build=lambda moments, deviation: ScaledColumns.of(moments, deviation, columns),
            terms={"columns": source.width, "values clipped to": "public bounds", "missing values": "left out"},
        )

    def _keep_release(self, value: ScaledColumns) -> None:
        self.mean_, self.var_ = value.means, value.variances
        self.scale_ = np.sqrt(value.variances) if self.with_std else None
        self.n_samples_seen_ = round(value.rows)

    def _transform_matrix(self, matrix: Any) -> Floats:
        rows = self._fitted_columns.clip_rows(matrix, self.mean_)
        if self.with_mean:
            rows -= self.mean_
        if self.scale_ is not None:
            rows /= self.scale_
        return rows

    @share_parameters(TRANSFORMED_ROWS)
    @explain_arguments
    def inverse_transform(self, X: Any) -> Floats:
        """Return standardized rows in their own units."""
        check_is_fitted(self, "release_")
        rows = np.array(self._read_matrix(X, fitting=False), dtype=np.float64)
        if self.scale_ is not None:
            rows *= self.scale_
        return rows + self.mean_ if self.with_mean else rows
