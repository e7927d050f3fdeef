"""A connection that breaks at a chosen byte, as one does whose peer has gone: by RST, not by a farewell."""

import selectors
import socket
import struct
import threading

CHUNK_BYTES = 1 << 14


class CutConnection:
    """Listens on a port of its own and forwards one connection to `target` ("host:port") until `limit` bytes have
    passed, both ways together. Owner: one call, which closes it.
    """

    def __init__(self, target, limit=None):
        self.passed = 0
        self._limit = limit
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._thread = threading.Thread(target=self._forward, daemon=True)
        self._thread.start()

    def close(self):
        self._stop_writer.close()
        self._thread.join()
        self._stop_reader.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _forward(self):
        with selectors.DefaultSelector() as selector:
            selector.register(self._stop_reader, selectors.EVENT_READ)
            selector.register(self._listener, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select()]
            if self._stop_reader in ready:
                self._listener.close()
                return
            client = self._listener.accept()[0]
            # A second attempt of the client's is refused.
            selector.unregister(self._listener)
            self._listener.close()
            server = socket.create_connection(self._target)
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while self._forward_once(selector):
                pass
        for connection in (client, server):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

    def _forward_once(self, selector):
        for key, _ in selector.select():
            if key.fileobj is self._stop_reader:
                return False
            size = CHUNK_BYTES if self._limit is None else min(CHUNK_BYTES, self._limit - self.passed)
            try:
                data = key.fileobj.recv(size) if size > 0 else b""
                key.data.sendall(data)
            except OSError:
                return False
            self.passed += len(data)
            if not data:
                return False
        return True
