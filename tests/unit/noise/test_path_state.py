import io
import json

import numpy as np
import pytest

from expost.core import InvalidRequest
from expost.noise.release_path import pack_state, unpack_state

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


def test_the_length_of_a_state_does_not_tell_how_long_its_integers_are() -> None:
    lengths = {
        len(pack_state("demo", {}, {"exact": np.array([exact, -exact, 0], dtype=object)}))
        for exact in (0, 9, 10**9, 2**62, 2**63, 2**70, 10**70)
    }

    assert len(lengths) == 1


def test_wide_integers_come_back_and_so_do_those_of_version_0_1() -> None:
    exact = np.array([0, -1, 2**63, -(2**70), 2**255, -(2**300)], dtype=object)
    packed = pack_state("demo", {}, {"exact": exact, "none": np.array([], dtype=object)})
    _, arrays = unpack_state("demo", packed)
    assert arrays["exact"].tolist() == exact.tolist() and arrays["none"].tolist() == []

    old = io.BytesIO()
    header = json.dumps({"kind": "demo", "version": 1, "wide": ["exact"], "facts": {}})
    np.savez(old, header=np.array(header), exact=exact.astype(str))
    assert unpack_state("demo", old.getvalue())[1]["exact"].tolist() == exact.tolist()
