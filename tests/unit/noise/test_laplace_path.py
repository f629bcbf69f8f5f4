import copy
import io
import pickle
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from expost.core import InvalidRequest, Ladder, Norm, PureLoss, Sealed, Sensitivity
from expost.noise import DiscreteLaplacePath, SeededBits

LADDER = Ladder.of([0.01, 0.1, 1, 10])
SECRET = 987_654_321


def path(exact=SECRET, sensitivity=1, ladder=LADDER, seed=1) -> DiscreteLaplacePath:
    return DiscreteLaplacePath(Sealed(exact, Sensitivity(sensitivity)), ladder, bits=SeededBits(seed))


def test_a_single_integer_is_a_path_of_one_coordinate() -> None:
    subject = path(41)

    assert subject.size == 1
    assert subject.at(3).tolist() == [41]
    assert subject.at(0).dtype == object  # a Python integer stays one


@pytest.mark.parametrize("exact", [np.arange(20), np.arange(20, dtype=np.int32), np.arange(20, dtype=np.uint64), 7])
def test_a_block_holds_its_rungs(exact) -> None:
    subject = path(exact)

    block = subject.block(0, 4)
    assert block.shape == (4, subject.size)
    for rung in range(4):
        assert (subject.at(rung) == block[rung]).all()
    assert (subject.block(1, 3) == block[1:3]).all()


def test_reading_again_shows_the_same_values() -> None:
    subject = path(np.arange(50))

    assert (subject.at(1) == subject.at(1)).all()


def test_values_read_are_the_readers_own() -> None:
    subject = path(np.arange(5))
    subject.at(0)[:] = 0
    subject.block(0, 4)[:] = 0

    assert subject.at(3).any()


def test_a_prefix_costs_its_last_rung() -> None:
    subject = path()

    assert [subject.loss(rung) for rung in range(4)] == [PureLoss(level) for level in LADDER]


def test_the_ladder_may_be_plain_numbers() -> None:
    assert path(ladder=[0.5, 1]).ladder == Ladder.of([0.5, 1])


def test_noise_shrinks_with_the_rung_and_grows_with_the_sensitivity() -> None:
    zeros = np.zeros(5000, int)
    spread = [np.abs(path(zeros).at(rung)).mean() for rung in range(4)]

    assert spread == sorted(spread, reverse=True)
    assert np.abs(path(zeros, sensitivity=8).at(0)).mean() == pytest.approx(8 * spread[0], rel=0.1)


def test_integers_at_the_edge_of_64_bits_do_not_wrap() -> None:
    subject = path(np.array([2**63 - 1, -(2**63)] * 20), sensitivity=2**40, ladder=[0.5, 1])
    values = subject.block(0, 2).astype(object)

    assert (np.abs(values[:, ::2] - (2**63 - 1)) < 2**50).all()
    assert (np.abs(values[:, 1::2] + 2**63) < 2**50).all()


def test_python_integers_of_any_length_are_taken() -> None:
    subject = path(np.array([10**30, 5], dtype=object), ladder=[1, 10])

    assert abs(subject.at(1)[0] - 10**30) < 100


@pytest.mark.parametrize("exact", [0, 2**62 - 1, 2**62, 2**62 + 2**61, 2**63 - 1])
def test_the_type_of_the_values_depends_on_the_sealed_type_only(exact: int) -> None:
    assert path(np.array([exact]), ladder=[1, 10]).at(1).dtype == np.int64
    assert path(exact, ladder=[1, 10]).at(1).dtype == object


def test_no_coordinates_are_allowed() -> None:
    assert path(np.empty(0, np.int64)).block(0, 4).shape == (4, 0)


def test_noise_of_scale_2_to_the_45_works() -> None:
    subject = path(np.zeros(2000, int), sensitivity=2**32, ladder=Ladder.geometric(2.0**-13, 1, rungs=300))

    assert np.abs(subject.at(0)).mean() == pytest.approx(2**45, rel=0.1)
    assert subject.at(0).dtype == np.int64


@pytest.mark.parametrize("norm", [Norm.L2, Norm.LINF])
def test_another_norm_is_refused(norm: Norm) -> None:
    with pytest.raises(InvalidRequest, match="L1"):
        DiscreteLaplacePath(Sealed(1, Sensitivity(1, norm)), LADDER)


