"""What a client is told that lies, stops early, gives up or asks for what can't be; and that nothing is left of it."""

import hashlib
import threading
import time
import unittest

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from kevald import KevaldTest

MIB = 1 << 20
WAIT_SECONDS = 30


class RefusalTest(KevaldTest):
    arguments = ("--max_stored_tensor_bytes", str(8 * MIB))

    def setUp(self):
        self.spec = self.client.spec(self.v1.DATA_TYPE_FLOAT32, 1024)
        self.data = bytes(range(256)) * 16
        self.digest = hashlib.sha256(self.data).digest()

    def tearDown(self):
        self.await_idle()

    def put(self, *messages):
        return self.client.tensors.Put(iter(messages), timeout=WAIT_SECONDS)

    def header(self, **fields):
        return self.v1.PutRequest(header=self.v1.PutHeader(spec=self.spec, **fields))

    def frame(self, offset, data):
        return self.v1.PutRequest(offset=offset, data=data)

    def trailer(self, **fields):
        return self.v1.PutRequest(trailer=self.v1.PayloadTrailer(**fields))

    def gradient(self, n=4, d=3, v=5):
        """A request of zeros, right as it is."""
        float32, int32 = self.v1.DATA_TYPE_FLOAT32, self.v1.DATA_TYPE_INT32

        def operand(dtype, *shape):
            spec = self.client.spec(dtype, *shape)
            return self.v1.Operand(spec=spec, data=bytes(self.client.size(spec)))

        inputs = self.v1.LinearLogpInputs(
            hidden=operand(float32, n, d),
            weight=operand(float32, v, d),
            bias=operand(float32, v),
            targets=operand(int32, n),
            grad_logp=operand(float32, n),
        )
        return self.v1.GradientRequest(inputs=inputs)

    def test_details_are_those_of_google_rpc(self):
        request = self.gradient()
        request.inputs.targets.data = b"\xff\xff\xff\x7f" * 4
        error = self.refusal(
            grpc.StatusCode.INVALID_ARGUMENT, lambda: self.client.linear_logp.Gradient(request)
        )
        own = self.client.error_detail(error)
        self.assertEqual((own.field, own.value), ("targets", str(2**31 - 1)), own)
        status = rpc_status.from_call(error)
        self.assertEqual((status.code, status.message), (error.code().value[0], error.details()))
        bad_request = error_details_pb2.BadRequest()
        self.assertTrue(status.details[0].Unpack(bad_request))
        self.assertEqual([violation.field for violation in bad_request.field_violations], [own.field])
        self.assertEqual(bad_request.field_violations[0].description, f"must be {own.limit}")

    def test_a_full_store_says_when_to_retry(self):
        self.spec = self.client.spec(self.v1.DATA_TYPE_FLOAT32, MIB)
        kept = [self.client.put(self.spec, bytes(4 * MIB)).handle for _ in range(2)]
        error = self.refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: self.put(self.header()))
        for handle in kept:
            self.client.delete(handle)
        delay_ms = self.client.error_detail(error).retry_delay_ms
        self.assertGreater(delay_ms, 0)
        self.assertEqual(dict(error.trailing_metadata())["keval-retry-delay-ms"], str(delay_ms))
        retry_info = error_details_pb2.RetryInfo()
        self.assertTrue(rpc_status.from_call(error).details[0].Unpack(retry_info))
        self.assertEqual(retry_info.retry_delay.ToMilliseconds(), delay_ms)
        # What never fits isn't worth another try.
        self.spec = self.client.spec(self.v1.DATA_TYPE_FLOAT32, 16 * MIB)
        error = self.refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: self.put(self.header()))
        self.assertEqual(self.client.error_detail(error).retry_delay_ms, 0)

    def test_lies_of_a_put(self):
        half = len(self.data) // 2
        whole = self.frame(0, self.data)
        cases = {
            "no message": ([], "header"),
            "no header": ([whole], "header"),
            "a second header": ([self.header(), self.header()], "header"),
            "too few bytes": ([self.header(), self.frame(0, self.data[:half])], "data"),
            "too many bytes": ([self.header(), whole, self.frame(len(self.data), b"\0")], "data"),
            "a gap": ([self.header(), self.frame(0, self.data[:half]), self.frame(half + 4, b"\0")], "offset"),
            "an overlap": ([self.header(), self.frame(0, self.data[:half]), self.frame(half - 4, b"\0")], "offset"),
            "another digest": ([self.header(), whole, self.trailer(sha256=b"\0" * 32)], "sha256"),
            "a short digest": ([self.header(), whole, self.trailer(sha256=b"\0")], "sha256"),
            "a digest not announced": ([self.header(), whole, self.trailer(xxh3=b"\0" * 16)], "xxh3"),
            "after the trailer": ([self.header(), whole, self.trailer(sha256=self.digest), whole], "trailer"),
            "a short upload id": ([self.header(part=self.v1.UploadPart(upload_id=b"x", size=8))], "upload_id"),
        }
        for name, (messages, field) in cases.items():
            with self.subTest(name):
                self.assertEqual(self.refused_field(lambda: self.put(*messages)), field)

    def test_specs_that_can_not_be(self):
        float32 = self.v1.DATA_TYPE_FLOAT32
        for name, spec in {
            "no type": self.v1.TensorSpec(shape=[4]),
            "unknown type": self.v1.TensorSpec(dtype=99, shape=[4]),
            "negative": self.client.spec(float32, 4, -1),
            "overflow": self.client.spec(float32, 2**62, 4),
            "too many dimensions": self.client.spec(float32, *[1] * 17),
        }.items():
            with self.subTest(name):
                self.spec = spec
                self.assertTrue(self.refused_field(lambda: self.put(self.header())).startswith("spec"))

    def test_parts_that_lie(self):
        def put_part(upload_id, begin, size, data=None):
            part = self.v1.UploadPart(upload_id=upload_id, begin=begin, size=size)
            data = self.data[begin : begin + size] if data is None else data
            return self.client.put(self.spec, data, part=part)

        one, other = b"1" * 16, b"2" * 16
        put_part(one, 0, 2048)
        # Refused at its header, an overlap leaves the upload as it was.
        self.assertEqual(self.refused_field(lambda: put_part(one, 2044, 1024)), "part")
        self.assertEqual(self.refused_field(lambda: put_part(one, 4000, 100)), "part")
        info = put_part(one, 2048, 2048)
        self.assertEqual(self.client.get(info.handle)[1], self.data)
        self.client.delete(info.handle)
        # A part that begins and then fails ends it: the id is free again, and its bytes are (tearDown).
        put_part(other, 0, 2048)
        self.assertEqual(self.refused_field(lambda: put_part(other, 2048, 2048, b"short")), "data")

    def test_a_part_is_told_that_another_one_failed(self):
        upload_id = b"3" * 16
        part = self.v1.UploadPart(upload_id=upload_id, size=2048)
        failed = threading.Event()
        self.addCleanup(failed.set)

        def stream():
            yield self.header(part=part)
            failed.wait()
            yield self.frame(0, self.data[:2048])

        call = self.client.tensors.Put.future(stream(), timeout=WAIT_SECONDS)
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.client.info().tensor_store.used_bytes:
            self.assertLess(time.monotonic(), deadline)
        other = self.v1.UploadPart(upload_id=upload_id, begin=2048, size=2048)
        self.assertEqual(self.refused_field(lambda: self.put(self.header(part=other), self.frame(0, b"short"))), "data")
        failed.set()
        error = self.refusal(grpc.StatusCode.ABORTED, call.result)
        self.assertIn("another part", error.details())
        self.assertEqual(self.client.error_detail(error).field, "part")

    def test_lies_of_a_gradient(self):
        def spoil(field, change):
            request = self.gradient()
            change(request)
            for call in (self.client.linear_logp.Gradient, self.client.stream_gradient):
                with self.subTest(field, call=call):
                    self.assertEqual(self.refused_field(lambda: call(request)), field)

        spoil("hidden", lambda request: request.inputs.ClearField("hidden"))
        spoil("hidden", lambda request: setattr(request.inputs.hidden, "data", bytes(44)))
        spoil("targets", lambda request: request.inputs.targets.spec.shape.append(2))
        spoil("bias", lambda request: setattr(request.inputs.bias.spec, "dtype", self.v1.DATA_TYPE_FLOAT64))
        spoil("variant", lambda request: setattr(request.options, "variant", "no such variant"))
        spoil("device", lambda request: setattr(request.options, "device", "no such device"))
        request = self.gradient()
        request.options.device = "cuda:99"
        self.refusal(grpc.StatusCode.FAILED_PRECONDITION, lambda: self.client.linear_logp.Gradient(request))

    def test_early_half_close_of_a_stream(self):
        messages = list(self.client.stream_messages(self.gradient()))
        fields = ["header", "targets", "grad_logp", "bias", "weight", "hidden"]
        self.assertEqual(len(messages), len(fields) + 1)
        for count, field in enumerate(fields):
            with self.subTest(field):
                call = self.client.linear_logp.StreamGradient(iter(messages[:count]), timeout=WAIT_SECONDS)
                self.assertEqual(self.refused_field(lambda: list(call)), field)

    def test_frames_of_a_stream(self):
        header, targets, *rest = self.client.stream_messages(self.gradient())
        both = self.v1.StreamGradientRequest(offset=0, data=targets.data + rest[0].data)

        def send(*messages):
            return list(self.client.linear_logp.StreamGradient(iter(messages), timeout=WAIT_SECONDS))

        self.assertEqual(self.refused_field(lambda: send(targets, header)), "header")
        self.assertEqual(self.refused_field(lambda: send(header, both, *rest)), "data")
        self.assertEqual(self.refused_field(lambda: send(header, rest[0], targets)), "offset")

    def test_a_message_above_the_limit_is_grpc_s_own_refusal(self):
        limit = self.client.info().limits.max_message_bytes
        too_large = self.v1.ForwardRequest(inputs=self.gradient().inputs)
        too_large.inputs.hidden.data = bytes(limit + 1)
        error = self.refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: self.client.linear_logp.Forward(too_large))
        self.assertEqual(self.client.error_detail(error), self.v1.ErrorDetail())

    def test_frames_have_a_limit_of_their_own(self):
        limit = self.client.info().limits.max_frame_bytes
        self.spec = self.client.spec(self.v1.DATA_TYPE_FLOAT32, limit // 4 + 1)
        self.assertEqual(self.refused_field(lambda: self.put(self.header(), self.frame(0, bytes(limit + 4)))), "data")

    def test_deadline_and_cancel_of_an_upload(self):
        for give_up in ("deadline", "cancel"):
            with self.subTest(give_up):
                stream, ended = self.stalled(self.header(), self.frame(0, self.data[:1024]))
                call = self.client.tensors.Put.future(stream, timeout=1 if give_up == "deadline" else WAIT_SECONDS)
                deadline = time.monotonic() + WAIT_SECONDS
                while not self.client.info().tensor_store.used_bytes and not call.done():
                    self.assertLess(time.monotonic(), deadline)
                if give_up == "cancel":
                    call.cancel()
                    with self.assertRaises(grpc.FutureCancelledError):
                        call.result()
                else:
                    self.refusal(grpc.StatusCode.DEADLINE_EXCEEDED, call.result)
                ended.set()

    def test_deadline_and_cancel_of_a_gradient(self):
        for give_up in ("deadline", "cancel"):
            with self.subTest(give_up):
                messages = list(self.client.stream_messages(self.gradient()))
                stream, ended = self.stalled(*messages[:-2])
                call = self.client.linear_logp.StreamGradient(
                    stream, timeout=1 if give_up == "deadline" else WAIT_SECONDS
                )
                if give_up == "cancel":
                    call.cancel()
                code = grpc.StatusCode.DEADLINE_EXCEEDED if give_up == "deadline" else grpc.StatusCode.CANCELLED
                self.refusal(code, lambda: list(call))
                ended.set()



class StallTest(KevaldTest):
    arguments = ("--stall_timeout_seconds", "1")

    def test_an_upload_that_stalls_is_ended(self):
        spec = self.client.spec(self.v1.DATA_TYPE_FLOAT32, 1024)
        header = self.v1.PutRequest(header=self.v1.PutHeader(spec=spec))
        stream, ended = self.stalled(header, self.v1.PutRequest(data=bytes(1024)))
        error = self.refusal(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: self.client.tensors.Put(stream))
        self.assertIn("stalled", error.details())
        ended.set()
        self.await_idle()


if __name__ == "__main__":
    unittest.main()
