"""By which digest payloads are verified: XXH3 where both sides know it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer
from reference import Problem, check

import keval
from keval import _channel, _digests
from keval._connection import Connection
from keval.v1 import linear_logp_pb2, server_info_pb2, tensor_pb2

xxhash = pytest.importorskip("xxhash", reason="xxhash is not installed")

XXH3, SHA256 = tensor_pb2.PAYLOAD_DIGEST_XXH3, tensor_pb2.PAYLOAD_DIGEST_SHA256


@pytest.fixture(params=[True, False], ids=["with xxhash", "without xxhash"])
def expected(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The digest that a client asks for, with and without the package."""
    if not request.param:
        monkeypatch.setattr(_digests, "xxhash", None)
    return XXH3 if request.param else SHA256


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The first argument of each streaming call."""
    seen: list[Any] = []
    stream = Connection.stream

    def record(self: Connection, method: Any, request: Any, *arguments: Any, **options: Any) -> Any:
        if method is _channel.STREAM_GRADIENT:
            messages = list(request)
            seen.extend(linear_logp_pb2.StreamGradientRequest.FromString(messages[i]) for i in (0, -1))
            request = iter(messages)
        else:
            seen.append(request)
        return stream(self, method, request, *arguments, **options)

    monkeypatch.setattr(Connection, "stream", record)
    return seen


def test_a_gradient_there_and_back(client: keval.Client, expected: Any, requests: list[Any]) -> None:
    problem = Problem.draw(30_000, 24, 40)
    check(client.gradient(**problem.arguments()), problem)
    first, last = requests
    assert first.header.digest == expected
    payload = b"".join(array.tobytes() for array in (problem.targets, problem.grad_logp, problem.bias))
    payload += problem.weight.tobytes() + problem.hidden.tobytes()
    if expected == XXH3:
        assert (last.trailer.xxh3, last.trailer.sha256) == (xxhash.xxh3_128(payload).digest(), b"")
    else:
        assert last.trailer.xxh3 == b"" and len(last.trailer.sha256) == 32


def test_a_tensor(client: keval.Client, expected: Any, requests: list[Any]) -> None:
    array = np.random.default_rng(2).standard_normal(300_000)
    stored = client.tensors.put(array)
    assert stored.sha256 != ""  # By which it is found again.
    np.testing.assert_array_equal(client.tensors.get(stored), array)
    assert requests[0].digest == expected
    client.tensors.delete(stored)


@pytest.mark.parametrize("known", [[SHA256], [SHA256, XXH3]])
@pytest.mark.parametrize("right", [True, False])
def test_an_answer_is_verified(known: list[Any], right: bool) -> None:
    data = bytes(range(16))
    seen = data if right else data[::-1]
    hashed = (
        {"xxh3": xxhash.xxh3_128(seen).digest()} if XXH3 in known else {"sha256": _digests.SHA256.new(seen).digest()}
    )
    messages = [
        tensor_pb2.GetTensorResponse(header={"spec": {"dtype": tensor_pb2.DATA_TYPE_FLOAT32, "shape": [4]}}),
        tensor_pb2.GetTensorResponse(data=data, trailer=hashed),
    ]
    fake = FakeServer(
        GetServerInfo=lambda context, request: server_info_pb2.ServerInfo(payload_digests=known),
        Get=lambda context, request: iter(messages),
    )
    with fake.serving() as address, keval.Client(address) as client:
        if right:
            assert client.tensors.get("tensors/1").tobytes() == data
        else:
            with pytest.raises(keval.DataLoss, match="digest"):
                client.tensors.get("tensors/1")
