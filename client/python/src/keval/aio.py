"""The client for asyncio: keval.Client's calls, to be awaited, with the same arguments, results and errors. What each
does is said there.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import Any

from keval import _channel, _gradient, _jobs, _sessions, _tensors, _transfers
from keval._aio_connection import AioConnection
from keval._arrays import Framework, RemoteTensor, dtype_value
from keval._errors import Error, NotFound, Unavailable, Unimplemented
from keval._gradient import Autocast, GradDtype, GradientResult, Want
from keval._progress import round_bar
from keval._retry import Attempts, RetryPolicy, deadline_after, seconds_until
from keval._sessions import SessionSums
from keval._settings import Settings
from keval.v1 import benchmark_pb2, linear_logp_pb2, server_info_pb2, tensor_pb2

__all__ = ["Client"]


class Client:
    """As keval.Client, for one event loop: that of its first call. Cancelling a task that awaits a call ends the call.
    Tensors travel on threads of the client's own, so that their digests and copies don't hold up the loop.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:7400",
        *,
        tls_ca: str = "",
        tls_cert: str = "",
        tls_key: str = "",
        tls_server_name: str = "",
        token_file: str = "",
        timeout: float = 30.0,
        max_attempts: int = 4,
    ) -> None:
        settings = Settings.of(address, tls_ca, tls_cert, tls_key, tls_server_name, token_file, timeout, max_attempts)
        self._start(settings)

    def _start(self, settings: Settings) -> None:
        self._connection = AioConnection(settings)
        self.tensors = AioTensors(self._connection)
        self.sessions = AioSessions(self._connection, self.tensors)
        self.jobs = AioJobs(self._connection)

    def __getstate__(self) -> Settings:
        return self._connection.settings

    def __setstate__(self, settings: Settings) -> None:
        self._start(settings)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._connection.close()

    async def info(self, *, timeout: float | None = None) -> server_info_pb2.ServerInfo:
        info: server_info_pb2.ServerInfo = await self._connection.unary(
            _channel.GET_SERVER_INFO, server_info_pb2.GetServerInfoRequest(), timeout
        )
        return info

    async def plan(
        self,
        num_tokens: int,
        hidden_size: int,
        vocab_size: int,
        *,
        dtype: str = "float32",
        bias: bool = False,
        variant: str | None = None,
        device: str | None = None,
        autocast: Autocast | None = None,
        grad_dtype: GradDtype | None = None,
        chunk_elems: int = 0,
        timeout: float | None = None,
    ) -> linear_logp_pb2.PlanResponse:
        request = linear_logp_pb2.PlanRequest(
            options=_gradient.options_of(variant, device, autocast, grad_dtype, chunk_elems, False),
            num_tokens=num_tokens,
            hidden_size=hidden_size,
            vocab_size=vocab_size,
            dtype=dtype_value(dtype),
            bias=bias,
        )
        plan: linear_logp_pb2.PlanResponse = await self._connection.unary(_channel.PLAN, request, timeout)
        return plan

    async def gradient(
        self,
        *,
        hidden: Any,
        targets: Any,
        weight: Any = None,
        grad_logp: Any = None,
        bias: Any = None,
        variant: str | None = None,
        want: Sequence[Want] | None = None,
        device: str | None = None,
        autocast: Autocast | None = None,
        grad_dtype: GradDtype | None = None,
        chunk_elems: int = 0,
        force_variant: bool = False,
        session: linear_logp_pb2.GradientSession | str | None = None,
        batch_id: bytes | None = None,
        framework: Framework | None = None,
        timeout: float | None = None,
    ) -> GradientResult:
        _tensors.check_framework(framework)
        operands = {"hidden": hidden, "weight": weight, "bias": bias, "targets": targets, "grad_logp": grad_logp}
        options = _gradient.options_of(variant, device, autocast, grad_dtype, chunk_elems, force_variant)
        batch = None if session is None else _sessions.batch_of(session, batch_id)
        prepared = _gradient.PreparedGradient(operands, want, options, framework, batch)
        connection, deadline = self._connection, deadline_after(timeout)
        info = await connection.info(deadline)
        if prepared.fits(info.limits.max_unary_bytes):
            method = _channel.FORWARD if prepared.forward_only else _channel.GRADIENT
            return prepared.result(await connection.long_unary(method, prepared.unary(), deadline))
        return await connection.transfer(_transfers.stream_gradient, prepared, deadline)

    def contract(
        self,
        base: str = "",
        candidate: str = "",
        *,
        device: str | None = None,
        seed: int = 0,
        timeout: float | None = None,
    ) -> AsyncGenerator[linear_logp_pb2.ContractRow, None]:
        request = linear_logp_pb2.CheckContractRequest(base=base, candidate=candidate, device=device or "", seed=seed)
        deadline = deadline_after(timeout)

        async def rows() -> AsyncGenerator[linear_logp_pb2.ContractRow, None]:
            async with self._connection.stream(_channel.CHECK_CONTRACT, request, deadline) as answer:
                async for row in answer:
                    yield row

        return rows()


