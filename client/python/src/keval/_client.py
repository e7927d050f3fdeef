"""The blocking client."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Mapping, Sequence
from types import TracebackType
from typing import Any

from keval import _channel, _gradient, _jobs, _sessions, _tensors, _transfers
from keval._arrays import Framework, RemoteTensor, dtype_value
from keval._connection import Cancellation, Connection
from keval._errors import Error, NotFound, Unavailable, Unimplemented
from keval._gradient import Autocast, GradDtype, GradientResult, Want
from keval._progress import round_bar
from keval._retry import Attempts, RetryPolicy, deadline_after, seconds_until
from keval._sessions import SessionSums
from keval._settings import Settings
from keval.v1 import benchmark_pb2, linear_logp_pb2, server_info_pb2, tensor_pb2


class Client:
    """A server's linear_logp, tensor store and benchmark jobs. Thread-safe; connects at the first call.

    Every call may raise a subclass of keval.Error. `timeout` is in seconds and for the whole call, attempts and waits
    included. Calls that may be repeated without harm are made again where the server is UNAVAILABLE, others only where
    it said when. A client that has connected can't be used in a forked child: ForkedClientError. Pickled, it is its
    settings.
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
        """`address`: host:port, [v6]:port or unix:/abs/path. TLS is used where `tls_ca`, the CA of the server's
        certificate, is given, but never for a Unix socket; `tls_cert` and `tls_key` are the caller's own, `token_file`
        has its bearer token and is read for each call (docs/client.md). `timeout` is that of calls that carry no
        tensors. InvalidArgument names the argument that can't be used.
        """
        settings = Settings.of(address, tls_ca, tls_cert, tls_key, tls_server_name, token_file, timeout, max_attempts)
        self._start(settings)

    def _start(self, settings: Settings) -> None:
        self._connection = Connection(settings)
        self.tensors = Tensors(self._connection)
        self.sessions = Sessions(self._connection, self.tensors)
        self.jobs = Jobs(self._connection)

    def __getstate__(self) -> Settings:
        return self._connection.settings

    def __setstate__(self, settings: Settings) -> None:
        self._start(settings)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends calls under way with Cancelled; later ones are a RuntimeError."""
        self._connection.close()

    def info(self, *, timeout: float | None = None) -> server_info_pb2.ServerInfo:
        """What the server is, has and allows."""
        info: server_info_pb2.ServerInfo = self._connection.unary(
            _channel.GET_SERVER_INFO, server_info_pb2.GetServerInfoRequest(), timeout
        )
        return info

    def plan(
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
        """Chunks and the static traffic model of a problem, and what each variant says of it."""
        request = linear_logp_pb2.PlanRequest(
            options=_gradient.options_of(variant, device, autocast, grad_dtype, chunk_elems, False),
            num_tokens=num_tokens,
            hidden_size=hidden_size,
            vocab_size=vocab_size,
            dtype=dtype_value(dtype),
            bias=bias,
        )
        plan: linear_logp_pb2.PlanResponse = self._connection.unary(_channel.PLAN, request, timeout)
        return plan

    def gradient(
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
        """logp and, where `grad_logp` is given, the gradients in `want` (None: all that apply).

        hidden [..., D], weight [V, D], bias [V], targets [...] int32 or int64, grad_logp [...] float32 (float64 with
        float64 operands): arrays of numpy, torch or DLPack, or tensors that the server keeps (RemoteTensor or handle).
        With `session` the call is a micro-batch of it: weight and bias are the session's, and their gradients are added
        there. Once: attempts of this call share an id, `batch_id` (16 bytes) where calls are to share one.
        What is contiguous and in host memory isn't copied before it is encoded. Results are of `framework`, by default
        hidden's. Without `timeout` the call waits as long as the server computes.
        """
        _tensors.check_framework(framework)
        operands = {"hidden": hidden, "weight": weight, "bias": bias, "targets": targets, "grad_logp": grad_logp}
        options = _gradient.options_of(variant, device, autocast, grad_dtype, chunk_elems, force_variant)
        batch = None if session is None else _sessions.batch_of(session, batch_id)
        prepared = _gradient.PreparedGradient(operands, want, options, framework, batch)
        connection, deadline = self._connection, deadline_after(timeout)
        if prepared.fits(connection.info(deadline).limits.max_unary_bytes):
            method = _channel.FORWARD if prepared.forward_only else _channel.GRADIENT
            return prepared.result(connection.long_unary(method, prepared.unary(), deadline))
        return _transfers.stream_gradient(connection, prepared, deadline, Cancellation())

    def contract(
        self,
        base: str = "",
        candidate: str = "",
        *,
        device: str | None = None,
        seed: int = 0,
        timeout: float | None = None,
    ) -> Generator[linear_logp_pb2.ContractRow, None, None]:
        """The rows of docs/contract.md for two variants, as they are measured; without names, of the two portable ones.
        Closing the generator ends the call, which is never made again: it may have shown rows.
        """
        request = linear_logp_pb2.CheckContractRequest(base=base, candidate=candidate, device=device or "", seed=seed)
        deadline = deadline_after(timeout)

        def rows() -> Generator[linear_logp_pb2.ContractRow, None, None]:
            with self._connection.stream(_channel.CHECK_CONTRACT, request, deadline) as answer:
                yield from answer

        return rows()


class Tensors:
    """The caller's tensors on the server. `lease` is in seconds; None: the server's default."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def put(
        self,
        array: Any,
        *,
        lease: float | None = None,
        if_new: bool = False,
        progress: bool = False,
        timeout: float | None = None,
    ) -> RemoteTensor:
        """Stores an array of numpy, torch or DLPack. `if_new`: asks first, by SHA-256, whether the server has the bytes
        already, and sends them only where it hasn't. `progress`: shows a bar, by tqdm.
        """
        prepared = _tensors.PreparedPut(array, lease)
        connection, deadline = self._connection, deadline_after(timeout)
        if if_new:
            try:
                info = connection.unary(
                    _channel.REUSE, prepared.reuse_request(), seconds_until(deadline), repeatable=False
                )
                return RemoteTensor.from_proto(info)
            except (NotFound, Unimplemented):  # An older server doesn't know the call.
                pass
        return _transfers.put(connection, prepared, progress, deadline, Cancellation())

    def get(
        self,
        tensor: RemoteTensor | str,
        *,
        framework: Framework = "numpy",
        progress: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """The tensor's contents, verified by their SHA-256."""
        _tensors.check_framework(framework)
        return _transfers.get(self._connection, tensor, framework, progress, deadline_after(timeout), Cancellation())

    def stat(self, tensor: RemoteTensor | str, *, timeout: float | None = None) -> RemoteTensor:
        request = tensor_pb2.StatTensorRequest(handle=_tensors.handle_of(tensor))
        return RemoteTensor.from_proto(self._connection.unary(_channel.STAT, request, timeout))

    def list(self, *, timeout: float | None = None) -> list[RemoteTensor]:
        """All of the caller's, by handle. `timeout` is that of each page of 1000."""
        tensors: list[RemoteTensor] = []
        request = tensor_pb2.ListTensorsRequest(page_size=_tensors.PAGE_SIZE)
        while True:
            page = self._connection.unary(_channel.LIST_TENSORS, request, timeout)
            tensors += map(RemoteTensor.from_proto, page.tensors)
            request.page_token = page.next_page_token
            if not request.page_token:
                return tensors

    def touch(
        self, tensor: RemoteTensor | str, *, lease: float | None = None, timeout: float | None = None
    ) -> RemoteTensor:
        """Lets the lease end `lease` seconds from now, never earlier than it would."""
        request = tensor_pb2.TouchTensorRequest(handle=_tensors.handle_of(tensor), lease_ms=_tensors.lease_ms(lease))
        return RemoteTensor.from_proto(self._connection.unary(_channel.TOUCH, request, timeout))

    def delete(self, tensor: RemoteTensor | str, *, timeout: float | None = None) -> None:
        request = tensor_pb2.DeleteTensorRequest(handle=_tensors.handle_of(tensor))
        # A second attempt would find nothing and report NOT_FOUND for what worked.
        self._connection.unary(_channel.DELETE, request, timeout, repeatable=False)


class Sessions:
    """The caller's gradient sessions: weight and bias that stay on a device, and sums of their gradients, to which
    calls of Client.gradient add that name the session. Each call that names one renews its lease.
    """

    def __init__(self, connection: Connection, tensors: Tensors) -> None:
        self._connection = connection
        self._tensors = tensors

    def create(
        self,
        weight: Any,
        bias: Any = None,
        *,
        device: str | None = None,
        lease: float | None = None,
        timeout: float | None = None,
    ) -> linear_logp_pb2.GradientSession:
        """A new one, its sums zero. `weight` [V, D] and `bias` [V] are arrays, or tensors that the server keeps, which
        may be deleted afterwards.
        """
        prepared = _sessions.PreparedSession(weight, bias, device, lease)
        deadline = deadline_after(timeout)
        stored: dict[str, RemoteTensor] = {}
        try:
            if not prepared.fits((self._connection.info(deadline)).limits.max_unary_bytes):
                for name, array in prepared.arrays.items():
                    stored[name] = self._tensors.put(array, timeout=seconds_until(deadline))
            # A second attempt would make a second session.
            session: linear_logp_pb2.GradientSession = self._connection.long_unary(
                _channel.CREATE_SESSION, prepared.request(stored), deadline, repeatable=False
            )
            return session
        finally:
            for tensor in stored.values():
                with contextlib.suppress(Error):  # The lease ends it.
                    self._tensors.delete(tensor)

    def get(
        self, session: linear_logp_pb2.GradientSession | str, *, timeout: float | None = None
    ) -> linear_logp_pb2.GradientSession:
        request = linear_logp_pb2.GetSessionRequest(session=_sessions.name_of(session))
        found: linear_logp_pb2.GradientSession = self._connection.unary(_channel.GET_SESSION, request, timeout)
        return found

    def list(self, *, timeout: float | None = None) -> list[linear_logp_pb2.GradientSession]:
        """All of the caller's, by name. `timeout` is that of each page of 1000."""
        sessions: list[linear_logp_pb2.GradientSession] = []
        request = linear_logp_pb2.ListSessionsRequest(page_size=_tensors.PAGE_SIZE)
        while True:
            page = self._connection.unary(_channel.LIST_SESSIONS, request, timeout)
            sessions += page.sessions
            request.page_token = page.next_page_token
            if not request.page_token:
                return sessions

    def touch(
        self,
        session: linear_logp_pb2.GradientSession | str,
        *,
        lease: float | None = None,
        timeout: float | None = None,
    ) -> linear_logp_pb2.GradientSession:
        """Begins the lease anew, `lease` seconds long, which never ends sooner than it would have; None: as it was."""
        request = linear_logp_pb2.TouchSessionRequest(
            session=_sessions.name_of(session), lease_ms=_tensors.lease_ms(lease)
        )
        touched: linear_logp_pb2.GradientSession = self._connection.unary(_channel.TOUCH_SESSION, request, timeout)
        return touched

    def zero(
        self, session: linear_logp_pb2.GradientSession | str, *, timeout: float | None = None
    ) -> linear_logp_pb2.GradientSession:
        """Forgets what was summed up."""
        request = linear_logp_pb2.ZeroSessionRequest(
            session=_sessions.name_of(session), request_id=_sessions.id_of("request_id", None)
        )
        zeroed: linear_logp_pb2.GradientSession = self._connection.long_unary(
            _channel.ZERO_SESSION, request, deadline_after(timeout)
        )
        return zeroed

    def fetch(
        self,
        session: linear_logp_pb2.GradientSession | str,
        *,
        reset: bool = False,
        request_id: bytes | None = None,
        framework: Framework = "numpy",
        timeout: float | None = None,
    ) -> SessionSums:
        """The sums. `reset`: they are zero afterwards, and no micro-batch falls between. After a call that failed, one
        with the same `request_id` (16 bytes) gives the sums that it would have; None: a random one, for this call's own
        attempts.
        """
        _tensors.check_framework(framework)
        deadline = deadline_after(timeout)
        request = _sessions.fetch_request(session, reset, request_id)
        fetched = self._connection.long_unary(_channel.FETCH_SESSION, request, deadline)
        arrays: dict[str, Any] = {}
        for name in ("grad_weight", "grad_bias"):
            if fetched.HasField(name):
                handle = getattr(fetched, name).handle
                arrays[name] = self._tensors.get(handle, framework=framework, timeout=seconds_until(deadline))
        for name in arrays:  # All are here. Where this fails, leases end them.
            with contextlib.suppress(Error):
                self._tensors.delete(getattr(fetched, name).handle)
        return SessionSums(arrays["grad_weight"], arrays.get("grad_bias"), fetched.session)

    def delete(self, session: linear_logp_pb2.GradientSession | str, *, timeout: float | None = None) -> None:
        request = linear_logp_pb2.DeleteSessionRequest(session=_sessions.name_of(session))
        # As of a tensor: a second attempt would find nothing.
        self._connection.unary(_channel.DELETE_SESSION, request, timeout, repeatable=False)


class Jobs:
    """The caller's benchmark jobs (docs/benchmark_jobs.md)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(
        self,
        spec: benchmark_pb2.BenchmarkSpec | Mapping[str, Any],
        *,
        request_id: str | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> benchmark_pb2.BenchmarkJob:
        """Submits a spec, or with `validate_only` asks for its plan. The same request id with the same spec is the same
        job; None: a random one, so that a second attempt can't make a second job.
        """
        request = _jobs.create_request(spec, request_id, validate_only)
        job: benchmark_pb2.BenchmarkJob = self._connection.unary(_channel.CREATE_JOB, request, timeout)
        return job

    def get(self, job: benchmark_pb2.BenchmarkJob | str, *, timeout: float | None = None) -> benchmark_pb2.BenchmarkJob:
        request = benchmark_pb2.GetJobRequest(name=_jobs.name_of(job))
        found: benchmark_pb2.BenchmarkJob = self._connection.unary(_channel.GET_JOB, request, timeout)
        return found

    def list(
        self, *, limit: int | None = None, spec_digest: str = "", timeout: float | None = None
    ) -> list[benchmark_pb2.BenchmarkJob]:
        """The newest first, without plans; of one spec where its digest is given. `timeout` is that of each page."""
        jobs: list[benchmark_pb2.BenchmarkJob] = []
        request = benchmark_pb2.ListJobsRequest(spec_digest=spec_digest)
        while limit is None or len(jobs) < limit:
            left = _tensors.PAGE_SIZE if limit is None else limit - len(jobs)
            request.page_size = min(left, _tensors.PAGE_SIZE)
            page = self._connection.unary(_channel.LIST_JOBS, request, timeout)
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
    ) -> Generator[benchmark_pb2.JobEvent, None, None]:
        """Each event once and in order until the job ends, also across restarts of the server. `progress`: also what it
        does at the moment. Closing the generator ends the call.
        """
        request = benchmark_pb2.WatchJobRequest(
            name=_jobs.name_of(job), after_sequence=after_sequence, progress=progress
        )
        return self._follow(request, deadline_after(timeout))

    def _follow(
        self, request: benchmark_pb2.WatchJobRequest, deadline: float | None
    ) -> Generator[benchmark_pb2.JobEvent, None, None]:
        attempts = Attempts(RetryPolicy(max_backoff=1.0), True, deadline)
        last_answer = time.monotonic()
        while True:
            try:
                with self._connection.stream(
                    _channel.WATCH_JOB, request, deadline, Cancellation(), bulk=False
                ) as answer:
                    for event in answer:
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
            time.sleep(delay)

    def wait(
        self, job: benchmark_pb2.BenchmarkJob | str, *, progress: bool = False, timeout: float | None = None
    ) -> benchmark_pb2.BenchmarkJob:
        """The job once it has ended, one that has been cancelled too. `progress`: shows a bar of rounds."""
        last = benchmark_pb2.BenchmarkJob()
        with round_bar(progress, _jobs.name_of(job)) as show:
            for event in self.watch(job, timeout=timeout):
                if event.HasField("job"):
                    last = event.job
                elif event.HasField("round_done"):
                    show(event.round_done.round, last.rounds_planned)
        return last

    def cancel(
        self, job: benchmark_pb2.BenchmarkJob | str, *, timeout: float | None = None
    ) -> benchmark_pb2.BenchmarkJob:
        """The job as it is then; one that has ended stays as it is."""
        request = benchmark_pb2.CancelJobRequest(name=_jobs.name_of(job))
        cancelled: benchmark_pb2.BenchmarkJob = self._connection.unary(_channel.CANCEL_JOB, request, timeout)
        return cancelled

    def report(
        self,
        job: benchmark_pb2.BenchmarkJob | str,
        file_names: Sequence[str] = (),
        *,
        timeout: float | None = None,
    ) -> dict[str, bytes]:
        """The files of an ended job by name, verified; all of them where none is named."""
        request = benchmark_pb2.GetReportRequest(name=_jobs.name_of(job), file_names=file_names)
        deadline = deadline_after(timeout)

        def attempt() -> dict[str, bytes]:
            reader = _jobs.ReportReader()
            with self._connection.stream(_channel.GET_REPORT, request, deadline) as answer:
                for piece in answer:
                    reader.take(piece)
            return reader.finish()

        return self._connection.retry(True, deadline, attempt)
