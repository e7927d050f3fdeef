"""Tensor bytes in streams: messages with the fields `fixed64 offset = 1` and `bytes data = 2` beside others, encoded
and taken apart here so that a frame's bytes are copied once each way (proto/keval/v1/tensor.proto).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from keval._arrays import Received
from keval._digests import Digest
from keval._errors import DataLoss
from keval._progress import Update, no_update

FRAME_BYTES = 1 << 20

_OFFSET_KEY = 0x09  # Field 1, 64 bits.
_DATA_KEY = 0x12  # Field 2, of a length.


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_frame(offset: int, data: memoryview) -> bytes:
    """The one copy of `data` on its way into gRPC that is ours."""
    prefix = b"\x09" + offset.to_bytes(8, "little") + b"\x12" + _varint(len(data))
    return b"".join((prefix, data))


def _read_varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise DataLoss("the server's answer can't be read")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def split_message(message: bytes) -> tuple[int, memoryview, bytes]:
    """A serialized message as its offset, its data (a view of `message`) and all other fields, serialized."""
    view = memoryview(message)
    offset, data = 0, view[:0]
    rest: list[memoryview] = []
    at = 0
    while at < len(view):
        begin = at
        key, at = _read_varint(view, at)
        kind = key & 7
        value_begin = at
        if kind == 0:
            _, at = _read_varint(view, at)
        elif kind == 1:
            at += 8
        elif kind == 2:
            length, value_begin = _read_varint(view, at)
            at = value_begin + length
        elif kind == 5:
            at += 4
        else:
            raise DataLoss("the server's answer can't be read")
        if at > len(view):
            raise DataLoss("the server's answer can't be read")
        if key == _OFFSET_KEY:
            offset = int.from_bytes(view[value_begin:at], "little")
        elif key == _DATA_KEY:
            data = view[value_begin:at]
        else:
            rest.append(view[begin:at])
    return offset, data, b"".join(rest)


def payload_messages(
    header: Any, tensors: Iterable[memoryview], request: Any, digest: Digest, update: Update = no_update
) -> Iterator[bytes]:
    """What a stream is sent: `header`, which names `digest`, the tensors' frames, the trailer with that of all their
    bytes. `request` is the class of the stream's messages; `update` is told the bytes that are on their way.
    """
    yield request(header=header).SerializeToString()
    hasher = digest.new()
    offset = 0
    for tensor in tensors:
        for begin in range(0, len(tensor), FRAME_BYTES):
            piece = tensor[begin : begin + FRAME_BYTES]
            hasher.update(piece)
            yield encode_frame(offset, piece)
            offset += len(piece)
            update(len(piece))
    yield request(trailer={digest.field: hasher.digest()}).SerializeToString()


class FrameSink:
    """Puts the frames of an answer where they belong: each tensor's in ascending order, whatever comes between them.
    Raises DataLoss for what doesn't fit. Not thread-safe.
    """

    def __init__(self, tensors: Iterable[Received], digest: Digest) -> None:
        self._places: list[tuple[int, Received]] = []
        self._filled: list[int] = []
        self._digest = digest.new()
        begin = 0
        for tensor in tensors:
            self._places.append((begin, tensor))
            self._filled.append(0)
            begin += len(tensor.buffer)

    def take(self, offset: int, data: memoryview) -> None:
        for i, (begin, tensor) in enumerate(self._places):
            size = len(tensor.buffer)
            if not begin <= offset < begin + size:
                continue
            at = offset - begin
            if at != self._filled[i]:
                raise DataLoss("the server's frames are out of order")
            if len(data) > size - at:
                raise DataLoss("the server sent a frame that goes beyond its tensor")
            tensor.buffer[at : at + len(data)] = data
            self._digest.update(data)
            self._filled[i] += len(data)
            return
        raise DataLoss("the server sent more bytes than it declared")

    def finish(self, expected: bytes) -> None:
        """`expected` empty: the server didn't say it."""
        for (_, tensor), filled in zip(self._places, self._filled, strict=True):
            if filled != len(tensor.buffer):
                raise DataLoss(f"the server sent {filled} of {tensor.name}'s {len(tensor.buffer)} bytes")
        if expected and self._digest.digest() != expected:
            raise DataLoss("the digest of what arrived differs from the server's")
