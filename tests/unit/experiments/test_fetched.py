"""KDD Cup 99 from the network: only when asked for, checked, and read like the published file."""

import numpy as np
import pytest
from typer.testing import CliRunner

from expost.cli import app
from expost.core import InvalidRequest
from expost.experiments import experiment_data
from expost.experiments.experiment_data import KDD_FILE, available, fetch_kdd, load

NORMAL = [0, b"tcp", b"http", b"SF", 181, 5450, *[0.5] * 35]
ATTACK = [9, b"icmp", b"ecr_i", b"SF", 1032, 0, *[1] * 35]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set of three rows passes for the published one."""
    monkeypatch.setattr(experiment_data, "_ROWS", 3)
    monkeypatch.setattr(experiment_data, "_NORMAL", 1)


def downloaded(**options: object) -> tuple[np.ndarray, np.ndarray]:
    assert options == {"percent10": True, "return_X_y": True}
    return np.array([NORMAL, ATTACK, ATTACK], dtype=object), np.array([b"normal.", b"smurf.", b"smurf."], dtype=object)


def refuse(**options: object) -> tuple[np.ndarray, np.ndarray]:
    raise AssertionError("the network was used")


@pytest.mark.usefixtures("small")
def test_what_was_fetched_is_read_like_the_published_file(tmp_path) -> None:
    folder = fetch_kdd(tmp_path, fetcher=downloaded)

    table = load("KDD 99", folder)
    assert (table.width, table.target.tolist()) == (38, [-1.0, 1.0, 1.0])
    assert table.features[0, 1] / table.features[1, 1] == pytest.approx(np.log1p(181) / np.log1p(1032))
    assert available(folder) == ("made-up regression", "KDD 99")


@pytest.mark.usefixtures("small")
def test_what_is_there_is_not_fetched_again(tmp_path) -> None:
    fetch_kdd(tmp_path, fetcher=downloaded)

    assert fetch_kdd(tmp_path, fetcher=refuse) == tmp_path


def test_without_a_folder_it_goes_where_scikit_learn_keeps_its_data(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("EXPOST_DATA", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    (tmp_path / "expost").mkdir()
    (tmp_path / "expost" / KDD_FILE).touch()

    assert fetch_kdd(fetcher=refuse) == tmp_path / "expost"


def test_a_download_of_another_size_is_refused_and_not_kept(tmp_path) -> None:
    with pytest.raises(InvalidRequest, match="494021 rows"):
        fetch_kdd(tmp_path, fetcher=downloaded)
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_clearly_that_the_download_failed(tmp_path, monkeypatch) -> None:
    from urllib.error import URLError

    def offline(**options: object) -> None:
        raise URLError("no route")

    monkeypatch.setattr(experiment_data.fetch_kdd, "__kwdefaults__", {"fetcher": offline})

    result = CliRunner().invoke(app, ["reproduce", "accuracy-first", "--quick", "--fetch", "--data", str(tmp_path)])

    assert isinstance(result.exception, InvalidRequest)
    assert "download KDD Cup 99" in str(result.exception) and "no route" not in str(result.exception)


def test_nothing_is_fetched_unless_asked_for(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(experiment_data.fetch_kdd, "__kwdefaults__", {"fetcher": refuse})

    result = CliRunner().invoke(
        app,
        ["reproduce", "brownian", "--quick", "--trials", "1", "--output", str(tmp_path), "--data", str(tmp_path)],
    )

    assert result.exit_code == 0, result.exception
