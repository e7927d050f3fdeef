"""What carries tensors, over a blocking connection: the asyncio client runs it on a thread."""

from __future__ import annotations

import contextlib
from typing import Any

from keval import _channel
from keval._arrays import Framework, RemoteTensor
from keval._connection import Cancellation, Connection
from keval._digests import best_of
from keval._gradient import GradientReader, GradientResult, PreparedGradient
from keval._progress import byte_bar
from keval._tensors import PreparedPut, TensorReader, get_request


def stream_gradient(
    connection: Connection, prepared: PreparedGradient, deadline: float | None, cancellation: Cancellation
) -> GradientResult:
    def attempt() -> GradientResult:
        digest = best_of(connection.info(deadline).payload_digests)
        reader = GradientReader(prepared.framework, digest)
        requests = prepared.messages(digest)
        with connection.stream(_channel.STREAM_GRADIENT, requests, deadline, cancellation, bulk=True) as answer:
            for message in answer:
                reader.take(message)
        return reader.finish()

    return connection.retry(True, deadline, attempt, cancellation)


def put(
    connection: Connection, prepared: PreparedPut, progress: bool, deadline: float | None, cancellation: Cancellation
) -> RemoteTensor:
    def attempt() -> Any:
        with byte_bar(progress, "put", prepared.size_bytes) as update:
            return connection.send(_channel.PUT, prepared.messages(update), deadline, cancellation)

    return RemoteTensor.from_proto(connection.retry(False, deadline, attempt, cancellation))


def get(
    connection: Connection,
    tensor: RemoteTensor | str,
    framework: Framework,
    progress: bool,
    deadline: float | None,
    cancellation: Cancellation,
) -> Any:

    def attempt() -> Any:
        digest = best_of(connection.info(deadline).payload_digests)
        request, reader = get_request(tensor, digest), TensorReader(framework, digest)
        with contextlib.ExitStack() as stack:
            answer = stack.enter_context(connection.stream(_channel.GET, request, deadline, cancellation, bulk=True))
            update = None
            for message in answer:
                received = reader.take(message)
                update = update or stack.enter_context(byte_bar(progress, "get", reader.size_bytes))
                update(received)
        return reader.finish()

    return connection.retry(True, deadline, attempt, cancellation)
