"""linear_logp requests and answers, of the blocking client and of the asyncio one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from keval._arrays import Framework, Payload, Received, RemoteTensor, payload_of
from keval._digests import Digest
from keval._errors import DataLoss, invalid_field
from keval._frames import FrameSink, payload_messages, split_message
from keval.v1 import linear_logp_pb2 as pb

Want = Literal["hidden", "weight", "bias"]
Autocast = Literal["none", "bfloat16", "float16"]
GradDtype = Literal["input", "float32"]

_WANTS = {"hidden": pb.WANT_HIDDEN, "weight": pb.WANT_WEIGHT, "bias": pb.WANT_BIAS}
_AUTOCASTS = {"none": pb.AUTOCAST_NONE, "bfloat16": pb.AUTOCAST_BFLOAT16, "float16": pb.AUTOCAST_FLOAT16}
_GRAD_DTYPES = {"input": pb.GRAD_DTYPE_INPUT, "float32": pb.GRAD_DTYPE_FLOAT32}
_STREAM_ORDER = ("targets", "grad_logp", "bias", "weight", "hidden")
_RESULTS = ("logp", "grad_hidden", "grad_weight", "grad_bias")


@dataclasses.dataclass(frozen=True)
class GradientResult:
    """Arrays of numpy, or tensors of torch in host memory."""

    logp: Any  # [...] float32, or float64 for float64 operands.
    grad_hidden: Any  # [..., D]; None where it wasn't wanted, like the next two.
    grad_weight: Any  # [V, D]
    grad_bias: Any  # [V]
    dispatch: pb.Dispatch  # Which path ran, and why where it isn't the one asked for.
    timing: pb.Timing
    session_batch: pb.SessionBatchResult | None = None  # Of a micro-batch of a session: its place among the others.


def options_of(
    variant: str | None,
    device: str | None,
    autocast: str | None,
    grad_dtype: str | None,
    chunk_elems: int,
    force_variant: bool,
) -> pb.LinearLogpOptions:
    options = pb.LinearLogpOptions(
        variant=variant or "", device=device or "", chunk_elems=chunk_elems, force_variant=force_variant
    )
    if autocast is not None:
        options.autocast = _named("autocast", autocast, _AUTOCASTS)
    if grad_dtype is not None:
        options.grad_dtype = _named("grad_dtype", grad_dtype, _GRAD_DTYPES)
    return options


def _named(field: str, name: str, values: dict[str, Any]) -> Any:
    if name not in values:
        raise invalid_field(field, name, "one of " + ", ".join(values))
    return values[name]


class PreparedGradient:
    """A request that may be sent more than once, as one message or as a stream. Holds views of the caller's arrays."""

    def __init__(
        self,
        operands: dict[str, Any],
        want: Sequence[Want] | None,
        options: pb.LinearLogpOptions,
        framework: Framework | None,
        session_batch: pb.SessionBatch | None = None,
    ) -> None:
        """`operands`: by name; None is one that is left out. `session_batch`: it is a micro-batch of a session, which
        has weight and bias.
        """
        self._header = pb.GradientRequest(options=options, interleave=True, session_batch=session_batch)
        optional = ("bias", "grad_logp") if session_batch is None else ("bias", "weight")
        if want is not None:
            if not want:  # On the wire an empty list is every gradient.
                raise invalid_field("want", "an empty list", "left out, or name at least one gradient")
            self._header.want.extend(_named("want", name, _WANTS) for name in want)
        self._payloads: dict[str, Payload] = {}
        self.has_handles = False
        for name in _STREAM_ORDER:
            operand = operands[name]
            if operand is None:
                if name in optional:
                    continue
                raise invalid_field(name, "what is left out", "given")
            message = getattr(self._header.inputs, name)
            handle = operand.handle if isinstance(operand, RemoteTensor) else operand
            if isinstance(handle, str):
                message.handle = handle
                self.has_handles = True
                continue
            payload = payload_of(name, operand)
            message.spec.CopyFrom(payload.spec)
            self._payloads[name] = payload
        self.forward_only = not self._header.inputs.HasField("grad_logp")
        kinds = [self._payloads[name].framework for name in ("hidden", "weight", "targets") if name in self._payloads]
        self.framework: Framework = framework or (kinds[0] if kinds else "numpy")
        self.payload_bytes = sum(len(payload.data) for payload in self._payloads.values())

    def fits(self, max_unary_bytes: int) -> bool:
        """Whether one message will do. The size of an answer to handles isn't known here: only a stream takes any."""
        widened = self._header.options.grad_dtype == pb.GRAD_DTYPE_FLOAT32
        return not self.has_handles and self.payload_bytes * (2 if widened else 1) <= max_unary_bytes

    def unary(self) -> Any:
        """GradientRequest, or ForwardRequest where there is no upstream."""
        request = pb.GradientRequest()
        request.CopyFrom(self._header)
        request.interleave = False
        for name, payload in self._payloads.items():
            getattr(request.inputs, name).data = bytes(payload.data)
        if self.forward_only:
            return pb.ForwardRequest(options=request.options, inputs=request.inputs)
        return request

    def messages(self, digest: Digest) -> Iterator[bytes]:
        header = pb.GradientRequest()
        header.CopyFrom(self._header)
        header.digest = digest.value
        tensors = [payload.data for payload in self._payloads.values()]
        return payload_messages(header, tensors, pb.StreamGradientRequest, digest)

    def result(self, answer: Any) -> GradientResult:
        """Of a GradientResponse or ForwardResponse."""
        arrays: dict[str, Any] = {}
        for name, received in _allocate(answer).items():
            data = getattr(answer, name).data
            if len(data) != len(received.buffer):
                raise DataLoss(f"the server sent {len(data)} bytes of {name}, not {len(received.buffer)}")
            received.buffer[:] = data
            arrays[name] = received.array(self.framework)
        return _result(arrays, answer)


