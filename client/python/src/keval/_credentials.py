"""How a client shows who it is, and knows its server: the same files and rules as the C++ client's."""

from __future__ import annotations

import dataclasses
import os
import socket
import stat
import threading
import time
from typing import Any

import grpc

from keval._address import Address
from keval._errors import InvalidArgument, Unauthenticated, Unavailable, invalid_field

_ssl_credentials: Any = grpc.ssl_channel_credentials  # Its stub has no types.
_MAX_PEM_BYTES = 1 << 20
_MAX_TOKEN_BYTES = 4096
_TOKEN_SOCKET_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class CredentialFiles:
    """Paths; empty where there is none."""

    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_server_name: str = ""  # A name, not a path.
    token_file: str = ""


def _read(option: str, path: str, max_bytes: int, secret: bool) -> bytes:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if secret and mode & (stat.S_IWGRP | stat.S_IRWXO):
                raise invalid_field(option, f"mode {stat.S_IMODE(mode):04o}", "closed to other users, e.g. 0600")
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise InvalidArgument(f"{option}: {error}", option, path) from error
    if len(data) > max_bytes:
        raise invalid_field(option, path, f"a file of at most {max_bytes} bytes")
    return data


def _read_pem(option: str, path: str, secret: bool = False) -> bytes | None:
    if not path:
        return None
    data = _read(option, path, _MAX_PEM_BYTES, secret)
    if b"-----BEGIN " not in data:
        raise invalid_field(option, path, "a PEM file")
    return data


def _read_token(path: str) -> str:
    token = _read("token_file", path, _MAX_TOKEN_BYTES, secret=True).rstrip()
    if not token or not all(0x21 <= byte <= 0x7E for byte in token):
        raise invalid_field("token_file", path, "a file of one line, the token")
    return token.decode("ascii")


class Credentials:
    """Thread-safe. Raises InvalidArgument, naming the option, for files that can't be used or that would send a token
    to another machine in clear text.
    """

    def __init__(self, server: Address, files: CredentialFiles) -> None:
        self._server = server
        self._files = files
        self._tls: grpc.ChannelCredentials | None = None
        if bool(files.tls_cert) != bool(files.tls_key):
            raise invalid_field("tls_key" if files.tls_cert else "tls_cert", "", "given where the other one is")
        if files.tls_cert and not files.tls_ca:
            raise invalid_field("tls_ca", "", "given where tls_cert is: the CA of the server's certificate")
        if files.tls_ca:
            self._tls = _ssl_credentials(
                _read_pem("tls_ca", files.tls_ca),
                _read_pem("tls_key", files.tls_key, secret=True),
                _read_pem("tls_cert", files.tls_cert),
            )
        if files.token_file:
            _read_token(files.token_file)
            if self._tls is None and not server.is_local:
                raise invalid_field(
                    "token_file", files.token_file, "used with tls_ca: it would go to another machine in clear text"
                )
        self._lock = threading.Lock()
        self._uid_token = ""
        self._uid_socket: tuple[int, int] | None = None  # The socket's inode and change time that gave the token.
        self._renew = 0.0

    @property
    def server_name(self) -> str:
        return self._files.tls_server_name

    def for_channel(self, address: Address) -> grpc.ChannelCredentials | None:
        """None: without TLS."""
        return None if address.unix_path else self._tls

    def may_go_to(self, address: Address) -> bool:
        """Whether a token may be sent there."""
        if not self._files.token_file and not self._server.unix_path:
            return True  # There is none.
        if address.is_local:
            return self._server.is_local
        return self._tls is not None

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Of each call. The token is read anew, so that its file can be replaced. May wait for a socket of this machine
        for 5 s.
        """
        token = _read_token(self._files.token_file) if self._files.token_file else self._token_of_uid()
        return (("authorization", f"Bearer {token}"),) if token else ()

    def _token_of_uid(self) -> str:
        path = self._server.unix_path + ".token"
        if not self._server.unix_path:
            return ""
        try:
            info = os.stat(path)
        except OSError:
            return ""  # A server that doesn't ask its callers who they are.
        identity = (info.st_ino, info.st_ctime_ns)
        with self._lock:
            if identity == self._uid_socket and time.monotonic() < self._renew:
                return self._uid_token
        # Not under the lock: two first calls may both ask, and either token is good.
        words = _read_socket(path).split(b" ")
        if len(words) != 2 or not words[1].strip().isdigit():
            raise Unauthenticated(f"{path}: gives this user no token")
        with self._lock:
            self._uid_token = words[0].decode("ascii", "replace")
            self._uid_socket = identity
            self._renew = time.monotonic() + int(words[1]) / 2
            return self._uid_token


def _read_socket(path: str) -> bytes:
    """All that is written there before it is closed."""
    text = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_TOKEN_SOCKET_SECONDS)
            connection.connect(path)
            while len(text) <= 512:
                piece = connection.recv(512)
                if not piece:
                    return text
                text += piece
    except OSError as error:
        raise Unavailable(f"{path}: {error}") from error
    raise Unavailable(f"{path}: more than a token is written there")
