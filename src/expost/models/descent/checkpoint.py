"""A training that can go on after its process died."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import InvalidRequest, Loss
from expost.data.row_identity import Mark
from expost.ledger import Hold
from expost.models.descent.file_lock import alone_with
from expost.models.descent.stop_test import Verdict

__all__ = ["Checkpoint", "Progressed"]

_FORMAT = 4
_META = "expost"
_VERDICT = 256  # characters with its filler: a yes is as long as a no, so that no full disk tells them apart


@dataclass(frozen=True)
class Progressed:
    """How far a training is, and what it has been charged for.

    ``begun`` counts the stretches that were started: a stretch that was begun and not finished is paid for and lost,
    because nobody can know what became of its noise. ``split_key`` deals the rows to training and validation the same
    way again, and ``mark`` tells whether they are the same rows, in any order; both are as secret as the rows: who knows them and all
    rows but one can confirm a guess of that one. ``verdict`` is the last answer of the test; if it was passed there is nothing
    left to do.

    >>> Progressed(terms={"steps": 3}).begun
    0
    """

    terms: Mapping[str, Any]
    begun: int = 0
    finished: int = 0
    split_key: int = field(default=0, repr=False)
    hold: Hold | None = None
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    verdict: Verdict | None = None
    mark: Mark | None = field(default=None, repr=False)


class Checkpoint:
    """One file, replaced as a whole: arrays in NumPy's own format and a JSON text, no pickles.

    It holds weights, which are already private, the ledger's ticket for this run, and the key and the mark of the private rows, so
    only its owner may read it. No position of a row is kept.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Checkpoint(f"{folder}/run.npz")
    ...     file.write(Progressed(terms={"steps": 3}, begun=1, arrays={"weights": np.ones(2)}))
    ...     file.read({"steps": 3}).arrays["weights"].tolist()
    [1.0, 1.0]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike) or not str(path):
            raise InvalidRequest("Expected checkpoint to be a path", got=path, do='Pass "run.npz"')
        self.path = Path(path)

    def alone(self) -> AbstractContextManager[None]:
        """Be the only run that works with this file; another one is refused."""
        return alone_with(self.path)

    def check(self) -> None:
        """Refuse a place where no file can be written, before anything is charged."""
        folder = self.path.parent
        if not folder.is_dir() or not os.access(folder, os.W_OK) or self.path.is_dir():
            raise InvalidRequest(
                "Expected a checkpoint in a folder that can be written", got=str(self.path), do="Make the folder first"
            )

    def write(self, progressed: Progressed) -> None:
        """Replace the file; it is on the disk when this returns."""
        verdict = None if progressed.verdict is None else asdict(progressed.verdict)
        meta = {
            "format": _FORMAT,
            "terms": dict(progressed.terms),
            "begun": progressed.begun,
            "finished": progressed.finished,
            "split_key": f"{progressed.split_key:032x}",
            "mark": None if progressed.mark is None else progressed.mark.to_text(),
            "hold": None if progressed.hold is None else _hold_to_json(progressed.hold),
            "verdict": verdict,
            "filler": " " * (_VERDICT - len(json.dumps(verdict))),
        }
        buffer = io.BytesIO()
        text = np.frombuffer(json.dumps(meta, sort_keys=True).encode(), np.uint8)
        np.savez(buffer, allow_pickle=False, **{_META: text}, **progressed.arrays)
        self._replace(buffer.getvalue())

    def read(self, terms: Mapping[str, Any]) -> Progressed | None:
        """What the file holds, or nothing if there is none; refused if it was written under other terms."""
        wanted = json.loads(json.dumps(dict(terms)))
        self._finish_writing(wanted)
        if not self.path.exists():
            return None
        meta, arrays = _content(self.path)
        if "format" in meta and meta["format"] != _FORMAT:
            raise InvalidRequest(
                "Expected a checkpoint of this version of expost",
                do="Use another file and begin anew; what was charged stays charged",
            )
        if not _is_of(wanted, meta):
            raise InvalidRequest(
                "Expected a checkpoint of the same training", do="Use the settings it was made with, or another file"
            )
        hold = None if meta["hold"] is None else _hold_from_json(meta["hold"])
        verdict = None if meta["verdict"] is None else Verdict(**meta["verdict"])
        mark = None if meta["mark"] is None else Mark.from_text(meta["mark"])
        key = int(meta["split_key"], 16)
        return Progressed(terms, meta["begun"], meta["finished"], key, hold, arrays, verdict, mark)

    def _finish_writing(self, wanted: Mapping[str, Any]) -> None:
        """A draft that a crash kept from taking its place takes it now: an answer that it tells must not be asked again."""
        draft, file = _content(self._draft)[0], _content(self.path)[0]
        if _is_of(wanted, draft) and (not self.path.exists() or _follows(draft, file)):
            os.replace(self._draft, self.path)

    def remove(self) -> None:
        """Delete the file, and what a crash may have left of a later one; its run is settled."""
        self._draft.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def _replace(self, content: bytes) -> None:
        handle = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_all(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(self._draft, self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @property
    def _draft(self) -> Path:
        return self.path.with_name(self.path.name + ".part")

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r})"


def _content(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What a file says and its arrays; nothing if it is none of ours, or a torn one."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta = json.loads(arrays.pop(_META, np.frombuffer(b"{}", np.uint8)).tobytes())
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile):
        return {}, {}
    return meta, arrays


def _is_of(terms: Mapping[str, Any], meta: Mapping[str, Any]) -> bool:
    return meta.get("format") == _FORMAT and meta["terms"] == terms


def _follows(later: Mapping[str, Any], earlier: Mapping[str, Any]) -> bool:
    """Whether one is of the same run, and not older."""
    ids = [(meta.get("hold") or {}).get("id") for meta in (later, earlier)]
    return ids[0] == ids[1] is not None and later["begun"] >= earlier["begun"]


def _write_all(handle: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view[: 1 << 30]) :]


def _hold_to_json(hold: Hold) -> dict[str, Any]:
    return {
        "id": hold.id,
        "accounts": list(hold.accounts),
        "worst_case": hold.worst_case.to_json(),
        "question": hold.question,
        "request_id": hold.request_id,
        "ticket": hold.ticket,
        "earlier": list(hold.earlier),
    }


def _hold_from_json(data: Mapping[str, Any]) -> Hold:
    return Hold(
        data["id"],
        tuple(data["accounts"]),
        Loss.from_json(data["worst_case"]),
        data["question"],
        request_id=data["request_id"],
        ticket=data["ticket"],
        earlier=tuple(data.get("earlier", ())),
    )
