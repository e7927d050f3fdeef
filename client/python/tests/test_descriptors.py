"""keval.v1 is what the .proto files say."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from importlib import resources

import pytest
from google.protobuf import descriptor_pb2

from keval import _channel
from keval.v1 import tensor_pb2

ROOT = pathlib.Path(__file__).parents[3]


def committed() -> descriptor_pb2.FileDescriptorSet:
    data = resources.files("keval.v1").joinpath("descriptors.binpb").read_bytes()
    return descriptor_pb2.FileDescriptorSet.FromString(data)


def test_descriptors_are_those_of_the_proto_files(tmp_path: pathlib.Path) -> None:
    protoc = shutil.which("protoc")
    if protoc is None:
        pytest.skip("protoc is not installed")
    files = [file.name for file in committed().file]
    made = tmp_path / "made"
    subprocess.run([protoc, f"-I{ROOT / 'proto'}", f"--descriptor_set_out={made}", *files], check=True)
    assert {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file} == {
        file.name: file for file in committed().file
    }, "run client/python/tools/generate"


def test_methods_are_those_of_the_services() -> None:
    services = {
        f"/{file.package}.{service.name}/{method.name}": method
        for file in committed().file
        for service in file.service
        for method in service.method
    }
    methods = [value for value in vars(_channel).values() if isinstance(value, _channel.Method)]
    assert {method.path for method in methods} == services.keys()
    for method in methods:
        service = services[method.path]
        sides = ["stream" if streams else "unary" for streams in (service.client_streaming, service.server_streaming)]
        assert method.kind == "_".join(sides)
        for side, name in ((method.request, service.input_type), (method.response, service.output_type)):
            assert side is None or "." + side.DESCRIPTOR.full_name == name


def test_modules_look_like_generated_ones() -> None:
    assert tensor_pb2.DataType.Name(tensor_pb2.DATA_TYPE_BFLOAT16) == "DATA_TYPE_BFLOAT16"
    assert tensor_pb2.TensorSpec.__module__ == "keval.v1.tensor_pb2"