def _allocate(answer: Any) -> dict[str, Received]:
    return {name: Received(name, getattr(answer, name).spec) for name in _RESULTS if _has(answer, name)}


def _result(arrays: dict[str, Any], answer: Any) -> GradientResult:
    """`answer`: what has dispatch, timing and perhaps the place in a session."""
    if "logp" not in arrays:
        raise DataLoss("the server's answer has no logp")
    return GradientResult(
        arrays["logp"],
        arrays.get("grad_hidden"),
        arrays.get("grad_weight"),
        arrays.get("grad_bias"),
        answer.dispatch,
        answer.timing,
        answer.session_batch if _has(answer, "session_batch") else None,
    )


def _has(message: Any, field: str) -> bool:
    """Whether the message knows the field, and has it."""
    return field in message.DESCRIPTOR.fields_by_name and message.HasField(field)


class GradientReader:
    """Takes the messages of one StreamGradient's answer. Not thread-safe."""

    def __init__(self, framework: Framework, digest: Digest) -> None:
        self._framework = framework
        self._digest = digest
        self._received: dict[str, Received] | None = None
        self._sink: FrameSink | None = None
        self._done: pb.StreamGradientDone | None = None

    def take(self, message: bytes) -> None:
        offset, data, rest = split_message(message)
        fields = pb.StreamGradientResponse.FromString(rest) if rest else None
        if fields is not None and fields.HasField("header"):
            if self._sink is not None:
                raise DataLoss("the server sent two headers")
            self._received = _allocate(fields.header)
            self._sink = FrameSink(self._received.values(), self._digest)
        if self._sink is None:
            raise DataLoss("the server's answer has no header")
        if data:
            self._sink.take(offset, data)
        if fields is not None and fields.HasField("done"):
            self._done = fields.done

    def finish(self) -> GradientResult:
        if self._done is None or self._sink is None or self._received is None:
            raise DataLoss("the server's answer has no end")
        self._sink.finish(getattr(self._done, self._digest.field))
        arrays = {name: received.array(self._framework) for name, received in self._received.items()}
        return _result(arrays, self._done)
