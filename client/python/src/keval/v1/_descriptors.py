"""Message classes from descriptors, made when they are imported: no generated code, whose version would have to fit the
installed protobuf's (docs/adr/0010).

The pool is this package's own: a program that also has keval's messages from elsewhere, of another version perhaps,
meets no clash.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper


def _load() -> descriptor_pool.DescriptorPool:
    data = resources.files("keval.v1").joinpath("descriptors.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _load()


def define(file_name: str, namespace: dict[str, Any]) -> None:
    """Puts what protoc's generated module of `file_name` has into `namespace`: messages, enums and their values."""
    file = _POOL.FindFileByName(file_name)
    namespace["DESCRIPTOR"] = file
    for name, message in file.message_types_by_name.items():
        message_class = message_factory.GetMessageClass(message)
        # Where pickle finds it.
        message_class.__module__ = namespace["__name__"]
        namespace[name] = message_class
    for name, enum in file.enum_types_by_name.items():
        namespace[name] = enum_type_wrapper.EnumTypeWrapper(enum)
        for value in enum.values:
            namespace[value.name] = value.number
