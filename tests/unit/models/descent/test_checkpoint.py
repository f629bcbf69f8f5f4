"""A checkpoint keeps a run, and nobody else's."""

import json
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from expost.core import ApproxLoss, InvalidRequest
from expost.ledger import Hold
from expost.models.descent import training_checkpoint as module
from expost.models.descent.stopping_test import StopVerdict
from expost.models.descent.training_checkpoint import Checkpoint, TrainingProgress

TERMS = {"steps": 3, "noise": ["1/2"]}
HOLD = Hold("4-ab", ("dataset:t",), ApproxLoss(1, 1e-6), question="train", request_id="r", ticket="secret")

PASSED = StopVerdict(True, 7, 0.9, "rows held out about")


def kept(path: Path) -> Checkpoint:
    checkpoint = Checkpoint(path / "run.npz")
    arrays = {"weights": np.arange(3.0), "velocity": np.ones((2, 2))}
    checkpoint.write(TrainingProgress(TERMS, 2, 1, 99, HOLD, arrays, PASSED))
    return checkpoint


def test_it_gives_back_what_was_written(tmp_path: Path) -> None:
    found = kept(tmp_path).read(TERMS)

    assert found is not None
    assert (found.begun, found.finished, found.split_key) == (2, 1, 99)
    assert (found.hold, found.verdict) == (HOLD, PASSED)
    assert found.arrays["weights"].tolist() == [0, 1, 2]


def test_only_the_owner_may_read_it_and_no_draft_is_left(tmp_path: Path) -> None:
    checkpoint = kept(tmp_path)

    assert stat.S_IMODE(checkpoint.path.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


def test_it_holds_no_pickles(tmp_path: Path) -> None:
    with np.load(kept(tmp_path).path, allow_pickle=False) as archive:
        assert json.loads(archive["expost"].tobytes())["begun"] == 2


def test_a_checkpoint_of_other_terms_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="same training"):
        kept(tmp_path).read(TERMS | {"steps": 4})


def test_one_of_another_version_is_refused_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FORMAT", 2)
    older = kept(tmp_path)
    monkeypatch.undo()

    with pytest.raises(InvalidRequest, match="this version"):
        older.read(TERMS)


def test_a_yes_is_as_long_as_a_no_and_as_nothing(tmp_path: Path) -> None:
    checkpoint, sizes = Checkpoint(tmp_path / "run.npz"), set()
    for verdict in (
        None,
        StopVerdict(False),
        PASSED,
        StopVerdict(True, (1 << 62) - 1, -2.2250738585072014e-308, PASSED.rows),
    ):
        checkpoint.write(TrainingProgress(TERMS, hold=HOLD, verdict=verdict))
        sizes.add(checkpoint.path.stat().st_size)

    assert len(sizes) == 1


def test_a_draft_that_was_written_as_a_whole_is_the_newer_file(tmp_path: Path) -> None:
    checkpoint, draft = kept(tmp_path), tmp_path / "run.npz.part"
    before = checkpoint.path.read_bytes()
    checkpoint.write(TrainingProgress(TERMS, 5, 5, 99, HOLD))
    checkpoint.path.rename(draft)
    checkpoint.path.write_bytes(before)

    found = checkpoint.read(TERMS)

    assert found is not None and found.begun == 5
    assert not draft.exists()


OTHER = [
    (TrainingProgress(TERMS, 5, 5, 99, HOLD), -1),
    (TrainingProgress(TERMS | {"steps": 4}, 5, 5, 99, HOLD), None),
    (TrainingProgress(TERMS, 5, 5, 99, replace(HOLD, id="9-b")), None),
    (TrainingProgress(TERMS, 1, 1, 99, HOLD), None),
]


@pytest.mark.parametrize(
    ("progressed", "end"), OTHER, ids=["torn", "of another training", "of another run", "of an earlier stretch"]
)
def test_a_draft_that_does_not_follow_the_file_is_not(
    tmp_path: Path, progressed: TrainingProgress, end: int | None
) -> None:
    checkpoint, draft = kept(tmp_path), tmp_path / "run.npz.part"
    other = Checkpoint(tmp_path / "other.npz")
    other.write(progressed)
    draft.write_bytes(other.path.read_bytes()[:end])

    found = checkpoint.read(TERMS)

    assert found is not None and found.begun == 2


def test_a_first_draft_keeps_its_hold(tmp_path: Path) -> None:
    checkpoint = kept(tmp_path)
    checkpoint.path.rename(tmp_path / "run.npz.part")

    found = checkpoint.read(TERMS)

    assert found is not None and found.hold == HOLD


def test_a_draft_replaces_no_file_that_is_none_of_ours(tmp_path: Path) -> None:
    checkpoint = kept(tmp_path)
    checkpoint.path.rename(tmp_path / "run.npz.part")
    checkpoint.path.write_bytes(b"somebody's work")

    with pytest.raises(InvalidRequest, match="same training"):
        checkpoint.read(TERMS)
    assert checkpoint.path.read_bytes() == b"somebody's work"


def test_nothing_is_left_of_a_run_that_is_settled(tmp_path: Path) -> None:
    checkpoint = kept(tmp_path)
    (tmp_path / "run.npz.part").write_bytes(checkpoint.path.read_bytes())
    checkpoint.remove()

    assert list(tmp_path.iterdir()) == []
    assert checkpoint.read(TERMS) is None


def test_no_file_means_no_checkpoint(tmp_path: Path) -> None:
    checkpoint = kept(tmp_path)
    checkpoint.remove()
    checkpoint.remove()

    assert checkpoint.read(TERMS) is None


def test_it_shows_no_secret() -> None:
    shown = repr(TrainingProgress(TERMS, hold=HOLD, split_key=12345, arrays={"weights": np.arange(3.0)}))

    assert "secret" not in shown
    assert "12345" not in shown


def test_a_place_that_cannot_be_written_and_a_file_that_is_none_of_ours_are_refused(tmp_path: Path) -> None:
    for wrong in (3, "", None):
        with pytest.raises(InvalidRequest, match="path"):
            Checkpoint(wrong)  # type: ignore[arg-type]
    for place in (tmp_path / "no" / "run.npz", tmp_path):
        with pytest.raises(InvalidRequest, match="folder"):
            Checkpoint(place).check()
    for content in (b"", b"PK\x03\x04", b"words"):
        file = tmp_path / "run.npz"
        file.write_bytes(content)
        with pytest.raises(InvalidRequest, match="same training"):
            Checkpoint(file).read({})
