"""Where pictures are written, and where not."""

from pathlib import Path

import pytest

from expost.core import InvalidRequest
from expost.plots.figure import new_figure, save


@pytest.mark.parametrize("name", ["picture.png", "picture.SVG", "picture.pdf"])
def test_a_picture_is_written_in_the_kind_of_its_ending(name: str, tmp_path: Path) -> None:
    save(new_figure()[0], tmp_path / name)

    assert (tmp_path / name).stat().st_size > 0


@pytest.mark.parametrize("name", ["picture.xyz", "nowhere/picture.png", "folder.png", "pic\0ture.png"])
def test_a_file_that_cannot_be_a_picture_is_an_invalid_request(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()

    with pytest.raises(InvalidRequest) as refused:
        save(new_figure()[0], str(tmp_path / name))
    assert refused.value.__cause__ is None


def test_what_is_no_name_of_a_file_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequest, match="name of a file"):
        save(new_figure()[0], 7)  # type: ignore[arg-type]
