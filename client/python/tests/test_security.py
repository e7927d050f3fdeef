"""Who a client shows itself to be, and which servers it trusts."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from conftest import Kevald, await_reachable

import keval
from keval._address import parse_address

TOKEN = "0123456789abcdef" * 2


def write(path: pathlib.Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_token_file(start: Callable[..., Kevald], tmp_path: pathlib.Path) -> None:
    server = start("--token_file", write(tmp_path / "tokens", f"ann:{TOKEN}\nbob:{TOKEN[::-1]}\n"))
    mine = write(tmp_path / "mine", TOKEN + "\n")
    with keval.Client(server.control) as nobody, pytest.raises(keval.Unauthenticated):
        nobody.info()
    with keval.Client(server.control, token_file=mine) as client:
        stored = client.tensors.put(np.zeros(3))
        write(tmp_path / "mine", TOKEN[::-1])  # Read for each call: bob's from here on.
        with pytest.raises(keval.NotFound):
            client.tensors.get(stored)
        write(tmp_path / "mine", "x" * 32)
        with pytest.raises(keval.Unauthenticated):
            client.info()


def test_token_files_that_are_refused(tmp_path: pathlib.Path) -> None:
    good = write(tmp_path / "good", TOKEN)
    cases = {
        str(tmp_path / "missing"): "127.0.0.1:1",
        write(tmp_path / "open", TOKEN, 0o644): "127.0.0.1:1",
        write(tmp_path / "empty", "\n"): "127.0.0.1:1",
        write(tmp_path / "two", "a b"): "127.0.0.1:1",
        write(tmp_path / "large", "a" * 5000): "127.0.0.1:1",
        good: "gpu7.example:7400",  # In clear text.
    }
    for path, address in cases.items():
        with pytest.raises(keval.InvalidArgument) as refused:
            keval.Client(address, token_file=path)
        assert refused.value.field == "token_file"
        assert TOKEN not in str(refused.value)
    keval.Client("127.0.0.1:1", token_file=good)


def test_user_over_a_unix_socket(start: Callable[..., Kevald], tmp_path: pathlib.Path) -> None:
    server = start("--unix_principals", listen=f"unix:{tmp_path}/s")
    with keval.Client(f"unix:{tmp_path}/s") as client:
        stored = client.tensors.put(np.arange(5))
        np.testing.assert_array_equal(client.tensors.get(stored), np.arange(5))
        server.restart()  # Its tokens are of that process alone.
        await_reachable(client)
        assert client.tensors.list() == []


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A CA, a server's certificate for "localhost" and ann's."""
    folder = tmp_path_factory.mktemp("certificates")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    for ca in ("ca", "other"):
        openssl(
            *("req", "-x509", *key, "-subj", f"/CN={ca}", "-keyout", f"{folder}/{ca}.key", "-out", f"{folder}/{ca}.pem")
        )
    for name, alternative in (("localhost", "DNS:localhost"), ("ann", "URI:spiffe://x/ann")):
        openssl(
            *("req", "-x509", *key, "-subj", f"/CN={name}", "-addext", f"subjectAltName={alternative}"),
            *("-addext", "basicConstraints=critical,CA:false", "-CA", f"{folder}/ca.pem", "-CAkey", f"{folder}/ca.key"),
            *("-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem"),
        )
    return folder


def test_mutual_tls(start: Callable[..., Kevald], certificates: pathlib.Path) -> None:
    c = str(certificates)
    server = start(
        *("--tls_cert", f"{c}/localhost.pem", "--tls_key", f"{c}/localhost.key", "--tls_client_ca", f"{c}/ca.pem")
    )
    mine = {"tls_cert": f"{c}/ann.pem", "tls_key": f"{c}/ann.key", "tls_server_name": "localhost"}
    with keval.Client(server.control, tls_ca=f"{c}/ca.pem", **mine) as client:
        stored = client.tensors.put(np.arange(500_000))  # Over bulk.
        np.testing.assert_array_equal(client.tensors.get(stored), np.arange(500_000))
    untrusted = [
        {"tls_ca": f"{c}/other.pem", **mine},
        {"tls_ca": f"{c}/ca.pem", **mine, "tls_server_name": "elsewhere"},
        {"tls_ca": f"{c}/ca.pem", "tls_server_name": "localhost"},
    ]
    for options in untrusted:
        with keval.Client(server.control, max_attempts=1, **options) as client, pytest.raises(keval.Unavailable):
            client.info()


def test_tls_options_that_are_refused(certificates: pathlib.Path) -> None:
    c = str(certificates)
    (certificates / "open.key").write_bytes((certificates / "ann.key").read_bytes())
    (certificates / "open.key").chmod(0o644)
    cases = [
        ({"tls_ca": f"{c}/ca.pem", "tls_cert": f"{c}/ann.pem"}, "tls_key"),
        ({"tls_ca": f"{c}/ca.pem", "tls_key": f"{c}/ann.key"}, "tls_cert"),
        ({"tls_cert": f"{c}/ann.pem", "tls_key": f"{c}/ann.key"}, "tls_ca"),
        ({"tls_ca": f"{c}/missing"}, "tls_ca"),
        ({"tls_ca": "/dev/null"}, "tls_ca"),
        ({"tls_ca": f"{c}/ca.pem", "tls_cert": f"{c}/ann.pem", "tls_key": f"{c}/open.key"}, "tls_key"),
    ]
    for options, field in cases:
        with pytest.raises(keval.InvalidArgument) as refused:
            keval.Client("127.0.0.1:1", **options)
        assert refused.value.field == field, options


def test_addresses() -> None:
    for text, target, local in (
        ("127.0.0.1:7400", "dns:///127.0.0.1:7400", True),
        ("localhost:1", "dns:///localhost:1", True),
        ("127.1:80", "dns:///127.1:80", True),
        ("[::1]:80", "dns:///[::1]:80", True),
        ("[::ffff:127.0.0.1]:80", "dns:///[::ffff:127.0.0.1]:80", True),
        ("[2001:db8::1]:80", "dns:///[2001:db8::1]:80", False),
        ("gpu-7.example_1:65535", "dns:///gpu-7.example_1:65535", False),
        ("10.0.0.1:80", "dns:///10.0.0.1:80", False),
        ("unix:/run/keval/s", "unix:/run/keval/s", True),
    ):
        address = parse_address(text)
        assert (address.target, address.is_local) == (target, local)
    for text in (
        "",
        "host",
        "host:",
        ":80",
        "host:0",
        "host:65536",
        "host:+1",
        "[::1:80",
        "[x]:1",
        "unix:s",
        "a b:1",
        "host:1\n",
        "unix:/" + "x" * 107,
    ):
        with pytest.raises(keval.InvalidArgument) as refused:
            keval.Client(text)
        assert refused.value.field == "server"
