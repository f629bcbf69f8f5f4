"""Runs requests in threads, and lets HTTP wait for them without blocking."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from expost.service.access_token import Identity
from expost.service.curator import Curator
from expost.service.http_requests import Gate
from expost.service.service_store import RequestRecord, RequestState

__all__ = ["JobPool"]

_POLL_SECONDS = 0.1


class JobPool:
    """The threads of one process that answer requests.

    Parameters
    ----------
    curator : Curator
        Who answers.
    gate : Gate
        Who counts the running questions of each token.
    """

    def __init__(self, curator: Curator, gate: Gate) -> None:
        self._curator, self._gate = curator, gate
        self._threads = ThreadPoolExecutor(curator.settings.limits.workers, thread_name_prefix="answer")
        self._futures: dict[str, Future[Any]] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Wait for the running questions, and take no more."""
        self._threads.shutdown(wait=True)

    def start(self, record: RequestRecord, identity: Identity) -> None:
        """Begin to answer a request that was just stored."""
        future = self._threads.submit(self._curator.run, record, identity)
        with self._lock:
            self._futures[record.request_id] = future

        def forget(_: Future[Any]) -> None:
            self._gate.end_job(identity)
            with self._lock:
                self._futures.pop(record.request_id, None)

        future.add_done_callback(forget)

    async def wait(
        self, record: RequestRecord, seconds: float, who: Identity, *, for_owner: bool = False
    ) -> RequestRecord:
        """Return a request once its answer may leave, or after so many seconds as it is then.

        One that needs the owner's approval is returned at once, unless ``for_owner`` waits for that, too. Refuse if the
        token of the one who waits has been revoked meanwhile.
        """
        found = await self._wait(record, time.monotonic() + seconds, for_owner)
        await asyncio.to_thread(self._gate.check_usable, who)
        return found

    async def _wait(self, record: RequestRecord, until: float, for_owner: bool) -> RequestRecord:
        while True:
            left = until - time.monotonic()
            if record.state == RequestState.DONE:  # it stays as it is
                hidden = min((record.visible or 0.0) - time.time(), left)
                if hidden > 0:
                    await asyncio.sleep(hidden)
                    continue
                return record
            if left <= 0 or (record.state == RequestState.WAITING and not for_owner):
                return record
            future = self._futures.get(record.request_id)
            ended: RequestRecord | None = None
            if future is None:
                await asyncio.sleep(min(_POLL_SECONDS, left))
            else:
                done, _ = await asyncio.wait([asyncio.wrap_future(future)], timeout=left)
                # What this process has stored itself need not be read again.
                ended = next(iter(done)).result() if done else None
            if ended is None:
                ended = await asyncio.to_thread(self._curator.store.find_request, record.request_id)
            record = record if ended is None else ended

    def is_visible(self, record: RequestRecord) -> bool:
        """Return whether the answer of a request may leave now."""
        return record.state == RequestState.DONE and (record.visible or 0.0) <= time.time()

    def describe(self, record: RequestRecord) -> dict[str, Any]:
        """Return the public facts of a request; its answer only if it may leave."""
        visible = self.is_visible(record)
        facts: dict[str, Any] = {
            "job": record.request_id,
            "dataset": record.dataset,
            "question": record.question,
            "state": "done" if visible else self._progress(record),
            "asked": record.created[:16],
        }
        if visible:
            facts |= {"status": record.status, "result": json.loads(record.response or "null")}
        return facts

    def _progress(self, record: RequestRecord) -> str:
        """Return how far a request is, in words that depend on the requests alone and not on rows."""
        if record.state == RequestState.WAITING:
            return "waiting for the owner"
        if record.state == RequestState.STOPPING:
            return "stopping"
        future = self._futures.get(record.request_id)
        idle = future is not None and not future.running() and not future.done()
        return "queued" if idle else "running"
