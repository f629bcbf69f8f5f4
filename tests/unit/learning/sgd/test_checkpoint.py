"""A checkpoint keeps a run, and nobody else's."""

import json
import stat
from pathlib import Path

import numpy as np
import pytest

from expost.core import ApproxLoss, InvalidRequest
from expost.learning.sgd.checkpoint import Checkpoint, Progressed
from expost.learning.sgd.stop_test import Verdict
from expost.ledger import Hold

TERMS = {"steps": 3, "noise": ["1/2"]}
HOLD = Hold("4-ab", ("dataset:t",), ApproxLoss(1, 1e-6), "train", request_id="r", ticket="secret")

PASSED = Verdict(True, 7, 0.9, "rows held out about")


def kept(path: Path) -> Checkpoint:
    checkpoint = Checkpoint(path / "run.npz")
    arrays = {"weights": np.arange(3.0), "velocity": np.ones((2, 2))}
    checkpoint.write(Progressed(TERMS, 2, 1, 99, HOLD, arrays, PASSED))
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


def test_no_file_means_no_checkpoint(tmp_path: Path) -> None:
    checkpoint = kept(tmp_path)
    checkpoint.remove()
    checkpoint.remove()

    assert checkpoint.read(TERMS) is None


def test_it_shows_no_secret() -> None:
    shown = repr(Progressed(TERMS, hold=HOLD, split_key=12345, arrays={"weights": np.arange(3.0)}))

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
