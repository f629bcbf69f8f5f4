import numpy as np
import pytest

from expost.core import InvalidRequest
from expost.noise.path_state import pack_state, unpack_state

SECRET = 987654321


def test_a_state_comes_back_whole() -> None:
    arrays = {"top": np.array([1, -2]), "wide": np.array([2**100, -5], dtype=object), "none": np.empty(0, np.int64)}
    facts, stored = unpack_state("path", pack_state("path", {"ladder": ["1/3", "2"]}, arrays))

    assert facts == {"ladder": ["1/3", "2"]}
    assert all(stored[name].tolist() == array.tolist() for name, array in arrays.items())
    assert stored["wide"].dtype == object
    assert stored["top"].dtype == np.int64


@pytest.mark.parametrize(
    "damage", [lambda s: s[:-30], lambda s: b"", lambda s: b"PK" + s[2:100], lambda s: b"no state at all"]
)
def test_a_damaged_state_is_refused_without_a_word_about_its_content(damage) -> None:
    state = pack_state("path", {}, {"top": np.array([SECRET])})

    with pytest.raises(InvalidRequest) as refused:
        unpack_state("path", damage(state))
    assert str(SECRET) not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_state_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="state of a path"):
        unpack_state("path", pack_state("other", {}, {}))


def test_pickled_objects_are_never_loaded() -> None:
    import io

    buffer = io.BytesIO()
    np.savez(buffer, header=np.array([object()], dtype=object))

    with pytest.raises(InvalidRequest):
        unpack_state("path", buffer.getvalue())
