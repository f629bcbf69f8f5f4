import copy
import math
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

from expost.core import InvalidRequest
from expost.noise import SeededBits, SystemBits, system_bits
from expost.noise import bits as bits_module
from expost.noise.bits import resolve_bits


def run(code: str) -> list[str]:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return result.stdout.split()


def test_a_forked_child_repeats_neither_its_parent_nor_its_siblings() -> None:
    code = """
import os
from expost.noise import system_bits
system_bits().words(8)  # keyed before the fork
for _ in range(4):
    if os.fork() == 0:
        print(system_bits().integer(64), flush=True)
        os._exit(0)
    os.wait()
print(system_bits().integer(64), flush=True)
"""
    drawn = run(code)

    assert len(drawn) == 5
    assert len(set(drawn)) == 5


def test_a_fork_that_hides_from_python_is_noticed_by_its_process_id() -> None:
    code = """
import os
from expost.noise import bits, system_bits
system_bits().words(8)
bits._count_fork = None
if os.fork() == 0:
    bits._forks = 0  # as if no hook had run
    print(system_bits().integer(64), flush=True)
    os._exit(0)
os.wait()
print(system_bits().integer(64), flush=True)
"""
    assert len(set(run(code))) == 2


def test_spawned_processes_draw_different_bits() -> None:
    code = "from expost.noise import system_bits; print(system_bits().integer(64))"

    assert run(code) != run(code)


def test_threads_draw_different_bits() -> None:
    drawn: list[int] = []
    threads = [threading.Thread(target=lambda: drawn.append(system_bits().integer(64))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(drawn)) == 8


def test_many_threads_on_one_seeded_source_never_share_bits() -> None:
    bits, drawn = SeededBits(1), []
    threads = [threading.Thread(target=lambda: drawn.append(bits.words(1000))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(np.unique(np.concatenate(drawn))) == 8000


def test_a_key_is_replaced_after_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(bits_module, "_RESEED_AFTER", 10_000)
    monkeypatch.setattr(bits_module.os, "urandom", lambda n: asked.append(n) or bytes([len(asked)] * n))
    source = SystemBits()

    for _ in range(10):
        source.words(500)

    assert asked == [32] * 5


@pytest.mark.parametrize("source", [system_bits(), SeededBits(1)])
def test_a_source_is_never_pickled(source) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(source)


@pytest.mark.parametrize("source", [system_bits(), SeededBits(1)])
def test_a_copy_is_the_same_stream(source) -> None:
    assert copy.copy(source) is source
    assert copy.deepcopy(source) is source


def test_a_seed_repeats_and_says_that_it_is_not_private() -> None:
    assert (SeededBits(3).words(100) == SeededBits(3).words(100)).all()
    assert (SeededBits(3).words(100) != SeededBits(4).words(100)).any()
    assert not SeededBits(3).private
    assert "NOT PRIVATE" in repr(SeededBits(3))
    assert system_bits().private


def test_the_stream_does_not_depend_on_how_it_is_cut() -> None:
    whole = SeededBits(5).words(100_000, np.uint8)
    source = SeededBits(5)
    parts = [source.words(size, np.uint8) for size in (1, 15, 16, 17, 70_000, 29_951)]

    assert (np.concatenate(parts) == whole).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_words_are_uniform(dtype: type) -> None:
    drawn = system_bits().words(20_000, dtype)
    ones = np.unpackbits(drawn.view(np.uint8)).astype(int)

    assert drawn.dtype == dtype
    assert abs(ones.mean() - 0.5) < 6 * 0.5 / len(ones) ** 0.5
    assert abs(np.corrcoef(ones[:-1], ones[1:])[0, 1]) < 6 / len(ones) ** 0.5


def test_an_integer_has_the_length_asked_for() -> None:
    drawn = [SeededBits(seed).integer(5) for seed in range(400)]

    assert set(drawn) == set(range(32))
    assert SeededBits(1).integer(200).bit_length() > 150


def test_no_words_are_no_words() -> None:
    assert system_bits().words(0).shape == (0,)


@pytest.mark.parametrize("count", [-1, -3, True, np.True_, 2.0, np.float64(2), math.nan, "2", None, 1 << 63, 10**30])
@pytest.mark.parametrize("draw", [SeededBits(1).words, system_bits().words, system_bits().integer])
def test_a_count_that_is_none_is_refused(draw, count: object) -> None:
    with pytest.raises(InvalidRequest, match=r"Expected the number of (words|bits) to be a whole number from 0 to"):
        draw(count)


def test_a_refused_count_uses_no_bits_up() -> None:
    source = SeededBits(1)
    for draw in (source.words, source.integer):
        with pytest.raises(InvalidRequest):
            draw(-1)

    assert source.words(1) == SeededBits(1).words(1)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.intp])
def test_integers_of_numpy_count_like_those_of_python(kind: type) -> None:
    assert (SeededBits(1).words(kind(3)) == SeededBits(1).words(3)).all()
    assert SeededBits(1).integer(kind(13)) == SeededBits(1).integer(13)


@pytest.mark.parametrize("dtype", [np.int64, np.float64, bool])
def test_only_unsigned_words_are_drawn(dtype: type) -> None:
    with pytest.raises(InvalidRequest, match="unsigned"):
        system_bits().words(3, dtype)


@pytest.mark.parametrize("seed", [1.5, "1", None, True])
def test_a_seed_is_an_integer(seed: object) -> None:
    with pytest.raises(InvalidRequest, match="integer seed"):
        SeededBits(seed)  # type: ignore[arg-type]


def test_a_source_is_asked_for_by_type() -> None:
    assert resolve_bits(None) is system_bits()
    with pytest.raises(InvalidRequest, match="source of bits"):
        resolve_bits(np.random.default_rng(1))  # type: ignore[arg-type]
