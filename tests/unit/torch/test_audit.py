"""A canary in the gradients of a module stays below the claim, and sees each fault that is planted."""

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from expost import EngineFailed, InvalidRequest, approx, open_ledger  # noqa: E402
from expost.audit import AuditProfile, AuditVerdict, audit_table  # noqa: E402
from expost.audit.audit_registry import AuditEntry  # noqa: E402
from expost.audit.torch_canary import person_canary_pair, torch_canary_pair  # noqa: E402
from expost.models.descent import trainer  # noqa: E402
from expost.models.descent.training_schedule import Full  # noqa: E402
from expost.noise.gaussian_stream import GaussianStream  # noqa: E402
from expost.torch import train  # noqa: E402
from expost.torch.module_learner import ModuleLearner  # noqa: E402
from expost.torch.person_batches import PersonBatches  # noqa: E402
from expost.torch.row_gradients import ClippedRows  # noqa: E402

long_profile = pytest.mark.skipif(os.environ.get("EXPOST_LONG") != "1", reason="long profile: set EXPOST_LONG=1")


def verdict(pair: Any) -> AuditVerdict:
    (row,) = audit_table(
        AuditProfile(runs=1000, slow_runs=1500), entries=[AuditEntry("expost.torch.train", lambda: (pair,))]
    )
    return row.verdict


def full(noise: int = 1) -> Any:
    return torch_canary_pair("full", Full(4), steps=1, noise=Fraction(noise), runs=600)


def unclipped(monkeypatch: pytest.MonkeyPatch) -> None:
    total = ClippedRows.total
    monkeypatch.setattr(
        ClippedRows,  # of every way to compute gradients: a wrong one alone is passed over
        "total",
        lambda self, inputs, targets, clip, **terms: total(self, inputs, targets, 1e9, **terms),
    )


def test_missing_clipping_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = full()  # the model is checked on made-up rows by now
    unclipped(monkeypatch)

    assert verdict(pair) is AuditVerdict.VIOLATED


def test_missing_clipping_is_refused_before_the_data_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    unclipped(monkeypatch)

    with pytest.raises(InvalidRequest):
        full()


@long_profile
def test_a_person_of_several_rows_is_hidden_and_rows_that_count_in_full_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert verdict(person_canary_pair("person", runs=600)) is not AuditVerdict.VIOLATED
    taken = PersonBatches.take_persons
    monkeypatch.setattr(
        PersonBatches,
        "take_persons",
        lambda self, persons: (found := taken(self, persons))._replace(weights=np.ones_like(found.weights)),
    )

    assert verdict(person_canary_pair("person", runs=600)) is AuditVerdict.VIOLATED


def test_noise_that_is_scaled_after_it_was_added_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    release = GaussianStream.release

    def scaled(self: GaussianStream, sealed: Any) -> Any:
        noise = release(self, sealed) - release(self, sealed)
        return np.asarray(object.__getattribute__(sealed, "_Sealed__exact")) + noise // 10

    monkeypatch.setattr(trainer.GaussianStream, "release", scaled)

    assert verdict(full()) is AuditVerdict.VIOLATED


def test_a_batch_size_that_depends_on_the_data_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = ModuleLearner.open
    monkeypatch.setattr(ModuleLearner, "open", lambda self, phase, expected_size: opened(self, phase, float(self.rows)))

    assert verdict(torch_canary_pair("full", Full(4), steps=1, noise=Fraction(50), runs=1500)) is AuditVerdict.VIOLATED


def test_a_crash_stays_charged_and_a_restart_goes_on_under_the_same_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, file = f"sqlite:///{tmp_path}/book.ledger", str(tmp_path / "run.npz")
    with open_ledger(url) as ledger:
        ledger.open_account("dataset:table", approx(2, 1e-5))
    data = torch.linspace(-1, 1, 200)[:, None], (torch.linspace(-1, 1, 200) > 0).long()
    terms = {
        "rows": 200,
        "epsilon": 2.0,
        "steps": 20,
        "batches": "full",
        "batch_size": 200,
        "ledger": url,
        "checkpoint": file,
    }

    def spent() -> float:
        with open_ledger(url) as ledger:
            return float(ledger.spent("dataset:table").amounts().get("epsilon", 0))

    def left() -> float:
        with open_ledger(url) as ledger:
            return float(ledger.remaining("dataset:table").amounts()["epsilon"])

    descend, steps = ModuleLearner.take_step, []

    def crashing(self: Any, noisy: Any) -> None:
        steps.append(1)
        if len(steps) == 7:
            raise RuntimeError
        descend(self, noisy)

    with monkeypatch.context() as planted:
        planted.setattr(ModuleLearner, "take_step", crashing)
        with pytest.raises(EngineFailed):
            train(torch.nn.Linear(1, 2), data, **terms)  # type: ignore[arg-type]
    assert left() < 0.05

    release = train(torch.nn.Linear(1, 2), data, **terms)  # type: ignore[arg-type]
    assert release.receipt.terms["steps run"] == 20
    assert abs(spent() - release.receipt.epsilon) < 1e-9 and spent() <= 2
