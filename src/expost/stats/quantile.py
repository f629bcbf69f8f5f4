"""Quantiles: several from a tree of counts, or one picked by its rank."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import shared_level
from expost.accuracy.weighted_noise import continuous_radius
from expost.core import (
    Adjacency,
    InvalidRequest,
    Measure,
    Plan,
    PlanContext,
    Receipt,
    Release,
    Sealed,
    Sensitivity,
    Target,
)
from expost.core.argument import suggest_name
from expost.core.rational import probability, rational, round_up
from expost.data import Clamp, Dataset
from expost.data.axis import Bins
from expost.data.sealed_form import TreeForm
from expost.data.tally import Measured
from expost.noise import BitSource, ExponentialQuantile, LatticeBounds, SmoothQuantile
from expost.stats.gradual_plan import Design, GradualQuery, release_entries
from expost.stats.gradual_release import ClimbResult, draw_bounding_secret
from expost.stats.pick import PickPlan
from expost.stats.query_terms import AskedAccuracy, Column, read_list, statistic
from expost.stats.reader import CLEAR_OF_NOISE, CellReading, ClimbedReader
from expost.stats.table_query import group_labels

__all__ = ["Median", "Quantile", "QuantileReader", "Quantiles"]

Floats = NDArray[np.float64]

_METHODS: dict[str, type[ExponentialQuantile] | type[SmoothQuantile]] = {
    "exponential": ExponentialQuantile,
    "smooth": SmoothQuantile,
}
_KNOT_SCALES = 8.0  # noise scales, times the root of the levels, between two edges that a smooth forecast tells apart
_WIDENING = 1.1  # noise at many edges widens an interval by about a tenth; a measured mean, which promises nothing
_LEVELS, _USUAL_BRANCHES = (1, 2, 3, 4), 8
# Trees of 8 to 4096 leaves, each with less noise at its edges than others of as many leaves.
_TREES = ((8,), (16,), (32,), (8, 8), (8, 16), (16, 16), (16, 32), (32, 32), (8, 16, 16), (16, 16, 16))
_USUAL_TREE = (16, 32)
_LEAVES_WITHIN = (
    2  # leaves that fit into an absolute error: an interval ends at edges, and fewer would waste half of it
)

_EVEN = (
    4  # from this epsilon on, per row of a unit, the two methods are within a third of each other on spread-out rows
)


@dataclass(frozen=True)
class QuantileReader(ClimbedReader):
    """Reads quantiles off noisy nodes: from the first to the last leaf in which the exact quantile may lie.

    A leaf is left out if the noisy number of rows before it is above the rank by more than its radius, or that before its
    end below it. The leaf of the exact quantile is left out with at most the level, so no union over the leaves is needed
    (docs/proofs/tree-quantiles.md).
    """

    form: TreeForm
    clamp: Clamp
    probabilities: tuple[Fraction, ...]
    widening = _WIDENING

    def smooth(self, noisy: NDArray[Any], scale: float) -> NDArray[Any]:
        """Return nodes of a table whose rows lie evenly between knots: edges that the noise can tell apart."""
        before = self.form.prefixes(noisy.astype(np.float64))
        rising = np.maximum.accumulate(before, axis=0)
        falling = np.minimum.accumulate(before[::-1], axis=0)[::-1]
        before = np.maximum((rising + falling) / 2, 0.0)
        apart = _KNOT_SCALES * scale * math.sqrt(self.form.levels)
        edges, leaves = np.arange(len(before)), np.empty((self.form.leaves, before.shape[1]))
        for cell, line in enumerate(before.T):
            knots = [0]
            while (following := int(np.searchsorted(line, line[knots[-1]] + apart))) < len(line) - 1:
                knots.append(max(following, knots[-1] + 1))
            knots = sorted({*knots, len(line) - 1})
            leaves[:, cell] = np.diff(np.interp(edges, knots, line[knots]))
        return np.concatenate([leaves.reshape(count, -1, leaves.shape[1]).sum(axis=1) for count in self.form.counts])

    def has_rows(self, noisy: NDArray[Any], scale: float) -> NDArray[np.bool_]:
        first = self.form.branches[0]
        clear = CLEAR_OF_NOISE * max(math.sqrt(first / _USUAL_BRANCHES), 1.0) * scale
        return np.asarray(noisy[:first].sum(axis=0) > clear)

    def add_rows(self, noisy: NDArray[Any], amount: int) -> NDArray[Any]:
        """Return rows that are all in the first leaf."""
        rows = np.zeros_like(noisy)
        first = self.form.branches[0]
        rows[self.form.first_nodes] = np.maximum(noisy[:first].sum(axis=0), 0) + first * amount
        return rows

    def read(self, noisy: NDArray[Any], scale: float, level: float) -> CellReading:
        """Return values and intervals, group by group, the probabilities of each one after the other."""
        before = self.form.prefixes(noisy.astype(np.float64))
        each = level / len(self.probabilities)
        edges, places = leaf_edges(self.clamp, self.form), np.arange(self.form.leaves)[:, None]
        found = []
        for share in map(float, self.probabilities):
            excess = before - share * before[-1]
            unit, sizes = _edge_radii(self.form, share, each)
            radius = (scale * unit + sizes)[:, None]
            possible = (excess[:-1] <= radius[:-1]) & (excess[1:] >= -radius[1:])
            # Noise beyond its radius may leave out every leaf: then nothing is certain.
            possible |= ~possible.any(axis=0)
            low = np.where(possible, places, len(places)).min(axis=0)
            high = np.where(possible, places, -1).max(axis=0) + 1
            middle = np.clip(np.abs(np.maximum.accumulate(excess, axis=0)).argmin(axis=0), low, high)
            found.append((edges[middle], edges[low], edges[high]))
        return CellReading(*(np.stack(each, axis=1).ravel() for each in zip(*found, strict=True)))


@lru_cache(maxsize=256)
def _edge_radii(form: TreeForm, share: float, level: float) -> tuple[Floats, Floats]:
    """Return the radius of (rows before an edge) - share * (all rows) for noise of scale one, and the sum of its weights."""
    # Edges with the same weights have the same radius.
    kinds, place = np.unique(np.sort(form.edge_weights(share), axis=0), axis=1, return_inverse=True)
    return continuous_radius(kinds, level)[place], kinds.sum(axis=0)[place]


def leaf_edges(clamp: Clamp, form: TreeForm) -> Floats:
    """Return the edges of the tree's leaves, in the column's units."""
    return float(clamp.low) + np.linspace(0, 1, form.leaves + 1) * float(clamp.high - clamp.low)


@statistic
class TreeQuery(GradualQuery):
    """Base of the quantiles that are read off a tree of counts.

    Parameters
    ----------
    column : str or Expression
        The numeric column.
    bounds : (float, float), optional
        The limits to which values are clipped, in the column's units. Default: those declared for the column.
    levels : int, optional
        The levels of a tree of 8 ** levels leaves, 1 to 4. Default: of trees with 8 to 4096 leaves the smallest one that has
        two leaves within an absolute error, else one of 512. More leaves give finer answers and cost more.
    """

    column: Column
    bounds: Sequence[float] | None = field(default=None, kw_only=True)
    levels: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.levels is not None and (not isinstance(self.levels, int) or self.levels not in _LEVELS):
            raise InvalidRequest("Expected 1 to 4 levels", got=self.levels, do="Pass levels=3")

    def _tree_probabilities(self) -> tuple[Fraction, ...]:
        """Return the probabilities to read off the tree."""
        raise NotImplementedError

    def design(self, dataset: Dataset) -> Design:
        if self.levels is not None:
            return self._design_tree(dataset, TreeForm((_USUAL_BRANCHES,) * self.levels))
        asked = self.accuracy
        tree: tuple[int, ...] = _USUAL_TREE
        if asked.target is not None and not asked.relative:
            clamp = dataset.clamp(dataset.expression(self.column), self.bounds)
            leaves = _LEAVES_WITHIN * (clamp.high - clamp.low) / asked.target.tolerance
            tree = next((each for each in _TREES if math.prod(each) >= leaves), _TREES[-1])
        return self._design_tree(dataset, TreeForm(tree))

    def _alternative_designs(self, dataset: Dataset) -> list[Design]:
        """Return the other trees: one that was released may show the answer."""
        own = self.design(dataset).form
        trees = {*_TREES, *((_USUAL_BRANCHES,) * levels for levels in _LEVELS)}
        return [self._design_tree(dataset, form) for tree in sorted(trees) if (form := TreeForm(tree)) != own]

    def _design_tree(self, dataset: Dataset, form: TreeForm) -> Design:
        """Return the design of a tree."""
        expression = dataset.expression(self.column)
        clamp = dataset.clamp(expression, self.bounds)
        leaves = Bins.of(expression, leaf_edges(clamp, form).tolist(), clamped=True)
        reader = QuantileReader(form, clamp, self._tree_probabilities())
        bounds = {str(self.column): clamp.to_terms()}
        return self.fit_design(dataset, form, reader, inner_axes=[leaves], leaves=form.leaves, bounds=bounds)


@statistic
class Quantiles(TreeQuery):
    """Several quantiles of a column from one tree of counts, in all or in each group, each with an interval.

    The tree has 8 to 4096 leaves between the bounds; an interval ends at edges between leaves. One release serves any
    number of probabilities.

    Guarantee: pure ex-post DP; with ``epsilon=`` known before the run, else pilot and highest rung of the climb, known
        only after the run and at most ``max_epsilon``.
    Adjacency: the dataset's.
    Sensitivity: the levels of the tree, times the rows a unit may have (L1).
    Accuracy: intervals cover all quantiles (of all groups) at once; they are never narrower than a leaf.
    Numerics: exact integers and exact sampling; levels are rationals.
    Reference: HRMS10, Section 4 (tree of counts); docs/proofs/stopped-relative-error.md (checkpoints).

    Parameters
    ----------
    probabilities : sequence of float
        The quantiles to release, each between 0 and 1.

    Examples
    --------
    >>> Quantiles("age", [0.25, 0.5, 0.75], within=2, max_epsilon=1).question
    'quantiles 0.25, 0.5, 0.75 of age'
    """

    probabilities: Sequence[float]

    def __post_init__(self) -> None:
        super().__post_init__()
        listed = read_list(self.probabilities, "probabilities", do="Pass [0.25, 0.5, 0.75]")
        shares = tuple(probability(share, "probability") for share in listed)
        if not shares:
            raise InvalidRequest("Expected at least one probability", do="Pass probabilities=[0.25, 0.5, 0.75]")
        object.__setattr__(self, "probabilities", shares)

    @property
    def subject(self) -> str:
        return f"quantiles {', '.join(str(float(share)) for share in self.probabilities)} of {self.column}"

    def _tree_probabilities(self) -> tuple[Fraction, ...]:
        return tuple(self.probabilities)  # type: ignore[arg-type]

    def _design_tree(self, dataset: Dataset, form: TreeForm) -> Design:
        design = super()._design_tree(dataset, form)
        return replace(design, terms={**design.terms, "leaves": design.leaves})

    def _shape_release(self, design: Design, result: ClimbResult, receipt: Receipt) -> Release[Any]:
        """Put one row per group and probability into a release."""
        shares = [(float(share),) for share in self.probabilities]
        return release_entries(design, result, receipt, ("probability",), shares)


@statistic
class Quantile(TreeQuery):
    """One quantile of a column, with an error in the value (``within``) or in ranks (``rank_within``).

    An error in the value is read off the tree of counts that ``Quantiles`` uses. An error in ranks, or an epsilon,
    picks a value by the exponential mechanism, or with noise fitted to smooth sensitivity. Rows are then ranked by
    their values in whole steps: integers as they are, other numbers rounded to 2^20 steps between the bounds, which the
    receipt states. The pick is the roundest number at its step, so where values are decimals further apart than a step
    (ages in a column of floats, prices) the rank error is that among the values themselves.

    Guarantee: pure DP, known before the run; all groups together cost what is billed. With ``within``, as
        ``Quantiles``.
    Adjacency: the dataset's.
    Sensitivity: the number of rows a unit may have, over all groups together.
    Accuracy: rank error among the rounded values bounded beforehand (exponential), in all groups at once; none
        bounded beforehand (smooth). With ``within``, as ``Quantiles``.
    Numerics: exact; whole steps between the bounds, an exact choice.
    Reference: Smi11, Algorithm 2 (exponential mechanism); NRS07, Claim 3.3 (smooth sensitivity of a quantile);
        docs/proofs/parallel-picks.md (groups).

    Parameters
    ----------
    share : float, default 0.5
        Which quantile: 0.5 is the median.
    within : float or str, optional
        The error allowed in the value, in the column's units, or a share such as ``"5%"``. Give one of ``within``,
        ``rank_within`` and ``epsilon``.
    rank_within : float, optional
        The error allowed in ranks: how many rows may lie between the answer and the quantile. Priced before the run.
    method : {"exponential", "smooth"}, default "exponential"
        How a value is picked. ``"smooth"`` takes ``epsilon`` only, and warns where the exponential mechanism is better:
        nearly everywhere but for few rows that lie close together within wide bounds.

    Examples
    --------
    >>> Quantile("age", 0.9, epsilon=0.5, by="city").question
    'quantile 0.9 of age by city'
    """

    share: float = 0.5
    rank_within: float | None = field(default=None, kw_only=True)
    method: str = field(default="exponential", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.method, str) or self.method not in _METHODS:
            raise InvalidRequest(
                'Expected method "exponential" or "smooth"',
                got=self.method,
                do=suggest_name(self.method, _METHODS) or "Name one of them",
            )
        super().__post_init__()
        if self.accuracy.target is not None and self.method == "smooth":
            raise InvalidRequest("Smooth sensitivity bounds no error beforehand", do="Pass epsilon=")
        object.__setattr__(self, "share", probability(self.share, "share"))

    def _read_accuracy(self) -> AskedAccuracy:
        """Read an error in the value, an error in ranks, or an epsilon."""
        if self.rank_within is None:
            return super()._read_accuracy()
        if self.within is not None:
            raise InvalidRequest("Expected one of within, rank_within and epsilon", do="Pass one of them")
        terms = {"epsilon": self.epsilon, "confidence": self.confidence, "max_epsilon": self.max_epsilon}
        try:
            asked = AskedAccuracy.read(within=self.rank_within, **terms)
        except InvalidRequest:
            if self.epsilon is not None:
                raise InvalidRequest("Expected one of within, rank_within and epsilon", do="Pass one of them") from None
            raise
        if asked.relative:
            raise InvalidRequest("Expected rank_within in rows", got=self.rank_within, do="Pass rank_within=100")
        assert asked.target is not None
        target = Target(Measure.RANK_ERROR, asked.target.tolerance, asked.target.failure_probability)
        return replace(asked, target=target)

    @property
    def subject(self) -> str:
        return f"quantile {float(self.share)} of {self.column}"

    def _tree_probabilities(self) -> tuple[Fraction, ...]:
        return (Fraction(self.share),)

    def _plan_public(self, dataset: Dataset, context: PlanContext) -> Plan:
        """Plan a reading of the tree for an error in the value, else a pick."""
        return super()._plan_public(dataset, context) if self.within is not None else self._plan_pick(dataset)

    def _plan_pick(self, dataset: Dataset) -> QuantilePickPlan:
        """Plan the picks and price them."""
        expression, asked, axes = dataset.expression(self.column), self.accuracy, self._group_axes(dataset)
        clamp, where = dataset.clamp(expression, self.bounds), dataset.condition(self.where)
        tally = dataset.tally(measured=(Measured(expression, clamp),), axes=axes, where=where, degree=1)
        limits = dataset.limits(tally)
        sensitivity, parts = dataset.rows_per_unit(limits), 1
        if axes:
            # docs/proofs/parallel-picks.md: a replaced unit leaves some groups and enters others, two moves; the loss
            # of the exponential mechanism is in proportion to a unit's rows in a group, that of smooth noise is not.
            rows = int(sensitivity.amount)
            groups = rows if limits is None or limits.groups is None else min(limits.groups, rows)
            parts = (2 if dataset.adjacency.public_size else 1) * (groups if self.method == "smooth" else 1)
            sensitivity = Sensitivity(rows, adjacency=Adjacency.ADD_REMOVE, unit=dataset.unit)
        failure = shared_level(asked.failure_probability, len(group_labels(axes)))
        bounds, share, level = LatticeBounds(0, clamp.steps), Fraction(self.share), asked.epsilon
        if level is None:
            assert asked.target is not None
            # The rank error at epsilon 1 is proportional to 1 / epsilon.
            at_one = ExponentialQuantile(Fraction(1, parts), bounds, share).rank_error(sensitivity, failure)
            level = rational(round_up(Fraction(at_one) / asked.target.tolerance), "epsilon")
            asked.check_price(level)
        mechanism = _METHODS[self.method](level / parts, bounds, probability=share)
        exponential = self.method == "exponential"
        if isinstance(mechanism, SmoothQuantile):
            _warn_of_smooth(mechanism, sensitivity, dataset.rows if dataset.adjacency.public_size else None)
        error = None
        if isinstance(mechanism, ExponentialQuantile):
            error = float(mechanism.rank_error(sensitivity, failure))
        rounded = {} if clamp.whole else {"values rounded to steps of": float(clamp.step)}
        return QuantilePickPlan(
            query=self,
            level=level,
            mechanism=mechanism,
            tally=tally,
            axes=axes,
            sensitivity=sensitivity,
            adjacency=dataset.adjacency,
            unit=dataset.unit,
            failure_probability=failure,
            error=error,
            method="exponential mechanism" if exponential else "smooth sensitivity",
            target=asked.target,
            terms={"bounds": {str(self.column): clamp.to_terms()}, **rounded},
            citations=("Smi11, Algorithm 2",) if exponential else ("NRS07, Claim 3.3",),
            clamp=clamp,
        )


def _rows_for_exponential(smooth: SmoothQuantile, sensitivity: Sensitivity) -> int:
    """Return from how many rows on the exponential mechanism has the smaller mean error (docs/proofs/smooth-sensitivity.md).

    >>> _rows_for_exponential(SmoothQuantile(1, LatticeBounds(0, 1 << 20)), Sensitivity(1))
    38
    """
    share, noise, width = smooth.probability, smooth.noise, smooth.bounds.width
    picked = ExponentialQuantile(smooth.epsilon, smooth.bounds, share).rate(sensitivity) * share.denominator
    decay = noise.smoothness / float(sensitivity.amount)
    ranks = math.log(max(width / float(noise.steepness), 1.0)) / (float(picked) - decay)
    # A quarter more than where the two meet for rows at one point, the best case of smooth sensitivity.
    return math.ceil(1.25 * ranks / float(min(share, 1 - share)))


def _warn_of_smooth(smooth: SmoothQuantile, sensitivity: Sensitivity, rows: int | None) -> None:
    """Warn where the exponential mechanism is better. Only public facts decide: epsilon, bounds, and rows where public."""
    enough = _rows_for_exponential(smooth, sensitivity)
    if smooth.epsilon >= _EVEN * sensitivity.amount or (rows is not None and rows < enough):
        return
    warnings.warn(
        f"From {enough} rows on, the exponential mechanism is more accurate than smooth sensitivity at this epsilon and "
        "within these bounds. Leave out method= to use it.",
        UserWarning,
        stacklevel=2,
    )


@statistic
class Median(Quantile):
    """The median of a column; the same as ``Quantile(column, 0.5)``.

    Examples
    --------
    >>> Median("age", epsilon=0.5).question
    'quantile 0.5 of age'
    """

    share: float = field(init=False, default=0.5)


@dataclass(frozen=True, kw_only=True)
class QuantilePickPlan(PickPlan):
    """How a quantile of each group is picked."""

    clamp: Clamp

    def measure(self, dataset: Dataset) -> list[Sealed]:
        """Return the steps of all rows, sealed group by group."""
        return dataset.measure_steps(self.tally, secret=draw_bounding_secret(), under=self.sensitivity)

    def pick(self, sealed: Sealed, bits: BitSource | None) -> float:
        step = self.mechanism.release(sealed, bits=bits)
        exponential = isinstance(self.mechanism, ExponentialQuantile)
        return self.clamp.to_roundest(int(step)) if exponential else self.clamp.to_value(step)
