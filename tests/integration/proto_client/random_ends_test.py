"""What is left of calls that end at random points, cancelled, past their deadline, half-closed early, or with a
connection that breaks: nothing. The server then holds what it held before, takes as many streams, computes the same.

    random_ends_test.py [--points 10000] [--seed 1]

KEVAL_BIN_DIR: the folder of kevald, e.g. a sanitizer build's.
"""

import argparse
import collections
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import grpc

import messages
from kevald import IDLE_SECONDS, KevaldTest
from random_ends import resident_bytes
from reference import Expected, Problem

MOST_THREADS = 64
MOST_STREAMS = MOST_THREADS // 2
PROGRAM = pathlib.Path(__file__).with_name("random_ends.py")
POINTS_A_PROCESS = 250
# grpcio (1.62, 1.74 and 1.85 alike) now and then loses the end of a call among channels that come and go, past its
# deadline too. A process that has said nothing for so long, with a server that holds nothing of it, is such a one.
LOST_SECONDS = 15
settings = argparse.Namespace(points=1000, seed=1)


class RandomEndsTest(KevaldTest):
    arguments = ("--cpu_threads", "1", "--max_threads", str(MOST_THREADS))

    def setUp(self):
        self.data = resident_bytes()
        self.spec = self.client.spec(self.v1.DATA_TYPE_INT32, len(self.data) // 4)
        self.resident = self.client.put(self.spec, self.data).handle

    def delete_the_rest(self):
        """Of tensors that were stored just before the call ended nobody knows the handle: they are listed."""
        request = self.v1.ListTensorsRequest(page_size=1000)
        for tensor in self.client.tensors.List(request).tensors:
            if tensor.handle != self.resident:
                self.client.delete(tensor.handle)

    def held(self):
        info = self.client.info()
        store, queue = info.tensor_store, info.queue
        return {
            "bytes stored": store.used_bytes,
            "tensors": store.tensors,
            "requests": queue.queued_requests,
            "bytes of requests": queue.queued_bytes,
            "descriptors": self.server.open_files(),
        }

    def settled(self):
        """What is held once nothing changes any more: connections of calls before this go after them."""
        before, same_since = self.held(), time.monotonic()
        deadline = same_since + IDLE_SECONDS
        while time.monotonic() < same_since + 1:
            self.assertLess(time.monotonic(), deadline, before)
            time.sleep(0.05)
            held = self.held()
            if held != before:
                before, same_since = held, time.monotonic()
        self.assertEqual((before["bytes stored"], before["tensors"], before["requests"]), (len(self.data), 1, 0))
        return before

    def await_held(self, expected, besides=()):
        deadline = time.monotonic() + IDLE_SECONDS
        while True:
            self.delete_the_rest()
            held = self.held()
            if all(held[name] == expected[name] for name in expected if name not in besides):
                return
            self.assertLess(time.monotonic(), deadline, (held, expected))
            time.sleep(0.05)

    def check_streams(self):
        """That all the streams that the server takes at a time can be had, and one more can't."""
        request = self.v1.PutHeader(spec=self.client.spec(self.v1.DATA_TYPE_INT32, 1))
        calls = []
        for _ in range(MOST_STREAMS):
            stream, ended = self.stalled(self.v1.PutRequest(header=request))
            calls.append((self.client.tensors.Put.future(stream), ended))
        deadline = time.monotonic() + IDLE_SECONDS
        while self.client.info().tensor_store.used_bytes < len(self.data) + 4 * MOST_STREAMS:
            self.assertLess(time.monotonic(), deadline, "not all streams have begun")
            self.assertFalse([call for call, _ in calls if call.done()])
            time.sleep(0.02)
        self.refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: self.client.put(self.spec, self.data))
        for call, ended in calls:
            call.cancel()
            ended.set()

    def check_gradient(self):
        problem = Problem(24, 12, 40)
        request = self.v1.GradientRequest(inputs=messages.inputs(self.client, problem))
        for response in (self.client.linear_logp.Gradient(request), self.client.stream_gradient(request)):
            self.assertTrue(all(response.HasField(name) for name in messages.RESULTS))
            self.assertEqual(messages.faults(self.client, response, Expected(problem)), [])

    def run_points(self, first, end, baseline):
        """How these points ended; "lost" for those of a process that had to be killed, another kind of end."""
        command = [sys.executable, PROGRAM, self.server.control, self.resident, settings.seed, first, end]
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(list(map(str, command)), stdout=output)
            size, since, lost = 0, time.monotonic(), False
            while process.poll() is None:
                time.sleep(0.05)
                now = os.fstat(output.fileno()).st_size
                if now != size:
                    size, since = now, time.monotonic()
                elif time.monotonic() > since + LOST_SECONDS:
                    try:
                        self.await_held(baseline, besides=("descriptors",))
                        lost = True
                    finally:
                        process.kill()
                        process.wait()
            output.seek(0)
            ends = output.read().splitlines()
        if not lost:
            self.assertEqual((process.returncode, len(ends)), (0, end - first), f"points {first} to {end}")
        return ends + ["lost"] * (end - first - len(ends))

    def test_nothing_is_left_of_calls_that_end_anywhere(self):
        self.check_streams()
        baseline = self.settled()
        begin = time.monotonic()
        ends = collections.Counter()
        for first in range(0, settings.points, POINTS_A_PROCESS):
            ends.update(self.run_points(first, min(first + POINTS_A_PROCESS, settings.points), baseline))
        print(f"seed {settings.seed}: {settings.points} points in {time.monotonic() - begin:.1f} s", file=sys.stderr)
        for end, count in sorted(ends.items()):
            print(f"{count:6d}  {end}", file=sys.stderr)
        self.assertEqual(ends.total(), settings.points)
        early = sum(count for end, count in ends.items() if not end.endswith(": OK") and end != "lost")
        self.assertGreater(early, settings.points // 3)
        self.await_held(baseline)
        self.check_streams()
        self.await_held(baseline)
        self.check_gradient()
        errors = [line for line in self.server.log().splitlines() if line.split()[1:2] in (["error"], ["critical"])]
        self.assertEqual(errors, [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=settings.points)
    parser.add_argument("--seed", type=int, default=settings.seed)
    settings, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
