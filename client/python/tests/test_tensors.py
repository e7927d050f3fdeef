"""Tensors on the server: there and back in every type, leases, digests, quotas."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import Kevald, await_reachable

import keval

MIB = 1 << 20


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16, np.float16, np.int32, np.int64])
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (3, 400_000)])
def test_there_and_back(client: keval.Client, dtype: Any, shape: tuple[int, ...]) -> None:
    array = (np.random.default_rng(3).standard_normal(shape) * 100).astype(dtype)
    stored = client.tensors.put(array)
    assert re.fullmatch("tensors/[0-9a-f]{32}", stored.handle)
    assert (stored.dtype, stored.shape, stored.size_bytes) == (array.dtype.name, shape, array.nbytes)
    assert stored.sha256 == hashlib.sha256(array.tobytes()).hexdigest()
    back = client.tensors.get(stored)
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)
    client.tensors.delete(stored)


def test_leases(client: keval.Client) -> None:
    stored = client.tensors.put(np.zeros(3), lease=60)
    assert stored.expire_time_unix_ms / 1000 == pytest.approx(time.time() + 60, abs=30)
    assert client.tensors.stat(stored.handle) == stored
    touched = client.tensors.touch(stored, lease=120)
    assert touched.expire_time_unix_ms > stored.expire_time_unix_ms
    assert client.tensors.touch(stored, lease=1).expire_time_unix_ms >= touched.expire_time_unix_ms
    with pytest.raises(keval.InvalidArgument, match="lease"):
        client.tensors.touch(stored, lease=-1)
    brief = client.tensors.put(np.zeros(3), lease=0.05)
    time.sleep(0.1)
    with pytest.raises(keval.NotFound):
        client.tensors.get(brief)


def test_list(client: keval.Client) -> None:
    for tensor in client.tensors.list():
        client.tensors.delete(tensor)
    stored = [client.tensors.put(np.full(2, i)) for i in range(3)]
    assert client.tensors.list() == sorted(stored, key=lambda tensor: tensor.handle)


def test_bytes_that_the_server_has_are_not_sent(client: keval.Client) -> None:
    array = np.random.default_rng(5).standard_normal(300_000)
    first = client.tensors.put(array, if_new=True)
    used = client.info().tensor_store.used_bytes
    second = client.tensors.put(array, if_new=True)
    assert second.handle != first.handle
    assert client.info().tensor_store.used_bytes == used  # They count once.
    client.tensors.delete(first)
    np.testing.assert_array_equal(client.tensors.get(second), array)


def test_deleted_is_not_found(client: keval.Client) -> None:
    stored = client.tensors.put(np.zeros(3))
    client.tensors.delete(stored)
    for handle in (stored, "nonsense"):
        for call in (client.tensors.get, client.tensors.stat, client.tensors.touch, client.tensors.delete):
            with pytest.raises(keval.NotFound):
                call(handle)


def test_quota(start: Callable[..., Kevald]) -> None:
    server = start("--max_stored_tensor_bytes", str(8 * MIB))
    with keval.Client(server.control, max_attempts=1) as client:
        kept = client.tensors.put(np.zeros(6 * MIB, np.uint8).view(np.float32))
        with pytest.raises(keval.ResourceExhausted) as full:
            client.tensors.put(np.zeros(MIB, np.float32))
        assert full.value.retry_delay is not None and full.value.retry_delay > 0
        assert str(4 * MIB) in full.value.message
        with pytest.raises(keval.ResourceExhausted) as never:
            client.tensors.put(np.zeros(3 * MIB, np.float32))
        assert never.value.retry_delay is None
        client.tensors.delete(kept)
        client.tensors.put(np.zeros(MIB, np.float32))


def test_a_server_that_dies_in_a_transfer(start: Callable[..., Kevald]) -> None:
    server = start()
    array = np.zeros(4 * MIB, np.float32)
    with keval.Client(server.control, max_attempts=2) as client:
        stored = client.tensors.put(array)
        killer = threading.Timer(0.1, server.kill)
        killer.start()
        with pytest.raises(keval.Unavailable):
            while True:
                assert not client.tensors.get(stored).any()
        killer.join()
        server.restart()
        await_reachable(client)
        with pytest.raises(keval.NotFound):  # Its memory is gone.
            client.tensors.get(stored)
        client.tensors.delete(client.tensors.put(array))


def test_tensors_go_over_control_where_bulk_is_silent(
    start: Callable[..., Kevald], caplog: pytest.LogCaptureFixture
) -> None:
    server = start("--advertise_bulk", "127.0.0.1:1")
    with keval.Client(server.control) as client:
        stored = client.tensors.put(np.arange(3))
        np.testing.assert_array_equal(client.tensors.get(stored), np.arange(3))
    assert [record.message for record in caplog.records if record.name == "keval"] == [
        "the server's bulk address dns:///127.0.0.1:1 doesn't answer: tensors go over the control connection"
    ]
