"""Gradient sessions by a generic client: micro-batches by both entrances, in every type, against an independent float64
computation of the whole; each once by its id; what another process's session is.
"""

import os
import random
import unittest

import grpc

import messages
from kevald import KevaldTest
from reference import Expected, Problem, decode


class SessionTest(KevaldTest):
    arguments = ("--cpu_threads", "1")

    def create(self, problem, by_handle):
        head = messages.inputs(self.client, problem)
        request = self.v1.CreateSessionRequest(weight=head.weight)
        if problem.bias is not None:
            request.bias.CopyFrom(head.bias)
        if by_handle:
            info = self.client.put(head.weight.spec, head.weight.data)
            request.weight.handle = info.handle
        session = self.client.linear_logp.CreateSession(request)
        if by_handle:
            self.client.delete(info.handle)  # Its bytes stay with the session.
        return session

    def batch(self, problem, session, begin, end, batch_id):
        """A GradientRequest of the problem's tokens from `begin` to `end`."""
        inputs = messages.inputs(self.client, problem)
        for name, width in (("hidden", problem.d), ("targets", 1), ("grad_logp", 1)):
            operand = getattr(inputs, name)
            size = self.client.element_bytes[operand.spec.dtype] * width
            operand.data = operand.data[begin * size : end * size]
            operand.spec.shape[0] = end - begin
        inputs.ClearField("weight")
        inputs.ClearField("bias")
        return self.v1.GradientRequest(
            inputs=inputs, session_batch=self.v1.SessionBatch(session=session.session, batch_id=batch_id)
        )

    def sums(self, session, **options):
        fetched = self.client.linear_logp.FetchSession(self.v1.FetchSessionRequest(session=session.session, **options))
        found = {}
        for name in ("grad_weight", "grad_bias"):
            if fetched.HasField(name):
                info, data = self.client.get(getattr(fetched, name).handle)
                dtype = next(type for type in messages.FLOATS if messages.data_type(self.client, type) == info.spec.dtype)
                found[name] = (decode(data, dtype), dtype)
        return fetched, found

    def test_sums_of_micro_batches_in_every_type(self):
        for dtype in ("FLOAT32", "BFLOAT16", "FLOAT16", "FLOAT64"):
            for bias in (True, False):
                with self.subTest(dtype=dtype, bias=bias):
                    problem = Problem(24, 12, 40, dtype, bias=bias)
                    expected = Expected(problem)
                    session = self.create(problem, by_handle=bias)
                    self.assertEqual(session.device, "cpu")
                    ids = [os.urandom(16) for _ in range(3)]
                    for number, (begin, end) in enumerate(((0, 10), (10, 11), (11, 24))):
                        request = self.batch(problem, session, begin, end, ids[number])
                        request.options.chunk_elems = 4 * problem.v
                        if number == 1:
                            response = self.client.linear_logp.Gradient(request)
                        else:
                            request.interleave = number == 0
                            response = self.client.stream_gradient(request)
                        self.assertEqual(response.session_batch.sequence, number + 1)
                        self.assertFalse(response.session_batch.repeated)
                        self.assertTrue(response.HasField("grad_hidden"))
                        self.assertFalse(response.HasField("grad_weight") or response.HasField("grad_bias"))
                        again = self.client.stream_gradient(request)
                        self.assertTrue(again.session_batch.repeated)
                        self.assertEqual(again.session_batch.sequence, number + 1)
                        self.assertEqual(again.grad_hidden, response.grad_hidden)
                    fetched, found = self.sums(session, reset=True, request_id=os.urandom(16))
                    self.assertEqual((fetched.session.batches, fetched.session.num_tokens), (3, 24))
                    self.assertEqual("grad_bias" in found, bias)
                    for name, (values, sum_dtype) in found.items():
                        self.assertEqual(sum_dtype, problem.logp_dtype)
                        self.assertIsNone(expected.fault(name, values, sum_dtype), name)
                    for values, _ in self.sums(session)[1].values():
                        self.assertFalse(any(values))
                    self.client.linear_logp.DeleteSession(self.v1.DeleteSessionRequest(session=session.session))

    def test_a_stream_that_is_cancelled_adds_nothing(self):
        problem = Problem(24, 12, 40)
        session = self.create(problem, by_handle=False)
        request = self.batch(problem, session, 0, 24, os.urandom(16))
        request.options.chunk_elems = 4 * problem.v
        parts = list(self.client.stream_messages(request, frame_bytes=96))
        for keep in range(1, len(parts) - 1):
            with self.assertRaises(grpc.RpcError) as raised:
                list(self.client.linear_logp.StreamGradient(iter(parts[:keep])))
            self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        for values, _ in self.sums(session)[1].values():
            self.assertFalse(any(values))
        self.assertEqual(self.client.stream_gradient(request).session_batch.sequence, 1)

    def test_each_is_added_once_wherever_its_calls_end(self):
        """Each is sent until it is answered: after calls that were cancelled or past their deadline at random points,
        before its addition or after."""
        problem = Problem(24, 12, 40, "FLOAT64")
        session = self.create(problem, by_handle=False)
        generator = random.Random(1)
        count = 60
        for number in range(count):
            request = self.batch(problem, session, 0, problem.n, os.urandom(16))
            request.options.chunk_elems = 4 * problem.v
            request.interleave = number % 2 == 0
            for _ in range(3):
                call = self.client.linear_logp.StreamGradient(
                    self.client.stream_messages(request, frame_bytes=96), timeout=generator.uniform(0.0005, 0.02)
                )
                try:
                    for _ in zip(range(generator.randrange(16)), call):
                        pass
                    call.cancel()
                except grpc.RpcError as error:
                    self.assertIn(error.code(), (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED))
            self.assertEqual(self.client.stream_gradient(request).session_batch.sequence, number + 1)
            self.assertTrue(self.client.linear_logp.Gradient(request).session_batch.repeated)
        fetched, found = self.sums(session)
        self.assertEqual((fetched.session.batches, fetched.session.num_tokens), (count, count * problem.n))
        for name, (values, _) in found.items():
            for value, once in zip(values, Expected(problem).values[name], strict=True):
                self.assertAlmostEqual(value / count, once, delta=1e-9, msg=name)

    def test_a_session_of_another_process_is_told_as_that(self):
        problem = Problem(4, 3, 5)
        session = self.create(problem, by_handle=False)
        name = session.session
        self.assertRegex(name, "^sessions/[0-9a-f]{48}$")
        session.session = "sessions/" + ("0" if name[9] != "0" else "1") + name[10:]
        with self.assertRaises(grpc.RpcError) as raised:
            self.client.linear_logp.Gradient(self.batch(problem, session, 0, 4, os.urandom(16)))
        self.assertEqual(raised.exception.code(), grpc.StatusCode.NOT_FOUND)
        self.assertIn("restarted", raised.exception.details())
        self.assertEqual(self.client.error_detail(raised.exception).field, "session")


if __name__ == "__main__":
    unittest.main()
