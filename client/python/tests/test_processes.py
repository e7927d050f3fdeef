"""Clients and errors between processes: fork, pickle."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import pytest
from conftest import Kevald

import keval
from keval.v1 import benchmark_pb2, tensor_pb2

FORK = """
import os, signal, sys
import keval
used, unused = keval.Client(sys.argv[1]), keval.Client(sys.argv[1])
used.info()
child = os.fork()
if child == 0:
    signal.alarm(60)
    try:
        used.info()
    except keval.ForkedClientError as error:
        print("refused", str(os.getppid()) in str(error))
    used.close()
    with unused, keval.Client(sys.argv[1]) as new:
        print(len(unused.info().devices), len(new.info().devices), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("parent", len(used.info().devices))
"""


def test_fork(server: Kevald) -> None:
    # gRPC's own support for a child's new channels, which is its default.
    environment = {**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", FORK, server.control], capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["refused True", "1 1", "parent 1", ""]


def test_a_client_is_pickled_as_its_settings(client: keval.Client) -> None:
    client.info()
    with pickle.loads(pickle.dumps(client)) as other:
        assert other.info().start_time_unix_ms == client.info().start_time_unix_ms
    assert isinstance(pickle.loads(pickle.dumps(keval.aio.Client("127.0.0.1:1"))), keval.aio.Client)


def test_errors_are_pickled_whole(client: keval.Client) -> None:
    with pytest.raises(keval.InvalidArgument) as refused:
        client.plan(1, 1, 0)
    error = refused.value
    assert isinstance(error, ValueError)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is keval.InvalidArgument
        assert vars(again) == vars(error)
        assert (str(again), again.field) == (str(error), "vocab_size")
    for kind in keval.Error.__subclasses__():
        again = pickle.loads(pickle.dumps(kind("text", "field", "value", "limit", 1.5)))
        assert (type(again), again.retry_delay, again.code) == (kind, 1.5, kind.code)


def test_results_are_pickled(client: keval.Client) -> None:
    info = client.info()
    assert pickle.loads(pickle.dumps(info)) == info
    spec = tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_BFLOAT16, shape=[2])
    assert copy.deepcopy(spec) == spec
    assert pickle.loads(pickle.dumps(benchmark_pb2.BenchmarkJob(name="jobs/1"))).name == "jobs/1"
