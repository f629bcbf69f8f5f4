"""A session with a service elsewhere: the methods of ``Session``, and no rows."""

from expost.client.async_session import AsyncRemoteSession, connect_async
from expost.client.remote_session import RemoteSession, connect

__all__ = ["AsyncRemoteSession", "RemoteSession", "connect", "connect_async"]
