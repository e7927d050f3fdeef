"""What a client is made with, checked; of the blocking client and of the asyncio one."""

from __future__ import annotations

import dataclasses

from keval._address import Address, parse_address
from keval._credentials import CredentialFiles, Credentials
from keval._errors import invalid_field
from keval._retry import RetryPolicy


@dataclasses.dataclass(frozen=True)
class Settings:
    """Plain values: what a client is pickled as."""

    address: str
    files: CredentialFiles
    timeout: float  # Of calls that carry no tensors and wait for nobody's work.
    policy: RetryPolicy

    @classmethod
    def of(
        cls,
        address: str,
        tls_ca: str,
        tls_cert: str,
        tls_key: str,
        tls_server_name: str,
        token_file: str,
        timeout: float,
        max_attempts: int,
    ) -> Settings:
        if not timeout > 0:
            raise invalid_field("timeout", timeout, "a positive number of seconds")
        if max_attempts < 1:
            raise invalid_field("max_attempts", max_attempts, "at least 1")
        files = CredentialFiles(tls_ca, tls_cert, tls_key, tls_server_name, token_file)
        return cls(address, files, timeout, RetryPolicy(max_attempts))

    def open(self) -> tuple[Address, Credentials]:
        """Reads the files; InvalidArgument names what can't be used."""
        address = parse_address(self.address)
        return address, Credentials(address, self.files)
