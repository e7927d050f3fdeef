"""linear_logp over every entrance, compared with an independent float64 computation by docs/contract.md C2; plans and
the contract check.
"""

import unittest

import grpc

import messages
from kevald import KevaldTest
from messages import RESULTS
from reference import Expected, Problem, decode


class GradientTest(KevaldTest):
    arguments = ("--cpu_threads", "1")

    def inputs(self, problem, **options):
        return messages.inputs(self.client, problem, **options)

    def check(self, response, expected, names=RESULTS, dtype=None):
        """That `response` has the named results and no other, right and with gradients of type `dtype`."""
        self.assertEqual([name for name in RESULTS if response.HasField(name)], list(names))
        self.assertEqual(messages.faults(self.client, response, expected), [])
        for name in names:
            if dtype is not None and name != "logp":
                self.assertEqual(messages.result_type(self.client, getattr(response, name)), dtype, name)

    def test_unary_and_stream_in_every_type(self):
        for dtype in ("FLOAT32", "BFLOAT16", "FLOAT16", "FLOAT64"):
            for target_dtype in ("INT32", "INT64"):
                with self.subTest(dtype=dtype, targets=target_dtype):
                    problem = Problem(24, 12, 40, dtype)
                    expected = Expected(problem)
                    request = self.v1.GradientRequest(inputs=self.inputs(problem, target_dtype=target_dtype))
                    request.options.chunk_elems = 5 * problem.v  # Five chunks of tokens, the last a short one.
                    unary = self.client.linear_logp.Gradient(request)
                    self.check(unary, expected, dtype=dtype)
                    self.assertEqual(unary.dispatch.chunks, 5)
                    for interleave in (False, True):
                        request.interleave = interleave
                        for frame_bytes in (52, 1 << 20):
                            streamed = self.client.stream_gradient(request, frame_bytes)
                            for name in RESULTS:
                                self.assertEqual(getattr(streamed, name), getattr(unary, name), name)

    def test_a_wrong_result_is_seen(self):
        problem = Problem(24, 12, 40)
        request = self.v1.GradientRequest(inputs=self.inputs(problem))
        response = self.client.linear_logp.Gradient(request)
        problem.grad_logp[3] *= 1.001
        expected = Expected(problem)
        for name in RESULTS[1:]:
            got = decode(getattr(response, name).data, "FLOAT32")
            self.assertIsNotNone(expected.fault(name, got, "FLOAT32"), name)
        problem.hidden[5] += 0.001
        got = decode(response.logp.data, "FLOAT32")
        self.assertIsNotNone(Expected(problem).fault("logp", got, "FLOAT32"))

    def test_every_variant(self):
        problem = Problem(10, 6, 20)
        expected = Expected(problem)
        for variant in self.client.info().variants:
            if "cpu" not in variant.devices:
                continue
            with self.subTest(variant=variant.name):
                options = self.v1.LinearLogpOptions(variant=variant.name, device="cpu", force_variant=True)
                request = self.v1.GradientRequest(inputs=self.inputs(problem), options=options)
                response = self.client.linear_logp.Gradient(request)
                self.check(response, expected)
                self.assertEqual(response.dispatch.variant, variant.name)
                self.assertFalse(response.dispatch.fallback)

    def test_forward(self):
        for bias in (True, False):
            problem = Problem(9, 7, 30, bias=bias)
            request = self.v1.ForwardRequest(inputs=self.inputs(problem, upstream=False))
            response = self.client.linear_logp.Forward(request)
            got = decode(response.logp.data, "FLOAT32")
            self.assertIsNone(Expected(problem).fault("logp", got, "FLOAT32"))
            self.assertGreater(response.timing.compute_ns, 0)

    def test_only_what_is_wanted(self):
        problem = Problem(9, 7, 30)
        expected = Expected(problem)
        wants = {
            "grad_hidden": self.v1.WANT_HIDDEN,
            "grad_weight": self.v1.WANT_WEIGHT,
            "grad_bias": self.v1.WANT_BIAS,
        }
        for names in (("grad_hidden",), ("grad_weight",), ("grad_bias",), ("grad_hidden", "grad_bias")):
            request = self.v1.GradientRequest(inputs=self.inputs(problem), want=[wants[name] for name in names])
            self.check(self.client.linear_logp.Gradient(request), expected, ("logp", *names))
            self.check(self.client.stream_gradient(request), expected, ("logp", *names))
        without = Problem(9, 7, 30, bias=False)
        names = ("logp", "grad_hidden", "grad_weight")
        request = self.v1.GradientRequest(inputs=self.inputs(without))
        self.check(self.client.linear_logp.Gradient(request), Expected(without), names)
        request.want.append(self.v1.WANT_BIAS)
        self.assertEqual(self.refused_field(lambda: self.client.linear_logp.Gradient(request)), "want")

    def test_float32_gradients_of_16_bit_operands(self):
        problem = Problem(9, 7, 30, "BFLOAT16")
        options = self.v1.LinearLogpOptions(grad_dtype=self.v1.GRAD_DTYPE_FLOAT32)
        request = self.v1.GradientRequest(inputs=self.inputs(problem), options=options)
        self.check(self.client.linear_logp.Gradient(request), Expected(problem), dtype="FLOAT32")

    def test_leading_dimensions_come_back(self):
        problem = Problem(6, 4, 10)
        inputs = self.inputs(problem)
        for name in ("hidden", "targets", "grad_logp"):
            spec = getattr(inputs, name).spec
            spec.shape[:] = [2, 3, *spec.shape[1:]]
        response = self.client.linear_logp.Gradient(self.v1.GradientRequest(inputs=inputs))
        self.check(response, Expected(problem))
        self.assertEqual(list(response.logp.spec.shape), [2, 3])
        self.assertEqual(list(response.grad_hidden.spec.shape), [2, 3, 4])

    def test_no_tokens(self):
        problem = Problem(0, 4, 10)
        request = self.v1.GradientRequest(inputs=self.inputs(problem))
        for response in (self.client.linear_logp.Gradient(request), self.client.stream_gradient(request)):
            self.check(response, Expected(problem))

    def test_operands_by_handle(self):
        problem = Problem(24, 12, 40)
        expected = Expected(problem)
        request = self.v1.GradientRequest(inputs=self.inputs(problem))
        inline = self.client.linear_logp.Gradient(request)
        handles = []
        for name in ("weight", "bias", "hidden", "targets", "grad_logp"):
            operand = getattr(request.inputs, name)
            handles.append(self.client.put(operand.spec, operand.data).handle)
            operand.handle = handles[-1]
            if name == "bias":
                operand.ClearField("spec")  # It may be left out.
            for response in (self.client.linear_logp.Gradient(request), self.client.stream_gradient(request)):
                self.check(response, expected)
                self.assertEqual(response.grad_weight.data, inline.grad_weight.data)
        request.inputs.weight.spec.shape[0] += 1
        self.assertEqual(self.refused_field(lambda: self.client.linear_logp.Gradient(request)), "weight")
        request.inputs.weight.spec.shape[0] -= 1
        self.client.delete(handles[0])
        error = self.refusal(grpc.StatusCode.NOT_FOUND, lambda: self.client.linear_logp.Gradient(request))
        self.assertEqual(self.client.error_detail(error).field, "weight.handle")
        for handle in handles[1:]:
            self.client.delete(handle)

    def test_one_message_is_limited_and_a_stream_is_not(self):
        """Results above the unary limit: 5 MiB of grad_hidden. One word, so that logp and every gradient are zero."""
        problem = Problem(1, 4, 1)
        n = 5 * (1 << 20) // 16
        zeros = [0.0] * n
        inputs = self.inputs(problem)
        inputs.hidden.CopyFrom(messages.operand(self.client, zeros * 4, "FLOAT32", n, 4))
        inputs.targets.CopyFrom(messages.operand(self.client, [0] * n, "INT32", n))
        inputs.grad_logp.CopyFrom(messages.operand(self.client, [1.0] * n, "FLOAT32", n))
        request = self.v1.GradientRequest(inputs=inputs)
        self.assertEqual(self.refused_field(lambda: self.client.linear_logp.Gradient(request)), "inputs")
        request.interleave = True
        response = self.client.stream_gradient(request)
        self.assertFalse(any(decode(response.grad_hidden.data, "FLOAT32")))
        self.assertEqual(len(response.logp.data), 4 * n)

    def test_plan(self):
        request = self.v1.PlanRequest(num_tokens=4096, hidden_size=2048, vocab_size=32768, bias=True)
        plan = self.client.linear_logp.Plan(request)
        # The figures of docs/contract.md.
        self.assertEqual((plan.chunk_tokens, plan.chunks, plan.add_ops_saved), (512, 8, 8))
        self.assertEqual(plan.saving_bytes, 4 << 30)
        self.assertEqual(plan.base_bytes - plan.candidate_bytes, plan.saving_bytes)
        self.assertIn("portable_addmm", {support.variant for support in plan.variants if support.supported})
        request.vocab_size = 0
        self.assertEqual(self.refused_field(lambda: self.client.linear_logp.Plan(request)), "vocab_size")

    def test_contract_rows(self):
        ids = set()
        for row in self.client.linear_logp.CheckContract(self.v1.CheckContractRequest(device="cpu"), timeout=250):
            ids.add(row.id)
            self.assertIn(
                row.status,
                (self.v1.ContractRow.ROW_STATUS_PASS, self.v1.ContractRow.ROW_STATUS_NOT_APPLICABLE),
                row,
            )
        self.assertLessEqual({"C1", "C2", "C3", "C6", "C14", "P7"}, ids)
        unknown = self.v1.CheckContractRequest(candidate="no such variant")
        self.assertEqual(self.refused_field(lambda: list(self.client.linear_logp.CheckContract(unknown))), "candidate")


if __name__ == "__main__":
    unittest.main()
