"""The session for asyncio has the methods of a remote session, and several questions can be awaited together."""

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.served import Served, write_people

import expost
from expost.client import AsyncRemoteSession, RemoteSession
from expost.client.http_transport import HttpTransport
from expost.client.remote_session import open_remote
from expost.core import InvalidRequest


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served(write_people(tmp_path))
    with found.http:
        yield found


@pytest.fixture
def remote(served: Served) -> AsyncRemoteSession:
    transport = HttpTransport("http://testserver", served.tokens["ann"], client=served.http)
    return AsyncRemoteSession(open_remote(transport, None))


def test_every_method_of_a_remote_session_is_there_with_its_signature() -> None:
    for name, method in inspect.getmembers(RemoteSession, inspect.isfunction):
        if name.startswith("_"):
            continue
        other = getattr(AsyncRemoteSession, name)

        assert inspect.signature(other) == inspect.signature(method), name
        assert inspect.iscoroutinefunction(other) == (name not in ("part", "parts", "window")), name


def test_questions_are_awaited_together_and_each_is_charged_once(served: Served, remote: AsyncRemoteSession) -> None:
    async def ask() -> None:
        count, mean, oslo = await asyncio.gather(
            remote.count(epsilon=0.1),
            remote.mean("age", epsilon=0.1),
            remote.part("city", "Oslo").count(epsilon=0.1),
        )
        assert [each.receipt.question for each in (count, mean)] == ["count of rows", "mean of age"]
        assert "Oslo" in oslo.receipt.question
        assert set(remote.parts("city")) == {"Oslo", "Rome"}
        assert await remote.accounts() == ("dataset:people", "analyst:ann/people")
        assert float((await remote.remaining()).amounts()["epsilon"]) == pytest.approx(2.7)
        with pytest.raises(InvalidRequest, match="Did you mean 'within'"):
            await remote.count(withn=3)

    asyncio.run(ask())


def test_connecting_checks_the_address_and_the_token() -> None:
    with pytest.raises(InvalidRequest, match="address"):
        asyncio.run(expost.connect_async("ftp://host", "expost_1_2"))
