"""One of several trainings on a table under one bill: the first that reaches a score, or the best at a given epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any

from expost.accounting import GaussianEvent, PrivacyEvent
from expost.accounting import Sequence as Events
from expost.accounting.concentrated import GaussianTotal
from expost.accuracy.black_box import Attempt, BlackBoxLadder
from expost.core import (
    Adjacency,
    ApproxLoss,
    Loss,
    Outcome,
    PlanContext,
    PureLoss,
    Receipt,
    Release,
    Target,
)
from expost.core.rational import round_up
from expost.core.release import add_losses
from expost.models.descent.training_watch import Progress, Quiet
from expost.models.descent.tuning_plan import doubling_ladder
from expost.models.tabular.column_selection import SelectFirst
from expost.models.tabular.private_levels import LevelsFirst
from expost.models.tabular.pure_training import PureTraining
from expost.models.tabular.table_model import TableModel
from expost.models.tabular.training_choice import TrainingChoice, TrainingPlan, TrainingTerms
from expost.noise import BitSource, sample_uniform
from expost.noise.mechanism import largest_mu

__all__ = ["SharedTraining", "TableLadder", "TableSearch"]

_LOSSES = ("log loss", "rmse", "mae")  # measures of which less is better
_SAFE = 1 - 1e-6  # noise is calibrated a little below its price, which is then computed exactly
_HALVINGS = 60
_CITATIONS = ("docs/proofs/black-box-ladder.md", "LT19, Theorem 3.1")


@dataclass(frozen=True, kw_only=True)
class TableSearch:
    """A search that was asked for. What it is made of is known once it is known which accounts pay.

    ``choices`` makes the training of each setting for terms that the search decides.
    """

    question: str
    choices: tuple[Callable[[TrainingTerms], TrainingChoice], ...]
    terms: TrainingTerms
    levels: int
    progress: Callable[[], Progress] | None = None

    def plan(self, dataset: Any, context: PlanContext) -> TableLadder | SharedTraining:
        """Return the plan: a ladder of attempts to a score, or shares of a given epsilon; reads no rows.

        Parameters
        ----------
        dataset : Dataset
            The table; not read.
        context : PlanContext
            The definitions of the accounts that pay.
        """
        terms = self.terms if "pure" not in context.definitions else replace(self.terms, delta=Fraction(0))
        if terms.target is None:
            return self._plan_shares(dataset, context, terms)
        ladder = doubling_ladder(terms.cap, terms.delta, levels=self.levels)
        # There is one attempt per level on average at most, so the failure probability is shared by as many chances to
        # err (Wald's identity).
        each = replace(terms, delta=ladder.delta, failure_probability=terms.failure_probability / self.levels)
        attempts = {
            (number, level): choice(replace(each, epsilon=level)).plan(dataset, context)
            for number, choice in enumerate(self.choices)
            for level in ladder.levels
        }
        return TableLadder(
            question=self.question,
            attempts=attempts,
            settings=len(self.choices),
            ladder=ladder,
            target=terms.target,
            progress=self.progress,
        )

    def _plan_shares(self, dataset: Any, context: PlanContext, terms: TrainingTerms) -> SharedTraining:
        parts, epsilon = len(self.choices), terms.level
        certified = terms.failure_probability / parts  # whichever model is kept, its certificate must hold

        def plan(epsilon: Fraction, delta: Fraction) -> tuple[TrainingPlan, ...]:
            shared = replace(terms, epsilon=epsilon, delta=delta, failure_probability=certified)
            return tuple(choice(shared).plan(dataset, context) for choice in self.choices)

        trainings = plan(epsilon / parts, terms.delta / parts)
        if any(_has_other_noise(each) for each in trainings):
            loss = reduce(add_losses, (each.worst_case for each in trainings))
            return SharedTraining(question=self.question, trainings=trainings, worst_case=loss)
        # Gaussian releases add up in their squared parameters: each training has an equal share of what epsilon allows.
        trainings = plan(_gaussian_share(epsilon, terms.delta, parts), terms.delta)
        noises = [leaf.noise_multiplier for each in trainings for leaf in _gaussian_events(_event_of(each))]
        total = GaussianTotal(sum((1 / noise**2 for noise in noises), Fraction(0)))
        price = round_up(total.epsilon(terms.delta), relative=Fraction(1, 10**9))
        assert price <= epsilon
        return SharedTraining(
            question=self.question, trainings=trainings, worst_case=ApproxLoss(price, terms.delta), gaussian=True
        )


@dataclass(frozen=True, kw_only=True)
class TableLadder:
    """Trains with a setting drawn at random, tests the model on all rows, and repeats, at levels that double.

    An attempt is a training at a given epsilon, its score included, so it is (level, delta)-DP; the black-box ladder hides
    how many there were and which settings failed. A miss comes without a model.

    Guarantee: approximate ex-post, known only after the run: that of ``BlackBoxLadder`` at the level that succeeded; pure
        ex-post if all attempts are pure.
    Adjacency: add/remove of one unit.
    Sensitivity: that of each release of an attempt.
    Accuracy: a model that misses the target is accepted with probability failure_probability at most, over all attempts.
    Numerics: exact noise, coins and integer sums; prices are rounded up.
    Reference: docs/proofs/black-box-ladder.md; LT19, Theorem 3.1.
    """

    question: str
    attempts: dict[tuple[int, Fraction], TrainingPlan]
    settings: int
    ladder: BlackBoxLadder
    target: Target
    progress: Callable[[], Progress] | None = None

    def plan(self, dataset: Any, context: PlanContext) -> TableLadder:
        """Return this plan."""
        return self

    @property
    def worst_case(self) -> Loss:
        amounts = self.ladder.guarantee.amounts()
        return ApproxLoss(amounts["epsilon"], amounts["delta"]) if "delta" in amounts else PureLoss(amounts["epsilon"])

    def measure(self, dataset: Any) -> Any:
        return dataset

    def climb(self, sealed: Any, bits: BitSource) -> Release[tuple[int, TableModel] | None]:
        """Try until one setting passes or the last level is left; returns the number of the setting with its model."""

        def attempt(level: Fraction, _: Any) -> Attempt[tuple[int, Release[TableModel]]]:
            number = int(sample_uniform(self.settings, 1, bits=bits)[0])
            training = self.attempts[number, level]
            release = _run_training(training, sealed, bits)
            return Attempt((number, release), float(release.receipt.outcome is Outcome.TESTED))

        def show(rung: int) -> None:
            # The level alone: how often a model was trained at it is hidden, and the bill relies on that.
            spent = Fraction(self.ladder.spent(rung).amounts()["epsilon"])
            shown.advance_steps(rung + 1, len(self.ladder.levels), spent, "level")

        with self.progress() if self.progress else Quiet() as shown:
            result = self.ladder.run(attempt, score=1.0, bits=bits, entered=show)
        searched = {
            "levels": [float(f"{float(level):.6g}") for level in self.ladder.levels],
            "settings": [_name(number) for number in range(self.settings)],
        }
        kept = None if result.attempt is None else result.attempt.model
        first = next(iter(self.attempts.values()))
        own = None if kept is None else kept[1].receipt
        receipt = Receipt(
            question=self.question,
            method="trainings on the rows of a table, settings tried in a black-box ladder",
            promise=self.worst_case.promise(),
            bill=result.loss,
            adjacency=Adjacency.ADD_REMOVE,
            unit=_training_of(first).unit,
            outcome=Outcome.NOT_MET if kept is None else Outcome.TESTED,
            target=self.target,
            achieved=None if kept is None else float(self.target.tolerance),
            rung=result.rung,
            rungs=len(self.ladder.levels),
            terms={
                **({} if own is None else own.terms),
                **searched,
                **({} if kept is None else {"setting": _name(kept[0])}),
            },
            citations=(*(() if own is None else own.citations), *_CITATIONS),
        )
        return Release(None if kept is None else (kept[0], kept[1].value), receipt)


@dataclass(frozen=True, kw_only=True)
class SharedTraining:
    """Trains every setting with an equal share of a given epsilon, and keeps the model with the best measured score.

    Each training releases its score with noise, inside its share, so that the comparison costs nothing more.

    Guarantee: (epsilon, delta)-DP, or pure if all trainings are, known before the run: adaptive composition of the trainings,
        of Gaussian events in their squared parameters, of others by adding up.
    Adjacency: add/remove of one unit.
    Sensitivity: that of each release of a training.
    Accuracy: none promised; the certified score holds for whichever model is kept (union bound).
    Numerics: prices are exact for Gaussian events and rounded up.
    Reference: docs/proofs/filters.md; DR14, Theorem 3.16.
    """

    question: str
    trainings: tuple[TrainingPlan, ...]
    worst_case: Loss
    gaussian: bool = False

    def plan(self, dataset: Any, context: PlanContext) -> SharedTraining:
        """Return this plan."""
        return self

    @property
    def event(self) -> PrivacyEvent | None:
        """Return the events of all trainings, where all are Gaussian."""
        return Events(tuple(map(_event_of, self.trainings))) if self.gaussian else None

    def measure(self, dataset: Any) -> Any:
        return dataset

    def climb(self, sealed: Any, bits: BitSource) -> Release[tuple[int, TableModel]]:
        """Train all settings; returns the number of the best one with its model."""
        releases = [_run_training(each, sealed, bits) for each in self.trainings]
        measured = [_read_measured(release.receipt) for release in releases]
        best = max(range(len(measured)), key=lambda number: measured[number][1])
        shown = {
            "settings": [_name(number) for number in range(len(measured))],
            "scores of the settings": ", ".join(text for text, _ in measured),
            "setting": _name(best),
        }
        receipt = releases[best].receipt
        return Release(
            (best, releases[best].value),
            replace(
                receipt,
                question=self.question,
                promise=self.worst_case.promise(),
                bill=self.worst_case,
                breakdown={},
                terms={**receipt.terms, **shown},
                citations=(*receipt.citations, "docs/proofs/filters.md"),
            ),
        )


def _name(number: int) -> str:
    return f"model {number}"


def _training_of(plan: TrainingPlan) -> Any:
    """Return the training of a plan, without what comes before it."""
    return _training_of(plan.whole) if isinstance(plan, LevelsFirst | SelectFirst) else plan


def _run_training(plan: Any, dataset: Any, bits: BitSource) -> Release[TableModel]:
    """Return what a training releases."""
    release: Release[TableModel] = plan.climb(plan.measure(dataset), bits)
    return release


def _event_of(plan: Any) -> PrivacyEvent:
    """Return the events of a training with Gaussian noise."""
    event: PrivacyEvent = plan.event
    return event


def _has_other_noise(plan: TrainingPlan) -> bool:
    """Return whether a training has releases that are not Gaussian."""
    return isinstance(plan, LevelsFirst) or isinstance(_training_of(plan), PureTraining)


def _gaussian_events(event: Any) -> list[GaussianEvent]:
    """Return the Gaussian events of a sequence; raise ``TypeError`` if there is another one."""
    if isinstance(event, Events):
        return [leaf for each in event.events for leaf in _gaussian_events(each)]
    if not isinstance(event, GaussianEvent):
        raise TypeError("not a Gaussian event")
    return [event]


def _gaussian_share(epsilon: Fraction, delta: Fraction, parts: int) -> Fraction:
    """Return the epsilon of an equal share of the squared Gaussian parameter that epsilon and delta allow, rounded down.

    >>> share = _gaussian_share(Fraction(1), Fraction(1, 10**6), 4)
    >>> Fraction(2, 5) < share < Fraction(1, 2)
    True
    """
    mu = largest_mu(float(epsilon), float(delta)) * _SAFE / parts**0.5
    low, high = epsilon / parts**2, epsilon
    for _ in range(_HALVINGS):
        middle = Fraction((low + high) / 2).limit_denominator(10**9)
        low, high = (middle, high) if largest_mu(float(middle), float(delta)) <= mu else (low, middle)
    return low


def _read_measured(receipt: Receipt) -> tuple[str, float]:
    """Return the main measure of a receipt as a text, and as a number of which more is better; the worst if it is hidden."""
    label, text = next((name, str(each)) for name, each in receipt.terms.items() if name.startswith("measured "))
    measure = label.removeprefix("measured ")
    if " ± " not in text:
        return f"{measure} {text}", -math.inf
    value = float(text.split(" ")[0])
    return f"{measure} {text}", -value if measure in _LOSSES else value
