"""The owner's file: what is missing, misspelt or contradictory is refused in words before anything is served."""

from fractions import Fraction
from pathlib import Path

import pytest
from tests.served import write_people

from expost.core import InvalidRequest
from expost.service import ServiceSettings


@pytest.mark.parametrize(
    ("more", "extra", "part"),
    [
        ("", "approval_above = 0.5", "approval_above below question_cap"),
        ("", "aproval_above = 0.1", "aproval_above"),
        ("tme_grid = 1", "", "tme_grid"),
        ("port = 70000", "", "port"),
        ("time_grid = -1", "", "time_grid"),
        ('certificate = "cert.pem"', "", "certificate together with its key"),
        ("[limits]\nworkers = 0", "", "limits.workers"),
        ("[limits]\nworker_count = 1", "", "worker_count"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, more: str, extra: str, part: str) -> None:
    path = write_people(tmp_path, more=more if "limits" not in more else "", extra=extra)
    if "limits" in more:
        path.write_text(path.read_text(encoding="utf-8") + more + "\n", encoding="utf-8")
    elif more.startswith("time_grid"):
        path.write_text(path.read_text(encoding="utf-8").replace("time_grid = 0.01\n", "", 1), encoding="utf-8")

    with pytest.raises(InvalidRequest, match=part):
        ServiceSettings.read(path)


def test_a_threshold_below_the_cap_is_read(tmp_path: Path) -> None:
    described = ServiceSettings.read(write_people(tmp_path, extra="approval_above = 0.2")).dataset("people")

    assert described is not None and described.approval_above == Fraction(1, 5)
    assert described.name == "people" and described.title == "People"


def test_a_file_that_is_no_file_of_settings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "owner.toml").write_text("ledger = [", encoding="utf-8")
    with pytest.raises(InvalidRequest, match="TOML"):
        ServiceSettings.read(tmp_path / "owner.toml")
    with pytest.raises(InvalidRequest, match="readable"):
        ServiceSettings.read(tmp_path / "nothing.toml")
    (tmp_path / "owner.toml").write_text('ledger = "x"\n', encoding="utf-8")
    with pytest.raises(InvalidRequest, match="at least one dataset"):
        ServiceSettings.read(tmp_path / "owner.toml")
