"""Private principal components: eigenvectors of a covariance matrix that was released under noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from expost.core import Adjacency, InvalidRequest, explain_arguments, share_parameters
from expost.data.row_source import RowSource
from expost.models.estimator import WRONG_ARGUMENTS, PrivateEstimator
from expost.models.preparation.column_moments import (
    BOX_BITS,
    BoundedColumns,
    ColumnLayout,
    ColumnMoments,
    MomentRelease,
)
from expost.models.preparation.private_transformer import TRANSFORMED_ROWS, PrivateTransformer

__all__ = ["PCA", "ReleasedComponents"]

Floats = NDArray[np.float64]

_MOST_COLUMNS = 1 << 13  # products of grid numbers that float64 adds without rounding


@dataclass(frozen=True, eq=False)
class ReleasedComponents:
    """The released mean and covariance of centered columns with the eigenvectors of the latter, largest first."""

    rows: float
    mean: Floats
    variances: Floats
    components: Floats
    shifts: Floats
    """What the mean is projected to, kept so that a saved model subtracts the same numbers to the last bit."""

    @classmethod
    def of(cls, moments: MomentRelease, deviation: float) -> ReleasedComponents:
        """Compute components from released sums. A noisy matrix may have negative eigenvalues: they count as zero."""
        assert moments.products is not None
        rows = max(moments.rows, 1.0)
        mean = np.clip(moments.sums / rows, -1.0, 1.0)
        eigenvalues, vectors = np.linalg.eigh(moments.products / rows - np.outer(mean, mean))
        components = vectors.T[::-1]
        # The sign of an eigenvector is arbitrary: its largest entry is made positive, as in scikit-learn.
        largest = np.abs(components).argmax(axis=1)
        components = components * np.where(components[np.arange(len(components)), largest] < 0, -1.0, 1.0)[:, None]
        # On the grid, so that a projection is an exact sum, whose last bits do not depend on the rows around it.
        gridded = np.round(components * 2.0**BOX_BITS) * 2.0**-BOX_BITS
        variances = np.maximum(eigenvalues[::-1], 0.0)
        return cls(max(moments.rows, 0.0), mean, variances, gridded, gridded @ mean)

    def __repr__(self) -> str:
        return f"ReleasedComponents({len(self.components)} columns)"


@share_parameters(PrivateTransformer, PrivateEstimator, raises=WRONG_ARGUMENTS)
class PCA(ClassNamePrefixFeaturesOutMixin, PrivateTransformer):  # type: ignore[misc]
    """Project rows on the principal components of a covariance matrix that is released under noise.

    Columns are first scaled to [-1, 1] by their public bounds, so the components do not depend on units. A missing value
    counts as the middle of the bounds. Everything that is reported comes from the released matrix; explained variances
    therefore include the noise, and negative ones count as zero.

    Parameters
    ----------
    n_components : int, optional
        How many components to keep. Default: all. At most 8192 columns can be projected.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The directions, in columns scaled to [-1, 1].
    mean_ : ndarray
        The released means, in the columns' own units.
    explained_variance_ : ndarray
        The released variance along each direction, in columns scaled to [-1, 1].
    explained_variance_ratio_ : ndarray
        The share of the released total variance.
    n_components_ : int
        How many components were kept.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> t = rng.normal(size=20_000)
    >>> X = np.column_stack([t, t + 0.1 * rng.normal(size=20_000), rng.normal(size=20_000)])
    >>> pca = PCA(n_components=2, epsilon=1.0, bounds=(-4, 4), simulation_seed=1).fit(X)
    >>> abs(pca.components_[0]).round(1).tolist(), pca.transform(X).shape
    ([0.7, 0.7, 0.0], (20000, 2))
    """

    @explain_arguments
    def __init__(
        self,
        n_components: int | None = None,
        *,
        epsilon: float | None = None,
        bounds: Any = None,
        delta: float = 0.0,
        ledger: str | None = None,
        account: str | None = None,
        simulation_seed: int | None = None,
    ) -> None:
        self._store_arguments(locals())

    def _build_query(self, source: RowSource, adjacency: Adjacency, columns: BoundedColumns) -> ColumnMoments:
        kept = self._read_count(source.width)
        epsilon, delta = self._read_levels()
        return ColumnMoments(
            question="principal components",
            columns=columns,
            layout=ColumnLayout(source.width, products=True, adjacency=adjacency),
            epsilon=epsilon,
            delta=delta,
            rows=source.rows if adjacency.public_size else None,
            build=ReleasedComponents.of,
            terms={
                "columns": source.width,
                "components": kept,
                "values clipped to": "public bounds",
                "missing values": "the middle of their bounds",
            },
        )

    def _count_outputs(self, width: int) -> int:
        return self._read_count(width)

    def _read_count(self, width: int) -> int:
        if width > _MOST_COLUMNS:
            raise InvalidRequest(f"Expected at most {_MOST_COLUMNS} columns", got=width, do="Select columns first")
        count = width if self.n_components is None else self.n_components
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= width:
            raise InvalidRequest(
                f"Expected n_components to be a whole number from 1 to {width}, the number of columns",
                got=self.n_components,
                do="Keep fewer",
            )
        return int(count)

    def _keep_release(self, value: ReleasedComponents) -> None:
        self.n_components_ = kept = self._read_count(len(value.components))
        self.components_, self.explained_variance_ = value.components[:kept], value.variances[:kept]
        total = float(value.variances.sum())
        self.explained_variance_ratio_ = self.explained_variance_ / total if total > 0 else np.zeros(kept)
        self.mean_ = self._fitted_columns.middles + self._fitted_columns.half_widths * value.mean
        self.n_samples_ = round(value.rows)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _transform_matrix(self, matrix: Any) -> Floats:
        unit = 2.0**-BOX_BITS
        # Integers up to 2^20 on both sides: sums of up to 2^13 products are exact in any order.
        exact = self._fitted_columns.grid_rows(matrix) @ (self.components_ / unit).T
        projected: Floats = exact * unit**2 - self.release_.value.shifts[: self.n_components_]
        return projected

    @share_parameters(TRANSFORMED_ROWS)
    @explain_arguments
    def inverse_transform(self, X: Any) -> Floats:
        """Return the rows that these components stand for, in the columns' own units."""
        check_is_fitted(self, "release_")
        scores = np.asarray(X, dtype=np.float64)
        if scores.ndim != 2 or scores.shape[1] != self.n_components_:
            raise InvalidRequest(f"Expected {self.n_components_} columns, one per component", do="Pass transform(X)")
        rows: Floats = self.mean_ + (scores @ self.components_) * self._fitted_columns.half_widths
        return rows
