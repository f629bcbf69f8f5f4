"""One name for equal settings, in every process."""

import hashlib

import pytest

from expost.models.descent.training_checkpoint import hash_settings


def test_a_name_is_that_of_the_sorted_text() -> None:
    text = b'{"classes": [0, 1], "width": 0.5}'

    assert hash_settings({"width": 0.5, "classes": [0, 1]}) == hashlib.sha256(text).hexdigest()[:16]


@pytest.mark.parametrize("other", [[1, 0], ["0", "1"], [0, 1, 2], [0.0, 1.0]])
def test_other_settings_have_other_names(other: list[object]) -> None:
    assert hash_settings({"classes": other}) != hash_settings({"classes": [0, 1]})
