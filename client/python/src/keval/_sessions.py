"""Requests and answers of gradient sessions, of both clients."""

from __future__ import annotations

import dataclasses
import secrets
from typing import Any

from keval._arrays import Payload, RemoteTensor, payload_of
from keval._errors import invalid_field
from keval._tensors import lease_ms
from keval.v1 import linear_logp_pb2 as pb

ID_BYTES = 16


@dataclasses.dataclass(frozen=True)
class SessionSums:
    """A session's sums as they were in one moment: arrays of numpy, or tensors of torch in host memory."""

    grad_weight: Any  # [V, D] float32, or float64 with float64 operands.
    grad_bias: Any  # [V]; None where the session has no bias.
    session: pb.GradientSession  # With the batches that are in these sums.


def name_of(session: pb.GradientSession | str) -> str:
    if isinstance(session, pb.GradientSession):
        return session.session
    if isinstance(session, str):
        return session
    raise invalid_field("session", type(session).__name__, "a session or its name")


def id_of(field: str, given: bytes | None) -> bytes:
    """None: a random one, which every attempt of a call keeps."""
    if given is None:
        return secrets.token_bytes(ID_BYTES)
    if len(given) != ID_BYTES:
        raise invalid_field(field, f"{len(given)} bytes", f"{ID_BYTES} bytes")
    return given


class PreparedSession:
    """A session to be created. Holds views of the caller's arrays."""

    def __init__(self, weight: Any, bias: Any, device: str | None, lease: float | None) -> None:
        self._request = pb.CreateSessionRequest(device=device or "", lease_ms=lease_ms(lease))
        self.arrays: dict[str, Any] = {}  # What isn't on the server yet, by name.
        self._payloads: dict[str, Payload] = {}
        for name, operand in (("weight", weight), ("bias", bias)):
            handle = operand.handle if isinstance(operand, RemoteTensor) else operand
            if isinstance(handle, str):
                getattr(self._request, name).handle = handle
            elif operand is not None or name == "weight":
                self.arrays[name] = operand
                self._payloads[name] = payload_of(name, operand)

    def fits(self, max_unary_bytes: int) -> bool:
        """Whether the arrays can travel with the request; others are stored first."""
        return sum(len(payload.data) for payload in self._payloads.values()) <= max_unary_bytes

    def request(self, stored: dict[str, RemoteTensor]) -> pb.CreateSessionRequest:
        """`stored`: arrays that were, by name; the others are in it."""
        request = pb.CreateSessionRequest()
        request.CopyFrom(self._request)
        for name, payload in self._payloads.items():
            operand = getattr(request, name)
            if name in stored:
                operand.handle = stored[name].handle
            else:
                operand.spec.CopyFrom(payload.spec)
                operand.data = bytes(payload.data)
        return request


def fetch_request(session: pb.GradientSession | str, reset: bool, request_id: bytes | None) -> pb.FetchSessionRequest:
    identity = id_of("request_id", request_id) if reset else b""
    return pb.FetchSessionRequest(session=name_of(session), reset=reset, request_id=identity)


def batch_of(session: pb.GradientSession | str, batch_id: bytes | None) -> pb.SessionBatch:
    return pb.SessionBatch(session=name_of(session), batch_id=id_of("batch_id", batch_id))
