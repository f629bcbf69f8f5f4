"""The comparison of grouped totals: peers answer in their own Python, and one that fails does not stop the others."""

import sys
from pathlib import Path

import pytest
from benchmarks import stats


@pytest.fixture
def peers(tmp_path: Path, monkeypatch) -> Path:
    scripts = {
        "quick": "print('noise'); print('1.2.3', 4.5, 2.0)",
        "broken": "raise SystemExit('no such option')",
        "slow": "import time; time.sleep(60)",
    }
    for name, text in scripts.items():
        (tmp_path / f"with_{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(stats, "PEERS", tmp_path)
    return tmp_path


def test_a_peer_says_its_version_and_its_seconds(peers: Path) -> None:
    row = stats.peer_row(f"quick={sys.executable}", peers / "events.parquet", 1000, 60)

    assert row["what"] == "quick 1.2.3, 1e+03 rows" and (row["seconds"], row["CPU"]) == (4.5, 2.0)


def test_a_peer_that_fails_or_hangs_is_written_down(peers: Path) -> None:
    assert stats.peer_row(f"broken={sys.executable}", peers, 1000, 60)["failed"] == ["no such option"]
    assert stats.peer_row(f"slow={sys.executable}", peers, 1000, 0.2)["stopped"] == "0 seconds after its start"


@pytest.mark.parametrize("given", ["nobody=python", "quick", ""])
def test_an_unknown_peer_is_refused(peers: Path, given: str) -> None:
    with pytest.raises(SystemExit, match="broken, quick, slow"):
        stats.peer_row(given, peers, 1000, 60)


def test_peers_are_named_by_the_environment_too(peers: Path, monkeypatch) -> None:
    monkeypatch.setenv("EXPOST_PEERS", "quick=/a/python, diffprivlib=/b/python")

    assert stats.named_peers("/c/python") == ["quick=/a/python", "opendp=/c/python"]


def test_every_script_of_a_peer_has_a_name() -> None:
    assert {"opendp", "pipelinedp", "smartnoise", "tumult"} <= set(stats.peer_names())
