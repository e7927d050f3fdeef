"""A real kevald for the tests of this folder: started on free ports in a folder of its own, stopped with the tests."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import grpc

from plain_client import Client

START_SECONDS = 60
STOP_SECONDS = 60
IDLE_SECONDS = 30


class Kevald:
    """Owner: one test class. Serves when the constructor returns; `stop` ends it, drained."""

    def __init__(self, *arguments):
        self._folder = tempfile.TemporaryDirectory(prefix="keval_proto_client_")
        folder = pathlib.Path(self._folder.name)
        self._log = folder / "log"
        ready = folder / "ready.json"
        program = pathlib.Path(os.environ["KEVAL_BIN_DIR"]) / "kevald"
        command = [program, "--listen", "127.0.0.1:0", "--data_dir", folder / "data", "--ready_file", ready, *arguments]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise RuntimeError(f"kevald is not ready: {self.log()}")
            time.sleep(0.02)
        addresses = json.loads(ready.read_text())
        self.control, self.bulk, self.health = addresses["control"], addresses["bulk"], addresses["health"]

    def log(self):
        return self._log.read_text(errors="replace")

    def open_files(self):
        """Descriptors of the process, sockets among them."""
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def signal(self, number):
        self._process.send_signal(number)

    def stop(self):
        """The exit code."""
        self.signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._folder.cleanup()


def connect(address):
    """A channel of its own connection, past any proxy that the environment names."""
    return grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)])


class KevaldTest(unittest.TestCase):
    """One server and one client for a class of tests."""

    arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Kevald(*cls.arguments)
        cls.channel = connect(cls.server.control)
        cls.client = Client(cls.channel)
        cls.v1 = cls.client.v1

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        code = cls.server.stop()
        if code != 0:
            raise AssertionError(f"kevald ended with {code}")

    def refusal(self, code, call):
        """What `call` is refused with: the grpc.RpcError, checked to have this code."""
        with self.assertRaises(grpc.RpcError) as raised:
            call()
        self.assertEqual(raised.exception.code(), code, raised.exception.details())
        return raised.exception

    def refused_field(self, call):
        """The field that `call` is refused for, as an INVALID_ARGUMENT."""
        return self.client.error_detail(self.refusal(grpc.StatusCode.INVALID_ARGUMENT, call)).field

    def await_idle(self):
        """Until the server holds nothing: no stored tensor, no upload, no request. What a call that has failed held
        goes once the server has noticed its end.
        """
        deadline = time.monotonic() + IDLE_SECONDS
        while True:
            info = self.client.info()
            left = (info.tensor_store.used_bytes, info.queue.queued_bytes, info.queue.queued_requests)
            if left == (0, 0, 0):
                return
            self.assertLess(time.monotonic(), deadline, info)
            time.sleep(0.02)

    def stalled(self, *messages):
        """A stream that sends these and then neither more nor its end, until the event (set after the test)."""
        ended = threading.Event()
        self.addCleanup(ended.set)

        def stream():
            yield from messages
            ended.wait()

        return stream(), ended
