"""Requests and answers of the tensor store, of both clients."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from keval._arrays import Framework, Payload, Received, RemoteTensor, payload_of
from keval._digests import SHA256, Digest
from keval._errors import DataLoss, invalid_field
from keval._frames import FrameSink, payload_messages, split_message
from keval._progress import Update
from keval.v1 import tensor_pb2 as pb

PAGE_SIZE = 1000


def handle_of(tensor: RemoteTensor | str) -> str:
    if isinstance(tensor, RemoteTensor):
        return tensor.handle
    if isinstance(tensor, str):
        return tensor
    raise invalid_field("handle", type(tensor).__name__, "a RemoteTensor or its handle")


def lease_ms(lease: float | None) -> int:
    """Of seconds; None: the server's default."""
    if lease is None:
        return 0
    if not 0 < lease < 2**53:
        raise invalid_field("lease", lease, "a positive number of seconds")
    return max(1, round(lease * 1000))


class PreparedPut:
    """A tensor on its way, perhaps more than once. Holds a view of the caller's array."""

    def __init__(self, array: Any, lease: float | None) -> None:
        self._payload: Payload = payload_of("tensor", array)
        self._lease_ms = lease_ms(lease)

    def reuse_request(self) -> pb.ReuseTensorRequest:
        digest = hashlib.sha256(self._payload.data).digest()
        return pb.ReuseTensorRequest(spec=self._payload.spec, sha256=digest, lease_ms=self._lease_ms)

    @property
    def size_bytes(self) -> int:
        return len(self._payload.data)

    def messages(self, update: Update) -> Iterator[bytes]:
        # By which a later put finds the bytes (`if_new`).
        header = pb.PutHeader(spec=self._payload.spec, lease_ms=self._lease_ms, digest=SHA256.value)
        return payload_messages(header, [self._payload.data], pb.PutRequest, SHA256, update)


def get_request(tensor: RemoteTensor | str, digest: Digest) -> pb.GetTensorRequest:
    return pb.GetTensorRequest(handle=handle_of(tensor), digest=digest.value)


class TensorReader:
    """Takes the messages of one Get's answer. Not thread-safe."""

    def __init__(self, framework: Framework, digest: Digest) -> None:
        self._framework = framework
        self._digest = digest
        self._received: Received | None = None
        self._sink: FrameSink | None = None
        self._expected = b""

    @property
    def size_bytes(self) -> int:
        """Of the whole tensor, once a message was taken."""
        return len(self._received.buffer) if self._received is not None else 0

    def take(self, message: bytes) -> int:
        """How many bytes of the tensor it had."""
        offset, data, rest = split_message(message)
        fields = pb.GetTensorResponse.FromString(rest) if rest else None
        if fields is not None and fields.HasField("header"):
            if self._sink is not None:
                raise DataLoss("the server sent two headers")
            self._received = Received("tensor", fields.header.spec)
            self._sink = FrameSink([self._received], self._digest)
            self._expected = getattr(fields.header, self._digest.field)
        if self._sink is None:
            raise DataLoss("the server's answer has no header")
        if data:
            self._sink.take(offset, data)
        if fields is not None and fields.HasField("trailer"):
            self._expected = getattr(fields.trailer, self._digest.field) or self._expected
        return len(data)

    def finish(self) -> Any:
        if self._sink is None or self._received is None:
            raise DataLoss("the server's answer has no header")
        self._sink.finish(self._expected)
        return self._received.array(self._framework)


def check_framework(framework: str | None) -> None:
    if framework not in (None, "numpy", "torch"):
        raise invalid_field("framework", framework, "numpy or torch")
