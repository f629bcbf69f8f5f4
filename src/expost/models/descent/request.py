"""A training as a question: its worst case before the data is touched, its receipt after."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from expost.core import (
    Adjacency,
    ApproxLoss,
    InvalidRequest,
    Ladder,
    Loss,
    Outcome,
    Receipt,
    Release,
    TableChanged,
    Target,
)
from expost.data.row_identity import KEY_BITS, row_coins
from expost.models.descent.checkpoint import Progressed
from expost.models.descent.fingerprint import fingerprint
from expost.models.descent.learner import Learner
from expost.models.descent.prices import PriceList
from expost.models.descent.progress import Progress
from expost.models.descent.schedule import Schedule
from expost.models.descent.stop_test import PrivateTest, PublicTest, StopTest
from expost.models.descent.trainer import Trained, Trainer, stretches
from expost.models.descent.validation import ScoreRule, ValidationTest
from expost.models.descent.watch import Watch
from expost.noise import BitSource
from expost.noise.poisson_sample import poisson_sample

__all__ = ["Table", "TrainingRequest"]

_CITATIONS = (
    "ACG16, Algorithm 1",
    "docs/proofs/sgd-gradient.md",
    "docs/proofs/sgd-stopping.md, Theorems 1, 2 and 4",
    "docs/proofs/discrete-gaussian-calibration.md",
    "docs/proofs/row-identity.md",
)


class Table(Protocol):
    """Private rows that a learner can be made of."""

    def __len__(self) -> int: ...

    def learner(self, training: NDArray[np.intp] | slice, validation: NDArray[np.intp] | None) -> Learner:
        """A learner of some rows, tested on others."""
        ...

    def contents(self) -> Iterator[Sequence[NDArray[Any]]]:
        """All that is read of the rows, in numbers, as tables and columns side by side; in chunks, in the rows' order."""
        ...


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """What the curator needs to know of a training.

    Without a target the schedule runs to its end. With one, each row goes by a keyed coin of its content to a validation part
    (``validation_share`` of them), so that it goes there again after a restart, wherever it stands then; and training stops after the first phase whose model passes a private test there; or
    all rows are learned from and the test is on ``public`` rows.
    """

    question: str
    schedule: Schedule
    prices: PriceList
    table: Callable[[Any], Table]
    target: Target | None = None
    rule: ScoreRule | None = None
    public: PublicTest | None = None
    validation_share: Fraction = Fraction(0)
    terms: Mapping[str, Any] = field(default_factory=dict)
    progress: Callable[[], Progress] | None = None
    save: Callable[[Progressed], None] | None = None
    start: Progressed | None = None
    watch: Watch | None = None

    @property
    def worst_case(self) -> Loss:
        """The price of the whole schedule."""
        return self.prices.cap

    def check(self, dataset: Any) -> None:
        """Refuse what the public terms already rule out; reads no rows."""
        untested = self.validation_share == 0 and self.public is None
        if (self.target is None) != (self.rule is None) or (self.target is None) != untested:
            raise InvalidRequest("Expected a target together with rows to test it on", do="Pass both or neither")

    def measure(self, dataset: Any) -> Table:
        """The rows, encoded; they cannot be printed."""
        return self.table(dataset)

    def climb(self, sealed: Table, bits: BitSource) -> Release[Any]:
        """Train, and stop as soon as the target is reached."""
        start = self.start or Progressed(self.public_terms())
        start, learner, test = self._split(sealed, start, bits)
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
        return Release(learner.result(), self._receipt(trained, test))

    def public_terms(self) -> dict[str, Any]:
        """Everything that fixes the training and its price, for receipts and checkpoints."""
        noises = [str(phase.noise_multiplier) for phase in self.schedule.phases]
        return {
            **self.terms,
            "noise multipliers": noises if len(set(noises)) > 1 else noises[:1],  # once, where all phases have the same
            "steps of a phase": [phase.steps for phase in self.schedule.phases],
            "accountant": self.prices.accountant,
            "prices": fingerprint({"epsilons": [str(epsilon) for epsilon in self.prices.epsilons]}),
            "delta": str(self.prices.delta),
            "validation share": str(self.validation_share),
            "target": None if self.target is None else self.target.to_json(),
            **({} if self.public is None else {"public validation rows": self.public.count}),
        }

    def _split(self, table: Table, start: Progressed, bits: BitSource) -> tuple[Progressed, Learner, StopTest | None]:
        if not self.validation_share:
            return start, table.learner(slice(None), None), self.public
        # The same key deals the same rows to the same parts after a restart (docs/proofs/row-identity.md).
        key = start.split_key or bits.integer(KEY_BITS) | 1
        coins, mark = row_coins(table.contents(), key)
        if start.mark is not None and start.mark != mark:
            raise TableChanged
        held_out = poisson_sample(self.validation_share, len(table), words=coins)
        kept = np.ones(len(table), bool)
        kept[held_out] = False
        learner = table.learner(np.flatnonzero(kept), held_out)
        return replace(start, split_key=key, mark=mark), learner, self._test(start, bits)

    def _test(self, start: Progressed, bits: BitSource) -> StopTest | None:
        asked = sum(part.last for part in stretches(self.schedule)[: start.begun])
        if self.target is None or self.rule is None:
            return None
        test = ValidationTest(
            self.rule,
            Ladder(self.prices.epsilons),
            failure_probability=self.target.failure_probability,
            first=asked,
            bits=bits,
        )
        return PrivateTest(
            test, float(self.schedule.batches.rows * self.validation_share / (1 - self.validation_share))
        )

    def _receipt(self, trained: Trained, test: StopTest | None) -> Receipt:
        bill = self.prices.bill(trained.phase)
        terms = self.public_terms() | {
            "steps run": trained.steps,
            "events": json.dumps(self.schedule.event(trained.phase + 1).to_json(), sort_keys=True),
        }
        if len(self.prices.shares) > 1:  # at which anyone can price the events anew
            terms["delta of this stop"] = float(self.prices.shares[trained.phase])
        if trained.verdict and trained.verdict.score is not None:
            terms["score of the public rows" if self.public else "score, estimated"] = round(trained.verdict.score, 4)
        if trained.reading is not None:
            terms["watched"] = str(trained.reading)
        if trained.interrupted:
            terms["stopped"] = "by the caller"
        breakdown = {"training": Fraction(bill.epsilon)}
        if test is not None:
            breakdown[f"validation ({test.rows})"] = test.spent
        return Receipt(
            question=self.question,
            method="differentially private stochastic gradient descent",
            promise=self.prices.cap.promise(),
            bill=_joined(bill, test),
            adjacency=Adjacency.ADD_REMOVE,
            outcome=self._outcome(trained, test),
            target=self.target,
            achieved=self._achieved(trained),
            rung=trained.phase if len(self.schedule.phases) > 1 else None,
            rungs=len(self.schedule.phases) if len(self.schedule.phases) > 1 else None,
            terms=terms,
            breakdown=breakdown,
            citations=_CITATIONS if test is None else (*_CITATIONS, test.citation),
        )

    def _achieved(self, trained: Trained) -> float | None:
        """What is certain of the score: all of it where the rows are public."""
        if self.target is None or trained.verdict is None or not trained.passed:
            return None
        score = trained.verdict.score if self.public else None
        return float(self.target.tolerance) if score is None else score

    def _outcome(self, trained: Trained, test: StopTest | None) -> Outcome:
        if self.target is None:
            return Outcome.FIXED
        return test.outcome if test is not None and trained.passed else Outcome.NOT_MET


def _joined(bill: ApproxLoss, test: StopTest | None) -> ApproxLoss:
    """A row is in one part: the dearer of the two is the bill (parallel composition)."""
    return bill if test is None else ApproxLoss(max(bill.epsilon, test.spent), bill.delta)
