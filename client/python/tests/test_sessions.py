"""Gradient sessions: sums of many micro-batches on the server."""

from __future__ import annotations

import asyncio
import os
import types
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import Kevald, await_reachable
from reference import Problem, check, expected

import keval


def batch(problem: Problem, begin: int, end: int) -> dict[str, Any]:
    return {name: getattr(problem, name)[begin:end] for name in ("hidden", "targets", "grad_logp")}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("stored", [True, False])
def test_sums_are_those_of_the_whole(client: keval.Client, dtype: Any, stored: bool) -> None:
    problem = Problem.draw(24, 12, 40, dtype, bias=stored)
    weight = client.tensors.put(problem.weight) if stored else problem.weight
    session = client.sessions.create(weight, problem.bias, device="cpu", lease=60)
    if stored:
        client.tensors.delete(weight)
    for number, (begin, end) in enumerate(((0, 10), (10, 11), (11, 24))):
        result = client.gradient(session=session, **batch(problem, begin, end))
        assert (result.session_batch.sequence, result.session_batch.repeated) == (number + 1, False)
        assert result.grad_weight is None and result.grad_bias is None
        scale = np.abs(expected(problem)["grad_hidden"]).max()
        rest = result.grad_hidden.astype(np.float64) - expected(problem)["grad_hidden"][begin:end]
        assert np.abs(rest).max() <= scale * 2.0**-7
    assert client.sessions.get(session).batches == 3
    sums = client.sessions.fetch(session, reset=True)
    assert (sums.session.batches, sums.session.num_tokens) == (3, 24)
    assert sums.grad_weight.dtype == (np.float64 if dtype == np.float64 else np.float32)
    check(sums_as_result(sums), problem, ("grad_weight", "grad_bias") if stored else ("grad_weight",))
    assert not client.sessions.fetch(session).grad_weight.any()
    client.sessions.delete(session)
    with pytest.raises(keval.NotFound) as gone:
        client.sessions.get(session)
    assert gone.value.field == "session"


def sums_as_result(sums: keval.SessionSums) -> Any:
    """What reference.check takes."""
    return types.SimpleNamespace(logp=None, grad_hidden=None, grad_weight=sums.grad_weight, grad_bias=sums.grad_bias)


def test_large_ones_are_stored_first_and_streamed(client: keval.Client) -> None:
    problem = Problem.draw(3000, 256, 3000)
    before = {tensor.handle for tensor in client.tensors.list()}
    session = client.sessions.create(problem.weight, problem.bias)
    assert {tensor.handle for tensor in client.tensors.list()} == before
    for begin in (0, 1500):
        assert client.gradient(session=session, want=("weight",), **batch(problem, begin, begin + 1500)).logp.shape == (
            1500,
        )
    sums = client.sessions.fetch(session)
    whole = client.gradient(**problem.arguments())
    scale = np.abs(whole.grad_weight).max()
    assert np.abs(sums.grad_weight - whole.grad_weight).max() <= 1e-5 * scale
    client.sessions.delete(session)


def test_a_batch_is_added_once(client: keval.Client) -> None:
    problem = Problem.draw(8, 4, 10)
    session = client.sessions.create(problem.weight)
    identity = os.urandom(16)
    first = client.gradient(session=session, batch_id=identity, **batch(problem, 0, 8))
    again = client.gradient(session=session.session, batch_id=identity, **batch(problem, 0, 8))
    assert (again.session_batch.sequence, again.session_batch.repeated) == (first.session_batch.sequence, True)
    np.testing.assert_array_equal(again.grad_hidden, first.grad_hidden)
    assert client.sessions.get(session).batches == 1
    assert client.sessions.zero(session).batches == 0
    client.sessions.delete(session)


def test_a_fetch_that_was_lost_is_made_again(client: keval.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem.draw(8, 4, 10, bias=False)
    session = client.sessions.create(problem.weight)
    client.gradient(session=session, **batch(problem, 0, 8))

    def lose(*arguments: Any, **options: Any) -> Any:
        raise keval.Unavailable("the connection broke")

    kept = os.urandom(16)
    with monkeypatch.context() as patch:
        patch.setattr(client.tensors, "get", lose)
        with pytest.raises(keval.Unavailable):
            client.sessions.fetch(session, reset=True, request_id=kept)
    assert client.sessions.get(session).batches == 0
    sums = client.sessions.fetch(session, reset=True, request_id=kept)
    check(sums_as_result(sums), problem, ("grad_weight",))
    with pytest.raises(keval.NotFound) as gone:  # It has arrived, so the server let go of it.
        client.sessions.fetch(session, reset=True, request_id=kept)
    assert gone.value.field == "request_id"
    client.sessions.delete(session)


def test_what_is_refused(client: keval.Client) -> None:
    problem = Problem.draw(8, 4, 10)
    session = client.sessions.create(problem.weight)
    arguments = batch(problem, 0, 8)
    for wrong, field in (
        ({"batch_id": b"short"}, "batch_id"),
        ({"weight": problem.weight}, "weight"),
        ({"grad_logp": None}, "grad_logp"),
        ({"session": 3}, "session"),
    ):
        with pytest.raises(keval.InvalidArgument) as refused:
            client.gradient(**{**arguments, "session": session, **wrong})
        assert refused.value.field == field
    with pytest.raises(keval.InvalidArgument):
        client.gradient(**arguments)  # Neither weight nor session.
    with pytest.raises(keval.InvalidArgument):
        client.sessions.fetch(session, reset=True, request_id=b"short")
    with pytest.raises(keval.InvalidArgument):
        client.sessions.create(None)
    with pytest.raises(keval.NotFound):
        client.sessions.fetch("sessions/" + "0" * 48)
    client.sessions.delete(session)


def test_sessions_of_a_caller(start: Callable[..., Kevald]) -> None:
    server = start()
    problem = Problem.draw(8, 4, 10)
    with keval.Client(server.control) as client:
        sessions = [client.sessions.create(problem.weight, lease=60) for _ in range(3)]
        assert [session.session for session in client.sessions.list()] == sorted(
            session.session for session in sessions
        )
        touched = client.sessions.touch(sessions[0], lease=600)
        assert touched.expire_time_unix_ms > sessions[0].expire_time_unix_ms
        server.restart()
        await_reachable(client)
        with pytest.raises(keval.NotFound, match="restarted"):
            client.gradient(session=sessions[0], **batch(problem, 0, 8))


def test_asyncio(server: Kevald) -> None:
    problem = Problem.draw(24, 12, 40)

    async def run() -> None:
        async with keval.aio.Client(server.control) as client:
            session = await client.sessions.create(problem.weight, problem.bias, lease=60)
            await asyncio.gather(
                *(client.gradient(session=session, **batch(problem, begin, begin + 6)) for begin in range(0, 24, 6))
            )
            assert (await client.sessions.get(session)).batches == 4
            sums = await client.sessions.fetch(session)
            check(sums_as_result(sums), problem, ("grad_weight", "grad_bias"))
            assert (await client.sessions.zero(session)).batches == 0
            await client.sessions.touch(session)
            assert session.session in {found.session for found in await client.sessions.list()}
            await client.sessions.delete(session)
            with pytest.raises(keval.NotFound):
                await client.sessions.get(session)

    asyncio.run(run())
