"""Statistics that add up rows: planned against earlier releases, then released gradually."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from expost.accuracy.interval import epsilon_for_radius, rung_level, shared_level
from expost.core import (
    BudgetExceeded,
    HoldStages,
    InvalidRequest,
    Ladder,
    Loss,
    Outcome,
    Plan,
    PlanContext,
    PureGuarantee,
    PureLoss,
    Receipt,
    Release,
    Sealed,
    Sensitivity,
)
from expost.core.hold_stages import FIRST_STAGE
from expost.data import Dataset
from expost.data.axis import Axis
from expost.data.sealed_form import Form
from expost.data.tally import Measured, Tally
from expost.noise import BitSource
from expost.noise.parameter import check_level, check_scale
from expost.stats.checkpoint_climb import CheckpointClimb
from expost.stats.gaussian_plan import NOISES, GaussianPlan, leaves_more
from expost.stats.gradual_release import ClimbResult, GradualRelease, ReleaseCache, draw_bounding_secret
from expost.stats.private_keys import private_keys_in
from expost.stats.query_terms import QueryPlan, statistic
from expost.stats.reader import Reader
from expost.stats.relative_climb import RelativeClimb
from expost.stats.table_query import TableQuery, axis_names, group_labels
from expost.stats.table_release import AnswerRelease, GroupRelease, Groups

__all__ = ["Design", "GradualPlan", "GradualQuery", "release_entries"]

FREE_CHECK_SHARE = Fraction(1, 20)  # of the failure probability: for free checks of earlier releases
_FIXED_LEVELS = "/fixed"  # suffix of the release for levels given beforehand, kept apart from one that was climbed
_SMALLEST_PART = 32  # a pilot may get a part this small of the price, and noise of that scale must be representable
_CITATIONS = ("GRS09, Definition 2.1", "LNRWW17, Theorem 2.7")


@dataclass(frozen=True)
class Design:
    """A query fitted to a dataset: what is added up, in which form, and how it is read. Public facts only.

    ``leaves`` is the number of cells of the tally that make up one group (the leaves of a tree), ``once`` whether a
    unit counts once, and ``terms`` what the receipt states.
    """

    tally: Tally
    form: Form
    reader: Reader
    sensitivity: Sensitivity
    once: bool = False
    leaves: int = 1
    terms: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        """Return the number of groups."""
        return self.tally.cells // self.leaves

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Return the groups' axes; the leaves of a tree are not groups."""
        return self.tally.axes if self.leaves == 1 else self.tally.axes[:-1]

    def cache_key(self, dataset: Dataset) -> str:
        """Return a public name for the sealed vector, equal for queries that add up the same."""
        text = repr((dataset.identity, self.tally.measured, self.tally.axes, self.tally.where, self.form, self.once))
        return hashlib.sha256(text.encode()).hexdigest()


