"""A fork, or a second run from one checkpoint, has all that a process had: yet one charge pays for one answer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from expost.core import PureLoss, approx, epsilon
from expost.ledger import open_ledger

SETTLES_ON_BOTH_SIDES = """
import os, sys
from expost.core import ExpostError, PureLoss, Receipt, epsilon
from expost.ledger import open_ledger

ledger = open_ledger(sys.argv[1])
hold = ledger.hold(["dataset:flights"], PureLoss(0.5), question="count")
child = os.fork()
if child and sys.argv[2] == "child first":
    os.waitpid(child, 0)
receipt = Receipt(question="count", method="m", promise=epsilon(0.5), bill=PureLoss(0.5))
side = "parent" if child else "child"
try:
    ledger.settle(hold, receipt)
    ledger.settle(hold, receipt)
    os.write(1, f"{side} settled\\n".encode())
except ExpostError as error:
    os.write(1, f"{side}: {error}\\n".encode())
if child == 0:
    os._exit(0)
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("order", ["child first", "any"])
def test_after_a_fork_the_process_that_took_the_hold_settles_and_the_other_releases_nothing(place, order):
    place = place.replace("NAME", "")
    with open_ledger(place) as ledger:
        ledger.open_account("dataset:flights", epsilon(1))

    done = run(SETTLES_ON_BOTH_SIDES, place, order)

    said = sorted(done.stdout.splitlines())
    assert len(said) == 2 and said[1] == "parent settled", done.stderr
    assert said[0].startswith(
        "child: Cannot settle because this is not the process that took this hold. Nothing may leave"
    )
    with open_ledger(place) as ledger:
        assert ledger.spent("dataset:flights") == PureLoss(0.5) and ledger.verify().open_holds == 0


LEAVES_THE_BLOCK_IN_A_CHILD = """
import os, sys
import numpy as np
from expost.core import ExpostError
from expost.holdout import PrivateBoard, ReusableHoldout
from expost.ledger import open_ledger

rows = np.random.default_rng(0).uniform(size=(50_000, 1))
terms = {"tolerance": 0.1, "failure_probability": 0.05, "budget": 2, "ledger": sys.argv[1]}
if sys.argv[2] == "board":
    session = PrivateBoard(rows[:, 0] > 0.5, max_submissions=100, **terms)
else:
    session = ReusableHoldout(rows, rows, max_queries=100, **terms)
with session:
    child = os.fork()
    if child == 0:
        try:
            session.close()
        except ExpostError as error:
            os.write(1, f"{error}\\n".encode())
        raise SystemExit(7)
    os.write(1, f"left with {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\\n".encode())
    os.write(1, f"open {len(open_ledger(sys.argv[1]).open_holds())}\\n".encode())
os.write(1, f"open {len(open_ledger(sys.argv[1]).open_holds())}\\n".encode())
"""


@pytest.mark.parametrize("session", ["board", "holdout"])
def test_a_child_that_leaves_a_session_does_not_settle_it(tmp_path, session):
    done = run(LEAVES_THE_BLOCK_IN_A_CHILD, str(tmp_path / "a.ledger"), session)

    refusal = f"This {session} belongs to another process (it was forked). Open a new {session} here."
    assert done.stdout.splitlines() == [refusal, "left with 7", "open 1", "open 0"], done.stderr


TRAINS = """
import os, shutil, signal, sys, time
import numpy as np
import expost
from expost.models.descent.training_checkpoint import Checkpoint

folder, copies = sys.argv[1:]
refused = f"{folder}/refused"
rng = np.random.default_rng(0)
x = rng.normal(size=(2000, 3))
original = Checkpoint.write

def trained(name, dies=False):
    child = os.fork()
    if child:
        return child

    def write(self, progressed):
        original(self, progressed)
        if dies and progressed.begun == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        deadline = time.monotonic() + 20
        while not dies and progressed.begun == 6 and not os.path.exists(refused) and time.monotonic() < deadline:
            time.sleep(0.01)  # so that both are at work at once, however slow the machine

    Checkpoint.write = write
    model = expost.SGDClassifier(
        epsilon=1.0, rows=2000, classes=[0, 1], feature_bound=3.0, steps=20, batches="full",
        ledger=f"{folder}/book.ledger", account="dataset:t", checkpoint=f"{folder}/{name}",
    )
    try:
        model.fit(x, (x[:, 0] > 0).astype(int))
        os.write(1, b"released\\n")
    except expost.ExpostError as error:
        os.write(1, f"{type(error).__name__}\\n".encode())
        open(refused, "w").close()
    os._exit(0)

os.waitpid(trained("run.npz", dies=True), 0)
if copies == "a copy each":
    shutil.copy(f"{folder}/run.npz", f"{folder}/copy.npz")
for child in [trained("run.npz"), trained("copy.npz" if copies == "a copy each" else "run.npz")]:
    os.waitpid(child, 0)
"""


@pytest.mark.parametrize("copies", ["one file", "a copy each"])
def test_of_processes_that_go_on_from_one_checkpoint_at_once_one_releases(tmp_path, copies):
    with open_ledger(tmp_path / "book.ledger") as ledger:
        ledger.open_account("dataset:t", approx(10, 1e-4))

    done = run(TRAINS, str(tmp_path), copies)

    assert sorted(done.stdout.split()) == ["InvalidRequest", "released"], done.stderr
    with open_ledger(tmp_path / "book.ledger") as ledger:
        assert ledger.verify().open_holds == 0 and ledger.verify().holds == 1
