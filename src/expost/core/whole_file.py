"""Files that are there whole, or as they were before."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

__all__ = ["write_file"]


def write_file(path: str | Path, content: bytes) -> None:
    """Write a file so that a crash or a full disk leaves what was there before; links stay, devices are written to.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_file(f"{folder}/model.json", b"{}")
    ...     print(os.listdir(folder), Path(f"{folder}/model.json").read_bytes())
    ['model.json'] b'{}'
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    draft = target.with_name(f".expost-{os.getpid()}-{threading.get_ident()}.part")
    try:
        _draft(draft, content)
        if target.exists():
            shutil.copymode(target, draft)
        os.replace(draft, target)
    except PermissionError:
        if not target.exists():
            raise
        target.write_bytes(content)  # in a folder that is closed to new files
    finally:
        draft.unlink(missing_ok=True)


def _draft(draft: Path, content: bytes) -> None:
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
