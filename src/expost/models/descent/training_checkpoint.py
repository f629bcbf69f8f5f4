"""The file from which a training continues after its process died."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Loss
from expost.data.row_identity import Mark
from expost.ledger import Hold
from expost.models.descent.stopping_test import StopVerdict

if sys.platform != "win32":
    import fcntl

__all__ = ["Checkpoint", "TrainingProgress", "hash_settings"]

_FORMAT = 4
_META = "expost"
_HOLD = ("id", "question", "request_id", "ticket")  # fields of a hold that are text
# Length of the verdict's text with its filler: a yes is as long as a no, so a full disk cannot reveal which it was.
_VERDICT = 256
_HASH_LETTERS = 16  # 64 bits: enough to tell settings apart; this is not a defense


def hash_settings(settings: Mapping[str, Any]) -> str:
    """Return a hash that is stable across processes and differs whenever the settings differ.

    Values are JSON or have a stable ``repr``.
    """
    text = json.dumps(settings, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LETTERS]


@dataclass(frozen=True)
class TrainingProgress:
    """How far a training is, and what it has been charged for.

    ``begun`` counts the stretches that were started. A stretch that was begun and not finished is paid for and lost,
    because what became of its noise is unknown. ``split_key`` assigns the rows to training and validation the same way
    again, and ``mark`` identifies the rows, in any order. Both are as secret as the rows: whoever has them and all rows
    but one can confirm a guess of that one. ``verdict`` is the last answer of the test; if it passed, the training is
    complete.
    """

    terms: Mapping[str, Any]
    begun: int = 0
    finished: int = 0
    split_key: int = field(default=0, repr=False)
    hold: Hold | None = None
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    verdict: StopVerdict | None = None
    mark: Mark | None = field(default=None, repr=False)


class Checkpoint:
    """One file, replaced as a whole: arrays in NumPy's own format and a JSON text, no pickles.

    It holds weights, which are already private, the ledger's ticket for this run, and the key and the mark of the
    private rows, so only its owner may read it. It contains no position of a row.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike) or not str(path):
            raise InvalidRequest("Expected checkpoint to be a path", got=path, do='Pass "run.npz"')
        self.path = Path(path)
        self._draft = self.path.with_name(self.path.name + ".part")

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r})"

    def check(self) -> None:
        """Raise ``InvalidRequest`` where the file cannot be written, before anything is charged."""
        folder = self.path.parent
        if not folder.is_dir() or not os.access(folder, os.W_OK) or self.path.is_dir():
            raise self._unwritable_error()

    def _unwritable_error(self) -> InvalidRequest:
        return InvalidRequest(
            "Expected a checkpoint in a folder that can be written", got=str(self.path), do="Make the folder first"
        )

    @contextmanager
    def lock_file(self) -> Iterator[None]:
        """Lock the file for this run, or raise ``InvalidRequest``; the lock ends with the process, however that ends.

        The lock saves two runs from working in vain. What keeps the second from releasing anything is the ledger.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Checkpoint(f"{folder}/run.npz").lock_file():
        ...     with Checkpoint(f"{folder}/run.npz").lock_file():
        ...         pass
        Traceback (most recent call last):
        expost.core.errors.InvalidRequest: Expected a checkpoint that no other run works with, got ...
        """
        lock, process = self.path.with_name(self.path.name + ".lock"), os.getpid()
        handle = self._lock_file(lock)
        try:
            yield
        finally:
            if process == os.getpid():  # a fork leaves this block too, and must not lift the lock of its parent
                lock.unlink(missing_ok=True)
            os.close(handle)

    def _lock_file(self, lock: Path) -> int:
        """Open and lock the lock file, and return its handle."""
        while True:
            try:
                handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
            except OSError:
                raise self._unwritable_error() from None
            try:
                if sys.platform != "win32":
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                raise InvalidRequest(
                    "Expected a checkpoint that no other run works with",
                    got=str(self.path),
                    do="Wait for it, or use another",
                ) from None
            except OSError:
                pass  # a file system without locks: the ledger still lets only one run settle
            # The previous owner may have removed the file between open and lock: then another run could lock a new one.
            try:
                if os.path.samestat(os.fstat(handle), os.stat(lock)):
                    return handle
            except FileNotFoundError:
                pass
            os.close(handle)

    def write(self, progress: TrainingProgress) -> None:
        """Replace the file; it is on the disk when this returns."""
        verdict = None if progress.verdict is None else asdict(progress.verdict)
        meta = {
            "format": _FORMAT,
            "terms": dict(progress.terms),
            "begun": progress.begun,
            "finished": progress.finished,
            "split_key": f"{progress.split_key:032x}",
            "mark": None if progress.mark is None else progress.mark.to_text(),
            "hold": None if progress.hold is None else _hold_to_json(progress.hold),
            "verdict": verdict,
            "filler": " " * (_VERDICT - len(json.dumps(verdict))),
        }
        buffer = io.BytesIO()
        text = np.frombuffer(json.dumps(meta, sort_keys=True).encode(), np.uint8)
        np.savez(buffer, allow_pickle=False, **{_META: text}, **progress.arrays)
        handle = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            view = memoryview(buffer.getvalue())
            while view:
                view = view[os.write(handle, view[: 1 << 30]) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(self._draft, self.path)
        # The new name is durable only once the folder is.
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def read(self, terms: Mapping[str, Any]) -> TrainingProgress | None:
        """Return what the file holds, None without a file; raise if it was written under other terms."""
        wanted = json.loads(json.dumps(dict(terms)))
        self._adopt_draft(wanted)
        if not self.path.exists():
            return None
        meta, arrays = _read_content(self.path)
        if "format" in meta and meta["format"] != _FORMAT:
            raise InvalidRequest(
                "Expected a checkpoint of this version of expost",
                do="Use another file and start again; what was charged stays charged",
            )
        if not _matches(wanted, meta):
            raise InvalidRequest(
                "Expected a checkpoint of the same training", do="Use the settings it was made with, or another file"
            )
        hold = None if meta["hold"] is None else _hold_from_json(meta["hold"])
        verdict = None if meta["verdict"] is None else StopVerdict(**meta["verdict"])
        mark = None if meta["mark"] is None else Mark.from_text(meta["mark"])
        key = int(meta["split_key"], 16)
        return TrainingProgress(terms, meta["begun"], meta["finished"], key, hold, arrays, verdict, mark)

    def _adopt_draft(self, wanted: Mapping[str, Any]) -> None:
        """Rename a draft that a crash left behind: it may hold an answer of the test, which must not be asked again."""
        draft, file = _read_content(self._draft)[0], _read_content(self.path)[0]
        if not _matches(wanted, draft):
            return
        ids = [(meta.get("hold") or {}).get("id") for meta in (draft, file)]
        follows = ids[0] == ids[1] is not None and draft["begun"] >= file["begun"]
        if follows or not self.path.exists():
            os.replace(self._draft, self.path)

    def remove(self) -> None:
        """Delete the file, and what a crash may have left of a later one; its run is settled."""
        self._draft.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)


def _read_content(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a file's JSON and arrays; empty for a missing, foreign or torn file."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta = json.loads(arrays.pop(_META, np.frombuffer(b"{}", np.uint8)).tobytes())
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile):
        return {}, {}
    return meta, arrays


def _matches(terms: Mapping[str, Any], meta: Mapping[str, Any]) -> bool:
    return meta.get("format") == _FORMAT and meta["terms"] == terms


def _hold_to_json(hold: Hold) -> dict[str, Any]:
    lists = {"accounts": list(hold.accounts), "earlier": list(hold.earlier)}
    return {name: getattr(hold, name) for name in _HOLD} | lists | {"worst_case": hold.worst_case.to_json()}


def _hold_from_json(data: Mapping[str, Any]) -> Hold:
    lists: dict[str, Any] = {"accounts": tuple(data["accounts"]), "earlier": tuple(data.get("earlier", ()))}
    return Hold(**{name: data[name] for name in _HOLD}, **lists, worst_case=Loss.from_json(data["worst_case"]))
