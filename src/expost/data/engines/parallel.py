"""Running a function over batches in a few threads, with a bounded number under way."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_parallel", "workers"]

S = TypeVar("S")
T = TypeVar("T")


def workers() -> int:
    """How many threads read and add up: the processors this process may use, at most eight."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)


def in_parallel(function: Callable[[S], T], items: Iterable[S], *, threads: int | None = None) -> Iterator[T]:
    """``function`` of each item, in order; at most two items a thread are under way, so memory stays bounded.

    If the caller stops early, or is interrupted, what has not begun is cancelled.

    >>> list(in_parallel(abs, [-1, -2, 3], threads=2))
    [1, 2, 3]
    """
    count = workers() if threads is None else threads
    if count == 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(count, thread_name_prefix="expost")
    waiting: deque[Future[T]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= 2 * count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
