"""The base of gradual-release paths: sealed integers in, rungs by index, values out, and the secret state as bytes."""

from __future__ import annotations

import abc
import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Ladder, Loss, Norm, Sealed, SingleOwner, unseal
from expost.noise.bits import BitSource, resolve_bits
from expost.noise.lattice import read_integers
from expost.noise.parameter import share_noise_parameters

__all__ = ["AnswerPath", "ReleasePath", "check_norm", "check_rung", "pack_state", "read_ladder", "unpack_state"]

_VERSION = 1
_BLOCK = 32  # bytes; answers below 2^255 have one length


class ReleasePath(SingleOwner, abc.ABC):
    """What all paths share: rungs by index, one owner, no copies.

    A path cannot be pickled or copied: its less private rungs are as good as the data.
    """

    _owned_noun = "path"
    _kind = "path"
    """The name of the kind of path, in its text and in its saved state."""

    _ladder: Ladder
    _size: int

    @abc.abstractmethod
    @share_noise_parameters
    def at(self, rung: int) -> NDArray[Any]:
        """Return the values under the noise of one rung, one per coordinate."""

    @abc.abstractmethod
    @share_noise_parameters
    def block(self, start: int, stop: int) -> NDArray[Any]:
        """Return the values at several rungs, one row per rung; reading them costs the last rung."""

    @property
    def ladder(self) -> Ladder:
        """The rungs, most private first."""
        return self._ladder

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return self._size

    def _check_block(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of rungs a caller passed, if it is a range of at least one."""
        first, last = check_rung(self._ladder, start), check_rung(self._ladder, stop - 1)
        if first > last:
            raise InvalidRequest("Expected start below stop", got=start, do="Read at least one rung")
        return first, last + 1

    def __repr__(self) -> str:
        return f"<{self._kind} of {self.size} coordinates over {len(self._ladder)} rungs>"


class AnswerPath(ReleasePath):
    """What paths of exact integer answers share: the price of a rung, the source of bits, and the secret state."""

    _bits: BitSource
    _drawn_privately: bool
    _exact: NDArray[Any]

    def _set_answer(self, sealed: Sealed, ladder: Ladder | Iterable[float | Fraction], bits: BitSource | None) -> None:
        self._bits, self._ladder = resolve_bits(bits), read_ladder(ladder)
        self._drawn_privately = self._bits.private
        self._exact = np.atleast_1d(read_integers(unseal(sealed)))
        if self._exact.ndim != 1:
            raise InvalidRequest("Expected a sealed integer or a flat array of integers", do="Flatten it")
        self._size = len(self._exact)

    @property
    def private(self) -> bool:
        """Whether all bits come from a private source; false means simulation."""
        return self._drawn_privately and self._bits.private

    @abc.abstractmethod
    @share_noise_parameters
    def loss(self, rung: int) -> Loss:
        """Return what reading every rung up to this one costs."""

    @abc.abstractmethod
    def state(self) -> bytes:
        """Return everything needed to continue after a restart. SECRET: it holds the exact answer; encrypt it.

        A path that is drawn a second time for the same answer is a second answer; this is how a ledger avoids that.
        Of all paths made from one state only one may draw or refine further rungs.
        """

    @classmethod
    @abc.abstractmethod
    @share_noise_parameters
    def from_state(cls, state: bytes, *, bits: BitSource | None = None) -> Self:
        """Restore the path that ``state`` described; ``bits`` draw what was not drawn yet."""

    def _pack(self, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
        """Write what all paths have, with the facts and arrays of this kind."""
        shared = {"ladder": [str(rung) for rung in self._ladder], "private": self.private}
        return pack_state(self._kind, {**shared, **facts}, {"exact": self._exact, **arrays})

    @classmethod
    def _unpack(cls, state: bytes, bits: BitSource | None) -> tuple[Self, dict[str, Any], dict[str, NDArray[Any]]]:
        """Read what all paths have into a new path; return it with the facts and arrays of its kind."""
        facts, arrays = unpack_state(cls._kind, state)
        path = cls.__new__(cls)
        path._take_ownership()
        path._bits, path._drawn_privately = resolve_bits(bits), facts["private"]
        path._ladder = Ladder(tuple(Fraction(rung) for rung in facts["ladder"]))
        path._exact, path._size = arrays["exact"], len(arrays["exact"])
        return path, facts, arrays


def read_ladder(rungs: Ladder | Iterable[float | Fraction]) -> Ladder:
    """Return the ladder a caller passed, or make one of numbers."""
    return rungs if isinstance(rungs, Ladder) else Ladder.of(rungs)


def check_rung(ladder: Ladder, rung: int) -> int:
    """Return the index a caller passed, if it names a rung."""
    if isinstance(rung, bool) or not isinstance(rung, int | np.integer) or not 0 <= rung < len(ladder):
        raise InvalidRequest(f"Expected a rung from 0 to {len(ladder) - 1}", got=rung, do="Pass its index")
    return int(rung)


def check_norm(sealed: Sealed, norm: Norm) -> Fraction:
    """Return the sensitivity of a sealed answer, if it is measured in the norm that its noise protects."""
    if not isinstance(sealed, Sealed):
        raise InvalidRequest("Expected a sealed exact answer", do="Seal it with its sensitivity")
    if sealed.sensitivity.norm is not norm:
        name = norm.value.upper()
        raise InvalidRequest(
            f"Expected an {name} sensitivity",
            got=sealed.sensitivity.norm.value,
            do=f"Seal the answer with its {name} bound",
        )
    return Fraction(sealed.sensitivity.amount)


def pack_state(kind: str, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Write the state of a path without pickle: public facts as JSON, integer arrays, Python integers in 32-byte blocks.

    The length of a state must not reveal how many digits an answer has: an encrypted state is as long as the plain one.
    """
    columns, wide = dict(arrays), [name for name, array in arrays.items() if array.dtype == object]
    for name in wide:
        values = arrays[name].tolist()
        # All values of a column have one width, in whole blocks: digits of single values do not show.
        width = _BLOCK * max((value.bit_length() // (8 * _BLOCK) + 1 for value in values), default=1)
        joined = b"".join(value.to_bytes(width, "little", signed=True) for value in values)
        columns[name] = np.frombuffer(joined, np.uint8).reshape(len(values), width)
    header = json.dumps({"kind": kind, "version": _VERSION, "wide": wide, "facts": dict(facts)})
    buffer = io.BytesIO()
    np.savez(buffer, header=np.array(header), **columns)  # type: ignore[arg-type]
    return buffer.getvalue()


def unpack_state(kind: str, state: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read the facts and arrays of ``pack_state``; the error for a damaged state says nothing about its content."""
    try:
        with np.load(io.BytesIO(state), allow_pickle=False) as stored:
            header = json.loads(str(stored["header"]))
            arrays = {name: stored[name] for name in stored.files if name != "header"}
        if (header["kind"], header["version"]) != (kind, _VERSION):
            raise ValueError
        for name in header["wide"]:
            if arrays[name].dtype.kind == "U":  # states of version 0.1 have decimal texts
                values = [int(text) for text in arrays[name].tolist()]
            else:
                values = [int.from_bytes(row.tobytes(), "little", signed=True) for row in arrays[name]]
            arrays[name] = np.array(values, dtype=object)
    except (ValueError, KeyError, TypeError, EOFError, OSError, zipfile.BadZipFile):
        raise InvalidRequest(f"Expected the state of a {kind}", do="Pass what state() returned, unchanged") from None
    return header["facts"], arrays
