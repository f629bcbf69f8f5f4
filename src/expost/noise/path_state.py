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


def pack_state(kind: str, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Public facts as JSON and integer arrays as they are; Python integers of any length as decimal text.

    >>> unpack_state("demo", pack_state("demo", {"rungs": 2}, {"top": np.array([1, 2])}))[0]["rungs"]
    2
    """
    wide = [name for name, array in arrays.items() if array.dtype == object]
    header = json.dumps({"kind": kind, "version": _VERSION, "wide": wide, "facts": dict(facts)})
    columns = {name: array.astype(str) if name in wide else array for name, array in arrays.items()}
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
            arrays[name] = np.array([int(text) for text in arrays[name].tolist()], dtype=object)
    except (ValueError, KeyError, TypeError, EOFError, OSError, zipfile.BadZipFile):
        raise InvalidRequest(f"Expected the state of a {kind}", do="Pass what state() returned, unchanged") from None
    return header["facts"], arrays
