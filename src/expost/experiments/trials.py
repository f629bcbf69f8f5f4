"""Many simulated trials on all cores, with progress."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

__all__ = ["Progress", "run_trials"]

_FEW = 5  # below this, starting processes costs more than they save

Progress = Callable[[int, int, str], None]
"""Told how many of how many are done, and of what."""


def run_trials(
    task: Callable[..., Any],
    jobs: Sequence[tuple[Any, ...]],
    *,
    label: str,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Iterator[Any]:
    """The results of ``task(*job)``, in the order in which they are done.

    >>> sorted(run_trials(pow, [(2, 3), (3, 2)], label="powers", workers=1))
    [8, 9]
    """
    workers = workers or os.cpu_count() or 1
    if workers == 1 or len(jobs) < _FEW:
        results = (_single_threaded(task, job) for job in jobs)
    else:
        calls = (delayed(_single_threaded)(task, job) for job in jobs)
        results = Parallel(n_jobs=workers, return_as="generator_unordered")(calls)
    for done, result in enumerate(results, start=1):
        if progress is not None:
            progress(done, len(jobs), label)
        yield result


def _single_threaded(task: Callable[..., Any], job: tuple[Any, ...]) -> Any:
    """One job on one thread: two workers with two threads each are slower than two with one."""
    with threadpool_limits(limits=1):
        return task(*job)
