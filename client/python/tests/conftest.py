"""A real kevald for these tests: KEVAL_BIN_DIR has the program."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import keval

START_SECONDS = 60
STOP_SECONDS = 60


class Kevald:
    """A server on free ports in `folder`. Serves when the constructor returns."""

    def __init__(self, folder: pathlib.Path, *arguments: str, listen: str = "127.0.0.1:0") -> None:
        self.folder = folder
        self._command = [
            str(pathlib.Path(os.environ["KEVAL_BIN_DIR"]) / "kevald"),
            *("--listen", listen, "--data_dir", str(folder / "data"), "--ready_file", str(folder / "ready.json")),
            *("--bulk_listen", "127.0.0.1:0", "--health_listen", "none", "--metrics_listen", "none"),
            *arguments,
        ]
        self._start()

    def _start(self) -> None:
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise RuntimeError(f"kevald is not ready: {(self.folder / 'log').read_text(errors='replace')}")
            time.sleep(0.02)
        self.addresses: dict[str, Any] = json.loads(ready.read_text())
        self.control: str = self.addresses["control"]

    def restart(self) -> None:
        """At the same control address, with another bulk address; what it had in memory is gone."""
        self.kill()
        at = self._command.index("--listen") + 1
        self._command[at] = self.control
        self._start()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """The exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


def await_reachable(client: keval.Client) -> None:
    """gRPC tries again to connect once a second, at most."""
    deadline = time.monotonic() + 60
    while True:
        try:
            client.info()
            return
        except keval.Unavailable:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kevald]:
    """One for every test that needs nothing of its own."""
    server = Kevald(tmp_path_factory.mktemp("kevald"), "--cpu_threads", "1")
    yield server
    assert server.stop() == 0


@pytest.fixture
def client(server: Kevald) -> Iterator[keval.Client]:
    with keval.Client(server.control) as client:
        yield client


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Callable[..., Kevald]]:
    """Starts a server of the test's own."""
    servers: list[Kevald] = []

    def start(*arguments: str, **options: str) -> Kevald:
        folder = tmp_path / str(len(servers))
        folder.mkdir()
        servers.append(Kevald(folder, *arguments, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
