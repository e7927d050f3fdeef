"""Answers that aren't what a server of keval sends: DataLoss, never a wrong array."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer

import keval
from keval._digests import SHA256
from keval._errors import from_call, printable
from keval._frames import FRAME_BYTES, encode_frame, payload_messages, split_message
from keval.v1 import benchmark_pb2, tensor_pb2

DATA = bytes(range(16))
HEADER = tensor_pb2.GetTensorResponse(
    header={"spec": {"dtype": tensor_pb2.DATA_TYPE_FLOAT32, "shape": [4]}, "size_bytes": 16}
)


def frame(offset: int, data: bytes) -> tensor_pb2.GetTensorResponse:
    return tensor_pb2.GetTensorResponse(offset=offset, data=data)


def trailer(data: bytes) -> tensor_pb2.GetTensorResponse:
    return tensor_pb2.GetTensorResponse(trailer={"sha256": hashlib.sha256(data).digest()})


def get(*messages: Any) -> Any:
    fake = FakeServer(Get=lambda context, request: iter(messages))
    with fake.serving() as address, keval.Client(address) as client:
        return client.tensors.get("tensors/1")


def test_a_right_answer_in_any_frames() -> None:
    both = tensor_pb2.GetTensorResponse(header=HEADER.header, data=DATA[:8])
    for messages in ((HEADER, frame(0, DATA), trailer(DATA)), (both, frame(8, DATA[8:])), (HEADER, frame(0, DATA))):
        assert get(*messages).tobytes() == DATA


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (frame(0, DATA),),
        (HEADER, HEADER),
        (HEADER, frame(0, DATA[:8])),
        (HEADER, frame(4, DATA[4:])),
        (HEADER, frame(0, DATA), frame(0, DATA)),
        (HEADER, frame(0, DATA + b"1")),
        (HEADER, frame(1 << 40, DATA)),
        (HEADER, frame(0, DATA), trailer(DATA[::-1])),
        (b"\x12\x7f1",),
        (b"\xff" * 12,),
        (b"\x0b",),
    ],
)
def test_wrong_answers(messages: Any) -> None:
    with pytest.raises(keval.DataLoss):
        get(*messages)


def test_frames_are_protobuf() -> None:
    for size in (0, 1, 127, 128, 20_000):
        for offset in (0, 3, 1 << 40):
            data = bytes(size)
            message = tensor_pb2.PutRequest.FromString(encode_frame(offset, memoryview(data)))
            assert (message.offset, message.data) == (offset, data)
            message.trailer.sha256 = b"1" * 32
            got_offset, got_data, rest = split_message(message.SerializeToString())
            assert (got_offset, bytes(got_data)) == (offset, data)
            assert tensor_pb2.PutRequest.FromString(rest).trailer == message.trailer


def test_a_stream_is_header_frames_and_digest() -> None:
    tensors = [np.arange(FRAME_BYTES + 5).astype(np.uint8).data, np.zeros(3, np.uint8).data]
    messages = [
        tensor_pb2.PutRequest.FromString(message)
        for message in payload_messages(tensor_pb2.PutHeader(lease_ms=7), tensors, tensor_pb2.PutRequest, SHA256)
    ]
    assert messages[0].header.lease_ms == 7
    # A frame lies within one tensor.
    assert [(m.offset, len(m.data)) for m in messages[1:-1]] == [
        (0, FRAME_BYTES),
        (FRAME_BYTES, 5),
        (FRAME_BYTES + 5, 3),
    ]
    assert messages[-1].trailer.sha256 == hashlib.sha256(b"".join(m.data for m in messages)).digest()


def piece(name: str, data: bytes, sha256: bytes) -> benchmark_pb2.GetReportResponse:
    return benchmark_pb2.GetReportResponse(file_name=name, data=data, sha256=sha256)


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (piece("", b"1", b""),),
        (piece("report.json", b"1", b""),),
        (piece("report.json", b"1", hashlib.sha256(b"2").digest()),),
        (piece("../../etc/passwd", b"1", hashlib.sha256(b"1").digest()),),
    ],
)
def test_wrong_reports(pieces: Any) -> None:
    fake = FakeServer(GetReport=lambda context, request: iter(pieces))
    with fake.serving() as address, keval.Client(address) as client, pytest.raises(keval.DataLoss):
        client.jobs.report("jobs/1")


class Failed:
    """A call's end as gRPC tells it."""

    def __init__(self, name: str, text: str, detail: bytes) -> None:
        import grpc

        self.code = lambda: grpc.StatusCode[name]
        self.details = lambda: text
        self.trailing_metadata = lambda: (("keval-error-bin", detail),)


def test_every_cause_has_its_exception() -> None:
    import grpc

    for code in grpc.StatusCode:
        if code is not grpc.StatusCode.OK:
            assert from_call(Failed(code.name, "text", b"")).code == code.name
    unreadable = from_call(Failed("NOT_FOUND", "a \x1b[31mtext", b"\xff\xff"))
    assert type(unreadable) is keval.NotFound
    assert str(unreadable) == "a \\x1b[31mtext"
    assert len(printable("x" * 1000)) == 257
