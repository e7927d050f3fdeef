"""The blocking client's way to the server: attempts, deadlines, channels."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc

from keval import _channel
from keval._channel import Method
from keval._errors import Cancelled, Error, ForkedClientError, Unavailable, from_call
from keval._retry import Attempts, deadline_after, seconds_until
from keval._settings import Settings
from keval.v1 import server_info_pb2

T = TypeVar("T")

_ready: Any = grpc.channel_ready_future  # Its stub has no types.


def forked(pid: int) -> ForkedClientError:
    return ForkedClientError(
        f"this client connected in process {pid}, before the fork: make a client in the child, or in the parent one "
        "that has not made a call yet; where the parent has used gRPC, start children by spawn or forkserver"
    )


class Cancellation:
    """Ends one call from another thread. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._call: Any = None

    def cancel(self) -> None:
        with self._lock:
            self._cancelled.set()
            call = self._call
        if call is not None:
            call.cancel()

    def attach(self, call: Any) -> None:
        """`call` is the attempt under way."""
        with self._lock:
            self._call = call
        if self._cancelled.is_set():
            call.cancel()

    def sleep(self, seconds: float) -> None:
        if self._cancelled.wait(seconds):
            raise Cancelled("cancelled between two attempts")


class Connection:
    """Owner: a Client. Thread-safe. Connects at the first call, so that a client that has made none survives a fork."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._address, self._credentials = settings.open()
        self._lock = threading.Lock()
        self._pid: int | None = None  # Of the process that has connected.
        self._closed = False
        self._control: Any = None
        self._bulk: Any = None
        self._info: server_info_pb2.ServerInfo | None = None

    def close(self) -> None:
        if self._pid not in (None, os.getpid()):
            return  # The parent's.
        with self._lock:
            self._closed = True
            channels = {id(channel): channel for channel in (self._control, self._bulk) if channel is not None}
        for channel in channels.values():
            channel.close()

    # What carries calls.

    def control(self) -> Any:
        pid = os.getpid()
        # Before the lock, which another thread of the parent's may have held when it forked.
        if self._pid not in (None, pid):
            raise forked(self._pid or 0)
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            if self._control is None:
                self._pid = pid
                self._control = _channel.make_channel(grpc, self._address, self._credentials)
            return self._control

    def bulk(self, deadline: float | None) -> Any:
        """For tensors: the server's bulk listener, or control where that doesn't answer within a second."""
        control = self.control()
        bulk = self._bulk  # Read once: another thread may forget it meanwhile.
        if bulk is None:
            info = self.info(deadline)
            # Not under the lock: this waits for the network. Two first calls may both probe; the first result stays.
            channel = self._probe_bulk(info) or control
            with self._lock:
                if self._bulk is not None and channel is not control:
                    channel.close()
                self._bulk = bulk = self._bulk or channel
        return bulk

    @contextlib.contextmanager
    def _errors(self, channel: Any) -> Iterator[None]:
        """rpc_errors; after UNAVAILABLE the server is asked anew for its bulk address, which a restart may change."""
        try:
            with rpc_errors():
                yield
        except Unavailable:
            with self._lock:
                if channel is self._bulk:
                    # Not closed: another call may still use it. The last one lets it go.
                    self._bulk = self._info = None
            raise

    def _probe_bulk(self, info: server_info_pb2.ServerInfo) -> Any:
        address = _channel.bulk_address(info, self._address, self._credentials)
        if address is None:
            return None
        channel = _channel.make_channel(grpc, address, self._credentials, bulk=True)
        try:
            _ready(channel).result(timeout=_channel.BULK_PROBE_SECONDS)
        except grpc.FutureTimeoutError:
            channel.close()
            _channel.warn_of_silence(address)
            return None
        return channel

    def info(self, deadline: float | None) -> server_info_pb2.ServerInfo:
        """As it was when last asked: for what doesn't change while the server runs."""
        info = self._info
        if info is None:
            request = server_info_pb2.GetServerInfoRequest()
            self._info = info = self.unary(_channel.GET_SERVER_INFO, request, seconds_until(deadline))
        return info

    # Calls.

    def retry(
        self,
        repeatable: bool,
        deadline: float | None,
        attempt: Callable[[], T],
        cancellation: Cancellation | None = None,
    ) -> T:
        attempts = Attempts(self.settings.policy, repeatable, deadline)
        while True:
            try:
                return attempt()
            except Error as error:
                delay = attempts.delay_after(error)
                if delay is None:
                    raise
            (cancellation or Cancellation()).sleep(delay)

    def unary(self, method: Method, request: Any, timeout: float | None = None, repeatable: bool = True) -> Any:
        """A call over control; `timeout` None: the client's."""
        deadline = deadline_after(self.settings.timeout if timeout is None else timeout)
        return self.long_unary(method, request, deadline, repeatable)

    def long_unary(self, method: Method, request: Any, deadline: float | None, repeatable: bool = True) -> Any:
        call = method.on(self.control())

        def attempt() -> Any:
            metadata = self._credentials.metadata()
            with rpc_errors():
                return call(request, timeout=seconds_until(deadline), metadata=metadata)

        return self.retry(repeatable, deadline, attempt)

    def send(
        self, method: Method, messages: Iterator[bytes], deadline: float | None, cancellation: Cancellation
    ) -> Any:
        """One attempt of a stream of requests with one answer."""
        channel = self.bulk(deadline)
        metadata = self._credentials.metadata()
        with self._errors(channel):
            call = method.on(channel).future(messages, timeout=seconds_until(deadline), metadata=metadata)
            cancellation.attach(call)
            try:
                return call.result()
            except grpc.FutureCancelledError:
                raise Cancelled("the call was cancelled") from None
            finally:
                call.cancel()

    @contextlib.contextmanager
    def stream(
        self,
        method: Method,
        requests: Any,
        deadline: float | None,
        cancellation: Cancellation | None = None,
        bulk: bool = False,
    ) -> Iterator[Iterator[Any]]:
        """One attempt whose answer is a stream; it is cancelled where the block is left before its end."""
        channel = self.bulk(deadline) if bulk else self.control()
        metadata = self._credentials.metadata()
        with self._errors(channel):
            call = method.on(channel)(requests, timeout=seconds_until(deadline), metadata=metadata)
            if cancellation is not None:
                cancellation.attach(call)
            try:
                yield call
            finally:
                call.cancel()


@contextlib.contextmanager
def rpc_errors() -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        raise from_call(error) from None
