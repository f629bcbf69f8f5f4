"""One hold for a training that several processes work on; a crash stays charged."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.unit.models.descent.conftest import Planned, Small

from expost.accounting.budget_rule import ComposedGuarantee, rule_for
from expost.core import Adjacency, EngineFailed, InvalidRequest, LedgerUnsound, TargetNotMet, Unit, approx
from expost.ledger import Protected, open_ledger
from expost.models.descent import training_query as request_module
from expost.models.descent.stopping_test import PublicTest, StopVerdict, ValidationTest
from expost.models.descent.training_checkpoint import Checkpoint, TrainingProgress
from expost.models.descent.training_query import train_resumably
from expost.noise import SeededBits, system_bits

ACCOUNT = "dataset:t"


class Desk:
    """A ledger file with one account, and a checkpoint file."""

    def __init__(self, folder: Path) -> None:
        self.ledger = open_ledger(f"sqlite:///{folder}/book.ledger")
        self.ledger.open_account(ACCOUNT, approx(50, 1e-4))
        self.checkpoint = Checkpoint(folder / "run.npz")

    def train(self, request: Any, small: Small, **terms: Any) -> Any:
        given = {"ledger": self.ledger, "accounts": (ACCOUNT,), "checkpoint": self.checkpoint, "bits": system_bits()}
        return train_resumably(Planned(request), small.data, **(given | terms))  # type: ignore[arg-type]

    def check_charged(self, release: Any) -> None:
        """Settled once, at what the accountant proves of the steps that ran."""
        held, settled = [entry for entry in self.ledger.history() if entry.kind.value in ("hold", "settle")][-2:]
        assert (held.kind.value, settled.receipt) == ("hold", release.receipt)
        assert 0 < self.spent <= held.spent[ACCOUNT].amounts()["epsilon"]
        assert self.ledger.open_holds() == []

    def price_of(self, plan: Any) -> Fraction:
        """The charge of a plan that is held alone."""
        rule = rule_for(ComposedGuarantee.of(approx(50, 1e-4)))
        return rule.shown(rule.held(plan.worst_case, event=plan.event)).amounts()["epsilon"]

    @property
    def spent(self) -> Fraction:
        return self.ledger.spent(ACCOUNT).amounts()["epsilon"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


class Crash:
    """Makes the training die as it opens its n-th phase."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
        opened, original = [], request_module.Trainer._open_phase

        def dying(trainer: Any, phase: int) -> Any:
            opened.append(phase)
            if len(set(opened)) == at:
                raise OSError("disk on fire at row 41")
            return original(trainer, phase)

        monkeypatch.setattr(request_module.Trainer, "_open_phase", dying)
        self.undo = lambda: monkeypatch.setattr(request_module.Trainer, "_open_phase", original)


def test_a_finished_training_is_settled_and_its_checkpoint_gone(desk: Desk, small: Small) -> None:
    release = desk.train(small.surely_late(), small)

    desk.check_charged(release)
    assert release.receipt.ledger_entry
    assert not desk.checkpoint.path.exists()


