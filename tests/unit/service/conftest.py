"""Services for the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.served import Served, write_people


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served(write_people(tmp_path))
    with found.http:
        yield found
