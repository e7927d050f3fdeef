from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DATA_TYPE_BFLOAT16: DataType
DATA_TYPE_FLOAT16: DataType
DATA_TYPE_FLOAT32: DataType
DATA_TYPE_FLOAT64: DataType
DATA_TYPE_INT32: DataType
DATA_TYPE_INT64: DataType
DATA_TYPE_UNSPECIFIED: DataType
DESCRIPTOR: _descriptor.FileDescriptor
PAYLOAD_DIGEST_NONE: PayloadDigest
PAYLOAD_DIGEST_SHA256: PayloadDigest
PAYLOAD_DIGEST_UNSPECIFIED: PayloadDigest
PAYLOAD_DIGEST_XXH3: PayloadDigest

class DeleteTensorRequest(_message.Message):
    __slots__ = ["handle"]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    handle: str
    def __init__(self, handle: _Optional[str] = ...) -> None: ...

class DeleteTensorResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GetTensorRequest(_message.Message):
    __slots__ = ["digest", "handle"]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    digest: PayloadDigest
    handle: str
    def __init__(self, handle: _Optional[str] = ..., digest: _Optional[_Union[PayloadDigest, str]] = ...) -> None: ...

class GetTensorResponse(_message.Message):
    __slots__ = ["data", "header", "offset", "trailer"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TRAILER_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    header: TensorInfo
    offset: int
    trailer: PayloadTrailer
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., header: _Optional[_Union[TensorInfo, _Mapping]] = ..., trailer: _Optional[_Union[PayloadTrailer, _Mapping]] = ...) -> None: ...

class ListTensorsRequest(_message.Message):
    __slots__ = ["page_size", "page_token"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTensorsResponse(_message.Message):
    __slots__ = ["next_page_token", "tensors"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    tensors: _containers.RepeatedCompositeFieldContainer[TensorInfo]
    def __init__(self, tensors: _Optional[_Iterable[_Union[TensorInfo, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class PayloadTrailer(_message.Message):
    __slots__ = ["sha256", "xxh3"]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    XXH3_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    xxh3: bytes
    def __init__(self, sha256: _Optional[bytes] = ..., xxh3: _Optional[bytes] = ...) -> None: ...

class PutHeader(_message.Message):
    __slots__ = ["digest", "lease_ms", "part", "spec"]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    digest: PayloadDigest
    lease_ms: int
    part: UploadPart
    spec: TensorSpec
    def __init__(self, spec: _Optional[_Union[TensorSpec, _Mapping]] = ..., lease_ms: _Optional[int] = ..., digest: _Optional[_Union[PayloadDigest, str]] = ..., part: _Optional[_Union[UploadPart, _Mapping]] = ...) -> None: ...

class PutRequest(_message.Message):
    __slots__ = ["data", "header", "offset", "trailer"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TRAILER_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    header: PutHeader
    offset: int
    trailer: PayloadTrailer
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., header: _Optional[_Union[PutHeader, _Mapping]] = ..., trailer: _Optional[_Union[PayloadTrailer, _Mapping]] = ...) -> None: ...

class ReuseTensorRequest(_message.Message):
    __slots__ = ["lease_ms", "sha256", "spec"]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    sha256: bytes
    spec: TensorSpec
    def __init__(self, spec: _Optional[_Union[TensorSpec, _Mapping]] = ..., sha256: _Optional[bytes] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class StatTensorRequest(_message.Message):
    __slots__ = ["handle"]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    handle: str
    def __init__(self, handle: _Optional[str] = ...) -> None: ...

class TensorInfo(_message.Message):
    __slots__ = ["expire_time_unix_ms", "handle", "sha256", "size_bytes", "spec", "xxh3"]
    EXPIRE_TIME_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    XXH3_FIELD_NUMBER: _ClassVar[int]
    expire_time_unix_ms: int
    handle: str
    sha256: bytes
    size_bytes: int
    spec: TensorSpec
    xxh3: bytes
    def __init__(self, handle: _Optional[str] = ..., spec: _Optional[_Union[TensorSpec, _Mapping]] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[bytes] = ..., expire_time_unix_ms: _Optional[int] = ..., xxh3: _Optional[bytes] = ...) -> None: ...

class TensorSpec(_message.Message):
    __slots__ = ["dtype", "shape"]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    dtype: DataType
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dtype: _Optional[_Union[DataType, str]] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class TouchTensorRequest(_message.Message):
    __slots__ = ["handle", "lease_ms"]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    handle: str
    lease_ms: int
    def __init__(self, handle: _Optional[str] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class UploadPart(_message.Message):
    __slots__ = ["begin", "size", "upload_id"]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    begin: int
    size: int
    upload_id: bytes
    def __init__(self, upload_id: _Optional[bytes] = ..., begin: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class DataType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class PayloadDigest(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
