"""One question about a table, from the words of the caller to the release."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from expost.accuracy.interval import epsilon_for_radius, shared_level
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
from expost.data import Dataset, Expression
from expost.data.axis import Axis
from expost.data.form import Form
from expost.data.tally import Tally
from expost.noise import BitSource, DiscreteLaplacePath, system_bits
from expost.stats.ascent import Ascent
from expost.stats.ask import Ask
from expost.stats.groups import GroupRelease, Groups, group_rows
from expost.stats.look_climb import LookClimb
from expost.stats.readers import Reader
from expost.stats.relative_climb import RelativeClimb

__all__ = ["By", "Design", "Question"]

By = str | Expression | Sequence[str | Expression] | None

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

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The groups' axes; the leaves of a tree are not groups."""
        return self.tally.axes if self.leaves == 1 else self.tally.axes[:-1]

    @property
    def labels(self) -> list[Any]:
        """The label of each group; a tuple where there are several columns."""
        combined = list(itertools.product(*(axis.labels for axis in self.axes)))
        return [label[0] for label in combined] if len(self.axes) == 1 else combined


class Question(ABC):
    """The base of the questions answered by adding up rows; it implements ``core.Request``.

    Every question takes ``within=`` (an absolute error, or a share such as ``"5%"``) with ``confidence=`` and a cap
    ``max_epsilon=``, or ``epsilon=``; a filter ``where=`` and groups ``by=``. Intervals of groups hold all at once.
    """

    def __init__(
        self,
        *,
        within: object = None,
        epsilon: object = None,
        confidence: object = 0.95,
        max_epsilon: object = None,
        where: Expression | str | None = None,
        by: By = None,
    ) -> None:
        self._ask = Ask.of(within=within, epsilon=epsilon, confidence=confidence, max_epsilon=max_epsilon)
        self._where = where
        self._by = () if by is None else (by,) if isinstance(by, str | Expression) else tuple(by)
        self._design: Design | None = None

    # What a statistic says about itself -------------------------------------------------------------------------

    @property
    @abstractmethod
    def subject(self) -> str:
        """What is asked for, without filter and groups."""

    @abstractmethod
    def design(self, dataset: Dataset) -> Design:
        """The question fitted to a dataset; refuses what its public description cannot answer."""

    def axes(self, dataset: Dataset) -> tuple[Axis, ...]:
        """The groups' axes."""
        return tuple(dataset.axis(column) for column in self._by)

    def terms(self, design: Design) -> dict[str, Any]:
        """Public conditions for the receipt."""
        bounds = {repr(each.expression): each.clamp.to_terms() for each in design.tally.measured}
        found: dict[str, Any] = {"bounds": bounds} if bounds else {}
        if design.axes:
            found["groups"] = design.cells
        return found

    # core.Request -----------------------------------------------------------------------------------------------

    @property
    def question(self) -> str:
        """The question in public words."""
        text = self.subject
        if self._where is not None:
            text += f" where {self._where}"
        if self._by:
            text += " by " + ", ".join(map(str, self._by))
        return text

    @property
    def worst_case(self) -> Loss:
        """The price, or the cap of a climb; known after ``check``."""
        if self._design is None:
            cap = self._ask.epsilon or self._ask.cap
            if cap is None:
                raise InvalidRequest("Expected a dataset to price the question", do="Call check(dataset) first")
            return PureLoss(cap)
        return PureLoss(self._price(self._design))

    def check(self, dataset: Dataset) -> None:
        """Fit the question to the dataset and price it; reads no rows."""
        self._design = self.design(dataset)
        self._ask.check_price(self._price(self._design))

    def measure(self, dataset: Dataset) -> Sealed:
        """The exact integers, sealed."""
        self._design = design = self.design(dataset)
        secret = system_bits().words(4).tobytes()
        return dataset.total(design.form, design.tally, secret=secret, once=design.once)

    def climb(self, sealed: Sealed, bits: BitSource | None = None) -> Release[Any]:
        """The most private answer that reaches the target, or the best under the cap, flagged."""
        assert self._design is not None
        return self._release(self._design, self._ascend(self._design, sealed, bits))

    # The way up -------------------------------------------------------------------------------------------------

    def _price(self, design: Design) -> Fraction:
        ask = self._ask
        if ask.epsilon is not None:
            return ask.epsilon
        if self._climbs(design):
            assert ask.cap is not None
            return ask.cap
        assert ask.target is not None
        radius = math.floor(ask.target.tolerance / design.reader.unit)
        level = shared_level(ask.failure_probability, design.cells)
        return epsilon_for_radius(radius, level, design.sensitivity.amount)

    def _climbs(self, design: Design) -> bool:
        """Whether the level is found by climbing rather than priced before."""
        if self._ask.target is None or (design.reader.linear and not self._ask.relative):
            return False
        if self._ask.cap is None:
            raise InvalidRequest("Expected a cap: this accuracy depends on the data", do="Pass max_epsilon=")
        return True

    def _ascend(self, design: Design, sealed: Sealed, bits: BitSource | None) -> Ascent:
        price = self._price(design)
        if not self._climbs(design):
            return self._at_once(design, sealed, price, bits)
        target = self._ask.target
        assert target is not None
        if design.reader.linear:
            climb = RelativeClimb(target.tolerance, target.failure_probability, price, design.reader.unit)
            return climb.run(sealed, design.cells, bits)
        return LookClimb(design.reader, target, price).run(sealed, design.cells, bits)

    def _at_once(self, design: Design, sealed: Sealed, level: Fraction, bits: BitSource | None) -> Ascent:
        path = DiscreteLaplacePath(sealed, Ladder((level,)), bits=bits)
        failure = float(shared_level(self._ask.failure_probability, design.cells))
        noisy = path.at(0).reshape(design.cells, -1).T
        reading = design.reader.read(noisy, float(design.sensitivity.amount / level), failure)
        everything = np.ones(design.cells, bool)
        return Ascent(reading, np.zeros(design.cells, np.int64), everything, path.ladder)

    # The way out ------------------------------------------------------------------------------------------------

    def _release(self, design: Design, ascent: Ascent) -> Release[Any]:
        receipt = self._receipt(design, ascent)
        reading = ascent.reading
        if not design.axes:
            value, low, high = (self.shown(float(end[0])) for end in (reading.value, reading.low, reading.high))
            return Release(value, receipt, (low, high), ascent.steps)
        numbers = np.stack([reading.value, reading.low, reading.high])
        levels = [ascent.ladder[rung] for rung in ascent.rung.tolist()]
        rows = group_rows(design.labels, numbers, levels, ascent.met)
        columns = tuple(_name(axis) for axis in design.axes)
        return GroupRelease(Groups(columns, rows), receipt)

    def shown(self, number: float) -> Any:
        """A value or an end of its interval as it leaves."""
        return number

    def _receipt(self, design: Design, ascent: Ascent) -> Receipt:
        ask, many = self._ask, len(ascent.ladder) > 1
        terms = self.terms(design)
        missed = [str(label) for label, met in zip(design.labels, ascent.met, strict=False) if not met]
        if design.axes and missed:
            terms["groups not met"] = missed
        entries = ascent.reading.achieved(relative=ask.relative)
        achieved = entries[np.repeat(ascent.met, len(entries) // len(ascent.met))]
        breakdown = {"scout": ascent.scouted, "climb": ascent.ladder[ascent.top]} if ascent.scouted else {}
        return Receipt(
            question=self.question,
            method="discrete Laplace, gradual release" if many else "discrete Laplace",
            promise=PureGuarantee(self._price(design)),
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
        )


def _outcome(target: Target | None, ascent: Ascent) -> Outcome:
    if target is None:
        return Outcome.FIXED
    # Of many groups some may miss the target: they are flagged, and the rest is what was asked for.
    return Outcome.CERTIFIED if ascent.met.any() else Outcome.NOT_MET


def _name(axis: Axis) -> str:
    return repr(axis.expression).strip('"')
