"""Writes files that are complete or unchanged, never half written."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

from expost.core.errors import InvalidRequest

__all__ = ["write_file", "write_text"]


def write_file(path: str | Path, content: bytes) -> None:
    """Write a file so that a crash or a full disk leaves the old content. Links stay links; devices are written to.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_file(f"{folder}/model.json", b"{}")
    ...     print(os.listdir(folder), Path(f"{folder}/model.json").read_bytes())
    ['model.json'] b'{}'
    """
    # Resolved first: replacing the link itself would leave the file it points to unchanged.
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    # In the same folder, because a rename is atomic only within one file system.
    draft = target.with_name(f".expost-{os.getpid()}-{threading.get_ident()}.part")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            # Otherwise a power cut after the rename could leave an empty file under the final name.
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, draft)
        os.replace(draft, target)
    except PermissionError:
        if not target.exists():
            raise
        target.write_bytes(content)  # the folder allows no new files
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text as a whole; raise ``InvalidRequest`` if the file cannot be written.

    >>> write_text(Path("no such folder/answer.csv"), "")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a file that can be written, got 'no such folder/answer.csv'. Create ...
    """
    try:
        write_file(path, text.encode())
    except OSError:
        do = "Create its folder first, or choose another place"
        raise InvalidRequest("Expected a file that can be written", got=str(path), do=do) from None