@statistic
class GradualQuery(TableQuery):
    """Base of the statistics that are computed from sums over rows.

    A subclass says in ``design`` what is added up and how it is read. Intervals of groups hold all at once.
    """

    noise = "laplace"  # statistics whose error is one noise have an argument of this name

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise not in NOISES:
            raise InvalidRequest("Expected a kind of noise", got=self.noise, do=f"Use one of: {', '.join(NOISES)}")
        private = private_keys_in(self.by) or isinstance(getattr(self, "bounds", None), str)
        if self.noise == "gaussian" and (self.target is None or self.accuracy.relative or private):
            raise InvalidRequest(
                "Gaussian noise needs an absolute error, and public groups and bounds",
                do='Pass within= a number of units, or noise="auto"',
            )

    @abstractmethod
    def design(self, dataset: Dataset) -> Design:
        """Fit the query to a dataset, or raise ``InvalidRequest`` if its description cannot answer it.

        Parameters
        ----------
        dataset : Dataset
            The table, of which only the description is read.
        """

    def _alternative_designs(self, dataset: Dataset) -> list[Design]:
        """Return other designs whose earlier releases may already show the answer."""
        return []

    def fit_design(
        self,
        dataset: Dataset,
        form: Form,
        reader: Reader,
        *,
        measured: Sequence[Measured] = (),
        inner_axes: Sequence[Axis] = (),
        once: bool = False,
        leaves: int = 1,
        bounds: Mapping[str, Any] | None = None,
    ) -> Design:
        """Return the design for this query's groups and filter.

        ``form`` fixes the sensitivity. ``inner_axes`` split each group further, such as bins; ``leaves`` cells of the
        last axis make up one group. The receipt states ``bounds``, by default those of ``measured``.
        """
        axes = (*self._group_axes(dataset), *inner_axes)
        degree = {"degree": form.degree} if measured else {}
        tally = dataset.tally(measured=tuple(measured), axes=axes, where=dataset.condition(self.where), **degree)
        limits = bounds or {repr(each.expression): each.clamp.to_terms() for each in measured}
        terms: dict[str, Any] = {"bounds": limits} if limits else {}
        if axes[: len(axes) - (leaves > 1)]:
            terms["groups"] = tally.cells // leaves
        return Design(tally, form, reader, dataset.sensitivity(form, tally, once=once), once, leaves, terms)

    def _show_number(self, number: float) -> Any:
        """Return a value or an end of its interval as it is released."""
        return number

    def _shape_release(self, design: Design, result: ClimbResult, receipt: Receipt) -> Release[Any]:
        """Put values and intervals into a release."""
        if design.axes:
            return release_entries(design, result, receipt)
        reading = result.reading
        value, low, high = (self._show_number(float(end[0])) for end in (reading.value, reading.low, reading.high))
        return AnswerRelease(value, receipt, (low, high), climb=result.steps)

    def _plan_public(self, dataset: Dataset, context: PlanContext) -> Plan:
        """Plan the query: check earlier releases for a free answer, then price what is missing.

        The noise is chosen by prices alone, before anything is drawn.
        """
        design, asked = self.design(dataset), self.accuracy
        climbs = asked.target is not None and (asked.relative or not self._error_is_known(design))
        if climbs and asked.cap is None:
            raise InvalidRequest("Expected a cap: this accuracy depends on the data", do="Pass max_epsilon=")
        # The bill of a refined Laplace release is the difference of two pure levels: sound where pure losses add up.
        cache = context.released if context.definitions <= {"pure", "approx"} else None
        check = FreeCheck.run(self, design, dataset, cache, climbs=climbs)
        failure = asked.failure_probability
        if (cache is not None) if climbs else check.checked:
            failure = (1 - FREE_CHECK_SHARE) * failure
        laplace = partial(self._plan_laplace, design, check, failure, climbs=climbs)
        if asked.target is None or climbs or check.answer is not None or self.noise == "laplace":
            return laplace()
        if self.noise == "auto" and (context.budget_use is None or context.definitions <= {"pure"}):
            return laplace()
        gaussian = GaussianPlan.offer(self, design, dataset, context, failure, self.answer_name(design))
        if self.noise == "gaussian":
            gaussian.check_cap(context)
            return gaussian
        try:
            plan = laplace()
        except BudgetExceeded:
            gaussian.check_cap(context)
            return gaussian
        return gaussian if gaussian.answer is not None else leaves_more(gaussian, plan, context) or plan

    def _plan_laplace(self, design: Design, check: FreeCheck, failure: Fraction, *, climbs: bool) -> GradualPlan:
        """Price the query under Laplace noise."""
        asked = self.accuracy
        price = asked.epsilon or (asked.cap if climbs else self._absolute_price(design, failure))
        assert price is not None
        asked.check_price(price)
        if climbs:
            check_scale(price / _SMALLEST_PART, design.sensitivity.amount)
        else:
            check_level(price, design.sensitivity.amount)
        plan = GradualPlan(self, design, price, climbs, failure, check)
        return replace(plan, due=plan.amount_due(price))

    def _error_is_known(self, design: Design) -> bool:
        """Return whether the error at a level is known before the run, so that an absolute one is priced beforehand."""
        return design.reader.linear

    def _absolute_price(self, design: Design, failure_probability: Fraction) -> Fraction:
        """Return the least epsilon whose noise stays within an absolute error."""
        level = shared_level(failure_probability, design.cells)
        return epsilon_for_radius(self._lattice_radius(design), level, design.sensitivity.amount)

    def _lattice_radius(self, design: Design) -> int:
        """Return the most that noise may move an integer, so that the error stays within an absolute one."""
        target, reader = self.accuracy.target, design.reader
        assert target is not None
        radius = math.floor((target.tolerance - reader.slack) / reader.unit)
        if radius < 0:
            raise InvalidRequest(
                "Expected an error above what rounding to the grid can do",
                got=float(target.tolerance),
                do="Ask for less accuracy, or declare narrower bounds",
            )
        return radius

    def answer_name(self, design: Design) -> str:
        """Return the name under which a release keeps an answer. The reader counts: a subject may leave an argument out."""
        return f"{self.subject}: {design.reader!r}"


