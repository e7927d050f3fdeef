"""The asyncio client's way to the server: attempts, deadlines, channels."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent import futures
from typing import Any, TypeVar

import grpc
import grpc.aio

from keval import _channel
from keval._channel import Method
from keval._connection import Cancellation, Connection, forked, rpc_errors
from keval._errors import Error
from keval._retry import Attempts, deadline_after, seconds_until
from keval._settings import Settings
from keval.v1 import server_info_pb2

T = TypeVar("T")

_MAX_TRANSFERS = 64  # At a time; more wait for one to end.


class AioConnection:
    """Owner: an aio.Client. Of one event loop, that of its first call.

    What carries tensors runs on threads, over a blocking connection. That is also because grpc.aio loses the status of
    a call that the server ends while requests are still being written: "Internal error from Core", not the refusal.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._address, self._credentials = settings.open()
        self._pid: int | None = None  # Of the process that has connected.
        self._closed = False
        self._control: Any = None
        self._blocking = Connection(settings)
        self._threads = futures.ThreadPoolExecutor(_MAX_TRANSFERS, thread_name_prefix="keval")
        self._info: server_info_pb2.ServerInfo | None = None

    async def close(self) -> None:
        if self._pid not in (None, os.getpid()):
            return  # The parent's.
        self._closed = True
        self._blocking.close()
        self._threads.shutdown(wait=False)
        if self._control is not None:
            await self._control.close()

    # What carries calls.

    def control(self) -> Any:
        pid = os.getpid()
        if self._pid not in (None, pid):
            raise forked(self._pid or 0)
        if self._closed:
            raise RuntimeError("the client is closed")
        if self._control is None:
            self._pid = pid
            self._control = _channel.make_channel(grpc.aio, self._address, self._credentials)
        return self._control

    async def info(self, deadline: float | None) -> server_info_pb2.ServerInfo:
        """As it was at the first call: for what doesn't change while the server runs."""
        if self._info is None:
            self._info = await self.unary(
                _channel.GET_SERVER_INFO, server_info_pb2.GetServerInfoRequest(), seconds_until(deadline)
            )
        return self._info

    async def _metadata(self) -> Any:
        if not self._address.unix_path:
            return self._credentials.metadata()
        # A Unix socket's peer may take seconds to tell its token.
        return await asyncio.to_thread(self._credentials.metadata)

    # Calls.

    async def retry(self, repeatable: bool, deadline: float | None, attempt: Callable[[], Awaitable[T]]) -> T:
        attempts = Attempts(self.settings.policy, repeatable, deadline)
        while True:
            try:
                return await attempt()
            except Error as error:
                delay = attempts.delay_after(error)
                if delay is None:
                    raise
            await asyncio.sleep(delay)

    async def unary(self, method: Method, request: Any, timeout: float | None = None, repeatable: bool = True) -> Any:
        """A call over control; `timeout` None: the client's."""
        deadline = deadline_after(self.settings.timeout if timeout is None else timeout)
        return await self.long_unary(method, request, deadline, repeatable)

    async def long_unary(self, method: Method, request: Any, deadline: float | None, repeatable: bool = True) -> Any:
        call = method.on(self.control())

        async def attempt() -> Any:
            metadata = await self._metadata()
            with rpc_errors():
                return await call(request, timeout=seconds_until(deadline), metadata=metadata)

        return await self.retry(repeatable, deadline, attempt)

    @contextlib.asynccontextmanager
    async def stream(self, method: Method, request: Any, deadline: float | None) -> AsyncIterator[AsyncIterator[Any]]:
        """One attempt whose answer is a stream; it is cancelled where the block is left before its end."""
        channel = self.control()
        metadata = await self._metadata()
        with rpc_errors():
            call = method.on(channel)(request, timeout=seconds_until(deadline), metadata=metadata)
            try:
                yield call
            finally:
                call.cancel()

    async def transfer(self, function: Callable[..., T], *arguments: Any) -> T:
        """`function` of _transfers, on a thread. After a cancel that still has its arrays for a moment."""
        self.control()  # Refuses after a fork or close.
        cancellation = Cancellation()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, lambda: function(self._blocking, *arguments, cancellation))
        except asyncio.CancelledError:
            cancellation.cancel()
            raise