@pytest.mark.parametrize(
    "exact", [1.5, np.array([1.0]), np.zeros((2, 2), int), np.array([1, 1.5], dtype=object), "7", np.array([True])]
)
def test_anything_but_integers_is_refused_without_showing_it(exact) -> None:
    with pytest.raises(InvalidRequest, match="integer") as refused:
        path(exact)
    assert "1.5" not in str(refused.value)


def test_an_unsealed_answer_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="sealed") as refused:
        DiscreteLaplacePath(SECRET, LADDER)  # type: ignore[arg-type]
    assert str(SECRET) not in str(refused.value)


@pytest.mark.parametrize("rung", [-1, 4, 1.0, None])
def test_a_rung_that_does_not_exist_is_refused(rung) -> None:
    for read in (path().at, path().loss):
        with pytest.raises(InvalidRequest, match="rung"):
            read(rung)


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (2, 1), (-1, 2), (0, 5)])
def test_an_empty_or_foreign_block_is_refused(start: int, stop: int) -> None:
    with pytest.raises(InvalidRequest):
        path().block(start, stop)


def test_a_path_shows_nothing_of_its_content() -> None:
    subject = path()

    assert str(SECRET) not in repr(subject) + str(subject)
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            leave(subject)


def test_a_seeded_path_is_not_private() -> None:
    assert not path().private
    assert DiscreteLaplacePath(Sealed(1, Sensitivity(1)), LADDER).private


def test_refinement_adds_a_rung_and_keeps_the_others() -> None:
    subject = path(np.arange(300), ladder=[0.01, 0.1])
    before = subject.block(0, 2)

    rung = subject.refine(5)

    assert rung == 2
    assert subject.ladder == Ladder.of([0.01, 0.1, 5])
    assert (subject.block(0, 2) == before).all()
    assert subject.loss(2) == PureLoss(5)
    assert np.abs(subject.at(2) - np.arange(300)).max() < 10


def test_refinement_goes_up_only() -> None:
    subject = path(ladder=[0.01, 0.1])

    for level in (0.1, 0.05, -1, 10_000):
        with pytest.raises(InvalidRequest):
            subject.refine(level)
    assert len(subject.ladder) == 2


def test_a_state_continues_the_same_path() -> None:
    subject = path(np.arange(100), sensitivity=Fraction(7, 3))
    subject.refine(20)

    again = DiscreteLaplacePath.from_state(subject.state())

    assert again.ladder == subject.ladder
    assert (again.block(0, 5) == subject.block(0, 5)).all()
    assert again.loss(4) == subject.loss(4)
    again.refine(30)
    assert (again.block(0, 5) == subject.block(0, 5)).all()


def test_a_state_remembers_that_it_was_a_simulation() -> None:
    assert not DiscreteLaplacePath.from_state(path().state()).private
    private = DiscreteLaplacePath(Sealed(1, Sensitivity(1)), LADDER).state()
    assert DiscreteLaplacePath.from_state(private).private
    assert not DiscreteLaplacePath.from_state(private, bits=SeededBits(1)).private


def test_a_wide_state_comes_back_wide() -> None:
    subject = path(np.array([10**30], dtype=object), ladder=[1, 10])

    assert (DiscreteLaplacePath.from_state(subject.state()).block(0, 2) == subject.block(0, 2)).all()


def test_a_foreign_state_is_refused() -> None:
    buffer = io.BytesIO()
    np.savez(buffer, header=np.array("{}"))
    for state in (b"", b"nonsense", buffer.getvalue()):
        with pytest.raises(InvalidRequest, match="state of a discrete Laplace path"):
            DiscreteLaplacePath.from_state(state)


def test_memory_does_not_grow_with_the_rungs() -> None:
    kept = []
    for rungs in (100, 20_000):
        ladder = Ladder.geometric(1e-4, 1, rungs=rungs)
        sealed = Sealed(np.zeros(1000, int), Sensitivity(1))
        tracemalloc.start()
        subject = DiscreteLaplacePath(sealed, ladder, bits=SeededBits(1))
        kept.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        subject.at(0)

    assert kept[1] < 1.3 * kept[0]  # 200 times as many rungs
