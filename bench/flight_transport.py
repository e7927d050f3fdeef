"""Arrow Flight over loopback, for bench_transport: a server process and a client, in batches of 1 MiB.

Prints "ready VERSION" (or why not), then answers each line "push BYTES" or "pull BYTES" of its input with the seconds
that the transfer took.
"""

import multiprocessing
import sys
import time

BATCH_BYTES = 1 << 20


def make_batches(pyarrow, size):
    """Record batches of one column over one touched buffer of `size` bytes."""
    memory = pyarrow.py_buffer(bytearray(b"\x01") * size)
    schema = pyarrow.schema([("data", pyarrow.uint8())])
    batches = []
    for begin in range(0, size, BATCH_BYTES):
        piece = memory.slice(begin, min(BATCH_BYTES, size - begin))
        column = pyarrow.Array.from_buffers(pyarrow.uint8(), piece.size, [None, piece])
        batches.append(pyarrow.record_batch([column], schema=schema))
    return schema, batches


def serve(connection):
    import pyarrow
    from pyarrow import flight

    class Server(flight.FlightServerBase):
        def __init__(self):
            super().__init__("grpc://127.0.0.1:0")
            self.prepared = {}

        def do_put(self, context, descriptor, reader, writer):
            for _ in reader:
                pass

        def do_get(self, context, ticket):
            size = int(ticket.ticket)
            if size not in self.prepared:
                self.prepared = {size: make_batches(pyarrow, size)}
            schema, batches = self.prepared[size]
            return flight.GeneratorStream(schema, iter(batches))

    server = Server()
    connection.send(server.port)
    server.serve()


def main():
    try:
        import pyarrow
        from pyarrow import flight
    except ImportError as error:
        print(f"pyarrow is not installed here: {error}", flush=True)
        return
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    process.start()
    client = flight.connect(f"grpc://127.0.0.1:{here.recv()}")
    print(f"ready {pyarrow.__version__}", flush=True)
    prepared = {}
    for line in sys.stdin:
        direction, text = line.split()
        size = int(text)
        if direction == "push":
            if size not in prepared:
                prepared = {size: make_batches(pyarrow, size)}
            schema, batches = prepared[size]
            start = time.perf_counter()
            writer, reader = client.do_put(flight.FlightDescriptor.for_path("t"), schema)
            for batch in batches:
                writer.write_batch(batch)
            writer.done_writing()
            reader.read()
            writer.close()
        else:
            start = time.perf_counter()
            for _ in client.do_get(flight.Ticket(text.encode())):
                pass
        print(f"{time.perf_counter() - start:.9f}", flush=True)
    process.terminate()


if __name__ == "__main__":
    main()
