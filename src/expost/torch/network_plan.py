"""The plan of a network's training: for rows or for persons, and what to change when it misses its target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from expost.core import Ladder, Release
from expost.data.row_identity import KEY_BITS
from expost.models.descent.stopping_test import ScoreRule, ValidationTest
from expost.models.descent.trainer import TrainingTable
from expost.models.descent.training_query import TrainingPlan
from expost.noise import BitSource, SeededBits
from expost.torch.module_learner import ModuleTable
from expost.torch.person_batches import PersonIds

__all__ = ["UnitTraining", "advise_after_miss"]


@dataclass(frozen=True, kw_only=True)
class UnitTraining(TrainingPlan):
    """A training whose entries are units: rows, or the persons that ids name."""

    ids: PersonIds | None = None

    def climb(self, sealed: TrainingTable, bits: BitSource) -> Release[Any]:
        """Train, and stop as soon as the target is reached."""
        if self.ids is not None:
            assert isinstance(sealed, ModuleTable)
            sealed = sealed.with_people(self.ids, bits.integer(KEY_BITS).to_bytes(KEY_BITS // 8, "little"))
        return super().climb(sealed, bits)


def advise_after_miss(plan: TrainingPlan, *, cap: float, usual: bool) -> str:
    """Return what to change after a training that missed its score, from public numbers alone.

    ``usual`` is whether clip, learning rate and optimizer were left to their defaults.
    """
    assert plan.target is not None and plan.rule is not None
    score, steps = float(plan.target.tolerance), plan.schedule.steps
    hints = []
    if plan.validation_share:
        held_out = float(plan.schedule.batches.rows * plan.validation_share / (1 - plan.validation_share))
        needed = _least_score(plan, plan.rule, held_out)
        if needed >= 1:
            hints.append(
                f"About {held_out:,.0f} rows held out are too few to test {score:g} at epsilon {cap:g}:"
                " pass public_validation, or ask for less."
            )
        else:
            hints.append(f"The private test on about {held_out:,.0f} rows held out passes from about {needed:.3f} on.")
    if not usual:
        hints.append("Leave clip, learning_rate and optimizer out: they then follow from rows, noise and model.")
    hints.append(f"Otherwise allow more steps (now {steps}), start from a trained or smaller model, or get more rows.")
    return " ".join(hints)


def _least_score(plan: TrainingPlan, rule: ScoreRule, rows: float) -> float:
    """Return the score at which the last test passes as often as not."""
    assert plan.target is not None
    ladder = Ladder(plan.prices.epsilons)
    # Opened for its public margins; it is never asked anything.
    failure, open_ended = plan.target.failure_probability, plan.open_ended
    test = ValidationTest(rule, ladder, failure_probability=failure, open_ended=open_ended, bits=SeededBits(0))
    return (rule.pass_mark + test.margin_at(len(ladder) - 1) / max(rows, 1.0)) / rule.span
