"""One question about a table, from the words of the caller to the release."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np

from expost.accuracy.interval import epsilon_for_radius, shared_level
from expost.accuracy.interval_relative import rung_level
from expost.core import (
    InvalidRequest,
    Ladder,
    Loss,
    Outcome,
    PureGuarantee,
    PureLoss,
    Receipt,
    Release,
    Sealed,
    Sensitivity,
    Target,
)
from expost.core.receipt import together
from expost.data import Dataset
from expost.data.axis import Axis
from expost.data.form import Form
from expost.data.tally import Tally
from expost.noise import BitSource, system_bits
from expost.noise.level import check_level, check_scale
from expost.stats.ascent import Ascent
from expost.stats.by import By, axes_of, columns_of, group_labels
from expost.stats.grouped import GroupedQuestion
from expost.stats.groups import GroupRelease, Groups, group_rows
from expost.stats.kept import Answered, Kept, Shelf
from expost.stats.look_climb import LookClimb
from expost.stats.readers import Reader
from expost.stats.relative_climb import RelativeClimb
from expost.stats.table_release import AnswerRelease

__all__ = ["By", "Design", "Question"]

_GLANCE = Fraction(1, 20)  # of the failure probability: for a free look at what kept paths already show
_APART = "/fixed"  # names the path of levels given beforehand, beside one that was climbed
_SMALLEST_PART = 32  # a scout may get a part this small of the price, and its noise must be possible too
_CITATIONS = ("GRS09, Definition 2.1", "LNRWW17, Theorem 2.7")


@dataclass(frozen=True)
class Design:
    """A question fitted to a dataset: what is added up, in which form, and how it is read. Public facts only."""

    tally: Tally
    form: Form
    reader: Reader
    sensitivity: Sensitivity
    once: bool = False
    leaves: int = 1

    @property
    def cells(self) -> int:
        """The number of groups."""
        return self.tally.cells // self.leaves

    def key(self, dataset: Dataset) -> str:
        """A public name for the sealed vector: equal for questions that add up the same."""
        text = repr((dataset.identity, self.tally.measured, self.tally.axes, self.tally.where, self.form, self.once))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The groups' axes; the leaves of a tree are not groups."""
        return self.tally.axes if self.leaves == 1 else self.tally.axes[:-1]

    @property
    def labels(self) -> list[Any]:
        """The label of each group; a tuple where there are several columns."""
        return group_labels(self.axes)


