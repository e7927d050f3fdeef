"""What a generic client learns of the server: reflection, gRPC's health protocol, GetServerInfo, and its end."""

import signal
import threading
import unittest

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kevald import Kevald, KevaldTest, connect
from plain_client import Client

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class ServerInfoTest(KevaldTest):
    def test_reflection_lists_every_service(self):
        services = set(self.client.database.get_services())
        self.assertLessEqual(
            {
                "keval.v1.BenchmarkService",
                "keval.v1.LinearLogpService",
                "keval.v1.ServerInfoService",
                "keval.v1.TensorService",
                "grpc.health.v1.Health",
            },
            services,
        )

    def test_info_names_devices_variants_and_limits(self):
        info = self.client.info()
        cpu = [device for device in info.devices if device.name == "cpu"]
        self.assertEqual(len(cpu), 1, info)
        self.assertTrue(cpu[0].runs_gradients and cpu[0].healthy, info)
        self.assertLessEqual({"portable_matmul_add", "portable_addmm"}, {variant.name for variant in info.variants})
        for limit in ("max_unary_bytes", "max_frame_bytes", "max_message_bytes", "max_stored_tensor_bytes"):
            self.assertGreater(getattr(info.limits, limit), 0, limit)
        self.assertLess(info.limits.max_frame_bytes, info.limits.max_message_bytes)
        # The two digests that need nothing beside a language's standard library.
        self.assertLessEqual(
            {self.v1.PAYLOAD_DIGEST_SHA256, self.v1.PAYLOAD_DIGEST_NONE}, set(info.payload_digests)
        )
        self.assertFalse(info.draining)

    def test_bulk_port_serves_the_same_server(self):
        info = self.client.info()
        address = f"{self.server.control.rsplit(':', 1)[0]}:{info.bulk_port}"
        with connect(address) as channel:
            self.assertEqual(Client(channel).info().start_time_unix_ms, info.start_time_unix_ms)

    def test_health_by_the_standard_client(self):
        for address in (self.server.control, self.server.health):
            with connect(address) as channel:
                health = health_pb2_grpc.HealthStub(channel)
                for name in ("", "live", "ready", "cpu"):
                    self.assertEqual(health.Check(health_pb2.HealthCheckRequest(service=name)).status, SERVING, name)
                self.refusal(
                    grpc.StatusCode.NOT_FOUND,
                    lambda: health.Check(health_pb2.HealthCheckRequest(service="no such name")),
                )
                watch = health.Watch(health_pb2.HealthCheckRequest(service="ready"))
                self.assertEqual(next(watch).status, SERVING)
                watch.cancel()


class DrainTest(unittest.TestCase):
    def test_drain_ends_readiness_and_the_watch(self):
        server = Kevald()
        try:
            with connect(server.control) as channel:
                health = health_pb2_grpc.HealthStub(channel)
                watch = health.Watch(health_pb2.HealthCheckRequest(service="ready"), timeout=60)
                self.assertEqual(next(watch).status, SERVING)
                threading.Timer(0.1, server.signal, [signal.SIGTERM]).start()
                self.assertEqual(next(watch).status, NOT_SERVING)
                with self.assertRaises(grpc.RpcError) as ended:
                    next(watch)
                self.assertEqual(ended.exception.code(), grpc.StatusCode.UNAVAILABLE)
        finally:
            code = server.stop()
        self.assertEqual(code, 0)


if __name__ == "__main__":
    unittest.main()
