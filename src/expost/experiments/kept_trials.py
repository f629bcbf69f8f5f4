"""Finished trials in the output folder: a run that was broken off goes on where it stopped, and leaves nothing behind."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path

from expost import __version__
from expost.experiments.published import Point

__all__ = ["KeptTrials"]


class KeptTrials:
    """The points of finished trials, one file a trial, for one run with these settings.

    >>> import tempfile
    >>> kept = KeptTrials(Path(tempfile.mkdtemp()), settings="grid")
    >>> kept.write("flights", 3, [Point("flights", "oracle", 0.1, 3, 0.5, 0.0, 0.1, 0.1, 1.0, True)])
    >>> kept.missing("flights", 5)
    [0, 1, 2, 4]
    >>> len(kept.read("flights", 5)), kept.clear()
    (1, None)
    """

    def __init__(self, output: Path, *, settings: str) -> None:
        # Another version, grid or folder of data is another run: its trials are not mixed in.
        digest = hashlib.sha256(f"{__version__} {settings}".encode()).hexdigest()[:12]
        self._folder = output / f".trials-{digest}"

    def _file(self, table: str, trial: int) -> Path:
        return self._folder / f"{table.replace(' ', '-')}-{trial}.json"

    def write(self, table: str, trial: int, points: Iterable[Point]) -> None:
        """Keep one trial; a file is there whole or not at all."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._file(table, trial)
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps([astuple(point) for point in points]), encoding="utf-8")
        draft.replace(file)

    def missing(self, table: str, trials: int) -> list[int]:
        """The trials that are still to be run."""
        return [trial for trial in range(trials) if not self._file(table, trial).exists()]

    def read(self, table: str, trials: int) -> list[Point]:
        """All points that are kept."""
        files = [self._file(table, trial) for trial in range(trials)]
        return [
            Point(*fields) for file in files if file.exists() for fields in json.loads(file.read_text(encoding="utf-8"))
        ]

    def clear(self) -> None:
        """The run is done."""
        shutil.rmtree(self._folder, ignore_errors=True)
