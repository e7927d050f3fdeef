"""Where a server listens, and whether that is this machine."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import socket

from keval._errors import invalid_field

_MAX_UNIX_PATH = 107  # sockaddr_un's, less the zero at its end.


@dataclasses.dataclass(frozen=True)
class Address:
    host: str = ""
    port: int = 0
    unix_path: str = ""  # Given: neither host nor port.

    @property
    def target(self) -> str:
        """As gRPC takes it."""
        if self.unix_path:
            return f"unix:{self.unix_path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"dns:///{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        if self.unix_path or self.host.lower().rstrip(".") == "localhost":
            return True
        try:
            # inet_aton also reads "127.1", as the resolver does.
            packed = socket.inet_aton(self.host)
        except OSError:
            try:
                v6 = ipaddress.IPv6Address(self.host)
            except ValueError:
                return False
            if v6.ipv4_mapped is None:
                return v6.is_loopback or v6.is_unspecified
            packed = v6.ipv4_mapped.packed
        return packed[0] == 127 or packed == bytes(4)


def parse_address(text: str) -> Address:
    """Raises InvalidArgument (field "server") for what is none."""
    refusal = invalid_field("server", text, "host:port, [v6]:port or unix:/abs/path")
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path.startswith("/") or len(path.encode()) > _MAX_UNIX_PATH:
            raise refusal
        return Address(unix_path=path)
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})", text)
    if match is None or not 1 <= int(match[3]) <= 65535:
        raise refusal
    if match[1]:
        try:
            ipaddress.IPv6Address(match[1])
        except ValueError:
            raise refusal from None
    return Address(match[1] or match[2], int(match[3]))
