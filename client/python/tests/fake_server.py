"""A server that answers as a test says, for what a real one does rarely."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc

from keval.v1 import error_pb2, server_info_pb2

# Of a call's context and its requests: an answer, or an iterator of answers where they are a stream.
Handler = Callable[[grpc.ServicerContext, Any], Any]


def refuse(context: grpc.ServicerContext, code: grpc.StatusCode, **detail: Any) -> None:
    """Ends the call as kevald does."""
    message = error_pb2.ErrorDetail(**detail).SerializeToString()
    context.set_trailing_metadata((("keval-error-bin", message),))
    context.abort(code, "refused")


class FakeServer(grpc.GenericRpcHandler):
    """Owner: one test. Requests come as bytes; answers are messages. `calls`: the requests of each call by its name."""

    def __init__(self, **handlers: Handler) -> None:
        self.calls: dict[str, list[Any]] = {}
        self._handlers = {"GetServerInfo": lambda context, request: server_info_pb2.ServerInfo(), **handlers}

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        name = details.method.rpartition("/")[2]
        if name not in self._handlers:
            return None
        streams_in, streams_out = name in ("Put", "StreamGradient"), name in ("Get", "Watch", "GetReport")
        streams_out = streams_out or name == "StreamGradient"
        kind = f"{'stream' if streams_in else 'unary'}_{'stream' if streams_out else 'unary'}"

        def answer(requests: Any, context: grpc.ServicerContext) -> Any:
            request = list(requests) if streams_in else requests
            self.calls.setdefault(name, []).append(request)
            return self._handlers[name](context, request)

        def answer_stream(requests: Any, context: grpc.ServicerContext) -> Any:
            yield from answer(requests, context)

        handler = getattr(grpc, f"{kind}_rpc_method_handler")
        return handler(
            answer_stream if streams_out else answer,
            response_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
        )

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        """Its address."""
        server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[self])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait()
