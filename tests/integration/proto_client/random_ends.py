"""Makes calls of a running kevald that end at random points, and says on stdout how each ended: "call, way: CODE" a
line. A result that is wrong or a code that can't be ends it with 1. random_ends_test.py runs it, a process for some
points.

    random_ends.py ADDRESS HANDLE SEED FIRST END

HANDLE: of the resident tensor, whose bytes are resident_bytes(). Points FIRST to END - 1.
"""

import concurrent.futures
import contextlib
import os
import random
import sys
import threading
import time
import traceback

import grpc

import messages
from cut_connection import CutConnection
from kevald import connect
from plain_client import Client
from reference import Problem

WORKERS = 4
FRAME_BYTES = 1 << 15
WAYS = ("cancel after a time", "cancel at a frame", "cancel while reading", "deadline", "half-close", "disconnect")
WAIT_SECONDS = 60

# How a call may end. A broken connection is whatever gRPC makes of the place where it broke.
CODES = {
    "cancel": {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED},
    "deadline": {grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED},
    "half-close": {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT},
    "disconnect": {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE},
}


def resident_bytes():
    return random.Random(3).randbytes(2 << 20)


class Kind:
    """One kind of call. `start(client, frames, timeout)` begins it, where `frames` wraps its stream of requests;
    `finish(client, call, read)` gives its result, where `read` wraps its stream of answers; `undo(client, result)`.
    """

    def __init__(self, start, finish, frames=0, answers=0, undo=lambda client, result: None):
        self.start, self.finish, self.undo = start, finish, undo
        self.frames, self.answers = frames, answers  # Messages each way; 0: one, not a stream.
        self.seconds = self.bytes = 0  # What a whole call takes, measured.
        self.result = None  # And gives.


class RandomEnds:
    """The calls that there are, measured, and one at a time ended somewhere. Thread-safe once made."""

    def __init__(self, address, resident):
        self.address = address
        self.client = Client(connect(address))
        self.v1 = self.client.v1
        self.resident = resident
        self.data = resident_bytes()
        self.spec = self.client.spec(self.v1.DATA_TYPE_INT32, len(self.data) // 4)
        request = self.v1.GradientRequest(inputs=messages.inputs(self.client, Problem(1024, 64, 512)))
        self.kinds = {
            "put": self.put_kind(),
            "put of a part": self.put_kind(part=True),
            "get": self.get_kind(),
            "gradient": Kind(
                lambda client, frames, timeout: client.linear_logp.Gradient.future(request, timeout=timeout),
                lambda client, call, read: call.result(),
            ),
            "stream": self.stream_kind(request, interleave=False),
            "interleaved": self.stream_kind(request, interleave=True),
        }
        for kind in self.kinds.values():
            self.measure(kind)

    def put_kind(self, part=False):
        part_size = len(self.data) if part else 0

        def start(client, frames, timeout):
            header = {}
            if part_size:
                header["part"] = self.v1.UploadPart(upload_id=random.randbytes(16), size=part_size)
            stream = client.put_messages(self.spec, self.data, FRAME_BYTES, **header)
            return client.tensors.Put.future(frames(stream), timeout=timeout)

        return Kind(
            start,
            lambda client, call, read: call.result(),
            frames=len(self.data) // FRAME_BYTES + 2,
            undo=lambda client, info: client.delete(info.handle),
        )

    def get_kind(self):
        def start(client, frames, timeout):
            return client.tensors.Get(self.v1.GetTensorRequest(handle=self.resident), timeout=timeout)

        return Kind(start, lambda client, call, read: client.get_result(read(call))[1], answers=2)

    def stream_kind(self, request, interleave):
        request = type(request).FromString(request.SerializeToString())
        request.interleave = interleave
        request.options.chunk_elems = 64 * 512  # Sixteen chunks.
        count = len(list(self.client.stream_messages(request, FRAME_BYTES)))

        def start(client, frames, timeout):
            return client.linear_logp.StreamGradient(
                frames(client.stream_messages(request, FRAME_BYTES)), timeout=timeout
            )

        return Kind(start, lambda client, call, read: client.stream_result(read(call)), frames=count, answers=6)

    def measure(self, kind):
        with CutConnection(self.address) as connection, connect(connection.address) as channel:
            for client in (self.client.over(channel), self.client, self.client):  # The last one is warm.
                before, begin = connection.passed, time.monotonic()
                result = kind.finish(client, kind.start(client, iter, WAIT_SECONDS), iter)
                kind.seconds = time.monotonic() - begin
                kind.bytes = kind.bytes or connection.passed - before
                kind.undo(client, result)
        kind.result = self.comparable(result)

    @staticmethod
    def comparable(result):
        """Without what differs from call to call."""
        for field in ("timing", "handle", "expire_time_unix_ms"):
            if hasattr(result, field):
                result.ClearField(field)
        return result

    def end_at_random(self, generator):
        """One call, ended at one point. Says what it was and how it ended."""
        name = generator.choice(list(self.kinds))
        kind = self.kinds[name]
        ways = [way for way in WAYS if kind.frames or way not in ("cancel at a frame", "half-close")]
        way = generator.choice([way for way in ways if kind.answers or way != "cancel while reading"])
        at = generator.uniform(0, 1.3)  # Of the whole call; some end before.
        with contextlib.ExitStack() as stack:
            client = self.client
            if way == "disconnect":
                limit = int(at * kind.bytes)
                address = stack.enter_context(CutConnection(self.address, limit)).address
                client = client.over(stack.enter_context(connect(address)))
            code = self.run_to_its_end(stack, client, kind, way, at)
        if code not in CODES[way.split()[0]]:
            raise ValueError(f"{name}, {way} at {at}: {code}")
        return f"{name}, {way}: {code.name}"

    def run_to_its_end(self, stack, client, kind, way, at):
        call = None
        begun = threading.Event()

        def frames(stream):
            for count, message in enumerate(stream):
                if count >= at * kind.frames:
                    if way == "half-close":
                        return
                    if way == "cancel at a frame":
                        begun.wait()
                        call.cancel()
                        return
                yield message

        def read(stream):
            for count, message in enumerate(stream):
                if way == "cancel while reading" and count >= at * kind.answers:
                    call.cancel()
                yield message

        timeout = at * kind.seconds if way == "deadline" else WAIT_SECONDS
        call = kind.start(client, frames, timeout)
        begun.set()
        if way == "cancel after a time":
            timer = threading.Timer(at * kind.seconds, call.cancel)
            timer.start()
            stack.callback(timer.join)
        try:
            result = kind.finish(client, call, read)
        except grpc.FutureCancelledError:
            return grpc.StatusCode.CANCELLED
        except grpc.RpcError as error:
            return error.code()
        kind.undo(self.client, result)
        if self.comparable(result) != kind.result:
            raise ValueError("another result than before")
        return grpc.StatusCode.OK


def main(address, resident, seed, first, end):
    ends = RandomEnds(address, resident)

    def run_point(point):
        try:
            line = ends.end_at_random(random.Random(f"{seed}/{point}"))
        except Exception:  # Not left to the pool, whose other threads may wait for a call whose end grpcio has lost.
            traceback.print_exc()
            os._exit(1)
        os.write(sys.stdout.fileno(), f"{line}\n".encode())  # In one piece, beside other threads'.

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(run_point, range(first, end)))
    os._exit(0)  # Closing the channel may wait for such a call, too.


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))
