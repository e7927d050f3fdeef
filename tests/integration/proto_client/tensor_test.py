"""Tensors on the server: stored whole and in parts, read, listed, kept, reused by digest, refused beyond a quota."""

import hashlib
import os
import random
import unittest

import grpc

from kevald import KevaldTest

MIB = 1 << 20


class TensorTest(KevaldTest):
    arguments = ("--max_stored_tensor_bytes", str(16 * MIB), "--max_stored_tensor_bytes_per_caller", str(8 * MIB))

    def setUp(self):
        self.data = random.Random(7).randbytes(5 * MIB // 2)
        self.spec = self.client.spec(self.v1.DATA_TYPE_FLOAT32, 5, len(self.data) // 20)

    def tearDown(self):
        for tensor in self.list_all():
            self.client.delete(tensor.handle)
        self.assertEqual(self.client.info().tensor_store.tensors, 0)

    def list_all(self, page_size=0):
        tensors, token = [], ""
        while True:
            request = self.v1.ListTensorsRequest(page_size=page_size, page_token=token)
            answer = self.client.tensors.List(request)
            tensors += answer.tensors
            token = answer.next_page_token
            if not token:
                return tensors

    def test_put_and_get(self):
        for frame_bytes in (1, 1000, MIB, 4 * MIB):
            data = self.data[:4096] if frame_bytes == 1 else self.data
            spec = self.client.spec(self.v1.DATA_TYPE_FLOAT32, len(data) // 4)
            info = self.client.put(spec, data, frame_bytes)
            self.assertRegex(info.handle, "^tensors/[0-9a-f]{32}$")
            self.assertEqual(info.size_bytes, len(data))
            self.assertEqual(info.sha256, hashlib.sha256(data).digest())
            got, received = self.client.get(info.handle)
            self.assertEqual(received, data)
            self.assertEqual((got.handle, got.spec), (info.handle, spec))
            self.client.delete(info.handle)

    def test_header_frame_and_trailer_may_share_a_message(self):
        digest = hashlib.sha256(self.data[:64]).digest()
        message = self.v1.PutRequest(
            header=self.v1.PutHeader(spec=self.client.spec(self.v1.DATA_TYPE_INT64, 8)),
            data=self.data[:64],
            trailer=self.v1.PayloadTrailer(sha256=digest),
        )
        info = self.client.tensors.Put(iter([message]))
        self.assertEqual(self.client.get(info.handle)[1], self.data[:64])

    def test_a_tensor_without_bytes(self):
        info = self.client.put(self.client.spec(self.v1.DATA_TYPE_FLOAT16, 3, 0), b"")
        self.assertEqual(info.size_bytes, 0)
        self.assertEqual(self.client.get(info.handle)[1], b"")

    def test_without_a_digest_and_without_a_trailer(self):
        info = self.client.put(self.spec, self.data, digest=self.v1.PAYLOAD_DIGEST_NONE)
        self.assertEqual(info.sha256, b"")
        self.assertEqual(self.client.get(info.handle)[1], self.data)  # By the trailer's digest then.
        messages = list(self.client.put_messages(self.spec, self.data))[:-1]
        info = self.client.tensors.Put(iter(messages))
        self.assertEqual(info.sha256, hashlib.sha256(self.data).digest())

    def test_parts_in_any_order(self):
        half = len(self.data) // 2
        upload_id = os.urandom(16)

        def put_part(begin, size):
            part = self.v1.UploadPart(upload_id=upload_id, begin=begin, size=size)
            return self.client.put(self.spec, self.data[begin : begin + size], part=part)

        self.assertEqual(put_part(half, len(self.data) - half).handle, "")
        info = put_part(0, half)
        self.assertEqual(self.client.get(info.handle)[1], self.data)

    def test_stat_list_and_touch(self):
        first = self.client.put(self.spec, self.data, lease_ms=60_000)
        second = self.client.put(self.client.spec(self.v1.DATA_TYPE_INT32, 1), b"\1\0\0\0")
        self.assertEqual(self.client.tensors.Stat(self.v1.StatTensorRequest(handle=first.handle)), first)
        handles = sorted([first.handle, second.handle])
        for page_size in (0, 1):
            self.assertEqual([tensor.handle for tensor in self.list_all(page_size)], handles)
        touched = self.client.tensors.Touch(self.v1.TouchTensorRequest(handle=first.handle, lease_ms=120_000))
        self.assertGreater(touched.expire_time_unix_ms, first.expire_time_unix_ms)
        again = self.client.tensors.Touch(self.v1.TouchTensorRequest(handle=first.handle, lease_ms=1))
        self.assertGreaterEqual(again.expire_time_unix_ms, touched.expire_time_unix_ms)

    def test_lease_is_cut_to_the_maximum(self):
        limits = self.client.info().limits
        default = self.client.put(self.client.spec(self.v1.DATA_TYPE_INT32, 1), b"\0\0\0\0")
        longest = self.client.put(self.client.spec(self.v1.DATA_TYPE_INT32, 1), b"\0\0\0\0", lease_ms=2**53)
        between = longest.expire_time_unix_ms - default.expire_time_unix_ms
        self.assertAlmostEqual(between, limits.max_lease_ms - limits.default_lease_ms, delta=60_000)

    def test_deleted_is_not_found(self):
        handle = self.client.put(self.spec, self.data).handle
        self.client.delete(handle)
        for name in (handle, "tensors/" + "0" * 32, "nonsense"):
            self.refusal(grpc.StatusCode.NOT_FOUND, lambda: self.client.delete(name))
            self.refusal(grpc.StatusCode.NOT_FOUND, lambda: self.client.get(name))
            self.refusal(
                grpc.StatusCode.NOT_FOUND,
                lambda: self.client.tensors.Touch(self.v1.TouchTensorRequest(handle=name)),
            )

    def test_reuse_by_digest(self):
        request = self.v1.ReuseTensorRequest(spec=self.spec, sha256=hashlib.sha256(self.data).digest())
        self.refusal(grpc.StatusCode.NOT_FOUND, lambda: self.client.tensors.Reuse(request))
        first = self.client.put(self.spec, self.data)
        used = self.client.info().tensor_store.used_bytes
        second = self.client.tensors.Reuse(request)
        self.assertNotEqual(second.handle, first.handle)
        self.assertEqual(self.client.info().tensor_store.used_bytes, used)  # They count once.
        self.client.delete(first.handle)
        self.assertEqual(self.client.get(second.handle)[1], self.data)
        short = self.v1.ReuseTensorRequest(spec=self.spec, sha256=b"short")
        self.assertEqual(self.refused_field(lambda: self.client.tensors.Reuse(short)), "sha256")

    def test_quota_of_a_caller(self):
        self.assertEqual(self.client.info().limits.max_stored_tensor_bytes_per_caller, 8 * MIB)
        spec = self.client.spec(self.v1.DATA_TYPE_FLOAT32, MIB)
        kept = self.client.put(spec, b"\0" * 4 * MIB)
        other = self.client.put(spec, b"\1" * 4 * MIB)
        error = self.refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: self.client.put(spec, b"\2" * 4 * MIB))
        self.assertGreater(self.client.error_detail(error).retry_delay_ms, 0)
        self.assertRegex(error.details(), str(4 * MIB))
        self.client.delete(other.handle)
        self.client.put(spec, b"\2" * 4 * MIB)
        self.assertEqual(self.client.get(kept.handle)[1], b"\0" * 4 * MIB)


if __name__ == "__main__":
    unittest.main()
