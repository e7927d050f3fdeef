"""Failed calls, an exception for each cause."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

import grpc
from google.protobuf.message import DecodeError

from keval.v1 import error_pb2


class Error(Exception):
    """A call that failed. `code` is gRPC's name of the cause; the subclass is one for each. Can be pickled."""

    code: ClassVar[str] = "UNKNOWN"

    def __init__(
        self,
        message: str,
        field: str = "",
        value: str = "",
        limit: str = "",
        retry_delay: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        # What was refused, its value, and what would have been accepted: reads after "must be". Empty where not said.
        self.field = field
        self.value = value
        self.limit = limit
        # Seconds after which the server would be asked again; None where it didn't say.
        self.retry_delay = retry_delay

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.field, self.value, self.limit, self.retry_delay)


class Cancelled(Error):
    """The caller ended the call."""

    code = "CANCELLED"


class Unknown(Error):
    """A cause that this package has no name for."""

    code = "UNKNOWN"


class InvalidArgument(Error, ValueError):
    """A request that could never be right: `field`, `value` and `limit` say what to change."""

    code = "INVALID_ARGUMENT"


class DeadlineExceeded(Error):
    """The call's timeout passed, retries included."""

    code = "DEADLINE_EXCEEDED"


class NotFound(Error):
    """A tensor or job that is not there, or is another caller's."""

    code = "NOT_FOUND"


class AlreadyExists(Error):
    code = "ALREADY_EXISTS"


class PermissionDenied(Error):
    code = "PERMISSION_DENIED"


class ResourceExhausted(Error):
    """A queue, quota or memory is full; `retry_delay` says when to try again, None that it could never fit."""

    code = "RESOURCE_EXHAUSTED"


class FailedPrecondition(Error):
    """The device, variant or job can't do this, or not in its state."""

    code = "FAILED_PRECONDITION"


class Aborted(Error):
    code = "ABORTED"


class OutOfRange(Error):
    code = "OUT_OF_RANGE"


class Unimplemented(Error):
    """The server is older than this call."""

    code = "UNIMPLEMENTED"


class Internal(Error):
    """A fault of the server's own."""

    code = "INTERNAL"


class Unavailable(Error):
    """The server is out of reach, drains, or has lost its device."""

    code = "UNAVAILABLE"


class DataLoss(Error):
    """What the server sent isn't what it says that it sent."""

    code = "DATA_LOSS"


class Unauthenticated(Error):
    """The server doesn't know the caller: see `token_file` and `tls_cert`."""

    code = "UNAUTHENTICATED"


class ForkedClientError(RuntimeError):
    """A client that had connected before its process forked was used in the child."""


_BY_CODE: dict[str, type[Error]] = {error.code: error for error in Error.__subclasses__()}


def invalid_field(field: str, value: object, limit: str) -> InvalidArgument:
    """As the server words it."""
    shown = printable(str(value))
    return InvalidArgument(f"{field}: {shown} must be {limit}", field, shown, limit)


def printable(text: str, limit: int = 256) -> str:
    """`text` without what could steer a terminal."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return shown if len(shown) <= limit else shown[:limit] + "…"


def from_call(error: Any) -> Error:
    """Of a grpc.RpcError or grpc.aio.AioRpcError."""
    status: grpc.StatusCode = error.code()
    message = printable(error.details() or status.name, 4096)
    detail = error_pb2.ErrorDetail()
    for key, value in error.trailing_metadata() or ():
        if key == "keval-error-bin":
            # A detail that can't be read takes nothing from code and message.
            with contextlib.suppress(DecodeError):
                detail = error_pb2.ErrorDetail.FromString(value)
    delay = detail.retry_delay_ms / 1000 if detail.retry_delay_ms > 0 else None
    return _BY_CODE.get(status.name, Unknown)(message, detail.field, detail.value, detail.limit, delay)
