"""Requests and answers of benchmark jobs, of both clients."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format

from keval._errors import DataLoss, InvalidArgument, invalid_field, printable
from keval.v1 import benchmark_pb2 as pb

REPORT_FILES = ("report.json", "samples.csv", "diagnostics.csv", "excluded.csv")
# How long a watch tries to reach a server again, from its last answer on.
RECONNECT_SECONDS = 60.0


def spec_of(spec: pb.BenchmarkSpec | Mapping[str, Any]) -> pb.BenchmarkSpec:
    """A mapping has the field names of proto/keval/v1/benchmark.proto, and enum values as in spec files ("bfloat16").
    InvalidArgument (field "spec") for what doesn't fit.
    """
    if isinstance(spec, pb.BenchmarkSpec):
        return spec
    if not isinstance(spec, Mapping):
        raise invalid_field("spec", type(spec).__name__, "a mapping or a BenchmarkSpec")
    try:
        return json_format.ParseDict(_with_enum_names(spec, pb.BenchmarkSpec.DESCRIPTOR), pb.BenchmarkSpec())
    except (json_format.ParseError, TypeError, ValueError) as error:
        raise InvalidArgument(f"spec: {printable(str(error))}", "spec") from error


def _with_enum_names(value: Mapping[str, Any], message: Any) -> dict[str, Any]:
    """`message`: a descriptor. What doesn't fit it is left as it is, for ParseDict to refuse."""
    fields = message.fields_by_name
    return {key: _field_value(item, fields[key]) if key in fields else item for key, item in value.items()}


def _field_value(value: Any, field: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_field_value(item, field) for item in value]
    if field.enum_type is not None and isinstance(value, str):
        return _enum_name(value, field.enum_type)
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
    if field.message_type is not None and not is_map and isinstance(value, Mapping):
        return _with_enum_names(value, field.message_type)
    return value


def _enum_name(short: str, enum: Any) -> str:
    # "bfloat16" is DATA_TYPE_BFLOAT16 in the enum of DATA_TYPE_UNSPECIFIED.
    prefix: str = enum.values[0].name.removesuffix("UNSPECIFIED")
    name = prefix + short.upper()
    return name if name in enum.values_by_name and short.islower() else short


def create_request(
    spec: pb.BenchmarkSpec | Mapping[str, Any], request_id: str | None, validate_only: bool
) -> pb.CreateJobRequest:
    """Without a request id it gets a random one, so that a second attempt can't make a second job."""
    return pb.CreateJobRequest(
        spec=spec_of(spec), request_id=request_id or secrets.token_hex(16), validate_only=validate_only
    )


def name_of(job: pb.BenchmarkJob | str) -> str:
    if isinstance(job, pb.BenchmarkJob):
        return job.name
    if isinstance(job, str):
        return job
    raise invalid_field("name", type(job).__name__, "a job or its name")


class ReportReader:
    """Gathers the files of a report from its pieces. Not thread-safe."""

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}
        self._current = ""  # Empty: the next piece must begin a file.

    def take(self, piece: pb.GetReportResponse) -> None:
        if piece.file_name:
            # The names go into a caller's folder: nothing but these.
            if piece.file_name not in REPORT_FILES or piece.file_name in self._files:
                raise DataLoss(f"the server's report has an unexpected file: {printable(piece.file_name)}")
            self._current = piece.file_name
            self._files[self._current] = bytearray()
        if not self._current:
            raise DataLoss("the server's report has bytes of no file")
        contents = self._files[self._current]
        contents += piece.data
        if piece.sha256:
            if hashlib.sha256(contents).digest() != piece.sha256:
                raise DataLoss(f"the digest of {self._current} differs from the server's")
            self._current = ""

    def finish(self) -> dict[str, bytes]:
        if not self._files or self._current:
            raise DataLoss("the server's report is cut off")
        return {name: bytes(contents) for name, contents in self._files.items()}
