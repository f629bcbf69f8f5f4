"""The smallest epsilon at which other libraries' models reach a score, each in the Python that EXPOST_PEERS names for it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

PEERS = ("diffprivlib", "opacus")
PEER_GRID = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0)


def peer_pythons() -> dict[str, str]:
    """Return the Python of each peer that the environment variable EXPOST_PEERS names, as PEER=PATH with commas between."""
    named = os.environ.get("EXPOST_PEERS", "").split(",")
    return {name.strip(): path.strip() for name, _, path in (each.partition("=") for each in named) if path}


def find_peer_epsilons(
    rows: np.ndarray,
    target: np.ndarray,
    wanted: float,
    *,
    runs: int,
    target_bounds: tuple[float, float] | None = None,
    pythons: Mapping[str, str] | None = None,
    seconds: float = 600,
) -> dict[str, dict[str, Any]]:
    """Search for each peer that is named; ``target_bounds`` belongs to a number to predict. A failure is written down."""
    pythons = peer_pythons() if pythons is None else pythons
    terms = {
        "wanted": wanted,
        "runs": runs,
        "grid": PEER_GRID,
        "classifies": target_bounds is None,
        "target_bounds": target_bounds,
        "delta": 1e-6,
    }
    found: dict[str, dict[str, Any]] = {}
    worker = Path(__file__).with_name("model_peer_worker.py")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npz"
        kept = target.astype(str) if target_bounds is None else target.astype(float)
        np.savez(file, rows=independent_columns(rows.astype(float)), target=kept, terms=json.dumps(terms))
        for peer in PEERS:
            if peer in pythons:
                words = [pythons[peer], str(worker), peer, str(file)]
                found[peer] = run_search(words, seconds)
    return found


def independent_columns(rows: np.ndarray) -> np.ndarray:
    """Leave out columns that the constant and earlier columns add up to: a level of each group of marks, constants.

    Noise on the moments of dependent columns ruins a least squares fit, so nobody would give them to such a library.
    """
    upper = np.linalg.qr(np.column_stack([np.ones(len(rows)), rows]), mode="r")
    return rows[:, np.abs(np.diag(upper))[1:] > 1e-6 * np.sqrt(len(rows))]


def run_search(words: list[str], seconds: float) -> dict[str, Any]:
    """Run one search in a process of its own: its answer, or why there is none."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"failed": f"stopped after {seconds:g} seconds"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def describe_peer(answer: Mapping[str, Any]) -> str:
    """Return one peer's answer as a few words.

    >>> describe_peer({"epsilon": 3.0}), describe_peer({"failed": "no message"})
    ('3', 'failed')
    >>> describe_peer({"epsilon": None, "best": {"score": 0.8212, "epsilon": 20.0}})
    'not up to 20 (best 0.82)'
    """
    if "failed" in answer:
        return "failed"
    if answer["epsilon"] is None:
        return f"not up to {PEER_GRID[-1]:g} (best {max(answer['best']['score'], -9):.2f})"
    return f"{answer['epsilon']:g}"