class AioTensors:
    """As keval.Client.tensors."""

    def __init__(self, connection: AioConnection) -> None:
        self._connection = connection

    async def put(
        self,
        array: Any,
        *,
        lease: float | None = None,
        if_new: bool = False,
        progress: bool = False,
        timeout: float | None = None,
    ) -> RemoteTensor:
        prepared = _tensors.PreparedPut(array, lease)
        connection, deadline = self._connection, deadline_after(timeout)
        if if_new:
            try:
                info = await connection.unary(
                    _channel.REUSE, prepared.reuse_request(), seconds_until(deadline), repeatable=False
                )
                return RemoteTensor.from_proto(info)
            except (NotFound, Unimplemented):  # An older server doesn't know the call.
                pass
        return await connection.transfer(_transfers.put, prepared, progress, deadline)

    async def get(
        self,
        tensor: RemoteTensor | str,
        *,
        framework: Framework = "numpy",
        progress: bool = False,
        timeout: float | None = None,
    ) -> Any:
        _tensors.check_framework(framework)
        return await self._connection.transfer(_transfers.get, tensor, framework, progress, deadline_after(timeout))

    async def stat(self, tensor: RemoteTensor | str, *, timeout: float | None = None) -> RemoteTensor:
        request = tensor_pb2.StatTensorRequest(handle=_tensors.handle_of(tensor))
        return RemoteTensor.from_proto(await self._connection.unary(_channel.STAT, request, timeout))

    async def list(self, *, timeout: float | None = None) -> list[RemoteTensor]:
        tensors: list[RemoteTensor] = []
        request = tensor_pb2.ListTensorsRequest(page_size=_tensors.PAGE_SIZE)
        while True:
            page = await self._connection.unary(_channel.LIST_TENSORS, request, timeout)
            tensors += map(RemoteTensor.from_proto, page.tensors)
            request.page_token = page.next_page_token
            if not request.page_token:
                return tensors

    async def touch(
        self, tensor: RemoteTensor | str, *, lease: float | None = None, timeout: float | None = None
    ) -> RemoteTensor:
        request = tensor_pb2.TouchTensorRequest(handle=_tensors.handle_of(tensor), lease_ms=_tensors.lease_ms(lease))
        return RemoteTensor.from_proto(await self._connection.unary(_channel.TOUCH, request, timeout))

    async def delete(self, tensor: RemoteTensor | str, *, timeout: float | None = None) -> None:
        request = tensor_pb2.DeleteTensorRequest(handle=_tensors.handle_of(tensor))
        # A second attempt would find nothing and report NOT_FOUND for what worked.
        await self._connection.unary(_channel.DELETE, request, timeout, repeatable=False)


