"""The secret state of a path as bytes, without pickle."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core.errors import InvalidRequest

__all__ = ["pack_state", "unpack_state"]

_VERSION = 1
_BLOCK = 32  # bytes; answers below 2^255 have one length


def pack_state(kind: str, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Public facts as JSON and integer arrays as they are; Python integers in blocks of 32 bytes each.

    The length of a state must not tell how many digits an answer has: an encrypted state is as long as the plain one.

    >>> unpack_state("demo", pack_state("demo", {"rungs": 2}, {"top": np.array([1, 2])}))[0]["rungs"]
    2
    """
    wide = [name for name, array in arrays.items() if array.dtype == object]
    header = json.dumps({"kind": kind, "version": _VERSION, "wide": wide, "facts": dict(facts)})
    columns = {name: _to_bytes(array) if name in wide else array for name, array in arrays.items()}
    buffer = io.BytesIO()
    np.savez(buffer, header=np.array(header), **columns)  # type: ignore[arg-type]
    return buffer.getvalue()


def unpack_state(kind: str, state: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What ``pack_state`` was given; a foreign or damaged state is refused without a word about its content."""
    try:
        with np.load(io.BytesIO(state), allow_pickle=False) as stored:
            header = json.loads(str(stored["header"]))
            arrays = {name: stored[name] for name in stored.files if name != "header"}
        if (header["kind"], header["version"]) != (kind, _VERSION):
            raise ValueError
        for name in header["wide"]:
            arrays[name] = _from_bytes(arrays[name])
    except (ValueError, KeyError, TypeError, EOFError, OSError, zipfile.BadZipFile):
        raise InvalidRequest(f"Expected the state of a {kind}", do="Pass what state() returned, unchanged") from None
    return header["facts"], arrays


def _to_bytes(integers: NDArray[Any]) -> NDArray[np.uint8]:
    values = integers.tolist()
    blocks = max((value.bit_length() // (8 * _BLOCK) + 1 for value in values), default=1)
    width = _BLOCK * blocks
    joined = b"".join(value.to_bytes(width, "little", signed=True) for value in values)
    return np.frombuffer(joined, np.uint8).reshape(len(values), width)


def _from_bytes(stored: NDArray[Any]) -> NDArray[Any]:
    if stored.dtype.kind == "U":  # states of version 0.1 have decimal texts
        return np.array([int(text) for text in stored.tolist()], dtype=object)
    return np.array([int.from_bytes(row.tobytes(), "little", signed=True) for row in stored], dtype=object)
