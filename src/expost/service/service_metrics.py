"""Counts of requests for Prometheus: public facts only."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from starlette.types import Scope

__all__ = ["ServiceMetrics"]

_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


class ServiceMetrics:
    """Counts requests by route and status. Times are not measured: they depend on rows."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self._lock = threading.Lock()

    def count(self, scope: Scope, status: int) -> None:
        """Count one response.

        Parameters
        ----------
        scope : dict
            The request, as ASGI describes it once it has a route.
        status : int
            The status of the response.
        """
        path = getattr(scope.get("route"), "path", "other")  # the pattern: a path itself may hold a name or a job
        method = scope["method"] if scope["method"] in _METHODS else "other"  # a client may invent any number of them
        with self._lock:
            self._counts[(method, path, status)] += 1

    def text(self, facts: Mapping[str, float] | None = None) -> str:
        """Return the counts, and gauges of public facts, in the text format of Prometheus.

        Parameters
        ----------
        facts : mapping, optional
            Names and numbers of gauges, without the prefix.
        """
        lines = [
            "# HELP expost_requests_total Requests by method, route and status.",
            "# TYPE expost_requests_total counter",
        ]
        with self._lock:
            counts = sorted(self._counts.items())
        for (method, path, status), count in counts:
            lines.append(f'expost_requests_total{{method="{method}",route="{path}",status="{status}"}} {count}')
        for name, value in (facts or {}).items():
            lines += [f"# HELP expost_{name} {name.replace('_', ' ')}.", f"# TYPE expost_{name} gauge"]
            lines.append(f"expost_{name} {value:g}")
        return "\n".join(lines) + "\n"
