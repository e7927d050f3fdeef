"""Who is calling: a bearer token, or the token that the machine's kernel vouches for; and what is not another's."""

import collections
import hashlib
import os
import pathlib
import socket
import tempfile
import unittest

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kevald import KevaldTest, connect

# What grpc hands to an interceptor can't be changed in place.
CallDetails = collections.namedtuple("CallDetails", "method timeout metadata credentials wait_for_ready compression")


class Bearer(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Shows a token with every call of a channel."""

    def __init__(self, token):
        self._entry = ("authorization", f"Bearer {token}")

    def _call(self, continuation, details, request):
        metadata = [*(details.metadata or ()), self._entry]
        return continuation(
            CallDetails(
                details.method,
                details.timeout,
                metadata,
                details.credentials,
                details.wait_for_ready,
                details.compression,
            ),
            request,
        )

    intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = intercept_stream_stream = _call


class PrincipalTest(KevaldTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="keval_principals_")
        folder = pathlib.Path(cls.folder.name)
        tokens = folder / "tokens"
        tokens.touch(0o600)
        tokens.write_text("ann:0123456789abcdef-ann\nbob:0123456789abcdef-bob\n")
        cls.socket = folder / "s"
        cls.arguments = ("--token_file", str(tokens), "--unix_principals", "--listen", f"unix:{cls.socket}")
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def with_token(self, token, channel=None):
        return self.client.over(grpc.intercept_channel(channel or self.channel, Bearer(token)))

    def setUp(self):
        self.spec = self.client.spec(self.v1.DATA_TYPE_INT32, 2)
        self.data = b"\1\0\0\0\2\0\0\0"

    def test_nobody_gets_health_and_reflection_alone(self):
        health = health_pb2_grpc.HealthStub(self.channel)
        self.assertEqual(health.Check(health_pb2.HealthCheckRequest()).status, health_pb2.HealthCheckResponse.SERVING)
        self.assertIn("keval.v1.TensorService", self.client.database.get_services())
        for client in (self.client, self.with_token("0123456789abcdef-eve")):
            self.refusal(grpc.StatusCode.UNAUTHENTICATED, client.info)
            self.refusal(grpc.StatusCode.UNAUTHENTICATED, lambda: client.put(self.spec, self.data))
            self.refusal(grpc.StatusCode.UNAUTHENTICATED, lambda: client.get("tensors/" + "0" * 32))

    def test_what_is_one_s_is_not_found_by_another(self):
        ann, bob = self.with_token("0123456789abcdef-ann"), self.with_token("0123456789abcdef-bob")
        handle = ann.put(self.spec, self.data).handle
        self.assertEqual(ann.get(handle)[1], self.data)
        self.refusal(grpc.StatusCode.NOT_FOUND, lambda: bob.get(handle))
        self.refusal(grpc.StatusCode.NOT_FOUND, lambda: bob.delete(handle))
        reuse = self.v1.ReuseTensorRequest(spec=self.spec, sha256=hashlib.sha256(self.data).digest())
        self.refusal(grpc.StatusCode.NOT_FOUND, lambda: bob.tensors.Reuse(reuse))
        self.assertEqual(len(bob.tensors.List(self.v1.ListTensorsRequest()).tensors), 0)
        ann.delete(handle)

    def test_a_user_of_the_machine(self):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"{self.socket}.token")
            token, seconds = connection.makefile().readline().split()
        self.assertGreater(int(seconds), 0)
        with connect(f"unix:{self.socket}") as channel:
            user = self.with_token(token, channel)
            handle = user.put(self.spec, self.data).handle
            self.assertEqual(user.get(handle)[1], self.data)
            user.delete(handle)
        self.assertIn(f"principal=uid:{os.getuid()}", self.server.log())


if __name__ == "__main__":
    unittest.main()
