"""The source of every random bit in the package."""

from __future__ import annotations

import abc
import hashlib
import os
import threading
from typing import Any, NoReturn, TypeVar, overload

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.core.rational import whole

__all__ = ["BitSource", "SeededBits", "SystemBits", "resolve_bits", "resolve_randomness", "system_bits"]

W = TypeVar("W", bound=np.unsignedinteger[Any])

_CHUNK = 1 << 18  # bytes encrypted at a time: stays in the cache
_RESEED_AFTER = 1 << 26  # bytes drawn from one key before the operating system provides another
_SPARE = 16  # bytes that some versions of the cipher need after the output
_ZEROS = memoryview(bytes(_CHUNK))
_MOST = 1 << 40  # integers, or bits of an integer, in one call: more than any memory holds

_forks = 0  # how often this process was created by fork; a stream keyed under another number is not ours


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def _open_keystream(key: bytes) -> CipherContext:
    """Open AES-256 in counter mode, whose encrypted zeros are the uniform bits (NIST01, section 6.5)."""
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


def _write_keystream(keystream: CipherContext, out: memoryview) -> None:
    """Overwrite all of ``out`` except its last ``_SPARE`` bytes: encrypted zeros are the keystream itself."""
    length = len(out) - _SPARE
    for start in range(0, length, _CHUNK):
        size = min(_CHUNK, length - start)
        keystream.update_into(_ZEROS[:size], out[start : start + size + _SPARE])


class BitSource(abc.ABC):
    """A stream of independent uniform bits, returned as NumPy integers.

    A source cannot be pickled, and its copy is the source itself, so that no second holder repeats the bits of the
    first. To write another source, implement ``_fill`` and set ``private``.

    Examples
    --------
    >>> isinstance(system_bits(), BitSource)
    True
    """

    private: bool
    """Whether noise made of these bits protects anyone; false for a seeded source."""

    @abc.abstractmethod
    def _fill(self, out: memoryview) -> None:
        """Overwrite all of ``out`` except its last ``_SPARE`` bytes with fresh bits."""

    @overload
    def words(self, count: int) -> NDArray[np.uint64]: ...
    @overload
    def words(self, count: int, dtype: type[W]) -> NDArray[W]: ...
    def words(self, count: int, dtype: type[Any] = np.uint64) -> NDArray[Any]:
        """Draw uniform unsigned integers.

        Parameters
        ----------
        count : int
            How many to draw.
        dtype : type, default numpy.uint64
            An unsigned integer type of NumPy; all its bits are random.

        Examples
        --------
        >>> SeededBits(1).words(3, np.uint8).shape
        (3,)
        """
        kind = np.dtype(dtype)
        if kind.kind != "u":
            raise InvalidRequest("Expected an unsigned integer type", got=kind.name, do="Pass numpy.uint64")
        if type(count) is not int or not 0 <= count <= _MOST:
            count = whole(count, "the number of words", most=_MOST)
        # Not zeroed: every byte that is returned is overwritten by the keystream.
        raw = np.empty(count * kind.itemsize + _SPARE, np.uint8)
        self._fill(raw.data)
        return raw[:-_SPARE].view(kind)

    def integer(self, length: int) -> int:
        """Draw one uniform integer.

        Parameters
        ----------
        length : int
            Its number of bits.

        Examples
        --------
        >>> SeededBits(1).integer(1) in (0, 1)
        True
        """
        if type(length) is not int or not 0 <= length <= _MOST:
            length = whole(length, "the number of bits", most=_MOST)
        raw = np.empty(-(-length // 8) + _SPARE, np.uint8)
        self._fill(raw.data)
        return int.from_bytes(raw[:-_SPARE].tobytes(), "little") >> (-length % 8)

    def _refuse_pickle(self, *_: object) -> NoReturn:
        raise TypeError("A source of bits cannot be pickled: the copy would repeat its bits.")

    __reduce__ = __reduce_ex__ = __getstate__ = _refuse_pickle

    def __copy__(self) -> BitSource:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> BitSource:
        return self


class _ThreadStream(threading.local):
    """The keystream of one thread, and when it needs another key."""

    keystream: CipherContext
    left = 0
    born: tuple[int, int] | None = None


class SystemBits(BitSource):
    """Cryptographic bits: one keystream per thread, keyed by the operating system.

    A key is replaced after 64 MiB and whenever the process was forked, so a child repeats neither the bits of its
    parent nor those of a sibling. A spawned process starts with its own key. There is no seed to set or to read.

    Examples
    --------
    >>> system_bits().private
    True
    """

    private = True

    def __init__(self) -> None:
        self._stream = _ThreadStream()

    def _fill(self, out: memoryview) -> None:
        stream, now = self._stream, (os.getpid(), _forks)
        # The process id alone does not detect every fork: a container may give a child the id of its parent.
        if stream.left < len(out) or stream.born != now:
            stream.keystream, stream.left, stream.born = _open_keystream(os.urandom(32)), _RESEED_AFTER, now
        stream.left -= len(out)
        _write_keystream(stream.keystream, out)

    def __repr__(self) -> str:
        return "SystemBits()"


class SeededBits(BitSource):
    """Reproducible bits for tests and simulations. NOT PRIVATE: the seed reveals the noise.

    Parameters
    ----------
    seed : int
        Any integer; equal seeds give equal bits.

    Examples
    --------
    >>> SeededBits(7)
    SeededBits(7: simulation, NOT PRIVATE)
    >>> bool((SeededBits(7).words(4) == SeededBits(7).words(4)).all())
    True
    """

    private = False

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            raise InvalidRequest("Expected an integer seed", got=seed, do="Pass an int, or use system_bits()")
        self._seed = int(seed)
        self._keystream = _open_keystream(hashlib.sha256(f"expost simulation {self._seed}".encode()).digest())
        self._lock = threading.Lock()

    def _fill(self, out: memoryview) -> None:
        # The counter of the stream is shared; without the lock two threads could get the same bits.
        with self._lock:
            _write_keystream(self._keystream, out)

    def __repr__(self) -> str:
        return f"SeededBits({self._seed}: simulation, NOT PRIVATE)"


_SYSTEM = SystemBits()


def system_bits() -> SystemBits:
    """Return the default source of this process.

    Returns
    -------
    SystemBits
        Always the same object.

    Examples
    --------
    >>> system_bits() is system_bits()
    True
    """
    return _SYSTEM


def resolve_bits(bits: BitSource | None) -> BitSource:
    """Return the source that a caller passed, or the default source for None."""
    if bits is None:
        return _SYSTEM
    if not isinstance(bits, BitSource):
        raise InvalidRequest("Expected a source of bits", got=bits, do="Leave bits out, or pass SeededBits(seed)")
    return bits


def resolve_randomness(bits: BitSource | None, simulation: bool) -> BitSource:
    """Return the source for an answer's noise; a seeded source is accepted in simulations only."""
    if bits is None:
        if simulation:
            raise InvalidRequest("Expected a seeded source with simulation=True", do="Pass bits=SeededBits(seed)")
        return _SYSTEM
    if not resolve_bits(bits).private and not simulation:
        raise InvalidRequest(
            "Expected cryptographic randomness",
            got="a seeded source",
            do="Leave bits out, or pass simulation=True to get an answer that must not be published",
        )
    return bits