def release_entries(
    design: Design,
    result: ClimbResult,
    receipt: Receipt,
    names: tuple[str, ...] = (),
    entries: Sequence[tuple[Any, ...]] = ((),),
) -> GroupRelease:
    """Put one row per group and entry into a release; ``names`` are the columns that tell a group's entries apart."""
    columns = axis_names(design.axes)
    groups = group_labels(design.axes)
    labels = [(*(group if len(columns) != 1 else (group,)), *entry) for group in groups for entry in entries]
    reading = result.reading
    found = Groups.from_arrays(
        (*columns, *names),
        [label[0] if len(label) == 1 else label for label in labels],
        np.stack([reading.value, reading.low, reading.high]),
        levels=[level for level in result.levels for _ in entries],
        met=np.repeat(result.met, len(entries)),
    )
    return GroupRelease(found, receipt)


@dataclass(frozen=True)
class FreeCheck:
    """What earlier releases contribute to a plan.

    ``answer`` is an earlier reading that is accurate enough, ``continued`` the release to go on with, ``checked``
    whether any release was read again, and ``spent`` what had been paid for all releases that were read.
    """

    cache: ReleaseCache | None = None
    key: str | None = None
    answer: ClimbResult | None = None
    continued: GradualRelease | None = None
    checked: bool = False
    spent: Fraction = Fraction(0)

    @classmethod
    def run(
        cls, query: GradualQuery, design: Design, dataset: Dataset, cache: ReleaseCache | None, *, climbs: bool
    ) -> FreeCheck:
        """Check the releases in a cache for an answer that is accurate enough already."""
        if cache is None:
            return cls()
        asked, key = query.accuracy, design.cache_key(dataset)
        if cache.empty:
            return cls(cache, key)
        spent: dict[int, Fraction] = {}
        own, answer, checked = cache.find_release(key), None, False
        if not climbs and own is not None and own.climbed:
            # Where a climb stopped depends on the noise there: levels given beforehand have a release of their own.
            key += _FIXED_LEVELS
            answer = _find_answer(query, design, own)
            if answer is not None:
                spent[id(own)] = own.spent
        if answer is None:
            known = list(_known_releases(query, design, dataset, cache, own, climbs=climbs))
            answer = _find_shown(query, known, spent)
        if answer is None:
            for each, release in known:
                if release.path is None or release.read < 0:
                    continue
                spent[id(release)], checked = release.spent, True
                level = float(FREE_CHECK_SHARE / len(known) * asked.failure_probability) / each.cells
                answer = _read_again(query, each, release, level)
                if answer is not None:
                    break
        continued = cache.find_release(key)
        if answer is None and continued is not None:
            answer = _find_answer(query, design, continued)
            spent[id(continued)] = continued.spent
        return cls(cache, key, answer, continued, checked, sum(spent.values(), Fraction(0)))


def _find_answer(query: GradualQuery, design: Design, release: GradualRelease) -> ClimbResult | None:
    asked = query.accuracy
    name = query.answer_name(design)
    return release.find_answer(name, asked.failure_probability, epsilon=asked.epsilon, target=asked.target)


def _find_shown(
    query: GradualQuery, known: Sequence[tuple[Design, GradualRelease]], spent: dict[int, Fraction]
) -> ClimbResult | None:
    """Return an answer that one of these releases has shown already, and note what had been paid for it.

    A wider error of a quantile is asked of a smaller tree: what a larger one has shown serves it.
    """
    for design, release in known:
        answer = _find_answer(query, design, release)
        if answer is not None:
            spent[id(release)] = release.spent
            return answer
    return None


