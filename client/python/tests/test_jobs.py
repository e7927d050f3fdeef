"""A benchmark job from its creation to its report, and its end before that."""

from __future__ import annotations

import csv
import io
import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Kevald

import keval
from keval.v1 import benchmark_pb2, tensor_pb2


def small_spec(looks: int = 4) -> dict[str, Any]:
    """Calls of microseconds: what is tested is the way there and back, not the verdict."""
    return {
        "display_name": "from Python",
        "target": {"device": "cpu", "force_variant": True},
        "primaries": [{"num_tokens": 16, "hidden_size": 8, "vocab_size": 64, "dtype": "float32", "bias": True}],
        "margins": {"primary": 0.05},
        "procedure": {
            **{"looks": [looks], "a_sup": [0.005], "a_eq": [0.005], "a_ctl": [0.005]},
            **{"quads": 3, "timed_repetitions": 2, "discarded_repetitions": 1},
        },
        "seed": 9007199254740993,  # More than a double holds.
    }


def test_from_spec_to_report(client: keval.Client) -> None:
    planned = client.jobs.create(small_spec(), validate_only=True)
    assert planned.name == "" and planned.rounds_planned == 4
    job = client.jobs.create(small_spec(), request_id="once")
    assert client.jobs.create(small_spec(), request_id="once").name == job.name
    with pytest.raises(keval.InvalidArgument) as other:
        client.jobs.create(small_spec(5), request_id="once")
    assert other.value.field == "request_id"
    assert job.spec.seed == small_spec()["seed"]
    assert job.spec.primaries[0].dtype == tensor_pb2.DATA_TYPE_FLOAT32

    events = list(client.jobs.watch(job, timeout=200))
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    last = events[-1].job
    assert (last.state, last.rounds_done) == (benchmark_pb2.BenchmarkJob.DONE, 4)
    assert [event.sequence for event in client.jobs.watch(job.name, after_sequence=2)] == list(
        range(3, len(events) + 1)
    )
    done = client.jobs.get(job)
    assert done.verdict == last.verdict != ""
    assert client.jobs.cancel(job) == done  # One that has ended stays as it is.

    files = client.jobs.report(job)
    assert set(files) >= {"report.json", "samples.csv"}
    assert json.loads(files["report.json"])["verdict"] == done.verdict
    assert len(list(csv.DictReader(io.StringIO(files["samples.csv"].decode())))) > 0
    assert list(client.jobs.report(job, ["samples.csv"])) == ["samples.csv"]
    with pytest.raises(keval.InvalidArgument):
        client.jobs.report(job, ["no such file"])


def test_cancel_list_and_a_report_too_early(client: keval.Client) -> None:
    jobs = [client.jobs.create(small_spec(200)) for _ in range(2)]
    with pytest.raises(keval.FailedPrecondition):
        client.jobs.report(jobs[1])
    for job in jobs:
        client.jobs.cancel(job)
        assert list(client.jobs.watch(job))[-1].job.state == benchmark_pb2.BenchmarkJob.CANCELLED
    names = [job.name for job in client.jobs.list()]
    assert names[:2] == [job.name for job in reversed(jobs)]
    assert [job.name for job in client.jobs.list(limit=1)] == names[:1]
    assert client.jobs.list(limit=0) == []
    digest = client.jobs.get(jobs[0]).spec_digest
    assert {job.spec_digest for job in client.jobs.list(spec_digest=digest)} == {digest}


def test_a_watch_that_is_closed_ends_its_call(client: keval.Client) -> None:
    job = client.jobs.create(small_spec(200))
    watch = client.jobs.watch(job, progress=True)
    assert len(list(itertools.islice(watch, 2))) == 2
    watch.close()
    client.jobs.cancel(job)


def test_a_watch_goes_on_after_a_restart(start: Callable[..., Kevald]) -> None:
    server = start("--cpu_threads", "1")
    with keval.Client(server.control) as client:
        job = client.jobs.create(small_spec())
        restarts = iter([server.restart])
        sequences = []
        for event in client.jobs.watch(job, timeout=200):
            sequences.append(event.sequence)
            if event.HasField("round_done"):
                next(restarts, lambda: None)()
        assert sequences == list(range(1, len(sequences) + 1))
        done = client.jobs.get(job)
        assert (done.state, done.restarts) == (benchmark_pb2.BenchmarkJob.DONE, 1)


def test_closing_the_client_ends_a_watch(server: Kevald) -> None:
    client = keval.Client(server.control)
    job = client.jobs.create(small_spec(200))
    begun, ended = threading.Event(), []

    def watch() -> None:
        try:
            for _ in client.jobs.watch(job):
                begun.set()
        except keval.Error as error:
            ended.append(error)

    thread = threading.Thread(target=watch)
    thread.start()
    assert begun.wait(60)
    client.close()
    thread.join(60)
    assert isinstance(ended[0], keval.Cancelled)
    with keval.Client(server.control) as other:
        other.jobs.cancel(job)


@pytest.mark.parametrize(
    "changed",
    [
        {"no_such_field": 1},
        {"primaries": [{"num_tokens": "many"}]},
        {"primaries": [{"dtype": "float31"}]},
        {"margins": 3},
        {"target": ["cpu"]},
    ],
)
def test_specs_that_do_not_fit(client: keval.Client, changed: dict[str, Any]) -> None:
    with pytest.raises(keval.InvalidArgument) as refused:
        client.jobs.create({**small_spec(), **changed})
    assert refused.value.field == "spec"


def test_refusals_of_the_server(client: keval.Client) -> None:
    spec = small_spec()
    spec["primaries"][0]["vocab_size"] = 0
    with pytest.raises(keval.InvalidArgument) as refused:
        client.jobs.create(spec)
    assert (refused.value.field, refused.value.value) == ("primaries[0].vocab_size", "0")
    for call in (client.jobs.get, client.jobs.cancel, client.jobs.report, lambda name: list(client.jobs.watch(name))):
        with pytest.raises(keval.NotFound):
            call("jobs/" + "0" * 32)
    with pytest.raises(keval.InvalidArgument):
        client.jobs.create("spec.yaml")
