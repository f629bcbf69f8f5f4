import copy
import json
import operator
import pickle

import pytest

from expost.core import SealBroken, Sealed, Sensitivity

SECRET = 987_654_321


@pytest.fixture
def sealed() -> Sealed:
    return Sealed(SECRET, Sensitivity(1))


@pytest.mark.parametrize(
    "look",
    [
        int,
        float,
        complex,
        bool,
        len,
        list,
        bytes,
        round,
        hash,
        abs,
        operator.index,
        operator.neg,
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        json.dumps,
        lambda sealed: f"{sealed}",
        lambda sealed: f"{sealed:d}",
        lambda sealed: f"{sealed}",
        lambda sealed: sealed[0],
        lambda sealed: SECRET in sealed,
        lambda sealed: sealed == SECRET,
        lambda sealed: sealed != SECRET,
        lambda sealed: sealed < SECRET,
        lambda sealed: sealed + 1,
        lambda sealed: 1 - sealed,
        lambda sealed: sealed * 2,
        lambda sealed: setattr(sealed, "x", 1),
        lambda sealed: vars(sealed),
        lambda sealed: sealed.__exact,
        lambda sealed: sealed.__array__(),
    ],
)
def test_a_sealed_answer_cannot_be_looked_at(sealed: Sealed, look) -> None:
    with pytest.raises((SealBroken, TypeError, AttributeError)) as caught:
        look(sealed)

    assert str(SECRET) not in str(caught.value)


def test_its_repr_says_nothing(sealed: Sealed) -> None:
    assert repr(sealed) == str(sealed) == "<sealed exact answer>"


def test_numpy_cannot_read_it(sealed: Sealed) -> None:
    numpy = pytest.importorskip("numpy")

    with pytest.raises((SealBroken, TypeError, ValueError)):
        numpy.asarray(sealed, dtype=float)


def test_its_sensitivity_is_public(sealed: Sealed) -> None:
    assert sealed.sensitivity == Sensitivity(1)


def test_a_sealed_answer_needs_a_sensitivity() -> None:
    with pytest.raises(TypeError):
        Sealed(1, 1)  # type: ignore[arg-type]