class AioSessions:
    """As keval.Client.sessions."""

    def __init__(self, connection: AioConnection, tensors: AioTensors) -> None:
        self._connection = connection
        self._tensors = tensors

    async def create(
        self,
        weight: Any,
        bias: Any = None,
        *,
        device: str | None = None,
        lease: float | None = None,
        timeout: float | None = None,
    ) -> linear_logp_pb2.GradientSession:
        prepared = _sessions.PreparedSession(weight, bias, device, lease)
        deadline = deadline_after(timeout)
        stored: dict[str, RemoteTensor] = {}
        try:
            if not prepared.fits((await self._connection.info(deadline)).limits.max_unary_bytes):
                for name, array in prepared.arrays.items():
                    stored[name] = await self._tensors.put(array, timeout=seconds_until(deadline))
            # A second attempt would make a second session.
            session: linear_logp_pb2.GradientSession = await self._connection.long_unary(
                _channel.CREATE_SESSION, prepared.request(stored), deadline, repeatable=False
            )
            return session
        finally:
            for tensor in stored.values():
                with contextlib.suppress(Error):  # The lease ends it.
                    await self._tensors.delete(tensor)

    async def get(
        self, session: linear_logp_pb2.GradientSession | str, *, timeout: float | None = None
    ) -> linear_logp_pb2.GradientSession:
        request = linear_logp_pb2.GetSessionRequest(session=_sessions.name_of(session))
        found: linear_logp_pb2.GradientSession = await self._connection.unary(_channel.GET_SESSION, request, timeout)
        return found

    async def list(self, *, timeout: float | None = None) -> list[linear_logp_pb2.GradientSession]:
        sessions: list[linear_logp_pb2.GradientSession] = []
        request = linear_logp_pb2.ListSessionsRequest(page_size=_tensors.PAGE_SIZE)
        while True:
            page = await self._connection.unary(_channel.LIST_SESSIONS, request, timeout)
            sessions += page.sessions
            request.page_token = page.next_page_token
            if not request.page_token:
                return sessions

    async def touch(
        self,
        session: linear_logp_pb2.GradientSession | str,
        *,
        lease: float | None = None,
        timeout: float | None = None,
    ) -> linear_logp_pb2.GradientSession:
        request = linear_logp_pb2.TouchSessionRequest(
            session=_sessions.name_of(session), lease_ms=_tensors.lease_ms(lease)
        )
        touched: linear_logp_pb2.GradientSession = await self._connection.unary(
            _channel.TOUCH_SESSION, request, timeout
        )
        return touched

    async def zero(
        self, session: linear_logp_pb2.GradientSession | str, *, timeout: float | None = None
    ) -> linear_logp_pb2.GradientSession:
        request = linear_logp_pb2.ZeroSessionRequest(
            session=_sessions.name_of(session), request_id=_sessions.id_of("request_id", None)
        )
        zeroed: linear_logp_pb2.GradientSession = await self._connection.long_unary(
            _channel.ZERO_SESSION, request, deadline_after(timeout)
        )
        return zeroed

    async def fetch(
        self,
        session: linear_logp_pb2.GradientSession | str,
        *,
        reset: bool = False,
        request_id: bytes | None = None,
        framework: Framework = "numpy",
        timeout: float | None = None,
    ) -> SessionSums:
        _tensors.check_framework(framework)
        deadline = deadline_after(timeout)
        request = _sessions.fetch_request(session, reset, request_id)
        fetched = await self._connection.long_unary(_channel.FETCH_SESSION, request, deadline)
        arrays: dict[str, Any] = {}
        for name in ("grad_weight", "grad_bias"):
            if fetched.HasField(name):
                handle = getattr(fetched, name).handle
                arrays[name] = await self._tensors.get(handle, framework=framework, timeout=seconds_until(deadline))
        for name in arrays:  # All are here. Where this fails, leases end them.
            with contextlib.suppress(Error):
                await self._tensors.delete(getattr(fetched, name).handle)
        return SessionSums(arrays["grad_weight"], arrays.get("grad_bias"), fetched.session)

    async def delete(self, session: linear_logp_pb2.GradientSession | str, *, timeout: float | None = None) -> None:
        request = linear_logp_pb2.DeleteSessionRequest(session=_sessions.name_of(session))
        # As of a tensor: a second attempt would find nothing.
        await self._connection.unary(_channel.DELETE_SESSION, request, timeout, repeatable=False)


