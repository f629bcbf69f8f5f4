"""Levels of a category that are not public: frequent ones are released first, then the model is trained with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np
import pyarrow as pa

from expost.accounting import ApproxEvent, PrivacyEvent
from expost.accounting import Sequence as Events
from expost.core import ApproxLoss, InvalidRequest, Ladder, Loss, PlanContext, Receipt, Release, Sealed, Sensitivity
from expost.core.release import add_losses
from expost.data.axis import Categories
from expost.data.canonical_cell import Kind
from expost.data.dataset import Dataset
from expost.models.tabular.column_encoding import Cells, ColumnEncoding, Features
from expost.models.tabular.table_encoder import TableEncoder
from expost.models.tabular.table_model import TableModel
from expost.noise import BitSource, DiscreteLaplacePath, system_bits
from expost.noise.key_threshold import key_threshold
from expost.noise.parameter import check_level

__all__ = ["MOST_LEVELS", "LevelsFirst", "PrivateLevelColumn", "plan_searches", "split_for_levels"]

MOST_LEVELS = 64
"""The most levels of one column that are kept: those with the largest noisy counts."""
_EPSILON = Fraction(1, 50)  # per column, in a training to a score: the same for every cap, so that prices are monotone
_SHARE = Fraction(1, 10)  # of epsilon in a training at a given epsilon, and of delta
_SECRET_WORDS = 4


@dataclass(frozen=True)
class PrivateLevelColumn(ColumnEncoding, kind="private levels"):
    """A category whose levels are found in the rows, with noise, before the training. Rare values are "other".

    Parameters
    ----------
    name : str
        Name of the column, of texts.

    Examples
    --------
    >>> PrivateLevelColumn("city").width
    65
    """

    @property
    def names_out(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={place}" for place in range(MOST_LEVELS + 1))

    @property
    def type_name(self) -> str:
        return "text"

    def check_kind(self, kind: Kind, *, computed: bool = False) -> None:
        if kind is not Kind.TEXT:
            raise InvalidRequest(
                f"Expected texts in {self.name!r} for private levels: bounds of numbers are not found in a fit",
                got=kind.value,
                do=f'Pass "{self.name}": (low, high): public, or from session.bounds("{self.name}", epsilon=0.1)',
            )

    def read_cells(self, column: pa.Array) -> Cells:
        raise InvalidRequest(
            f"Expected the levels of {self.name!r}: only a fit finds them", do="Pass the encoder_ of a fitted model"
        )

    def write_features(self, cells: Cells, out: Features) -> None:
        """Write nothing: ``read_cells`` has refused before."""

    @property
    def declared(self) -> Any:
        return "private"

    def _json_fields(self) -> dict[str, Any]:
        return {}

    @classmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["name"])


@dataclass(frozen=True)
class LevelSearch:
    """How the levels of one column are found. ``rows`` is the sensitivity of its counts, ``once`` whether units are counted."""

    column: str
    epsilon: Fraction
    delta: Fraction
    rows: int
    once: bool

    @classmethod
    def plan(cls, dataset: Dataset, column: str, epsilon: Fraction, delta: Fraction) -> LevelSearch:
        """Return the search in a dataset; reads no rows."""
        groups = dataset.max_groups_per_unit
        once = not dataset.unit.is_row and groups is not None
        limits = None if once else dataset.limits(_tally(dataset, _axis(dataset, column, ("",))))
        rows = groups if once and groups else 1 if limits is None or limits.rows is None else limits.rows
        check_level(epsilon, rows)
        return cls(column, epsilon, delta, int(rows), once)

    @property
    def threshold(self) -> int:
        """Return the noisy count from which a level is shown."""
        scale = float(self.rows / self.epsilon)
        return key_threshold(self.delta, scale, rows=self.rows, groups=self.rows, once=self.once)

    def measure(self, dataset: Dataset) -> tuple[Sealed, pa.Array]:
        """Return sealed counts, and the levels that they belong to. SECRET until the threshold has chosen."""
        secret = system_bits().words(_SECRET_WORDS).tobytes()
        first = _tally(dataset, _axis(dataset, self.column, ("",)))
        keys = dataset.find_keys(dataset.expression(self.column), first, secret=secret)
        under = Sensitivity(self.rows, adjacency=dataset.adjacency, unit=dataset.unit)
        sealed, found = dataset.measure_occupied(_tally(dataset, keys), secret=secret, under=under, once=self.once)
        return sealed, keys.column.take(pa.array(found))

    def choose(self, sealed: Sealed, levels: pa.Array, bits: BitSource) -> tuple[str, ...]:
        """Return the levels whose noisy count reaches the threshold, the most frequent first, at most ``MOST_LEVELS``."""
        noisy = np.asarray(DiscreteLaplacePath(sealed, Ladder((self.epsilon,)), bits=bits).at(0), np.float64)
        shown = np.flatnonzero(noisy >= self.threshold)
        ordered = shown[np.argsort(-noisy[shown], kind="stable")]
        found = [level for level in levels.take(pa.array(ordered)).to_pylist() if level is not None]
        return tuple(found[:MOST_LEVELS])


def _axis(dataset: Dataset, column: str, levels: tuple[str, ...]) -> Categories:
    return Categories.of(dataset.expression(column), levels)


def _tally(dataset: Dataset, axis: Any) -> Any:
    return dataset.tally(axes=(axis,), where=dataset.condition(None))


def split_for_levels(
    encoder: TableEncoder, *, cap: Fraction, delta: Fraction, fixed: bool
) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """Return epsilon and delta of each column's search, then epsilon and delta that are left for the training."""
    columns = sum(isinstance(each, PrivateLevelColumn) for each in encoder.columns)
    if not columns:
        return Fraction(0), Fraction(0), cap, delta
    each = cap * _SHARE / columns if fixed else _EPSILON
    if each * columns > cap / 2:
        raise InvalidRequest(
            f"Expected a cap of at least {float(2 * _EPSILON * columns)} for {columns} columns with private levels",
            got=float(cap),
            do="Raise max_epsilon, or declare the levels of some columns",
        )
    small = delta * _SHARE / columns
    return each, small, cap - each * columns, delta - small * columns


