"""The folder of all experiments."""

import pytest
from typer.testing import CliRunner

from expost.cli import app
from expost.core import InvalidRequest
from expost.experiments import experiment_report


def test_the_page_shows_every_picture_and_leads_to_every_file(tmp_path) -> None:
    page, _ = experiment_report.write_report(tmp_path, quick=True, names=("brownian",))

    text = page.read_text(encoding="utf-8")
    assert '<img src="brownian/brownian.png"' in text
    for file in (tmp_path / "brownian").iterdir():
        assert f'href="brownian/{file.name}"' in text


def test_an_unknown_experiment_is_refused_with_the_names_that_exist() -> None:
    result = CliRunner().invoke(app, ["reproduce", "no-such"])

    assert isinstance(result.exception, InvalidRequest)
    assert "accuracy-first" in str(result.exception)


def test_the_command_prints_what_it_wrote(tmp_path) -> None:
    result = CliRunner().invoke(app, ["reproduce", "brownian", "--quick", "--trials", "1", "--output", str(tmp_path)])

    assert result.exit_code == 0, result.exception
    assert str(tmp_path / "brownian.md") in result.stdout.replace("\n", "")


def test_trials_are_refused_where_they_are_not_counted(monkeypatch) -> None:
    import types

    module = types.SimpleNamespace(run=lambda output, *, data=None, quick=False, progress=None: [])
    monkeypatch.setattr(experiment_report.importlib, "import_module", lambda name: module)

    with pytest.raises(InvalidRequest, match="trials"):
        experiment_report.run_experiment("pixeldp", None, trials=3)
