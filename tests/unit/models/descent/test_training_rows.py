"""Rows that are read where they lie give the sums of rows in memory, however they are parted."""

from functools import partial, reduce
from typing import Any

import numpy as np
import pytest

from expost.data.row_source import RowSource
from expost.models.descent.clipped_gradient import ClippedGradient
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.descent.score_head import Softmax
from expost.models.descent.training_rows import GatheredRows, StreamedRows


def source_of(features: np.ndarray, targets: np.ndarray, part: int) -> RowSource:
    """Return rows whose results are merged in parts, as executors do."""
    spans = [slice(start, start + part) for start in range(0, len(features), part)]

    def reduce_parts(function: Any, merge: Any, secret: bytes) -> Any:
        return reduce(merge, [function([(features[span], targets[span], None)]) for span in spans])

    return RowSource(
        len(features),
        features.shape[1],
        None,
        lambda: iter([(features, targets)]),
        reduce=reduce_parts,
        distributed=True,
    )


@pytest.mark.parametrize("part", [1, 300, 320, 1000])
@pytest.mark.parametrize("expected", [np.inf, 100.0])
def test_parts_of_rows_that_all_pull_one_way_add_up_beyond_32_bits(part: int, expected: float) -> None:
    grid = FeatureGrid(299, bound=1.0)
    gradient = ClippedGradient(grid, Softmax(4), 0.01, 1.0, expected_rows=expected)
    features, targets = np.zeros((2000, 299)), np.zeros(2000, np.intp)
    features[:, 0] = 1.0
    sums = partial(gradient.sum_blocks, weights=np.zeros((4, grid.columns)))
    source = source_of(features, targets, part)
    kept = GatheredRows.read(source, grid, np.asarray, b"").sum(sums)
    streamed = StreamedRows(source, grid, np.asarray, b"").sum(sums)

    one = gradient.sum_blocks([(grid.encode_rows(features[:1]), targets[:1], None)], np.zeros((4, grid.columns)))
    assert np.array_equal(kept, 2000 * one.astype(np.int64)) and np.array_equal(streamed, kept)
    if expected == np.inf:
        assert np.abs(kept).max() > 2**32
