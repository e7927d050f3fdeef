"""Bars of transfers and jobs."""

from __future__ import annotations

import asyncio
import sys

import numpy as np
import pytest
from conftest import Kevald
from fake_server import FakeServer
from test_jobs import small_spec

import keval
from keval.v1 import benchmark_pb2

ARRAY = np.zeros(3 << 20, np.uint8).view(np.int32)


def test_bars(client: keval.Client, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    stored = client.tensors.put(ARRAY, progress=True)
    assert "put: 100%" in capsys.readouterr().err
    client.tensors.get(stored, progress=True)
    assert "get: 100%" in capsys.readouterr().err
    client.tensors.get(stored)
    assert capsys.readouterr().err == ""


def test_bar_of_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    events = [
        {"sequence": 1, "job": {"state": "RUNNING", "rounds_planned": 4}},
        *({"sequence": 1 + i, "round_done": {"round": i}} for i in range(1, 5)),
        {"sequence": 6, "job": {"state": "DONE", "verdict": "IMPROVED"}},
    ]
    fake = FakeServer(Watch=lambda context, request: (benchmark_pb2.JobEvent(**event) for event in events))
    with fake.serving() as address, keval.Client(address) as client:
        assert client.jobs.wait("jobs/1", progress=True).verdict == "IMPROVED"
        assert "4/4" in capsys.readouterr().err
        client.jobs.wait("jobs/1")
        assert capsys.readouterr().err == ""


def test_wait_of_asyncio(server: Kevald) -> None:
    async def run() -> None:
        async with keval.aio.Client(server.control) as client:
            job = await client.jobs.create(small_spec(200))
            await client.jobs.cancel(job)
            assert (await client.jobs.wait(job)).state == benchmark_pb2.BenchmarkJob.CANCELLED

    asyncio.run(run())


def test_without_tqdm(client: keval.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match=r"keval\[tqdm\]"):
        client.tensors.put(ARRAY, progress=True)
