"""The asyncio client's way to the server: attempts, deadlines, channels."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeVar

import grpc
import grpc.aio

from keval import _channel
from keval._channel import Method
from keval._connection import forked, rpc_errors
from keval._errors import Error
from keval._retry import Attempts, deadline_after, seconds_until
from keval._settings import Settings
from keval.v1 import server_info_pb2

T = TypeVar("T")


class AioConnection:
    """Owner: an aio.Client. Of one event loop, that of its first call."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._address, self._credentials = settings.open()
        self._pid: int | None = None  # Of the process that has connected.
        self._closed = False
        self._control: Any = None
        self._bulk: Any = None
        self._info: server_info_pb2.ServerInfo | None = None

    async def close(self) -> None:
        if self._pid not in (None, os.getpid()):
            return  # The parent's.
        self._closed = True
        channels = {id(channel): channel for channel in (self._control, self._bulk) if channel is not None}
        for channel in channels.values():
            await channel.close()

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

    async def bulk(self, deadline: float | None) -> Any:
        """For tensors: the server's bulk listener, or control where that doesn't answer within a second."""
        control = self.control()
        if self._bulk is None:
            # Two first calls may both probe; the first result stays.
            channel = await self._probe_bulk(await self.info(deadline)) or control
            if self._bulk is not None and channel is not control:
                await channel.close()
            self._bulk = self._bulk or channel
        return self._bulk

    async def _probe_bulk(self, info: server_info_pb2.ServerInfo) -> Any:
        address = _channel.bulk_address(info, self._address, self._credentials)
        if address is None:
            return None
        channel = _channel.make_channel(grpc.aio, address, self._credentials, bulk=True)
        try:
            await asyncio.wait_for(channel.channel_ready(), _channel.BULK_PROBE_SECONDS)
        except asyncio.TimeoutError:
            await channel.close()
            _channel.warn_of_silence(address)
            return None
        return channel

    async def info(self, deadline: float | None) -> server_info_pb2.ServerInfo:
        """As it was at the first call: for what doesn't change while the server runs."""
        if self._info is None:
            self._info = await self.unary(
                _channel.GET_SERVER_INFO, server_info_pb2.GetServerInfoRequest(), seconds_until(deadline)
            )
        return self._info

    async def _metadata(self) -> Any:
        # Of a Unix socket's peer it may take seconds.
        return (
            await asyncio.to_thread(self._credentials.metadata)
            if self._address.unix_path
            else (self._credentials.metadata())
        )

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

    async def send(self, method: Method, messages: Iterator[bytes], deadline: float | None) -> Any:
        """One attempt of a stream of requests with one answer."""
        call = method.on(await self.bulk(deadline))
        metadata = await self._metadata()
        with rpc_errors():
            return await call(messages, timeout=seconds_until(deadline), metadata=metadata)

    @contextlib.asynccontextmanager
    async def stream(
        self, method: Method, requests: Any, deadline: float | None, bulk: bool
    ) -> AsyncIterator[AsyncIterator[Any]]:
        """One attempt whose answer is a stream; it is cancelled where the block is left before its end."""
        channel = await self.bulk(deadline) if bulk else self.control()
        metadata = await self._metadata()
        with rpc_errors():
            call = method.on(channel)(requests, timeout=seconds_until(deadline), metadata=metadata)
            try:
                yield call
            finally:
                call.cancel()
