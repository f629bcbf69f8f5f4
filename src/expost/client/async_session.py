"""A remote session for programs that use asyncio: the methods of ``RemoteSession`` as coroutines."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self

from expost.client.remote_session import RemoteSession, connect
from expost.core import explain_arguments

__all__ = ["AsyncRemoteSession", "connect_async"]

_PARTS = ("part", "parts", "window")  # they send nothing, so nothing has to be awaited


class AsyncRemoteSession:
    """Asks a service about one of its datasets. Each method of ``RemoteSession`` is a coroutine here.

    ``part``, ``parts`` and ``window`` send nothing and return at once. Requests run in threads, so several questions can
    be awaited together. Cancelling a task stops waiting for an answer; a question that was sent is answered and charged.
    Use ``expost.connect_async``.

    Parameters
    ----------
    session : RemoteSession
        The session that sends the requests.
    """

    def __init__(self, session: RemoteSession) -> None:
        self._session, self.dataset = session, session.dataset

    async def accounts(self) -> tuple[str, ...]:
        """Return the accounts that every query charges."""
        return await asyncio.to_thread(lambda: tuple(self._session.accounts))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._session.__exit__)

    def __repr__(self) -> str:
        return f"Async{self._session!r}"

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]: ...


def _make_part(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def part(self: AsyncRemoteSession, *arguments: Any, **terms: Any) -> Any:
        found = method(self._session, *arguments, **terms)
        if isinstance(found, dict):
            return {value: AsyncRemoteSession(each) for value, each in found.items()}
        return AsyncRemoteSession(found)

    return part


def _make_coroutine(method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(method)
    async def ask(self: AsyncRemoteSession, *arguments: Any, **terms: Any) -> Any:
        return await asyncio.to_thread(method, self._session, *arguments, **terms)

    return ask


for _name, _method in inspect.getmembers(RemoteSession, inspect.isfunction):
    if not _name.startswith("_"):
        setattr(AsyncRemoteSession, _name, (_make_part if _name in _PARTS else _make_coroutine)(_method))


@explain_arguments
async def connect_async(
    url: str, token: str, *, dataset: str | None = None, timeout: float = 60.0
) -> AsyncRemoteSession:
    """Open a session with a service, for asyncio.

    Parameters
    ----------
    url : str
        The address of the service, e.g. ``"https://host"``.
    token : str
        The analyst's token.
    dataset : str, optional
        The dataset to ask about. Default: the only one that the token opens.
    timeout : float, default 60
        Seconds to wait for one response.

    Returns
    -------
    AsyncRemoteSession
        Its methods are those of ``Session``, as coroutines.

    Raises
    ------
    InvalidRequest
        If the address or the token cannot be one, or the token opens several datasets and none is named.

    Examples
    --------
    >>> asyncio.run(connect_async("host", "expost_1_2"))
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected the address of a service. Pass e.g. "https://host".
    """
    return AsyncRemoteSession(await asyncio.to_thread(connect, url, token, dataset=dataset, timeout=timeout))