def test_a_crash_stays_charged_at_the_worst_case_and_tells_nothing(
    desk: Desk, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    Crash(monkeypatch, at=2)

    with pytest.raises(EngineFailed) as raised:
        desk.train(small.surely_late(), small)

    assert desk.spent == desk.price_of(small.surely_late())
    assert "41" not in str(raised.value) and raised.value.__cause__ is None
    assert desk.checkpoint.path.exists()


def test_a_warning_of_a_row_is_not_shown(desk: Desk, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    original = request_module.TrainingPlan.measure

    def warning(request: Any, dataset: Any) -> Any:
        warnings.warn("overflow at row 41", RuntimeWarning, stacklevel=1)
        return original(request, dataset)

    monkeypatch.setattr(request_module.TrainingPlan, "measure", warning)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        release = desk.train(small.fixed(), small)

    assert shown == []
    desk.check_charged(release)


def test_an_account_about_others_is_refused_and_no_checkpoint_written(desk: Desk, small: Small) -> None:
    users, rows = (Protected(ACCOUNT, Adjacency.ADD_REMOVE, unit) for unit in (Unit.of("id"), Unit.row()))
    desk.train(small.fixed(), small, protected=rows)
    spent = desk.spent

    with pytest.raises(InvalidRequest, match="as in the account so far"):
        desk.train(small.fixed(), small, protected=users)

    assert desk.spent == spent and not desk.checkpoint.path.exists()


def test_a_resumed_training_continues_its_odometer_under_the_same_hold(
    desk: Desk, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = Crash(monkeypatch, at=2)
    with pytest.raises(EngineFailed):
        desk.train(small.surely_late(), small)
    crash.undo()

    release = desk.train(small.surely_late(), small)

    assert release.receipt.rung >= 1  # phase 1 was begun, so it is paid for
    desk.check_charged(release)


def test_a_checkpoint_cannot_be_cashed_twice(desk: Desk, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = Crash(monkeypatch, at=2)
    with pytest.raises(EngineFailed):
        desk.train(small.surely_late(), small)
    crash.undo()
    stolen = desk.checkpoint.path.read_bytes()
    desk.train(small.surely_late(), small)
    desk.checkpoint.path.write_bytes(stolen)

    with pytest.raises(InvalidRequest, match="this one is settled"):
        desk.train(small.surely_late(), small)


def test_of_two_copies_of_a_checkpoint_one_goes_on_and_the_other_is_refused_for_free(
    desk: Desk, small: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    crash = Crash(monkeypatch, at=2)
    with pytest.raises(EngineFailed):
        desk.train(small.surely_late(), small)
    copy = Checkpoint(tmp_path / "copy.npz")
    copy.path.write_bytes(desk.checkpoint.path.read_bytes())
    with pytest.raises(EngineFailed):  # the first copy is taken over, and that run breaks too
        desk.train(small.surely_late(), small)
    crash.undo()
    before = desk.ledger.verify()

    with pytest.raises(InvalidRequest, match="newest copy"):
        desk.train(small.surely_late(), small, checkpoint=copy)

    assert desk.ledger.verify() == before
    desk.check_charged(desk.train(small.surely_late(), small))
    assert sorted(path.name for path in tmp_path.glob("*.npz*")) == ["copy.npz"]


def test_a_run_whose_hold_was_taken_over_releases_nothing(
    desk: Desk, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is only a courtesy: without it, the ledger still lets one of two runs settle."""
    monkeypatch.setattr(Checkpoint, "lock_file", lambda self: contextlib.nullcontext())
    original, others = request_module.TrainingPlan.measure, []

    def meanwhile(request: Any, dataset: Any) -> Any:
        monkeypatch.setattr(request_module.TrainingPlan, "measure", original)
        others.append(desk.train(small.fixed(), small))
        return original(request, dataset)

    monkeypatch.setattr(request_module.TrainingPlan, "measure", meanwhile)
    with pytest.raises(LedgerUnsound, match="Nothing may leave"):
        desk.train(small.fixed(), small)

    desk.check_charged(others[0])


def test_a_checkpoint_in_use_is_refused_for_free(desk: Desk, small: Small) -> None:
    with desk.checkpoint.lock_file(), pytest.raises(InvalidRequest, match="no other run works with"):
        desk.train(small.fixed(), small)

    assert desk.spent == 0
    desk.check_charged(desk.train(small.fixed(), small))


def test_a_checkpoint_of_another_ledger_or_account_charges_nothing(
    desk: Desk, small: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    crash = Crash(monkeypatch, at=2)
    with pytest.raises(EngineFailed):
        desk.train(small.surely_late(), small)
    crash.undo()
    desk.ledger.open_account("dataset:u", approx(50, 1e-4))
    other = open_ledger(tmp_path / "other.ledger")
    other.open_account(ACCOUNT, approx(50, 1e-4))

    with pytest.raises(InvalidRequest, match="the account that holds this training"):
        desk.train(small.surely_late(), small, accounts=("dataset:u",))
    with pytest.raises(InvalidRequest, match="a hold of this ledger"):
        desk.train(small.surely_late(), small, ledger=other)
    spent = (other.spent(ACCOUNT), desk.ledger.spent("dataset:u"))
    assert all(loss.amounts()["epsilon"] == 0 for loss in spent)
    desk.check_charged(desk.train(small.surely_late(), small))


def test_other_settings_cannot_continue_a_checkpoint(desk: Desk, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    Crash(monkeypatch, at=2)
    with pytest.raises(EngineFailed):
        desk.train(small.surely_late(), small)

    with pytest.raises(InvalidRequest, match="same training"):
        desk.train(small.surely_late(0.81), small)


def test_other_prices_cannot_continue_a_checkpoint(desk: Desk, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bills hold if they are fixed before the first step: another accountant may not choose among them later."""
    Crash(monkeypatch, at=2)
    with pytest.raises(EngineFailed):
        desk.train(small.surely_late(), small)
    request = small.surely_late()
    dearer = replace(request.prices, epsilons=tuple(2 * epsilon for epsilon in request.prices.epsilons))

    with pytest.raises(InvalidRequest, match="same training"):
        desk.train(replace(request, prices=dearer), small)


def test_a_missed_target_is_settled_and_raised_with_its_model(desk: Desk, small: Small) -> None:
    with pytest.raises(TargetNotMet) as raised:
        desk.train(small.surely_late(0.999), small)

    assert raised.value.release.value.coefficients.shape == (1, 2)
    assert desk.spent == desk.price_of(small.surely_late())


def test_a_simulation_is_marked(desk: Desk, small: Small) -> None:
    release = desk.train(small.fixed(), small, bits=SeededBits(1), simulation=True)

    assert release.receipt.simulation


def test_a_test_that_was_passed_is_not_asked_on_after_a_crash(
    desk: Desk, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else who sees the answer and kills the process gets a second one under the same bill."""
    request = small.surely_late()
    with monkeypatch.context() as crash:
        crash.setattr(type(desk.ledger), "settle", _dying)
        with pytest.raises(OSError):
            desk.train(request, small)
    saved = desk.checkpoint.read({**request.public_terms(), "simulation": False})
    assert saved is not None and saved.verdict is not None and saved.verdict.passed

    monkeypatch.setattr(ValidationTest, "judge_model", _dying)
    monkeypatch.setattr(request_module.Trainer, "_run_stretch", _dying)
    release = desk.train(request, small)

    assert release.receipt.outcome.met
    assert release.receipt.terms["score, estimated"] == round(saved.verdict.score or 0, 4)
    assert release.receipt.breakdown["validation (rows held out)"] == request.prices.epsilons[release.receipt.rung]
    desk.check_charged(release)


def test_so_it_is_where_it_was_passed_after_the_last_phase(
    desk: Desk, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = small.aimed(0.8, phases=1)
    monkeypatch.setattr(ValidationTest, "judge_model", lambda *_: StopVerdict(True, 3, 0.9))
    with monkeypatch.context() as crash:
        crash.setattr(type(desk.ledger), "settle", _dying)
        with pytest.raises(OSError):
            desk.train(request, small)

    assert desk.train(request, small).receipt.outcome.met


@pytest.mark.parametrize("passed", [True, False])
def test_a_full_disk_does_not_tell_the_answer_it_could_not_hold(
    desk: Desk, small: Small, monkeypatch: pytest.MonkeyPatch, passed: bool
) -> None:
    """A yes that were settled without being written would be seen by how the training ends, and asked again after it."""
    write, asked = Checkpoint.write, []

    def full(checkpoint: Checkpoint, progressed: TrainingProgress) -> None:
        if asked:
            raise OSError("no space left on device")
        write(checkpoint, progressed)

    def judge(_: object, learner: object, phase: int) -> StopVerdict:
        asked.append(phase)
        return StopVerdict(passed, 3 if passed else None)

    with monkeypatch.context() as disk:
        disk.setattr(Checkpoint, "write", full)
        disk.setattr(ValidationTest, "judge_model", judge)
        disk.setattr(type(desk.ledger), "settle", _dying)
        with pytest.raises(EngineFailed) as raised:
            desk.train(small.surely_late(), small)

    assert asked == [0]
    assert "finish" in str(raised.value)
    assert desk.train(small.surely_late(), small).receipt.rung > 0  # the rung counts as asked


def test_public_rows_are_asked_anew_after_a_crash(desk: Desk, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def aimed(labels: Any) -> Any:
        private = small.aimed(0.8)
        public = PublicTest(private.rule, (small.features, labels), len(labels))
        return replace(private, public=public, validation_share=Fraction(0))

    with monkeypatch.context() as crash:
        crash.setattr(type(desk.ledger), "settle", _dying)
        with pytest.raises(OSError):
            desk.train(aimed(small.labels), small)

    with pytest.raises(TargetNotMet):
        desk.train(aimed(1 - small.labels), small)


def test_a_simulation_cannot_go_on_as_a_private_training(
    desk: Desk, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeded = {"bits": SeededBits(1), "simulation": True}
    with monkeypatch.context() as crash:
        crash.setattr(type(desk.ledger), "settle", _dying)
        with pytest.raises(OSError):
            desk.train(small.surely_late(), small, **seeded)

    with pytest.raises(InvalidRequest, match="same training"):
        desk.train(small.surely_late(), small)
    assert desk.train(small.surely_late(), small, **seeded).receipt.simulation


def test_a_seed_that_is_not_said_to_be_a_simulation_is_refused(desk: Desk, small: Small) -> None:
    with pytest.raises(InvalidRequest, match="cryptographic"):
        desk.train(small.fixed(), small, bits=SeededBits(1))
    assert desk.spent == 0


def _dying(*_: object, **__: object) -> Any:
    raise OSError("disk on fire")


def test_a_ledger_in_memory_is_charged_for_the_whole_run_after_a_restart(
    desk: Desk, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = Crash(monkeypatch, at=2)
    for attempt in range(2):
        memory = open_ledger(None)
        memory.open_account(ACCOUNT, approx(50, 1e-4))
        if attempt == 0:
            with pytest.raises(EngineFailed):
                desk.train(small.surely_late(), small, ledger=memory)
            crash.undo()
        else:
            desk.train(small.surely_late(), small, ledger=memory)

    assert 0 < memory.spent(ACCOUNT).amounts()["epsilon"] < 50


def test_a_killed_process_leaves_its_training_charged_and_resumable(tmp_path: Path, small: Small) -> None:
    desk = Desk(tmp_path)
    code = f"""
        import os, signal
        from expost.models.descent import stopping_test
        from tests.unit.models.descent.conftest import Planned, Small
        from tests.unit.models.descent.test_resumable import Desk
        from pathlib import Path
        def dying(self, learner, phase):
            if phase == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return stopping_test.StopVerdict(False)
        stopping_test.ValidationTest.judge_model = dying
        small = Small()
        Desk(Path({str(tmp_path)!r})).train(small.surely_late(), small)
    """
    root = Path(__file__).parents[4]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True)

    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert desk.spent == desk.price_of(small.surely_late())
    release = desk.train(small.surely_late(), small)
    assert release.receipt.rung >= 2
    desk.check_charged(release)