class AioJobs:
    """As keval.Client.jobs."""

    def __init__(self, connection: AioConnection) -> None:
        self._connection = connection

    async def create(
        self,
        spec: benchmark_pb2.BenchmarkSpec | Mapping[str, Any],
        *,
        request_id: str | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> benchmark_pb2.BenchmarkJob:
        request = _jobs.create_request(spec, request_id, validate_only)
        job: benchmark_pb2.BenchmarkJob = await self._connection.unary(_channel.CREATE_JOB, request, timeout)
        return job

    async def get(
        self, job: benchmark_pb2.BenchmarkJob | str, *, timeout: float | None = None
    ) -> benchmark_pb2.BenchmarkJob:
        request = benchmark_pb2.GetJobRequest(name=_jobs.name_of(job))
        found: benchmark_pb2.BenchmarkJob = await self._connection.unary(_channel.GET_JOB, request, timeout)
        return found

    async def list(
        self, *, limit: int | None = None, spec_digest: str = "", timeout: float | None = None
    ) -> list[benchmark_pb2.BenchmarkJob]:
        jobs: list[benchmark_pb2.BenchmarkJob] = []
        request = benchmark_pb2.ListJobsRequest(spec_digest=spec_digest)
        while limit is None or len(jobs) < limit:
            left = _tensors.PAGE_SIZE if limit is None else limit - len(jobs)
            request.page_size = min(left, _tensors.PAGE_SIZE)
            page = await self._connection.unary(_channel.LIST_JOBS, request, timeout)
            jobs += page.jobs
            request.page_token = page.next_page_token
            if not request.page_token:
                break
        return jobs

    def watch(
        self,
        job: benchmark_pb2.BenchmarkJob | str,
        *,
        after_sequence: int = 0,
        progress: bool = False,
        timeout: float | None = None,
    ) -> AsyncGenerator[benchmark_pb2.JobEvent, None]:
        request = benchmark_pb2.WatchJobRequest(
            name=_jobs.name_of(job), after_sequence=after_sequence, progress=progress
        )
        return self._follow(request, deadline_after(timeout))

    async def _follow(
        self, request: benchmark_pb2.WatchJobRequest, deadline: float | None
    ) -> AsyncGenerator[benchmark_pb2.JobEvent, None]:
        attempts = Attempts(RetryPolicy(max_backoff=1.0), True, deadline)
        last_answer = time.monotonic()
        while True:
            try:
                async with self._connection.stream(_channel.WATCH_JOB, request, deadline) as answer:
                    async for event in answer:
                        last_answer = time.monotonic()
                        if not event.HasField("progress"):
                            # A replay may begin earlier than asked for; each event is told once.
                            if event.sequence <= request.after_sequence:
                                continue
                            request.after_sequence = event.sequence
                        yield event
                return
            except Unavailable:
                delay = attempts.backoff()
                until = last_answer + _jobs.RECONNECT_SECONDS
                if time.monotonic() + delay >= min(until, until if deadline is None else deadline):
                    raise
            await asyncio.sleep(delay)

    async def wait(
        self, job: benchmark_pb2.BenchmarkJob | str, *, progress: bool = False, timeout: float | None = None
    ) -> benchmark_pb2.BenchmarkJob:
        last = benchmark_pb2.BenchmarkJob()
        with round_bar(progress, _jobs.name_of(job)) as show:
            async for event in self.watch(job, timeout=timeout):
                if event.HasField("job"):
                    last = event.job
                elif event.HasField("round_done"):
                    show(event.round_done.round, last.rounds_planned)
        return last

    async def cancel(
        self, job: benchmark_pb2.BenchmarkJob | str, *, timeout: float | None = None
    ) -> benchmark_pb2.BenchmarkJob:
        request = benchmark_pb2.CancelJobRequest(name=_jobs.name_of(job))
        cancelled: benchmark_pb2.BenchmarkJob = await self._connection.unary(_channel.CANCEL_JOB, request, timeout)
        return cancelled

    async def report(
        self,
        job: benchmark_pb2.BenchmarkJob | str,
        file_names: Sequence[str] = (),
        *,
        timeout: float | None = None,
    ) -> dict[str, bytes]:
        request = benchmark_pb2.GetReportRequest(name=_jobs.name_of(job), file_names=file_names)
        deadline = deadline_after(timeout)

        async def attempt() -> dict[str, bytes]:
            reader = _jobs.ReportReader()
            async with self._connection.stream(_channel.GET_REPORT, request, deadline) as answer:
                async for piece in answer:
                    reader.take(piece)
            return reader.finish()

        return await self._connection.retry(True, deadline, attempt)
