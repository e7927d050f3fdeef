"""Client of keval: remote kernel evaluation for linear_logp.

    with keval.Client("127.0.0.1:7400") as client:
        result = client.gradient(hidden=hidden, weight=weight, targets=targets, grad_logp=grad_logp)

keval.aio.Client is the same for asyncio. Messages (server information, jobs, events) are those of proto/keval/v1.
"""

from keval import aio
from keval._arrays import RemoteTensor
from keval._client import Client
from keval._errors import (
    Aborted,
    AlreadyExists,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    ForkedClientError,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    Unknown,
)
from keval._gradient import GradientResult
from keval._sessions import SessionSums
from keval._version import __version__

__all__ = [
    "Aborted",
    "AlreadyExists",
    "Cancelled",
    "Client",
    "DataLoss",
    "DeadlineExceeded",
    "Error",
    "FailedPrecondition",
    "ForkedClientError",
    "GradientResult",
    "Internal",
    "InvalidArgument",
    "NotFound",
    "OutOfRange",
    "PermissionDenied",
    "RemoteTensor",
    "ResourceExhausted",
    "SessionSums",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Unknown",
    "__version__",
    "aio",
]
