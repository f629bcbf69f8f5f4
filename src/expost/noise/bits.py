"""Where every random bit of the package comes from."""

from __future__ import annotations

import abc
import hashlib
import os
import threading
from typing import Any, NoReturn, TypeVar, overload

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest
from expost.core.rational import whole

__all__ = ["BitSource", "SeededBits", "SystemBits", "randomness", "source_of", "system_bits"]

W = TypeVar("W", bound=np.unsignedinteger[Any])

_CHUNK = 1 << 18  # bytes enciphered at a time: stays in the cache
_RESEED_AFTER = 1 << 26  # bytes drawn from one key before the operating system is asked for another
_SPARE = 16  # bytes some versions of the cipher want behind the output
_ZEROS = memoryview(bytes(_CHUNK))
_MOST = 1 << 40  # words, or bits of an integer, in one call: more than any memory holds

_forks = 0  # how often this process was born by fork; a stream keyed under another number is not ours


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class _Keystream:
    """AES-256 in counter mode: the zeros it enciphers come out as uniform bits (NIST01, section 6.5)."""

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def fill(self, out: memoryview) -> None:
        """Overwrite all of ``out`` but its last ``_SPARE`` bytes."""
        length = len(out) - _SPARE
        for start in range(0, length, _CHUNK):
            size = min(_CHUNK, length - start)
            self._cipher.update_into(_ZEROS[:size], out[start : start + size + _SPARE])


class BitSource(abc.ABC):
    """A stream of independent uniform bits, handed out as NumPy words.

    It cannot be pickled, and a copy is the same stream: a second holder never repeats the bits of the first. Another
    source implements ``_fill``.

    >>> isinstance(system_bits(), BitSource)
    True
    """

    private: bool
    """Whether noise made of these bits protects anyone; false for a seeded source."""

    @abc.abstractmethod
    def _fill(self, out: memoryview) -> None:
        """Overwrite all of ``out`` but its last ``_SPARE`` bytes with fresh bits."""

    @overload
    def words(self, count: int) -> NDArray[np.uint64]: ...
    @overload
    def words(self, count: int, dtype: type[W]) -> NDArray[W]: ...
    def words(self, count: int, dtype: type[Any] = np.uint64) -> NDArray[Any]:
        """``count`` fresh uniform words of an unsigned integer type.

        >>> SeededBits(1).words(3, np.uint8).shape
        (3,)
        """
        kind = np.dtype(dtype)
        if kind.kind != "u":
            raise InvalidRequest("Expected an unsigned integer type", got=kind.name, do="Pass numpy.uint64")
        if type(count) is not int or not 0 <= count <= _MOST:
            count = whole(count, "the number of words", most=_MOST)
        raw = np.empty(count * kind.itemsize + _SPARE, np.uint8)
        self._fill(raw.data)
        return raw[:-_SPARE].view(kind)

    def integer(self, length: int) -> int:
        """A uniform integer of ``length`` bits.

        >>> SeededBits(1).integer(1) in (0, 1)
        True
        """
        if type(length) is not int or not 0 <= length <= _MOST:
            length = whole(length, "the number of bits", most=_MOST)
        raw = np.empty(-(-length // 8) + _SPARE, np.uint8)
        self._fill(raw.data)
        return int.from_bytes(raw[:-_SPARE].tobytes(), "little") >> (-length % 8)

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("Expected a source of bits to stay in its process; a pickled one would repeat its bits.")

    __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    def __copy__(self) -> BitSource:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> BitSource:
        return self


class _ThreadStream(threading.local):
    """The keystream of one thread, keyed from the operating system."""

    keystream: _Keystream
    left = 0
    born: tuple[int, int] | None = None

    def fill(self, out: memoryview) -> None:
        now = os.getpid(), _forks
        if self.left < len(out) or self.born != now:
            self.keystream, self.left, self.born = _Keystream(os.urandom(32)), _RESEED_AFTER, now
        self.left -= len(out)
        self.keystream.fill(out)


class SystemBits(BitSource):
    """Cryptographic bits: a keystream per thread, keyed by the operating system.

    A key is replaced after 64 MiB and whenever the process finds itself forked, so that a child repeats neither its
    parent's nor a sibling's bits; a spawned process starts with a key of its own. There is no seed to set or to read.

    >>> system_bits().private
    True
    """

    private = True

    def __init__(self) -> None:
        self._stream = _ThreadStream()

    def _fill(self, out: memoryview) -> None:
        self._stream.fill(out)

    def __repr__(self) -> str:
        return "SystemBits()"


class SeededBits(BitSource):
    """Reproducible bits for tests and simulations. NOT PRIVATE: whoever knows the seed knows the noise.

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
        self._keystream = _Keystream(hashlib.sha256(f"expost simulation {self._seed}".encode()).digest())
        self._lock = threading.Lock()

    def _fill(self, out: memoryview) -> None:
        with self._lock:
            self._keystream.fill(out)

    def __repr__(self) -> str:
        return f"SeededBits({self._seed}: simulation, NOT PRIVATE)"


_SYSTEM = SystemBits()


def system_bits() -> SystemBits:
    """The process-wide default source.

    >>> system_bits() is system_bits()
    True
    """
    return _SYSTEM


def source_of(bits: BitSource | None) -> BitSource:
    """The source a caller named, or the default.

    >>> source_of(None)
    SystemBits()
    """
    if bits is None:
        return _SYSTEM
    if not isinstance(bits, BitSource):
        raise InvalidRequest("Expected a source of bits", got=bits, do="Leave bits out, or pass SeededBits(seed)")
    return bits


def randomness(bits: BitSource | None, simulation: bool) -> BitSource:
    """The source of an answer's noise: cryptographic, or seeded and then said to be a simulation."""
    if bits is None:
        if simulation:
            raise InvalidRequest("Expected a seeded source beside simulation=True", do="Pass bits=SeededBits(seed)")
        return system_bits()
    if not source_of(bits).private and not simulation:
        raise InvalidRequest(
            "Expected cryptographic randomness",
            got="a seeded source",
            do="Leave bits out, or pass simulation=True to get an answer that must not be published",
        )
    return bits
