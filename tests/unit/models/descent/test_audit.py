"""A canary in the gradients stays below the claim, and sees each fault that is planted."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from expost.audit import AuditProfile, AuditVerdict, audit_table
from expost.audit.audit_registry import AuditEntry
from expost.audit.entries_sgd import canary_pair
from expost.models.descent import linear_learner, trainer, training_schedule
from expost.models.descent.clipped_gradient import ClippedGradient
from expost.models.descent.training_schedule import Full, Poisson
from expost.noise.gaussian_stream import GaussianStream

PROFILE = AuditProfile(runs=1000, slow_runs=1500)


def verdict(pair: Any) -> AuditVerdict:
    entry = AuditEntry("expost.models.descent.trainer.Trainer", pairs=lambda: (pair,))
    (row,) = audit_table(PROFILE, entries=[entry])
    return row.verdict


def full() -> Any:
    return canary_pair("full", Full(4), steps=1, noise=Fraction(1))


def test_missing_clipping_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ClippedGradient,
        "clip_residuals",
        lambda self, residuals, squares, weights=None: np.rint(residuals * self.residual_unit),
    )

    assert verdict(full()) is AuditVerdict.VIOLATED


def test_noise_that_is_added_after_the_division_by_the_batch_size_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # A sensitivity of clip / batch size, as if the noise went on the mean of a batch of 10.
    release = GaussianStream.release

    def scaled(self: GaussianStream, sealed: Any) -> Any:
        noise = release(self, sealed) - release(self, sealed)
        return trainer_exact(sealed) + noise // 10

    monkeypatch.setattr(trainer.GaussianStream, "release", scaled)

    assert verdict(full()) is AuditVerdict.VIOLATED


def test_a_batch_size_that_depends_on_the_data_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # Sums are divided by the number of rows that happen to be there: two or three, which the size of the noise tells.
    opened = linear_learner.LinearLearner.open
    monkeypatch.setattr(
        linear_learner.LinearLearner, "open", lambda self, phase, expected_size: opened(self, phase, float(self.rows))
    )

    assert verdict(canary_pair("full", Full(4), steps=1, noise=Fraction(50), runs=1500)) is AuditVerdict.VIOLATED


def test_the_same_training_with_a_public_batch_size_passes() -> None:
    pair = canary_pair("full", Full(4), steps=1, noise=Fraction(50), runs=1500)

    assert verdict(pair) is not AuditVerdict.VIOLATED


def test_skipping_empty_batches_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # No noise when nobody was drawn: a weight of exactly zero says that the rows were not there.
    descend, measure = linear_learner.LinearLearner.take_step, linear_learner.LinearLearner.measure

    def measured(self: Any, index: Any) -> Any:
        self.empty = len(index) == 0
        return measure(self, index)

    monkeypatch.setattr(linear_learner.LinearLearner, "measure", measured)
    monkeypatch.setattr(
        linear_learner.LinearLearner, "take_step", lambda self, noisy: None if self.empty else descend(self, noisy)
    )

    pair = canary_pair("sampled", Poisson(Fraction(1, 2), 4), steps=1, noise=Fraction(20), others=0)

    assert verdict(pair) is AuditVerdict.VIOLATED


def test_a_canary_that_is_in_every_batch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # Sampling that is claimed and not done.
    monkeypatch.setattr(training_schedule, "sample_rows", lambda rate, rows, bits: np.arange(rows))

    pair = canary_pair("sampled", Poisson(Fraction(1, 50), 4), steps=16, noise=Fraction(2))

    assert verdict(pair) is AuditVerdict.VIOLATED


def trainer_exact(sealed: Any) -> np.ndarray:
    return np.asarray(object.__getattribute__(sealed, "_Sealed__exact"))
