"""A client of keval with no code of keval's: grpcio, and message classes made from what the server says of itself by
reflection. Written from the comments in proto/keval/v1; whoever writes one in another language does the same.
"""

import copy
import hashlib
import math
import types

from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

PACKAGE = "keval.v1"
FRAME_BYTES = 1 << 20


class Client:
    """Messages and enum values as attributes of `v1`, a stub for each service: `tensors`, `linear_logp`, `benchmarks`,
    `server_info`. Does not own the channel.
    """

    def __init__(self, channel):
        self.database = ProtoReflectionDescriptorDatabase(channel)
        self._pool = descriptor_pool.DescriptorPool(self.database)
        self.v1 = types.SimpleNamespace()
        files = set()
        for service in self.database.get_services():
            if service.startswith(PACKAGE + "."):
                self._add_file(self._pool.FindServiceByName(service).file, files)
        # No message refers to this one: it comes in the trailing metadata of a refusal.
        self._add_file(self._pool.FindMessageTypeByName(f"{PACKAGE}.ErrorDetail").file, files)
        self._connect(channel)
        self.element_bytes = {
            self.v1.DATA_TYPE_FLOAT32: 4,
            self.v1.DATA_TYPE_FLOAT64: 8,
            self.v1.DATA_TYPE_BFLOAT16: 2,
            self.v1.DATA_TYPE_FLOAT16: 2,
            self.v1.DATA_TYPE_INT32: 4,
            self.v1.DATA_TYPE_INT64: 8,
        }

    def _add_file(self, file, seen):
        if file.name in seen or file.package != PACKAGE:
            return
        seen.add(file.name)
        for name, message in file.message_types_by_name.items():
            setattr(self.v1, name, message_factory.GetMessageClass(message))
        for enum in file.enum_types_by_name.values():
            for value in enum.values:
                setattr(self.v1, value.name, value.number)
        for dependency in file.dependencies:
            self._add_file(dependency, seen)

    def over(self, channel):
        """The same client over another channel to the same server, which isn't asked for its messages again."""
        other = copy.copy(self)
        other._connect(channel)
        return other

    def _connect(self, channel):
        self.tensors = self._stub(channel, "TensorService")
        self.linear_logp = self._stub(channel, "LinearLogpService")
        self.benchmarks = self._stub(channel, "BenchmarkService")
        self.server_info = self._stub(channel, "ServerInfoService")

    def _stub(self, channel, name):
        stub = types.SimpleNamespace()
        for method in self._pool.FindServiceByName(f"{PACKAGE}.{name}").methods:
            request = message_factory.GetMessageClass(method.input_type)
            response = message_factory.GetMessageClass(method.output_type)
            kind = "stream" if method.client_streaming else "unary"
            kind += "_stream" if method.server_streaming else "_unary"
            call = getattr(channel, kind)(
                f"/{PACKAGE}.{name}/{method.name}",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )
            setattr(stub, method.name, call)
        return stub

    def info(self):
        return self.server_info.GetServerInfo(self.v1.GetServerInfoRequest())

    def error_detail(self, error):
        """keval.v1.ErrorDetail of a failed call; empty where it has none."""
        trailing = dict(error.trailing_metadata() or ())
        return self.v1.ErrorDetail.FromString(trailing.get("keval-error-bin", b""))

    def spec(self, dtype, *shape):
        return self.v1.TensorSpec(dtype=dtype, shape=shape)

    def size(self, spec):
        return self.element_bytes[spec.dtype] * math.prod(spec.shape)

    # Tensors.

    def put_messages(self, spec, data, frame_bytes=FRAME_BYTES, **header):
        """What Put is sent, digest included where the header doesn't name another one than SHA-256."""
        digest = header.get("digest", self.v1.PAYLOAD_DIGEST_UNSPECIFIED)
        yield self.v1.PutRequest(header=self.v1.PutHeader(spec=spec, **header))
        for offset in range(0, len(data), frame_bytes):
            yield self.v1.PutRequest(offset=offset, data=data[offset : offset + frame_bytes])
        if digest in (self.v1.PAYLOAD_DIGEST_UNSPECIFIED, self.v1.PAYLOAD_DIGEST_SHA256):
            yield self.v1.PutRequest(trailer=self.v1.PayloadTrailer(sha256=hashlib.sha256(data).digest()))

    def put(self, spec, data, frame_bytes=FRAME_BYTES, **header):
        return self.tensors.Put(self.put_messages(spec, data, frame_bytes, **header))

    def get(self, handle):
        """(TensorInfo, bytes)."""
        return self.get_result(self.tensors.Get(self.v1.GetTensorRequest(handle=handle)))

    def get_result(self, messages):
        """(TensorInfo, bytes) from the messages of Get's answer, verified by the SHA-256 of header or trailer."""
        info, data, digest = None, bytearray(), b""
        for message in messages:
            if message.HasField("header"):
                info, digest = message.header, message.header.sha256
            if message.offset != (len(data) if message.data else 0):
                raise ValueError(f"a frame at {message.offset}, not at {len(data)}")
            data += message.data
            digest = message.trailer.sha256 or digest
        if len(data) != info.size_bytes or hashlib.sha256(data).digest() != digest:
            raise ValueError("not the tensor's bytes")
        return info, bytes(data)

    def delete(self, handle):
        self.tensors.Delete(self.v1.DeleteTensorRequest(handle=handle))

    # Gradients.

    def stream_messages(self, request, frame_bytes=FRAME_BYTES):
        """What StreamGradient is sent for a GradientRequest whose operands' bytes are inline: the header without them,
        then their frames in the stated order, then the digest.
        """
        header = self.v1.GradientRequest()
        header.CopyFrom(request)
        payload = []
        for name in ("targets", "grad_logp", "bias", "weight", "hidden"):
            operand = getattr(header.inputs, name)
            if header.inputs.HasField(name) and operand.WhichOneof("source") == "data":
                payload.append(operand.data)
                operand.ClearField("data")
        yield self.v1.StreamGradientRequest(header=header)
        begin, digest = 0, hashlib.sha256()
        for data in payload:
            for at in range(0, len(data), frame_bytes):  # A frame lies within one tensor.
                yield self.v1.StreamGradientRequest(offset=begin + at, data=data[at : at + frame_bytes])
            begin += len(data)
            digest.update(data)
        yield self.v1.StreamGradientRequest(trailer=self.v1.PayloadTrailer(sha256=digest.digest()))

    def stream_gradient(self, request, frame_bytes=FRAME_BYTES):
        """StreamGradient's answer as Gradient gives it."""
        return self.stream_result(self.linear_logp.StreamGradient(self.stream_messages(request, frame_bytes)))

    def stream_result(self, messages):
        """A GradientResponse with bytes inline from the messages of StreamGradient's answer, checked against the digest
        of `done`.
        """
        response = done = None
        digest = hashlib.sha256()
        received = {}  # Bytes of each tensor of the answer.
        begins = {}
        for message in messages:
            if message.HasField("header"):
                response = message.header
                at = 0
                for name in ("logp", "grad_hidden", "grad_weight", "grad_bias"):
                    if response.HasField(name):
                        begins[name], received[name] = at, bytearray()
                        at += self.size(getattr(response, name).spec)
            if message.data:
                digest.update(message.data)
                # The last tensor that begins at or before the frame: an empty one has no frame.
                name = [name for name, begin in begins.items() if begin <= message.offset][-1]
                if message.offset != begins[name] + len(received[name]):
                    raise ValueError(f"a frame of {name} at {message.offset}")
                received[name] += message.data
            if message.HasField("done"):
                done = message.done
        if digest.digest() != done.sha256:
            raise ValueError("not the payload that the server sent")
        for name, data in received.items():
            operand = getattr(response, name)
            if len(data) != self.size(operand.spec):
                raise ValueError(f"{len(data)} bytes of {name}")
            operand.data = bytes(data)
        response.dispatch.CopyFrom(done.dispatch)
        response.timing.CopyFrom(done.timing)
        if done.HasField("session_batch"):
            response.session_batch.CopyFrom(done.session_batch)
        return response

    # Jobs.

    def report(self, name, *file_names):
        """A job's files by name, each verified by its SHA-256."""
        files, current = {}, None
        for message in self.benchmarks.GetReport(self.v1.GetReportRequest(name=name, file_names=file_names)):
            if message.file_name:
                current = files[message.file_name] = bytearray()
            current += message.data
            if message.sha256 and hashlib.sha256(current).digest() != message.sha256:
                raise ValueError("not the file that the server sent")
        return {name: bytes(data) for name, data in files.items()}