class Question(GroupedQuestion):
    """The base of the questions answered by adding up rows; it implements ``core.Request``.

    Intervals of groups hold all at once.
    """

    def __init__(self, **terms: Any) -> None:
        super().__init__(**terms)
        self._design: Design | None = None
        self._shelf: Shelf | None = None
        self._key: str | None = None
        self._free: Ascent | None = None
        self._seen: dict[int, Fraction] = {}
        self._glanced = False

    def on(self, shelf: Shelf) -> Self:
        """The same question, answered from the paths of a shelf where it can be, and keeping its own there."""
        self._shelf = shelf
        return self

    # What a statistic says about itself -------------------------------------------------------------------------

    @abstractmethod
    def design(self, dataset: Dataset) -> Design:
        """The question fitted to a dataset; refuses what its public description cannot answer."""

    def alternatives(self, dataset: Dataset) -> list[Design]:
        """Other designs off whose kept paths the answer can be read, if they happen to be accurate enough."""
        return []

    def axes(self, dataset: Dataset) -> tuple[Axis, ...]:
        """The groups' axes."""
        return axes_of(self._by, dataset)

    def terms(self, design: Design) -> dict[str, Any]:
        """Public conditions for the receipt."""
        bounds = {repr(each.expression): each.clamp.to_terms() for each in design.tally.measured}
        found: dict[str, Any] = {"bounds": bounds} if bounds else {}
        if design.axes:
            found["groups"] = design.cells
        return found

    # core.Request -----------------------------------------------------------------------------------------------

    @property
    def worst_case(self) -> Loss:
        """The price, or the cap of a climb, less what a kept path has paid already; known after ``check``."""
        if self._design is None:
            cap = self._ask.epsilon or self._ask.cap
            if cap is None:
                raise InvalidRequest("Expected a dataset to price the question", do="Call check(dataset) first")
            return PureLoss(cap)
        return PureLoss(self._due(self._design))

    def check(self, dataset: Dataset) -> None:
        """Fit the question to the dataset and price it; reads no rows."""
        self._fit(dataset)
        assert self._design is not None
        price = self._price(self._design)
        self._ask.check_price(price)
        if self._climbs(self._design):
            check_scale(price / _SMALLEST_PART, self._design.sensitivity.amount)  # it stops where noise ends
        else:
            check_level(price, self._design.sensitivity.amount)

    def measure(self, dataset: Dataset) -> Sealed | Kept:
        """The exact integers, sealed; nothing is read where a kept path has them."""
        design = self._fit(dataset)
        if self._free is not None:
            return Kept()
        if (kept := self._found()) is not None:
            return kept
        secret = system_bits().words(4).tobytes()
        return dataset.total(design.form, design.tally, secret=secret, once=design.once)

    def climb(self, sealed: Sealed | Kept, bits: BitSource | None = None) -> Release[Any]:
        """The most private answer that reaches the target, or the best under the cap, flagged."""
        design = self._design
        assert design is not None
        if self._free is not None:
            return self._release(design, self._free, Fraction(0))
        kept = sealed if isinstance(sealed, Kept) else Kept(sealed)
        self._seen[id(kept)] = kept.spent
        promise = self._due(design)
        ascent = self._from_before(design, kept) or self._ascend(design, kept, bits)
        kept.read, kept.beside = max(kept.read, ascent.top), kept.beside + ascent.scouted
        kept.answered.append(
            Answered(self.subject, self._ask.failure_probability, ascent.reading, ascent.met, ascent.rung)
        )
        if self._shelf is not None and self._key is not None:
            self._shelf.put(self._key, kept)
        return self._release(design, ascent, promise)

    # The way up -------------------------------------------------------------------------------------------------

    def _fit(self, dataset: Dataset) -> Design:
        self._design = design = self.design(dataset)
        self._key, self._free, self._seen, self._glanced = None, None, {}, False
        if self._shelf is None:
            return design
        self._key = design.key(dataset)
        own, fixed = self._shelf.find(self._key, None), not self._climbs(design)
        if fixed and own is not None and own.climbed:
            # Where a climb stopped depends on the noise there: a level given beforehand has a path of its own.
            self._key += _APART
            self._free = self._from_before(design, own)
        if self._free is not None and own is not None:
            self._seen = {id(own): own.spent}
        else:
            known = list(self._known(dataset, design, own, fixed=fixed))
            looks = (self._glance(each, kept, _GLANCE / len(known)) for each, kept in known)
            self._free = next((look for look in looks if look is not None), None)
        return design

    def _known(
        self, dataset: Dataset, design: Design, own: Kept | None, *, fixed: bool
    ) -> Iterator[tuple[Design, Kept]]:
        """The paths on the shelf that may show the answer already."""
        assert self._shelf is not None
        if own is not None and (own.climbed or not fixed):  # else it is read at the level asked for
            yield design, own
        if self._ask.target is None:
            return
        others = [(each, each.key(dataset)) for each in self.alternatives(dataset)]
        keys = [*others, *((each, key + _APART) for each, key in others)]
        if not fixed:
            keys.append((design, design.key(dataset) + _APART))
        for each, key in keys:
            if (kept := self._shelf.find(key, None)) is not None:
                yield each, kept

    def _glance(self, design: Design, kept: Kept, part: Fraction) -> Ascent | None:
        """The answer read off a path as far as it was paid for, if that is accurate enough."""
        if kept.path is None or kept.read < 0:
            return None
        self._seen[id(kept)], self._glanced = kept.spent, True
        ask, ladder = self._ask, kept.path.ladder
        level = float(part * ask.failure_probability) / design.cells
        if kept.climbed:
            # How far that path was read depends on its noise, so the interval pays for all rungs.
            level = rung_level(level, float(kept.paid))
        noisy = kept.path.at(kept.read).reshape(design.cells, -1).T
        reading = design.reader.read(noisy, float(design.sensitivity.amount / kept.paid), level)
        enough = (
            reading.reaches(ask.target).all() if ask.target else ask.epsilon is not None and ask.epsilon <= kept.paid
        )
        if not enough:
            return None
        rung = np.full(design.cells, kept.read)
        return Ascent(reading, rung, np.ones(design.cells, bool), ladder, paid=kept.paid)

    @property
    def _certified(self) -> Fraction:
        """The failure probability of what is read at a level given beforehand: what free looks have left."""
        whole = self._ask.failure_probability
        return (1 - _GLANCE) * whole if self._glanced else whole

    def _found(self) -> Kept | None:
        return None if self._shelf is None or self._key is None else self._shelf.find(self._key, None)

    def _price(self, design: Design) -> Fraction:
        """What the answer would cost without a kept path."""
        ask = self._ask
        if ask.epsilon is not None:
            return ask.epsilon
        if self._climbs(design):
            assert ask.cap is not None
            return ask.cap
        assert ask.target is not None
        radius = math.floor((ask.target.tolerance - design.reader.slack) / design.reader.unit)
        if radius < 0:
            raise InvalidRequest(
                "Expected an error above what rounding to the grid can do",
                got=float(ask.target.tolerance),
                do="Ask for less accuracy, or declare narrower bounds",
            )
        level = shared_level(self._certified, design.cells)
        return epsilon_for_radius(radius, level, design.sensitivity.amount)

    def _due(self, design: Design) -> Fraction:
        """What is still to be paid at most."""
        kept, price = self._found(), self._price(design)
        if self._free is not None:
            return Fraction(0)
        if kept is None or kept.path is None:
            return price
        if self._from_before(design, kept) is not None:
            return Fraction(0)
        return max(price if self._climbs(design) else _rung_from(kept.path.ladder, price), kept.paid) - kept.paid

    def _climbs(self, design: Design) -> bool:
        """Whether the level is found by climbing rather than priced before."""
        if self._ask.target is None or (design.reader.linear and not self._ask.relative):
            return False
        if self._ask.cap is None:
            raise InvalidRequest("Expected a cap: this accuracy depends on the data", do="Pass max_epsilon=")
        return True

    def _from_before(self, design: Design, kept: Kept) -> Ascent | None:
        """An earlier answer that is good enough, for nothing."""
        if kept.path is None or kept.read < 0:
            return None
        ask, ladder = self._ask, kept.path.ladder
        for answer in reversed(kept.answered):
            if answer.statistic != self.subject or answer.failure_probability > ask.failure_probability:
                continue
            enough = (
                ask.epsilon <= ladder[int(answer.rung.min())]
                if ask.epsilon is not None
                else ask.target is not None and answer.met.all() and answer.reading.reaches(ask.target).all()
            )
            if enough:
                return Ascent(answer.reading, answer.rung, answer.met, ladder, paid=kept.paid)
        return None

    def _ascend(self, design: Design, kept: Kept, bits: BitSource | None) -> Ascent:
        price, amount = self._price(design), Fraction(design.sensitivity.amount)
        if not self._climbs(design):
            return self._at_once(design, kept, price, bits)
        target = self._ask.target
        assert target is not None
        if self._shelf is not None:
            target = replace(target, failure_probability=(1 - _GLANCE) * target.failure_probability)
        if design.reader.linear:
            reader = design.reader
            climb = RelativeClimb(
                target.tolerance,
                target.failure_probability,
                price,
                reader.unit,
                reader.slack,
                signed=reader.signed,
            )
            return climb.run(kept, amount, design.cells, bits)
        return LookClimb(design.reader, target, price).run(kept, amount, design.cells, bits)

    def _at_once(self, design: Design, kept: Kept, level: Fraction, bits: BitSource | None) -> Ascent:
        paid = kept.paid
        path = kept.ladder_to(Ladder((level,)), bits)
        rung = max(path.ladder.first_at_least(level), kept.read)
        failure = float(shared_level(self._certified, design.cells))
        noisy = path.at(rung).reshape(design.cells, -1).T
        reading = design.reader.read(noisy, float(design.sensitivity.amount / path.ladder[rung]), failure)
        everything = np.ones(design.cells, bool)
        return Ascent(reading, np.full(design.cells, rung), everything, path.ladder, paid=paid)

    # The way out ------------------------------------------------------------------------------------------------

    def _release(self, design: Design, ascent: Ascent, promise: Fraction) -> Release[Any]:
        receipt = self._receipt(design, ascent, promise)
        reading = ascent.reading
        if not design.axes:
            value, low, high = (self.shown(float(end[0])) for end in (reading.value, reading.low, reading.high))
            return AnswerRelease(value, receipt, (low, high), ascent.steps)
        numbers = np.stack([reading.value, reading.low, reading.high])
        levels = [ascent.ladder[rung] for rung in ascent.rung.tolist()]
        rows = group_rows(design.labels, numbers, levels, ascent.met)
        return GroupRelease(Groups(columns_of(design.axes), rows), receipt)

    def shown(self, number: float) -> Any:
        """A value or an end of its interval as it leaves."""
        return number

    def _receipt(self, design: Design, ascent: Ascent, promise: Fraction) -> Receipt:
        ask, many = self._ask, len(ascent.ladder) > 1
        terms = {**self.terms(design), **self._notes}
        missed = [str(label) for label, met in zip(design.labels, ascent.met, strict=False) if not met]
        if design.axes and missed:
            terms["groups not met"] = missed
        entries = ascent.reading.achieved(relative=ask.relative)
        achieved = entries[np.repeat(ascent.met, len(entries) // len(ascent.met))]
        breakdown = {"scout": ascent.scouted, "climb": ascent.cost - ascent.scouted} if ascent.scouted else {}
        return Receipt(
            question=self.question,
            method="discrete Laplace, gradual release" if many else "discrete Laplace",
            promise=PureGuarantee(promise),
            bill=PureLoss(ascent.cost),
            adjacency=design.sensitivity.adjacency,
            unit=design.sensitivity.unit,
            outcome=_outcome(ask.target, ascent),
            target=ask.target,
            achieved=float(achieved.max()) if achieved.size and np.isfinite(achieved.max()) else None,
            rung=ascent.top if many else None,
            rungs=len(ascent.ladder) if many else None,
            terms=terms,
            breakdown=breakdown,
            citations=_CITATIONS,
            paid_before=self._rests_on(),
        )

    def _rests_on(self) -> Loss | None:
        """What was paid before for the paths that were looked at, whether or not they were enough, and for keys."""
        paths = sum(self._seen.values(), Fraction(0))
        return together(PureLoss(paths), self._paid_before) if paths else self._paid_before


def _outcome(target: Target | None, ascent: Ascent) -> Outcome:
    if target is None:
        return Outcome.FIXED
    # Of many groups some may miss the target: they are flagged, and the rest is what was asked for.
    return Outcome.CERTIFIED if ascent.met.any() else Outcome.NOT_MET


def _rung_from(ladder: Ladder, level: Fraction) -> Fraction:
    """The level that is read when at least ``level`` is needed: a rung that exists, or a new one."""
    place = ladder.first_at_least(level)
    return ladder[place] if place < len(ladder) else level
