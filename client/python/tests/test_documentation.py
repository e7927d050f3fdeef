"""The examples of docs/python.md run as they stand there, one after the other."""

from __future__ import annotations

import pathlib
import re

import pytest
from conftest import Kevald

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "python.md"


def test_examples(server: Kevald, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    code = "\n".join(blocks)
    assert code.count('"127.0.0.1:7400"') == 2
    namespace: dict[str, object] = {}
    exec(compile(code.replace('"127.0.0.1:7400"', repr(server.control)), str(DOCUMENT), "exec"), namespace)
    printed = capsys.readouterr().out.split("\n")
    assert "(64, 32)" in printed[0]
    assert printed[1:5] == [f"round {i}" for i in range(1, 5)]
    assert re.fullmatch(r"targets \d+ in \[0, 1000\)", printed[6])
    assert len(namespace["results"]) == 4
    namespace["client"].close()
