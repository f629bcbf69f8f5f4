"""Counts of windows along a column: running totals and moving windows, all from one release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import shared_level
from expost.accuracy.weighted_noise import equal_sum_factors
from expost.core import InvalidRequest, Receipt, Release
from expost.core.rational import rational, round_up, whole
from expost.data import Dataset
from expost.data.axis import Bins
from expost.data.sealed_form import RunForm
from expost.stats.count import BinnedCount
from expost.stats.gradual_plan import Design, release_entries
from expost.stats.gradual_release import ClimbResult
from expost.stats.query_terms import statistic
from expost.stats.reader import CLEAR_OF_NOISE, CellReading, ClimbedReader
from expost.stats.table_query import axis_names

__all__ = ["Cumulative", "Moving", "WindowReader"]

MOST_PLACES = 1 << 14
"""The most bins or periods that a series of windows may have."""

_USUAL_LEVEL = 0.05  # for which the lengths of the runs are chosen

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class WindowReader(ClimbedReader):
    """Reads the counts of windows off noisy runs of leaves: each is a sum of a few noisy counts.

    Window i ends with leaf i. It has ``window`` leaves, or all leaves before its end if that is None. A sum of k noises
    stays within a radius that depends on k only (docs/proofs/windows.md).
    """

    form: RunForm
    window: int | None

    @property
    def ends(self) -> tuple[Places, Places]:
        """Return the first leaf of each window, and the leaf after its last."""
        ends = np.arange(self.window or 1, self.form.leaves + 1)
        return (np.zeros_like(ends) if self.window is None else ends - self.window), ends

    def has_rows(self, noisy: NDArray[Any], scale: float) -> NDArray[np.bool_]:
        return np.asarray(noisy[-self._longest :].sum(axis=0) > CLEAR_OF_NOISE * scale)

    def add_rows(self, noisy: NDArray[Any], amount: int) -> NDArray[Any]:
        """Return rows that are evenly spread over the leaves."""
        total = np.maximum(noisy[-self._longest :].sum(axis=0), 0) + amount * self._longest
        runs = [np.add.reduceat(np.ones(self.form.leaves), np.arange(0, self.form.leaves, w)) for w in self.form.widths]
        return np.asarray(np.floor(np.concatenate(runs)[:, None] * (total / self.form.leaves)))

    @property
    def _longest(self) -> int:
        """Return the number of the longest runs, whose counts add up to all rows."""
        return -(-self.form.leaves // self.form.widths[-1])

    def find_radii(self, scale: float, level: float) -> Floats:
        """Return the radius of each window; all hold at once with probability 1 - ``level``."""
        exact, bound = _window_factors(self.form, self.window, level)
        counts = self.form.count_runs(*self.ends)
        return np.minimum(scale * exact + counts, scale * bound)

    def find_scale(self, tolerance: float, level: float) -> float:
        """Return the largest scale of the noise for which every radius is within a tolerance."""
        exact, bound = _window_factors(self.form, self.window, level)
        counts = self.form.count_runs(*self.ends)
        return float(np.maximum((tolerance - counts) / exact, tolerance / bound).min())

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        """Return values and intervals, group by group, the windows of each one after the other."""
        value = self.form.sum_runs(noisy, *self.ends)
        # Counts are whole, so no error lies between two whole numbers.
        radius = np.floor(self.find_radii(scale, level)[:, None])
        found = (np.maximum(end, 0.0) for end in (value, value - radius, value + radius))
        return CellReading(*(each.T.ravel() for each in found))


@lru_cache(maxsize=64)
def _window_factors(form: RunForm, window: int | None, level: float) -> tuple[Floats, Floats]:
    """Return the two radii of each window at scale one, at an even share of the level."""
    starts, ends = WindowReader(form, window).ends
    counts, place = np.unique(form.count_runs(starts, ends), return_inverse=True)
    factors = np.array([equal_sum_factors(count, level / len(ends)) for count in counts.tolist()])
    return factors[place, 0], factors[place, 1]


@lru_cache(maxsize=256)
def choose_runs(leaves: int, window: int | None) -> RunForm:
    """Return the lengths of runs whose windows have the least noise at their worst. They depend on public facts only.

    >>> choose_runs(12, None).levels, choose_runs(365, None).levels, choose_runs(365, 7).levels
    (1, 2, 1)
    """
    choices = {RunForm(leaves, max(int(np.ceil(leaves ** (1 / levels))), 2)) for levels in range(1, 15)}

    def worst_radius(form: RunForm) -> float:
        starts, ends = WindowReader(form, window).ends
        most = int(form.count_runs(starts, ends).max())
        return form.levels * equal_sum_factors(most, _USUAL_LEVEL / len(ends))[0]

    return min(sorted(choices, key=lambda form: form.levels), key=worst_radius)


@statistic
class WindowCount(BinnedCount):
    """Base of the counts of windows, which are sums of the counts of disjoint runs of bins or periods."""

    noise: str = field(init=False, default="laplace")  # a window adds up several noises, which has a law of its own

    @property
    def _length(self) -> int | None:
        """Return how many places a window has; None for all up to its end."""
        return None

    def design(self, dataset: Dataset) -> Design:
        return self._design_windows(dataset, self._length)

    def _design_windows(self, dataset: Dataset, best_for: int | None) -> Design:
        """Fit the query to a dataset, with the runs that are best for windows of a length."""
        axis = self._divide_column(dataset)
        if not max(self._length or 2, 2) <= axis.size <= MOST_PLACES:
            raise InvalidRequest(
                f"Expected {max(self._length or 2, 2)} to {MOST_PLACES} bins or periods",
                got=axis.size,
                do="Pass another every=, bins= or window=",
            )
        form = choose_runs(axis.size, best_for)
        reader = WindowReader(form, self._length)
        return self.fit_design(dataset, form, reader, inner_axes=[axis], leaves=axis.size)

    def _alternative_designs(self, dataset: Dataset) -> list[Design]:
        """Return the design of running totals: their releases have all windows in them."""
        return [] if self._length is None else [self._design_windows(dataset, None)]

    def _error_is_known(self, design: Design) -> bool:
        return True

    def _absolute_price(self, design: Design, failure_probability: Fraction) -> Fraction:
        """Return the least epsilon whose noise keeps every window within an absolute error."""
        target, reader = self.accuracy.target, design.reader
        assert target is not None and isinstance(reader, WindowReader)
        level = float(shared_level(failure_probability, design.cells))
        scale = reader.find_scale(float(target.tolerance), level)
        return rational(round_up(Fraction(design.sensitivity.amount) / Fraction(scale)), "epsilon")

    def _shape_release(self, design: Design, result: ClimbResult, receipt: Receipt) -> Release[Any]:
        """Put one row per group and window into a release, named by the last bin or period of the window."""
        axis, reader = design.tally.axes[-1], design.reader
        assert isinstance(reader, WindowReader)
        last = axis.edges[1:] if isinstance(axis, Bins) else axis.labels
        named = f"up to {axis_names([axis])[0]}" if isinstance(axis, Bins) else axis_names([axis])[0]
        entries: Sequence[tuple[Any, ...]] = [(last[end - 1],) for end in reader.ends[1].tolist()]
        return release_entries(design, result, receipt, (named,), entries)


@statistic
class Cumulative(WindowCount):
    """Running totals along a column: the rows up to the end of each bin, period or category, in all or in each group.

    All totals come from one release. It has the counts of runs of several lengths, so each total is a sum of few noisy
    counts. The lengths are chosen for the least error. An absolute accuracy is priced before the run.

    Guarantee: pure ex-post DP; an absolute accuracy or an epsilon is priced before the run, a relative climb costs pilot and
        highest rung, known only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: the lengths of runs, times the rows a unit may have (L1, over all groups together).
    Accuracy: intervals cover all totals (of all groups) at once, and a target holds for all of a group.
    Numerics: exact integers and exact sampling; radii are rounded up.
    Reference: CSS11, Section 4 (sums of a tree); docs/proofs/windows.md (runs of any length, radii).

    Parameters
    ----------
    within : float or str, optional
        The error allowed in every total, in rows, or a share such as ``"5%"``. Give either this or ``epsilon``.

    Examples
    --------
    >>> Cumulative("when", every="week", epsilon=1).question
    'running totals of rows by week of when'
    """

    @property
    def subject(self) -> str:
        return f"running totals of rows by {_division(self)}{self.column}"


@statistic
class Moving(WindowCount):
    """Counts in a moving window along a column: the rows of each ``window`` consecutive bins or periods.

    All windows come from one release, as those of ``Cumulative``. Windows that would begin before the first period are
    left out.

    Guarantee: pure ex-post DP; an absolute accuracy or an epsilon is priced before the run, a relative climb costs pilot and
        highest rung, known only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: the lengths of runs, times the rows a unit may have (L1, over all groups together).
    Accuracy: intervals cover all windows (of all groups) at once, and a target holds for all of a group.
    Numerics: exact integers and exact sampling; radii are rounded up.
    Reference: CSS11, Section 4 (sums of a tree); docs/proofs/windows.md (runs of any length, radii).

    Parameters
    ----------
    window : int
        How many consecutive bins or periods a window has.
    within : float or str, optional
        The error allowed in every window, in rows, or a share such as ``"5%"``. Give either this or ``epsilon``.

    Examples
    --------
    >>> Moving("when", 7, every="day", epsilon=1).question
    'rows in a moving window of 7 by day of when'
    """

    window: int

    def __post_init__(self) -> None:
        super().__post_init__()
        limits = {"least": 1, "most": MOST_PLACES}
        object.__setattr__(self, "window", whole(self.window, "window", do="Pass window=7", **limits))

    @property
    def _length(self) -> int | None:
        return self.window

    @property
    def subject(self) -> str:
        return f"rows in a moving window of {self.window} by {_division(self)}{self.column}"


def _division(query: WindowCount) -> str:
    """Return how a query divides its column, in words that stand before the column's name."""
    return (
        f"{query.every} of " if query.every is not None else f"{query.bins} bins of " if query.bins is not None else ""
    )
