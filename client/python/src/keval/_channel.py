"""Channels and methods, of grpc and grpc.aio alike."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, NamedTuple

import grpc

from keval._address import Address, parse_address
from keval._credentials import Credentials
from keval._errors import InvalidArgument
from keval._version import __version__
from keval.v1 import benchmark_pb2, linear_logp_pb2, server_info_pb2, tensor_pb2

_log = logging.getLogger("keval")
_MAX_RECEIVE_BYTES = 16 << 20  # Answers to unary gradients have at most twice max_unary_bytes.
BULK_PROBE_SECONDS = 1.0


class Method(NamedTuple):
    """One RPC. `request` or `response` None: its messages travel as bytes that _frames encodes and takes apart."""

    path: str
    kind: str  # The name of the channel's method.
    request: Any
    response: Any

    def on(self, channel: Any) -> Any:
        """A callable of `channel`'s kind: blocking, or to be awaited."""
        return getattr(channel, self.kind)(
            self.path,
            request_serializer=None if self.request is None else self.request.SerializeToString,
            response_deserializer=None if self.response is None else self.response.FromString,
        )


def _linear_logp(name: str, kind: str, request: Any, response: Any) -> Method:
    return Method(f"/keval.v1.LinearLogpService/{name}", kind, request, response)


def _tensors(name: str, kind: str, request: Any, response: Any) -> Method:
    return Method(f"/keval.v1.TensorService/{name}", kind, request, response)


def _benchmarks(name: str, kind: str, request: Any, response: Any) -> Method:
    return Method(f"/keval.v1.BenchmarkService/{name}", kind, request, response)


_UNARY, _READ = "unary_unary", "unary_stream"
_t, _l, _b = tensor_pb2, linear_logp_pb2, benchmark_pb2
GET_SERVER_INFO = Method(
    "/keval.v1.ServerInfoService/GetServerInfo",
    _UNARY,
    server_info_pb2.GetServerInfoRequest,
    server_info_pb2.ServerInfo,
)
PLAN = _linear_logp("Plan", _UNARY, _l.PlanRequest, _l.PlanResponse)
FORWARD = _linear_logp("Forward", _UNARY, _l.ForwardRequest, _l.ForwardResponse)
GRADIENT = _linear_logp("Gradient", _UNARY, _l.GradientRequest, _l.GradientResponse)
STREAM_GRADIENT = _linear_logp("StreamGradient", "stream_stream", None, None)
CHECK_CONTRACT = _linear_logp("CheckContract", _READ, _l.CheckContractRequest, _l.ContractRow)
CREATE_SESSION = _linear_logp("CreateSession", _UNARY, _l.CreateSessionRequest, _l.GradientSession)
GET_SESSION = _linear_logp("GetSession", _UNARY, _l.GetSessionRequest, _l.GradientSession)
LIST_SESSIONS = _linear_logp("ListSessions", _UNARY, _l.ListSessionsRequest, _l.ListSessionsResponse)
TOUCH_SESSION = _linear_logp("TouchSession", _UNARY, _l.TouchSessionRequest, _l.GradientSession)
DELETE_SESSION = _linear_logp("DeleteSession", _UNARY, _l.DeleteSessionRequest, _l.DeleteSessionResponse)
ZERO_SESSION = _linear_logp("ZeroSession", _UNARY, _l.ZeroSessionRequest, _l.GradientSession)
FETCH_SESSION = _linear_logp("FetchSession", _UNARY, _l.FetchSessionRequest, _l.FetchSessionResponse)
PUT = _tensors("Put", "stream_unary", None, _t.TensorInfo)
GET = _tensors("Get", _READ, _t.GetTensorRequest, None)
REUSE = _tensors("Reuse", _UNARY, _t.ReuseTensorRequest, _t.TensorInfo)
STAT = _tensors("Stat", _UNARY, _t.StatTensorRequest, _t.TensorInfo)
LIST_TENSORS = _tensors("List", _UNARY, _t.ListTensorsRequest, _t.ListTensorsResponse)
TOUCH = _tensors("Touch", _UNARY, _t.TouchTensorRequest, _t.TensorInfo)
DELETE = _tensors("Delete", _UNARY, _t.DeleteTensorRequest, _t.DeleteTensorResponse)
CREATE_JOB = _benchmarks("Create", _UNARY, _b.CreateJobRequest, _b.BenchmarkJob)
GET_JOB = _benchmarks("Get", _UNARY, _b.GetJobRequest, _b.BenchmarkJob)
LIST_JOBS = _benchmarks("List", _UNARY, _b.ListJobsRequest, _b.ListJobsResponse)
WATCH_JOB = _benchmarks("Watch", _READ, _b.WatchJobRequest, _b.JobEvent)
CANCEL_JOB = _benchmarks("Cancel", _UNARY, _b.CancelJobRequest, _b.BenchmarkJob)
GET_REPORT = _benchmarks("GetReport", _READ, _b.GetReportRequest, _b.GetReportResponse)


def make_channel(module: Any, address: Address, credentials: Credentials, bulk: bool = False) -> Any:
    """`module`: grpc or grpc.aio. The arguments are the C++ client's (client/channel.cc)."""
    options: list[tuple[str, Any]] = [
        ("grpc.primary_user_agent", f"keval-python/{__version__}"),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", _MAX_RECEIVE_BYTES),
        # A server that vanished is noticed after these two.
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.max_pings_without_data", 0),
        # A restarted server is found again within a second, not after gRPC's 20.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # Attempts are this package's own, which knows what may be repeated.
        ("grpc.enable_retries", 0),
    ]
    if address.is_local:
        options.append(("grpc.enable_http_proxy", 0))
    if bulk:
        options += [("grpc.http2.lookahead_bytes", 4 << 20), ("grpc.http2.bdp_probe", 0)]
    security: grpc.ChannelCredentials | None = credentials.for_channel(address)
    if security is None:
        return module.insecure_channel(address.target, options)
    if credentials.server_name:
        options.append(("grpc.ssl_target_name_override", credentials.server_name))
    return module.secure_channel(address.target, security, options)


def bulk_address(info: server_info_pb2.ServerInfo, control: Address, credentials: Credentials) -> Address | None:
    """Of the server's bulk listener; None where it has none that can be used from here."""
    if info.advertise_bulk:
        try:
            address = parse_address(info.advertise_bulk)
        except InvalidArgument:
            _log.warning("the server's bulk address can't be read: tensors go over the control connection")
            return None
    elif info.bulk_port > 0 and not control.unix_path:
        address = dataclasses.replace(control, port=info.bulk_port)
    else:
        return None
    if not credentials.may_go_to(address):
        _log.warning(
            "the server's bulk address %s can't be used without TLS: tensors go over the control connection",
            address.target,
        )
        return None
    return address


def warn_of_silence(address: Address) -> None:
    _log.warning("the server's bulk address %s doesn't answer: tensors go over the control connection", address.target)