def _known_releases(
    query: GradualQuery,
    design: Design,
    dataset: Dataset,
    cache: ReleaseCache,
    own: GradualRelease | None,
    *,
    climbs: bool,
) -> Iterator[tuple[Design, GradualRelease]]:
    """Yield the releases that may show the answer already, with the design to read each by."""
    if own is not None and (own.climbed or climbs):  # else it is read at the level asked for
        yield design, own
    if query.accuracy.target is None:
        return
    others = [(each, each.cache_key(dataset)) for each in query._alternative_designs(dataset)]
    keys = [*others, *((each, key + _FIXED_LEVELS) for each, key in others)]
    if climbs:
        keys.append((design, design.cache_key(dataset) + _FIXED_LEVELS))
    for each, key in keys:
        if (release := cache.find_release(key)) is not None:
            yield each, release


def _read_again(query: GradualQuery, design: Design, release: GradualRelease, level: float) -> ClimbResult | None:
    """Read a release as far as it was paid for, and return the answer if it is accurate enough."""
    assert release.path is not None
    asked = query.accuracy
    if release.climbed:
        # How far that path was read depends on its noise, so the interval pays for all rungs.
        level = rung_level(level, float(release.paid))
    noisy = release.path.at(release.read).reshape(design.cells, -1).T
    reading = design.reader.read(noisy, float(design.sensitivity.amount / release.paid), level)
    if asked.target is not None:
        enough = bool(reading.reaches_target(asked.target).all())
    else:
        enough = asked.epsilon is not None and asked.epsilon <= release.paid
    if not enough:
        return None
    rung = np.full(design.cells, release.read)
    return ClimbResult(reading, rung, np.ones(design.cells, bool), release.path.ladder, paid=release.paid)


