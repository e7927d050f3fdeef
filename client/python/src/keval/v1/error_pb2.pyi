from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorDetail(_message.Message):
    __slots__ = ["field", "limit", "retry_delay_ms", "value"]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    RETRY_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    field: str
    limit: str
    retry_delay_ms: int
    value: str
    def __init__(self, field: _Optional[str] = ..., value: _Optional[str] = ..., limit: _Optional[str] = ..., retry_delay_ms: _Optional[int] = ...) -> None: ...