def plan_searches(
    dataset: Dataset, encoder: TableEncoder, epsilon: Fraction, delta: Fraction
) -> tuple[LevelSearch, ...]:
    """Return the searches for the columns with private levels, each with this epsilon and delta; reads no rows."""
    columns = (each.name for each in encoder.columns if isinstance(each, PrivateLevelColumn))
    return tuple(LevelSearch.plan(dataset, name, epsilon, delta) for name in columns)


@dataclass(frozen=True, kw_only=True)
class LevelsFirst:
    """A training whose categories have private levels: levels above a threshold first, then the training with them.

    ``train`` returns the training with levels that were shown; whatever they are, it raises nothing that it did not raise for
    the largest number of levels.

    Guarantee: approximate ex-post: epsilon and delta of the levels, known before the run, and those of the training, known only
        after the run.
    Adjacency: add/remove of one unit.
    Sensitivity: that of each stage; a unit changes at most ``rows`` counts of levels.
    Accuracy: that of the training.
    Numerics: exact integers and exact sampling; thresholds are rounded up.
    Reference: KKMN09, Theorem 1; docs/proofs/private-keys.md; docs/proofs/tabular-models.md, Theorem 4.
    """

    searches: tuple[LevelSearch, ...]
    train: Callable[[Mapping[str, tuple[str, ...]]], Any]
    whole: Any
    """The training with the largest number of levels; its price is that of all."""

    @property
    def question(self) -> str:
        return str(self.whole.question)

    def plan(self, dataset: Any, context: PlanContext) -> LevelsFirst:
        """Return this plan, with the tests that the accounts can be charged for at the least price."""
        return replace(
            self,
            train=lambda levels: self.train(levels).plan(dataset, context),
            whole=self.whole.plan(dataset, context),
        )

    def check(self) -> None:
        """Raise ``InvalidRequest`` if the noise of a stage cannot be drawn; reads no rows."""
        self.whole.check()

    @property
    def paid(self) -> tuple[Fraction, Fraction]:
        """Return epsilon and delta of all searches."""
        return (
            sum((each.epsilon for each in self.searches), Fraction(0)),
            sum((each.delta for each in self.searches), Fraction(0)),
        )

    @property
    def worst_case(self) -> Loss:
        return add_losses(self.whole.worst_case, ApproxLoss(*self.paid))

    @property
    def event(self) -> PrivacyEvent:
        """Return the searches and all releases of the training that the cap allows."""
        return self._build_event(self.whole.event)

    def event_of(self, receipt: Receipt) -> PrivacyEvent:
        """Return the searches, and the releases of the training that ran."""
        return self._build_event(self.whole.event_of(receipt))

    def _build_event(self, training: PrivacyEvent) -> PrivacyEvent:
        return Events((*(ApproxEvent(each.epsilon, each.delta) for each in self.searches), training))

    def measure(self, dataset: Any) -> tuple[list[tuple[Sealed, pa.Array]], Any]:
        return [each.measure(dataset) for each in self.searches], dataset

    def climb(self, sealed: tuple[list[tuple[Sealed, pa.Array]], Any], bits: BitSource) -> Release[TableModel]:
        """Release the levels, then train with them."""
        counts, dataset = sealed
        levels = {
            search.column: search.choose(*found, bits) for search, found in zip(self.searches, counts, strict=True)
        }
        training = self.train(levels)
        release: Release[TableModel] = training.climb(training.measure(dataset), bits)
        receipt = release.receipt
        found_levels = {
            f"levels of {search.column}": f"{len(levels[search.column])} found with epsilon {float(search.epsilon):.4g}; "
            f"a level needs a noisy count of {search.threshold}"
            for search in self.searches
        }
        return replace(
            release,
            receipt=replace(
                receipt,
                promise=self.worst_case.promise(),
                bill=add_losses(receipt.bill, ApproxLoss(*self.paid)),
                breakdown={
                    "levels": self.paid[0],
                    **(receipt.breakdown or {"training": receipt.bill.amounts()["epsilon"]}),
                },
                terms={**receipt.terms, **found_levels},
                citations=(*receipt.citations, "KKMN09, Theorem 1", "docs/proofs/private-keys.md"),
            ),
        )
