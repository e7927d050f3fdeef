"""The examples of README.md and docs/python.md run as they stand there."""

from __future__ import annotations

import pathlib
import re

import pytest
from conftest import Kevald

ROOT = pathlib.Path(__file__).parents[3]
ADDRESS = '"127.0.0.1:7400"'


def run_blocks(document: str, server: Kevald, blocks: int, addresses: int) -> dict[str, object]:
    """The document's blocks of Python, one after the other in one namespace, which is returned."""
    found = re.findall(r"^```python\n(.*?)^```$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == blocks
    code = "\n".join(found)
    assert code.count(ADDRESS) == addresses
    namespace: dict[str, object] = {}
    exec(compile(code.replace(ADDRESS, repr(server.control)), document, "exec"), namespace)
    return namespace


def test_readme(server: Kevald, capsys: pytest.CaptureFixture[str]) -> None:
    run_blocks("README.md", server, blocks=1, addresses=1)
    assert "(64, 32) (1000, 32)" in capsys.readouterr().out


def test_page(
    server: Kevald, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed").use("Agg")
    monkeypatch.chdir(tmp_path)
    namespace = run_blocks("docs/python.md", server, blocks=7, addresses=2)
    printed = capsys.readouterr().out.split("\n")
    assert "(64, 32)" in printed[0]
    assert printed[1] == "4 (1000, 32)"
    assert printed[2:6] == [f"round {i}" for i in range(1, 5)]
    assert any("control" in line for line in printed[7:])
    assert "<svg" in (tmp_path / "forest.svg").read_text()
    assert any(re.fullmatch(r"targets \d+ in \[0, 1000\)", line) for line in printed)
    assert len(namespace["results"]) == 4
    namespace["client"].close()
