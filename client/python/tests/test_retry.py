"""What is made again after a failure, what isn't, and for how long."""

from __future__ import annotations

import math
import time
from typing import Any

import grpc
import numpy as np
import pytest
from fake_server import FakeServer, Handler, refuse

import keval
from keval._retry import Attempts, RetryPolicy, deadline_after
from keval.v1 import benchmark_pb2, server_info_pb2, tensor_pb2

UNAVAILABLE, EXHAUSTED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED


def failing(times: int, code: grpc.StatusCode, answer: Any, **detail: Any) -> Handler:
    """Refuses that many calls, then answers."""
    left = [times]

    def handle(context: grpc.ServicerContext, request: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            refuse(context, code, **detail)
        return answer

    return handle


def test_what_may_be_repeated_is() -> None:
    fake = FakeServer(GetServerInfo=failing(3, UNAVAILABLE, server_info_pb2.ServerInfo(bulk_port=7)))
    with fake.serving() as address, keval.Client(address) as client:
        assert client.info().bulk_port == 7
    assert len(fake.calls["GetServerInfo"]) == 4


def test_attempts_are_limited() -> None:
    fake = FakeServer(GetServerInfo=failing(9, UNAVAILABLE, None))
    with (
        fake.serving() as address,
        keval.Client(address, max_attempts=2) as client,
        pytest.raises(keval.Unavailable, match="refused"),
    ):
        client.info()
    assert len(fake.calls["GetServerInfo"]) == 2


def test_other_causes_are_final() -> None:
    fake = FakeServer(GetServerInfo=failing(9, grpc.StatusCode.INTERNAL, None))
    with fake.serving() as address, keval.Client(address) as client, pytest.raises(keval.Internal):
        client.info()
    assert len(fake.calls["GetServerInfo"]) == 1


def test_a_second_attempt_makes_no_second_job() -> None:
    fake = FakeServer(Create=failing(2, UNAVAILABLE, benchmark_pb2.BenchmarkJob(name="jobs/1")))
    with fake.serving() as address, keval.Client(address) as client:
        assert client.jobs.create({}).name == "jobs/1"
        client.jobs.create({})
        client.jobs.create({}, request_id="mine")
    ids = [benchmark_pb2.CreateJobRequest.FromString(call).request_id for call in fake.calls["Create"]]
    assert len(set(ids[:3])) == 1 and len(ids[0]) == 32
    assert ids[3] != ids[0] and ids[4] == "mine"


def test_what_may_not_be_repeated_is_where_the_server_says_when() -> None:
    for delay, calls in ((0, 1), (50, 2)):
        fake = FakeServer(
            Put=failing(
                1, EXHAUSTED if delay else UNAVAILABLE, tensor_pb2.TensorInfo(spec={"dtype": 1}), retry_delay_ms=delay
            ),
            Delete=failing(1, UNAVAILABLE, tensor_pb2.DeleteTensorResponse(), retry_delay_ms=delay),
        )
        with fake.serving() as address, keval.Client(address) as client:
            if delay:
                client.tensors.put(np.zeros(3, np.float32))
                client.tensors.delete("tensors/1")
            else:
                with pytest.raises(keval.Unavailable):
                    client.tensors.put(np.zeros(3, np.float32))
                with pytest.raises(keval.Unavailable):
                    client.tensors.delete("tensors/1")
        assert len(fake.calls["Put"]) == len(fake.calls["Delete"]) == calls
        # Each attempt is the whole stream.
        assert all(stream == fake.calls["Put"][0] for stream in fake.calls["Put"])


def test_delays() -> None:
    attempts = Attempts(RetryPolicy(), repeatable=True, deadline=None)
    first = attempts.delay_after(keval.Unavailable("gone"))
    assert first is not None and 0.05 <= first <= 0.1
    said = attempts.delay_after(keval.ResourceExhausted("full", retry_delay=2.5))
    assert said == 2.5
    assert attempts.delay_after(keval.ResourceExhausted("never")) is None
    assert deadline_after(math.inf) is deadline_after(None) is None
    # Not beyond the deadline.
    attempts = Attempts(RetryPolicy(), repeatable=True, deadline=time.monotonic() + 1)
    assert attempts.delay_after(keval.Unavailable("drains", retry_delay=2.0)) is None


def test_a_server_that_is_not_there() -> None:
    with keval.Client("127.0.0.1:1", max_attempts=2) as client, pytest.raises(keval.Unavailable):
        client.info()
    with keval.Client("127.0.0.1:1") as client:
        begin = time.monotonic()
        with pytest.raises((keval.Unavailable, keval.DeadlineExceeded)):
            client.info(timeout=0.2)
        assert time.monotonic() - begin < 10


def test_a_closed_client_says_so(server: Any) -> None:
    client = keval.Client(server.control)
    client.info()
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.info()
