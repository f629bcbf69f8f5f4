"""The profile of a table: two sums within their sensitivity, for any rows."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.data.unit_share import share_weights
from expost.models.tabular import CategoryColumn, FlagColumn, NumberColumn, TableEncoder
from expost.models.tabular.lattice_sum import LatticeSum
from expost.models.tabular.table_profile import _bin_distances, measure_profile, profile_lattices
from expost.models.tabular.tabular_rows import RowChunk
from expost.noise.bits import SeededBits

ENCODER = TableEncoder((NumberColumn("age", 0, 10), CategoryColumn("city", ["Rome", "Oslo"]), FlagColumn("member")))
CELLS = st.lists(
    st.tuples(
        st.sampled_from([None, 0.0, 3.3, 10.0, 99.0, math.nan, math.inf, -math.inf]),
        st.sampled_from(["Rome", "Bonn", None]),
        st.sampled_from([True, False, None]),
        st.sampled_from([-1.0, 0.1, 1.0]),
    ),
    min_size=1,
    max_size=6,
)


def chunk_of(rows: list, classes: int | None, most: int) -> RowChunk:
    import pyarrow as pa

    table = pa.table(
        [pa.array([row[k] for row in rows], kind) for k, kind in enumerate([pa.float64(), pa.string(), pa.bool_()])],
        names=["age", "city", "member"],
    )
    targets = np.array([row[3] for row in rows])
    codes = targets if classes is None else np.round(targets).astype(np.intp)
    return RowChunk(ENCODER.encode(table), codes, np.full(len(rows), share_weights(most)[len(rows)]))


def profile_of(chunks: list[RowChunk], classes: int | None, most: int = 6, noise: int = 30) -> object:
    return measure_profile(
        lambda: iter(chunks),
        width=ENCODER.width,
        squared_length=ENCODER.squared_length,
        classes=classes,
        noises=(Fraction(noise), Fraction(noise)),
        rows_per_unit=most,
        bits=SeededBits(4),
    )


@settings(max_examples=60, deadline=None)
@given(CELLS, CELLS, st.sampled_from([None, 2, 3]))
def test_a_unit_moves_both_sums_by_their_sensitivity_at_most(others, mine, classes) -> None:
    first = chunk_of(others, classes, 6)
    added = chunk_of(mine, classes, 6)
    totals: list[np.ndarray] = []
    released: list[np.ndarray] = []
    honest = LatticeSum.release

    def watch(self: LatticeSum, total: np.ndarray, noise: Fraction, bits: SeededBits) -> np.ndarray:
        totals.append(total.copy())
        if len(totals) <= 2:
            released.append(honest(self, total, noise, bits))
        return released[(len(totals) - 1) % 2]  # the neighbour is replayed with the same releases

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LatticeSum, "release", watch)
        profile_of([first], classes)
        profile_of([first, added], classes)

    lattices = profile_lattices(ENCODER.width, ENCODER.squared_length, classes, 6, None)
    for place, lattice in enumerate(lattices):
        moved = [int(each) for each in totals[place + 2] - totals[place]]
        assert sum(each**2 for each in moved) <= int(lattice.sensitivity.amount) ** 2
        assert any(moved)


@pytest.mark.parametrize("classes", [None, 2])
@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_of_no_or_one_row_and_empty_blocks_run_like_any_other(rows: int, classes: int | None) -> None:
    rows_of_one = chunk_of([(3.0, "Rome", True, 1.0)], classes, 6)
    empty = RowChunk(*(part[:0] for part in rows_of_one))
    for chunks in ([], [empty], [empty, *[rows_of_one] * rows, empty]):
        found = profile_of(chunks, classes)
        assert found.rows >= 1 and np.isfinite(found.factors).all() and found.length > 0
        assert np.isfinite([found.target_middle, found.target_spread, *found.shares]).all()


def test_distances_are_in_the_bin_of_their_power_of_two_and_zero_is_in_none() -> None:
    distances = np.array([[2.0, 1.0, -0.75, 0.5, 0.49, 2.0**-9, 2.0**-10, 0.0]])
    bins = _bin_distances(distances).reshape(8, 10)

    assert [row.argmax() if row.any() else None for row in bins] == [0, 0, 1, 1, 2, 9, None, None]


def test_a_constant_column_has_a_small_spread_also_at_its_bound() -> None:
    rows = [chunk_of([(10.0, "Rome", True, 1.0)], None, 6)] * 2000
    found = profile_of(rows, None, most=1, noise=2)

    assert found.target_spread < 0.05
    assert found.factors[0] == found.factors.max()