@dataclass(frozen=True)
class GradualPlan(QueryPlan):
    """How a sum, or what is computed from sums, will be released.

    ``price`` is the level, or the cap of a climb, without earlier releases; ``due`` is what is still to be paid at
    most. ``failure_probability`` is what free checks have left of the one asked for.
    """

    query: GradualQuery
    design: Design
    price: Fraction
    climbs: bool
    failure_probability: Fraction
    check: FreeCheck
    due: Fraction = Fraction(0)
    stages: HoldStages | None = None

    @property
    def worst_case(self) -> Loss:
        """Return the price less what earlier answers have paid."""
        return PureLoss(self.due)

    @property
    def refined_from(self) -> Fraction:
        """Return what was paid for the release that this plan continues; zero for a new one or a free answer."""
        earlier = self.check.continued
        return Fraction(0) if earlier is None or not self.due else earlier.paid

    def amount_due(self, price: Fraction) -> Fraction:
        """Return what is still to be paid at most, at this price."""
        earlier = self.check.continued
        if self.check.answer is not None:
            return Fraction(0)
        if earlier is None or earlier.path is None:
            return price
        if not self.climbs:  # a rung that exists is read, or a new one added
            place = earlier.path.ladder.first_at_least(price)
            price = earlier.path.ladder[place] if place < len(earlier.path.ladder) else price
        return max(price, earlier.paid) - earlier.paid

    def raise_cap(self, spare: Fraction) -> GradualPlan:
        """Return the plan with a cap that is higher by what others have left over; fixed levels stay."""
        if not self.climbs:
            return self
        return replace(self, price=self.price + spare, due=self.amount_due(self.price + spare))

    def lower_due(self, most: Fraction) -> GradualPlan:
        """Return the plan of a climb that may cost at most this much, which is less than it is due."""
        return replace(self, price=self.price - self.due + most, due=most)

    @property
    def first_stage(self) -> Fraction | None:
        """Return what is held at the start of a climb; a level given beforehand is held as a whole.

        So is the refinement of an earlier release. Another session may refine it at the same time and be faster: then
        this run is discarded, and stages would have shown something of a second continuation of one release, which
        costs more than the difference of two levels (docs/proofs/staged-holds.md).
        """
        return self.due * FIRST_STAGE if self.climbs and self.due and self.check.continued is None else None

    def in_stages(self, stages: HoldStages) -> GradualPlan:
        """Return the plan that reserves its rungs as it climbs."""
        return replace(self, stages=stages)

    def measure(self, dataset: Dataset) -> Sealed | GradualRelease:
        """Return the exact integers, sealed; no rows are read if an earlier release has them."""
        if self.check.answer is not None:
            return GradualRelease()
        if self.check.continued is not None:
            return self.check.continued
        design = self.design
        return dataset.measure_total(design.form, design.tally, secret=draw_bounding_secret(), once=design.once)

    def climb(self, sealed: Sealed | GradualRelease, bits: BitSource | None = None) -> Release[Any]:
        """Return the most private answer that reaches the target, or the best one under the cap, marked as not met."""
        result, design = self.check.answer, self.design
        amount = Fraction(design.sensitivity.amount)
        if result is None:
            release = sealed if isinstance(sealed, GradualRelease) else GradualRelease(sealed)
            if not self.climbs:
                result = self._read_level(release, bits)
            else:
                result = self.climber().run(release, amount, design.cells, bits, self.stages)
            name = self.query.answer_name(design)
            release.record_answer(name, self.query.accuracy.failure_probability, result)
            if self.check.cache is not None and self.check.key is not None:
                self.check.cache.keep_release(self.check.key, release)
        found = self.query._shape_release(self.design, result, self._write_receipt(result))
        return replace(found, confidence=1 - self.query.accuracy.failure_probability)

    def climber(self) -> RelativeClimb | CheckpointClimb:
        """Return the climb to the target under the cap."""
        target, reader = self.query.accuracy.target, self.design.reader
        assert target is not None
        if not reader.linear:
            own = replace(target, failure_probability=self.failure_probability)
            return CheckpointClimb(reader, own, self.price)
        terms = (target.tolerance, self.failure_probability, self.price, reader.unit, reader.slack)
        return RelativeClimb(*terms, signed=reader.signed)

    def _read_level(self, release: GradualRelease, bits: BitSource | None) -> ClimbResult:
        """Read all cells at the level that was given or priced beforehand."""
        design, paid = self.design, release.paid
        path = release.extend_path(Ladder((self.price,)), bits)
        rung = max(path.ladder.first_at_least(self.price), release.read)
        level = float(shared_level(self.failure_probability, design.cells))
        noisy = path.at(rung).reshape(design.cells, -1).T
        reading = design.reader.read(noisy, float(design.sensitivity.amount / path.ladder[rung]), level)
        met = np.ones(design.cells, bool)
        return ClimbResult(reading, np.full(design.cells, rung), met, path.ladder, paid=paid)

    def _write_receipt(self, result: ClimbResult) -> Receipt:
        asked, design, many = self.query.accuracy, self.design, len(result.ladder) > 1
        terms = dict(design.terms)
        if design.axes and not result.met.all():
            labels = zip(group_labels(design.axes), result.met.tolist(), strict=True)
            terms["groups not met"] = [str(label) for label, met in labels if not met]
        entries = result.reading.largest_error(relative=asked.relative)
        achieved = entries[np.repeat(result.met, len(entries) // len(result.met))]
        outcome = Outcome.FIXED
        if asked.target is not None:
            # Some of many groups may miss the target: they are flagged, and the rest is what was asked for.
            outcome = Outcome.CERTIFIED if result.met.any() else Outcome.NOT_MET
        pilot = result.pilot_cost
        return Receipt(
            question=self.question,
            method="discrete Laplace, gradual release" if many else "discrete Laplace",
            promise=PureGuarantee(self.due),
            bill=PureLoss(result.cost),
            adjacency=design.sensitivity.adjacency,
            unit=design.sensitivity.unit,
            outcome=outcome,
            target=asked.target,
            achieved=float(achieved.max()) if achieved.size and np.isfinite(achieved.max()) else None,
            rung=result.top if many else None,
            rungs=len(result.ladder) if many else None,
            terms=terms,
            breakdown={"pilot": pilot, "climb": result.cost - pilot} if pilot else {},
            citations=_CITATIONS,
            paid_before=PureLoss(self.check.spent) if self.check.spent else None,
        )
