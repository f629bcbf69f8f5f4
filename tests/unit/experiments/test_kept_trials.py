"""A run that was broken off goes on where it stopped, and gives what it would have given."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from expost.experiments import accuracy_first_figures
from expost.experiments.experiment_report import KeptTrials
from expost.experiments.fitting_methods import Point

POINT = Point("a table", "oracle", 0.1, 0, 0.1 + 0.2, 1e-17, 0.1, -0.1, 1.0, False)


def test_points_are_read_back_without_loss(tmp_path: Path) -> None:
    kept = KeptTrials(tmp_path, settings="s")
    kept.write("a table", 0, [POINT])

    assert kept.read("a table", 3) == [POINT]
    assert kept.missing("a table", 3) == [1, 2] and kept.missing("another", 2) == [0, 1]


def test_other_settings_are_another_run(tmp_path: Path) -> None:
    KeptTrials(tmp_path, settings="s").write("a table", 0, [POINT])

    assert KeptTrials(tmp_path, settings="t").missing("a table", 1) == [0]


def written_only(figure: Figure, stem: Path) -> list[Path]:
    """Stands for drawing, which takes most of a quick run; the pictures themselves are looked at in other tests."""
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    for path in paths:
        path.write_text(f"{len(figure.axes)} panels")
    return paths


def test_a_run_that_was_broken_off_ends_like_one_that_was_not(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(accuracy_first_figures, "save_both", written_only)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    terms = {"quick": True, "trials": 2, "workers": 1}
    accuracy_first_figures.run(whole, **terms)

    def stop(done: int, total: int, name: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        accuracy_first_figures.run(broken, **terms, progress=stop)
    told = []
    accuracy_first_figures.run(broken, **terms, progress=lambda *each: told.append(each))

    same = ("accuracy-first.csv", "accuracy-first.md")
    assert [(broken / name).read_text() for name in same] == [(whole / name).read_text() for name in same]
    assert sorted(file.name for file in broken.iterdir()) == sorted(file.name for file in whole.iterdir())
    assert len(told) == 3  # of four trials on two tables the first was kept
