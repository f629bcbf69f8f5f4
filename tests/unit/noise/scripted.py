"""A source of bits that begins with given bytes, for exact tests of what a sampler does with them."""

from __future__ import annotations

import numpy as np

from expost.noise import BitSource, SeededBits


class ScriptedBits(BitSource):
    """Hands out ``script`` first, little-endian, and seeded bits after it; counts the bytes drawn."""

    private = False

    def __init__(self, *script: np.ndarray, seed: int = 0) -> None:
        self._script = b"".join(part.tobytes() for part in script)
        self._rest = SeededBits(seed)
        self.drawn = 0

    def _fill(self, out: memoryview) -> None:
        wanted = len(out) - 16
        head, self._script = self._script[:wanted], self._script[wanted:]
        out[: len(head)] = head
        out[len(head) : wanted] = self._rest.words(wanted - len(head), np.uint8).tobytes()
        self.drawn += wanted


def words(*values: int, dtype: type = np.uint64) -> np.ndarray:
    return np.array(values, dtype=dtype)
