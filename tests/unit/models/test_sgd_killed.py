"""An estimator's training is killed in the middle; the same call goes on, under the same hold, from what was paid for."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expost import InvalidRequest, TargetNotMet, approx, open_ledger
from expost.models.descent.sgd_estimator import SGDClassifier

ACCOUNT = "dataset:table"
STEPS, KILLED_AT = 40, 21


def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 3)) * [1.0, 0.3, 0.1]
    return x, (x @ [1.0, 3.0, -10.0] > 0).astype(int)


def model(folder: Path, **changes: Any) -> SGDClassifier:
    terms = {"classes": [0, 1], "rows": 4000, "feature_bound": 3.0, "steps": STEPS, "solver": "newton", "epsilon": 2.0}
    files = {"ledger": f"sqlite:///{folder}/book.ledger", "checkpoint": f"{folder}/run.npz"}
    return SGDClassifier(**(terms | files | changes))


def killed(folder: Path, at: int, **changes: Any) -> None:
    """The fit in a process of its own, which dies in its ``at``-th Newton step, after the noisy sum was released."""
    code = f"""
        import os, signal
        from pathlib import Path
        from expost.models.descent.linear_learner import NewtonLearner
        from tests.unit.models.test_sgd_killed import model, table
        steps, original = [], NewtonLearner.take_step
        def dying(self, noisy):
            steps.append(1)
            if len(steps) == {at}:
                os.kill(os.getpid(), signal.SIGKILL)
            original(self, noisy)
        NewtonLearner.take_step = dying
        model(Path({str(folder)!r}), **{changes!r}).fit(*table())
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])}
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()


def with_account(folder: Path) -> Path:
    with open_ledger(f"sqlite:///{folder}/book.ledger") as ledger:
        # All of it is held by one training, so the account adds up by plain sums and shows the price itself.
        ledger.open_account(ACCOUNT, approx(2, model(folder).delta))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return with_account(tmp_path)


@pytest.fixture(scope="module")
def as_killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one killed training left; a process takes seconds to start, so each test goes on from a copy."""
    folder = with_account(tmp_path_factory.mktemp("killed"))
    killed(folder, KILLED_AT)
    return folder


@pytest.fixture
def left(as_killed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(as_killed, tmp_path / "copy"))


def books(folder: Path) -> tuple[Any, int]:
    with open_ledger(f"sqlite:///{folder}/book.ledger") as ledger:
        return ledger.spent(ACCOUNT).amounts()["epsilon"], len(ledger.open_holds())


def test_a_killed_newton_training_stays_charged_and_goes_on_where_it_was_paid_for(left: Path) -> None:
    cap = model(left).price(3).cap.epsilon
    assert books(left) == (cap, 1)
    with np.load(left / "run.npz") as kept:
        precision = float(kept["curvature precision"][0])
        assert kept["curvature"].shape == (4, 4) and precision > 0

    x, y = table()
    goes_on = model(left).fit(x, y)

    receipt = goes_on.receipt_
    assert books(left) == (cap, 0) and receipt.bill.epsilon == cap
    assert receipt.terms["steps run"] == STEPS  # the stretch that was begun counts, though its two steps are lost
    assert receipt.promise.epsilon <= 2 and not receipt.simulation
    assert np.mean(goes_on.predict(x) == y) > 0.85
    assert not (left / "run.npz").exists()
    with pytest.raises(Exception, match="worst case"):
        model(left).fit(x, y)  # a second training does not fit into the budget


def test_the_curvature_of_before_the_kill_is_used_after_it(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with np.load(left / "run.npz") as kept:
        before = float(kept["curvature precision"][0])
    seen: list[float] = []
    learner = sys.modules["expost.models.descent.linear_learner"].NewtonLearner
    original = learner.take_step

    def descend(self: Any, noisy: Any) -> None:
        original(self, noisy)
        seen.append(self._precision)

    monkeypatch.setattr(learner, "take_step", descend)
    model(left).fit(*table())

    assert len(seen) == STEPS - KILLED_AT - 1  # 20 steps were kept, 2 are lost
    assert seen[0] == pytest.approx(before * 21 / 20)  # every step adds the same precision


def test_a_killed_newton_training_to_a_target_goes_on_too(folder: Path) -> None:
    aim = {"epsilon": None, "score": ("accuracy", 0.999), "max_epsilon": 2.0, "phases": 4, "steps": 12}
    killed(folder, 5, **aim)  # in the second phase
    cap, holds = books(folder)
    assert holds == 1 and 1.9 < cap <= 2

    with pytest.raises(TargetNotMet) as missed:
        model(folder, **aim).fit(*table())

    assert missed.value.receipt.terms["steps run"] == 12
    assert missed.value.receipt.bill.epsilon == cap
    assert books(folder) == (cap, 0)


def test_another_solver_cannot_go_on_from_it(left: Path) -> None:
    before = books(left)

    with pytest.raises(InvalidRequest, match="same training"):
        model(left, solver="gradient").fit(*table())
    assert books(left) == before


@pytest.mark.parametrize(
    "other", [{"classes": [1, 0]}, {"bounds": [(-3, 3)] * 3}, {"fit_intercept": False}, {"classes": [0, 2]}], ids=str
)
def test_other_labels_or_columns_cannot_go_on_from_it(left: Path, other: dict[str, Any]) -> None:
    before = books(left)

    with pytest.raises(InvalidRequest, match="same training"):
        model(left, **other).fit(*table())

    assert books(left) == before


def test_a_torn_checkpoint_is_refused_and_charges_nothing(folder: Path) -> None:
    (folder / "run.npz").write_bytes(b"PK\x03\x04 torn")

    with pytest.raises(InvalidRequest, match="checkpoint"):
        model(folder).fit(*table())
    assert books(folder) == (0, 0)
