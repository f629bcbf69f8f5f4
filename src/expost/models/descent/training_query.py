"""A training as plan and release, in one run or in several that continue each other."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from expost.accounting import ExPostEvent, Parallel, PrivacyEvent
from expost.answer import answer, check_unchanged, details_of, noted_receipt, outcome_of
from expost.core import (
    Adjacency,
    ApproxLoss,
    EngineFailed,
    InvalidRequest,
    Ladder,
    Loss,
    Outcome,
    PlanContext,
    Receipt,
    Release,
    TableChanged,
    Target,
    TargetNotMet,
    Unit,
)
from expost.data.row_identity import KEY_BITS, row_coins
from expost.ledger import Ledger, Protected
from expost.ledger.ledger_account import check_name
from expost.models.descent.measured_test import MeasuredTest
from expost.models.descent.plateau_test import PlateauTest
from expost.models.descent.stopping_price import PriceList
from expost.models.descent.stopping_test import PublicTest, ScoreRule, StopTest, ValidationTest
from expost.models.descent.trainer import Learner, Trained, Trainer, TrainingTable, cut_stretches
from expost.models.descent.training_checkpoint import Checkpoint, TrainingProgress, hash_settings
from expost.models.descent.training_order import TrainingCourse
from expost.models.descent.training_schedule import Schedule
from expost.models.descent.training_watch import Progress, Watch
from expost.noise import BitSource
from expost.noise.bits import resolve_randomness
from expost.noise.coin import sample_rows

__all__ = ["TrainingPlan", "run_training", "train_resumably"]

_PLANNED = ("schedule", "prices", "target", "validation_share", "measured", "open_ended")  # what a course decides

_CITATIONS = (
    "ACG16, Algorithm 1",
    "docs/proofs/sgd-gradient.md",
    "docs/proofs/sgd-stopping.md, Theorems 1, 2 and 4",
    "docs/proofs/discrete-gaussian-calibration.md",
    "docs/proofs/row-identity.md",
)


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """How a training will run. Its terms are public and known before any data is seen, so it is its own query.

    ``table`` makes the training table of what the dataset holds, once the ledger is charged; ``terms`` are the settings
    of the model, for receipts and checkpoints; ``watch`` is how metrics of the training rows are released along with
    the gradients. Without a target the schedule runs to its end. With one, each row goes by a keyed coin of its content to a validation
    part (``validation_share`` of them), so that it goes there again after a restart, whatever the order of rows then;
    training stops after the first phase whose model passes a private test there. Or all rows are trained on and the test
    is on ``public`` rows, or ``measured`` on all rows with noise. A training that is watched and tested on rows held out
    gives up a score that its readings show to be out of reach, from a price of ``patience`` on. ``start`` is the progress of an earlier run, ``save`` writes progress down.
    """

    question: str
    schedule: Schedule
    prices: PriceList
    table: Callable[[Any], TrainingTable]
    target: Target | None = None
    rule: ScoreRule | None = None
    public: PublicTest | None = None
    validation_share: Fraction = Fraction(0)
    measured: bool = False
    open_ended: bool = False
    patience: Fraction | None = None
    terms: Mapping[str, Any] = field(default_factory=dict)
    progress: Callable[[], Progress] | None = None
    watch: Watch | None = None
    unit: Unit = Unit()
    start: TrainingProgress | None = None
    save: Callable[[TrainingProgress], None] | None = None

    def __post_init__(self) -> None:
        untested = self.validation_share == 0 and self.public is None and not self.measured
        if (self.target is None) != (self.rule is None) or (self.target is None) != untested:
            raise InvalidRequest("Expected a target together with rows to test it on", do="Pass both or neither")

    @classmethod
    def along(cls, course: TrainingCourse, *, terms: Mapping[str, Any], **settings: Any) -> TrainingPlan:
        """Return the plan of a course; ``settings`` are the other fields."""
        batches = course.schedule.batches
        public = {
            "batches": type(batches).__name__.lower(),
            "expected batch size": float(batches.expected_size),
            "rows (public)": batches.rows,
        }
        planned = {name: getattr(course, name) for name in _PLANNED}
        return cls(**planned, terms=public | dict(terms), **settings)

    def plan(self, dataset: Any, context: PlanContext) -> TrainingPlan:
        """Return this plan."""
        return self

    @property
    def worst_case(self) -> Loss:
        return self.prices.cap

    @property
    def event(self) -> PrivacyEvent:
        """Return the steps of the whole schedule and, of rows held out, the private tests; a row is in one of the two."""
        return self._build_event(len(self.schedule.phases), self.prices.cap.epsilon)

    def event_of(self, receipt: Receipt) -> PrivacyEvent:
        """Return the steps that ran until the training stopped."""
        tested = max((spent for name, spent in receipt.breakdown.items() if name != "training"), default=Fraction(0))
        phases = len(self.schedule.phases) if receipt.rung is None else receipt.rung + 1
        return self._build_event(phases, tested)

    def _build_event(self, phases: int, tested: Fraction) -> PrivacyEvent:
        steps = self.schedule.build_event(phases)
        if not self.validation_share:
            return steps
        return Parallel((steps, ExPostEvent(tested, self.prices.cap.epsilon)))

    def measure(self, dataset: Any) -> TrainingTable:
        return self.table(dataset)

    def climb(self, sealed: TrainingTable, bits: BitSource) -> Release[Any]:
        """Train, and stop as soon as the target is reached."""
        start, learner, test = self.split_rows(sealed, self.start or TrainingProgress(self.public_terms()), bits)
        trainer = Trainer(
            learner,
            self.schedule,
            self.prices,
            bits=bits,
            test=test,
            progress=self.progress() if self.progress else None,
            save=self.save,
            watch=self.watch,
        )
        trained = trainer.run(start)
        return Release(learner.build_result(), self._build_receipt(trained, test))

    def public_terms(self) -> dict[str, Any]:
        """Return everything that fixes the training and its price, for receipts and checkpoints."""
        noises = [str(phase.noise_multiplier) for phase in self.schedule.phases]
        return {
            **self.terms,
            "noise multipliers": noises if len(set(noises)) > 1 else noises[:1],  # once, where all phases have the same
            "steps of a phase": [phase.steps for phase in self.schedule.phases],
            "accountant": self.prices.accountant,
            "prices": hash_settings({"epsilons": [str(epsilon) for epsilon in self.prices.epsilons]}),
            "delta": str(self.prices.delta),
            "validation share": str(self.validation_share),
            "target": None if self.target is None else self.target.to_json(),
            **({} if self.public is None else {"public validation rows": self.public.count}),
            **({"tested on": "the rows of the table"} if self.measured else {}),
        }

    def split_rows(
        self, table: TrainingTable, start: TrainingProgress, bits: BitSource
    ) -> tuple[TrainingProgress, Learner, StopTest | None]:
        """Assign the rows to training and validation, and open the test."""
        if self.measured and self.target is not None and self.rule is not None:
            learner: Any = table.learner(slice(None), None)
            measured = MeasuredTest(
                self.rule,
                self.schedule.phases,
                failure_probability=self.target.failure_probability,
                expected_rows=float(self.schedule.batches.rows),
                size=learner.weights,
                bits=bits,
            )
            return start, learner, measured
        if not self.validation_share or self.target is None or self.rule is None:
            return start, table.learner(slice(None), None), self.public
        # A row's coin is a keyed hash of its content, so one row moves no other, and the same key assigns the same rows
        # to the same parts after a restart (docs/proofs/row-identity.md).
        key = start.split_key or bits.integer(KEY_BITS) | 1
        coins, mark = row_coins(table.yield_contents(), key)
        if start.mark is not None and start.mark != mark:
            raise TableChanged
        held_out = sample_rows(self.validation_share, len(table), words=coins)
        learner = table.learner(np.delete(np.arange(len(table)), held_out), held_out)
        kind: Callable[..., ValidationTest] = ValidationTest
        if self.patience is not None:
            kind = partial(PlateauTest, phases=self.schedule.phases, patience=self.patience)
        test = kind(
            self.rule,
            Ladder(self.prices.epsilons),
            failure_probability=self.target.failure_probability,
            first=sum(part.last for part in cut_stretches(self.schedule)[: start.begun]),
            expected_rows=float(self.schedule.batches.rows * self.validation_share / (1 - self.validation_share)),
            open_ended=self.open_ended,
            bits=bits,
        )
        return replace(start, split_key=key, mark=mark), learner, test

    def _build_receipt(self, trained: Trained, test: StopTest | None) -> Receipt:
        """Return the receipt of a training that ended."""
        bill, phases = self.prices.bill_at(trained.phase), len(self.schedule.phases)
        terms = self.public_terms() | {
            "steps run": trained.steps,
            "events": json.dumps(self.schedule.build_event(trained.phase + 1).to_json(), sort_keys=True),
        }
        if len(self.prices.shares) > 1:  # the delta at which anyone can price the events again
            terms["delta of this stop"] = float(self.prices.shares[trained.phase])
        if trained.verdict and trained.verdict.score is not None:
            terms["score of the public rows" if self.public else "score, estimated"] = round(trained.verdict.score, 4)
        if trained.verdict and trained.verdict.ended:
            terms["ended"] = self._explain_end(trained, phases)
        if trained.reading is not None:
            terms["watched"] = str(trained.reading)
        if trained.interrupted:
            terms["stopped"] = "by the caller"
        achieved, outcome = None, Outcome.FIXED if self.target is None else Outcome.NOT_MET
        if self.target is not None and test is not None and trained.verdict is not None and trained.passed:
            outcome = test.outcome
            # The whole score is certain where the rows are public, else no more than the target.
            score = trained.verdict.score if self.public else None
            achieved = float(self.target.tolerance) if score is None else score
        elif trained.verdict is not None and trained.verdict.ended:
            achieved = trained.verdict.certified
        breakdown = {"training and tests" if self.measured else "training": Fraction(bill.epsilon)}
        if test is not None and not self.measured:
            breakdown[f"validation ({test.rows})"] = test.spent
            # A row is in one part only: the bill is the larger of the two (parallel composition).
            bill = ApproxLoss(max(bill.epsilon, test.spent), bill.delta)
        return Receipt(
            question=self.question,
            method="differentially private stochastic gradient descent",
            promise=self.prices.cap.promise(),
            bill=bill,
            adjacency=Adjacency.ADD_REMOVE,
            unit=self.unit,
            outcome=outcome,
            target=self.target,
            achieved=achieved,
            rung=trained.phase if phases > 1 else None,
            rungs=phases if phases > 1 else None,
            terms=terms,
            breakdown=breakdown,
            citations=_CITATIONS if test is None else (*_CITATIONS, test.citation),
        )

    def _explain_end(self, trained: Trained, phases: int) -> str:
        """Return why a training ended without reaching its score."""
        if trained.phase + 1 == phases:
            return "the cap is spent"
        return "out of reach: more privacy budget improves the score too little"


def run_training(query: Any, dataset: Any, *, checkpoint: Any, **terms: Any) -> Release[Any]:
    """Answer a query of a training: in one run or, with the path of a checkpoint, in several."""
    if checkpoint is None:
        return answer(query, dataset, **terms)
    return train_resumably(query, dataset, checkpoint=Checkpoint(checkpoint), **terms)


def train_resumably(
    query: TrainingPlan,
    dataset: Any,
    *,
    ledger: Ledger,
    accounts: Sequence[str],
    checkpoint: Checkpoint,
    bits: BitSource | None = None,
    simulation: bool = False,
    protected: Protected | None = None,
) -> Release[Any]:
    """Train under one hold that outlives the process; the counterpart of ``expost.answer.answer``.

    A first run takes the hold and writes it into the checkpoint before the data is touched. A run that finds a
    checkpoint takes that hold over and continues: what was begun stays charged, nothing is charged twice. Of several
    runs that have a copy of one checkpoint the ledger lets one take over, so only one of them can release anything;
    a checkpoint that another run works with is refused, free of charge.
    """
    source = resolve_randomness(bits, simulation)
    definitions = frozenset(ledger.budget(account).definition for account in accounts)
    has_changed = getattr(dataset, "has_changed", bool)
    check_unchanged(has_changed)
    plan = query.plan(dataset, PlanContext(definitions=definitions))
    checkpoint.check()
    # Numbers drawn from a seed must not continue as if they were private, so the checkpoint records it.
    terms = {**plan.public_terms(), "simulation": simulation}
    with checkpoint.lock_file():
        start = checkpoint.read(terms) or TrainingProgress(terms, split_key=source.integer(KEY_BITS) | 1)
        if start.hold is None or not ledger.durable:
            # A ledger in memory died with its process: the whole run is charged to the new one.
            hold = ledger.hold(
                accounts, plan.worst_case, question=plan.question, protected=protected, **details_of(plan)
            )
        elif start.hold.accounts != tuple(sorted(check_name(account) for account in accounts)):
            raise InvalidRequest("Expected the account that holds this training", do="Name it as before")
        else:
            # The new ticket is written down before the ledger has it, so no crash loses it.
            earlier = start
            hold = ledger.take_over(start.hold, keep=lambda mine: checkpoint.write(replace(earlier, hold=mine)))
        start = replace(start, hold=hold)
        checkpoint.write(start)
        release = _run_quietly(replace(plan, start=start, save=checkpoint.write), dataset, source, simulation)
        if has_changed():
            raise TableChanged
        release = replace(release, receipt=noted_receipt(hold, release.receipt))
        release = release.entered(ledger.settle(hold, release.receipt, outcome=outcome_of(plan, release.receipt)))
        checkpoint.remove()
    if not release.receipt.outcome.met:
        raise TargetNotMet.of(release)
    return release


def _run_quietly(plan: TrainingPlan, dataset: Any, bits: BitSource, simulation: bool) -> Release[Any]:
    """Train. Exceptions and warnings may carry rows, so none of them travels (as in ``expost.answer.answer``)."""
    if simulation:
        release = plan.climb(plan.measure(dataset), bits)
        return replace(release, receipt=replace(release.receipt, simulation=True))
    stopped = changed = False
    try:
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning may depend on a single row
            try:
                return plan.climb(plan.measure(dataset), bits)
            except TableChanged:  # carries no data
                changed = True
    except KeyboardInterrupt:
        stopped = True
    if changed:
        raise TableChanged
    if stopped:
        raise KeyboardInterrupt(
            f"{plan.question!r} was stopped outside its steps; it stays charged, and its checkpoint can be continued."
        )
    raise EngineFailed(
        f"Expected to finish {plan.question!r}",
        do="Its checkpoint can be continued; the worst case stays charged until it is",
    )
