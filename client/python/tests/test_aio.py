"""keval.aio.Client: what is its own, and each call once."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
import numpy as np
import pytest
from conftest import Kevald
from fake_server import FakeServer, refuse
from reference import Problem, check
from test_jobs import small_spec

import keval
from keval.v1 import benchmark_pb2, server_info_pb2

T = TypeVar("T")


def with_client(address: str, body: Callable[[keval.aio.Client], Awaitable[T]], **options: Any) -> T:
    async def run() -> T:
        async with keval.aio.Client(address, **options) as client:
            return await body(client)

    return asyncio.run(asyncio.wait_for(run(), 200))


@pytest.mark.parametrize("sizes", [(24, 12, 40), (30_000, 24, 40)])
def test_gradients_side_by_side(server: Kevald, sizes: tuple[int, int, int]) -> None:
    problem = Problem.draw(*sizes)

    async def body(client: keval.aio.Client) -> None:
        results = await asyncio.gather(*(client.gradient(**problem.arguments()) for _ in range(3)))
        for result in results:
            check(result, problem)
        with pytest.raises(keval.InvalidArgument) as refused:
            await client.gradient(**{**problem.arguments(), "targets": problem.targets + 40})
        assert refused.value.field == "targets"
        plan = await client.plan(4096, 2048, 32768, bias=True)
        assert plan.chunks == 8
        assert "C1" in {row.id async for row in client.contract()}

    with_client(server.control, body)


def test_tensors(server: Kevald) -> None:
    array = np.random.default_rng(9).standard_normal(300_000)

    async def body(client: keval.aio.Client) -> None:
        stored = await client.tensors.put(array, lease=60)
        again = await client.tensors.put(array, if_new=True)
        np.testing.assert_array_equal(await client.tensors.get(again), array)
        assert await client.tensors.stat(stored) == stored
        assert {stored.handle, again.handle} <= {tensor.handle for tensor in await client.tensors.list()}
        touched = await client.tensors.touch(stored, lease=120)
        assert touched.expire_time_unix_ms > stored.expire_time_unix_ms
        for tensor in (stored, again):
            await client.tensors.delete(tensor)
        with pytest.raises(keval.NotFound):
            await client.tensors.get(stored)

    with_client(server.control, body)


def test_jobs(server: Kevald) -> None:
    async def body(client: keval.aio.Client) -> None:
        job = await client.jobs.create(small_spec(200))
        events = []
        async for event in client.jobs.watch(job):
            events.append(event)
            if event.HasField("round_done"):
                assert (await client.jobs.cancel(job)).name == job.name
        assert events[-1].job.state == benchmark_pb2.BenchmarkJob.CANCELLED
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert "report.json" in await client.jobs.report(job)
        assert (await client.jobs.get(job)).rounds_done == events[-1].job.rounds_done >= 1
        assert (await client.jobs.list(limit=1))[0].name == job.name

    with_client(server.control, body)


def test_cancelling_the_task_ends_the_call(server: Kevald) -> None:
    async def body(client: keval.aio.Client) -> None:
        job = await client.jobs.create(small_spec(200))

        async def watch() -> None:
            async for _ in client.jobs.watch(job, progress=True):
                begun.set()

        begun = asyncio.Event()
        task = asyncio.create_task(watch())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.jobs.cancel(job)

    with_client(server.control, body)


def test_cancelling_the_task_ends_a_transfer() -> None:
    ended = threading.Event()

    def handle(context: Any, requests: Any) -> Any:
        context.add_callback(ended.set)
        ended.wait(60)
        yield b""

    async def body(client: keval.aio.Client) -> None:
        task = asyncio.create_task(client.tensors.get("tensors/1"))
        while "Get" not in fake.calls:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(ended.wait, 60)

    fake = FakeServer(Get=handle)
    with fake.serving() as address:
        with_client(address, body)


def test_user_over_a_unix_socket(start: Callable[..., Kevald], tmp_path: Any) -> None:
    start("--unix_principals", listen=f"unix:{tmp_path}/s")

    async def body(client: keval.aio.Client) -> None:
        assert len((await client.info()).devices) > 0

    with_client(f"unix:{tmp_path}/s", body)


def test_retries() -> None:
    refusals = [grpc.StatusCode.UNAVAILABLE] * 2

    def handle(context: Any, request: Any) -> Any:
        if refusals:
            refuse(context, refusals.pop())
        return server_info_pb2.ServerInfo(bulk_port=7)

    async def body(client: keval.aio.Client) -> None:
        assert (await client.info()).bulk_port == 7

    fake = FakeServer(GetServerInfo=handle)
    with fake.serving() as address:
        with_client(address, body)
    assert len(fake.calls["GetServerInfo"]) == 3


def test_closed_and_out_of_reach(server: Kevald) -> None:
    async def closed() -> None:
        client = keval.aio.Client(server.control)
        await client.info()
        await client.close()
        with pytest.raises(RuntimeError, match="closed"):
            await client.info()

    asyncio.run(closed())

    async def body(client: keval.aio.Client) -> None:
        with pytest.raises(keval.Unavailable):
            await client.info()

    with_client("127.0.0.1:1", body, max_attempts=1)


def test_a_forked_child_is_refused(server: Kevald, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(client: keval.aio.Client) -> None:
        await client.info()
        pid = os.getpid()
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: pid + 1)  # What a child sees.
            with pytest.raises(keval.ForkedClientError):
                await client.info()

    with_client(server.control, body)
