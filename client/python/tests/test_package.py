"""The wheel: built from a copy of the source, installed into an environment of its own, and imported there."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

import keval

SOURCE = pathlib.Path(__file__).parents[1]


def run(*command: str | pathlib.Path, folder: pathlib.Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=folder, env={}, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "source"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("*.egg-info", "build", "__pycache__", "tests"))
    # No network: the build's own needs are in this environment already.
    options = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, copy, folder=folder)
    (made,) = folder.glob("*.whl")
    return made


def test_wheel_has_every_file_of_the_package(wheel: pathlib.Path) -> None:
    assert wheel.name == f"keval-{keval.__version__}-py3-none-any.whl"
    source = SOURCE / "src"
    files = {
        str(path.relative_to(source))
        for path in (source / "keval").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {"keval/py.typed", "keval/v1/descriptors.binpb", "keval/v1/tensor_pb2.pyi"} <= files
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == files
    assert [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/LICENSE")]


def test_wheel_says_what_it_is_and_needs(wheel: pathlib.Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    lines = archive.read(name).decode().splitlines()
    assert f"Version: {keval.__version__}" in lines
    assert "Requires-Python: >=3.10" in lines
    assert "License-Expression: Apache-2.0" in lines
    needs = [line for line in lines if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    assert [line.split()[1].split(">")[0] for line in needs] == ["grpcio", "protobuf", "numpy"]
    extras = {line.split()[1] for line in lines if line.startswith("Provides-Extra: ")}
    assert extras >= {"torch", "bfloat16", "tqdm"}


def test_wheel_is_imported_where_it_is_installed(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", folder=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    options = ("--no-index", "--no-deps", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel, folder=tmp_path)
    # What it depends on is this environment's.
    site = pathlib.Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=tmp_path).strip()
    )
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    program = (
        "import importlib.metadata, keval, keval.aio; from keval.v1 import benchmark_pb2; "
        "print(keval.__file__, keval.__version__, importlib.metadata.version('keval'))"
    )
    file, *versions = run(python, "-c", program, folder=tmp_path).split()
    assert file == str(site / "keval" / "__init__.py")
    assert versions == [keval.__version__] * 2
