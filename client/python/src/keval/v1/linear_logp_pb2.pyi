from keval.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

AUTOCAST_BFLOAT16: Autocast
AUTOCAST_FLOAT16: Autocast
AUTOCAST_NONE: Autocast
AUTOCAST_UNSPECIFIED: Autocast
DESCRIPTOR: _descriptor.FileDescriptor
GRAD_DTYPE_FLOAT32: GradDtype
GRAD_DTYPE_INPUT: GradDtype
GRAD_DTYPE_UNSPECIFIED: GradDtype
WANT_BIAS: Want
WANT_HIDDEN: Want
WANT_UNSPECIFIED: Want
WANT_WEIGHT: Want

class CheckContractRequest(_message.Message):
    __slots__ = ["base", "candidate", "device", "seed"]
    BASE_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    base: str
    candidate: str
    device: str
    seed: int
    def __init__(self, base: _Optional[str] = ..., candidate: _Optional[str] = ..., device: _Optional[str] = ..., seed: _Optional[int] = ...) -> None: ...

class ContractRow(_message.Message):
    __slots__ = ["arm", "case_name", "id", "limit", "measured", "status", "why"]
    class RowStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    ARM_FIELD_NUMBER: _ClassVar[int]
    CASE_NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    ROW_STATUS_FAIL: ContractRow.RowStatus
    ROW_STATUS_NOT_APPLICABLE: ContractRow.RowStatus
    ROW_STATUS_PASS: ContractRow.RowStatus
    ROW_STATUS_UNSPECIFIED: ContractRow.RowStatus
    STATUS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    arm: str
    case_name: str
    id: str
    limit: float
    measured: float
    status: ContractRow.RowStatus
    why: str
    def __init__(self, id: _Optional[str] = ..., arm: _Optional[str] = ..., case_name: _Optional[str] = ..., measured: _Optional[float] = ..., limit: _Optional[float] = ..., status: _Optional[_Union[ContractRow.RowStatus, str]] = ..., why: _Optional[str] = ...) -> None: ...

class CreateSessionRequest(_message.Message):
    __slots__ = ["bias", "device", "lease_ms", "weight"]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    bias: Operand
    device: str
    lease_ms: int
    weight: Operand
    def __init__(self, device: _Optional[str] = ..., weight: _Optional[_Union[Operand, _Mapping]] = ..., bias: _Optional[_Union[Operand, _Mapping]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class DeleteSessionRequest(_message.Message):
    __slots__ = ["session"]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...

class DeleteSessionResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Dispatch(_message.Message):
    __slots__ = ["chunk_tokens", "chunks", "fallback", "path", "reason", "requested_variant", "variant"]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_VARIANT_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    chunk_tokens: int
    chunks: int
    fallback: bool
    path: str
    reason: str
    requested_variant: str
    variant: str
    def __init__(self, requested_variant: _Optional[str] = ..., variant: _Optional[str] = ..., path: _Optional[str] = ..., reason: _Optional[str] = ..., fallback: bool = ..., chunk_tokens: _Optional[int] = ..., chunks: _Optional[int] = ...) -> None: ...

class FetchSessionRequest(_message.Message):
    __slots__ = ["lease_ms", "request_id", "reset", "session"]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    request_id: bytes
    reset: bool
    session: str
    def __init__(self, session: _Optional[str] = ..., reset: bool = ..., request_id: _Optional[bytes] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class FetchSessionResponse(_message.Message):
    __slots__ = ["grad_bias", "grad_weight", "session"]
    GRAD_BIAS_FIELD_NUMBER: _ClassVar[int]
    GRAD_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    grad_bias: _tensor_pb2.TensorInfo
    grad_weight: _tensor_pb2.TensorInfo
    session: GradientSession
    def __init__(self, grad_weight: _Optional[_Union[_tensor_pb2.TensorInfo, _Mapping]] = ..., grad_bias: _Optional[_Union[_tensor_pb2.TensorInfo, _Mapping]] = ..., session: _Optional[_Union[GradientSession, _Mapping]] = ...) -> None: ...

class ForwardRequest(_message.Message):
    __slots__ = ["inputs", "options"]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    inputs: LinearLogpInputs
    options: LinearLogpOptions
    def __init__(self, options: _Optional[_Union[LinearLogpOptions, _Mapping]] = ..., inputs: _Optional[_Union[LinearLogpInputs, _Mapping]] = ...) -> None: ...

class ForwardResponse(_message.Message):
    __slots__ = ["dispatch", "logp", "timing"]
    DISPATCH_FIELD_NUMBER: _ClassVar[int]
    LOGP_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    dispatch: Dispatch
    logp: Operand
    timing: Timing
    def __init__(self, logp: _Optional[_Union[Operand, _Mapping]] = ..., dispatch: _Optional[_Union[Dispatch, _Mapping]] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ...) -> None: ...

class GetSessionRequest(_message.Message):
    __slots__ = ["session"]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...

class GradientRequest(_message.Message):
    __slots__ = ["digest", "inputs", "interleave", "options", "session_batch", "want"]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    INTERLEAVE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    SESSION_BATCH_FIELD_NUMBER: _ClassVar[int]
    WANT_FIELD_NUMBER: _ClassVar[int]
    digest: _tensor_pb2.PayloadDigest
    inputs: LinearLogpInputs
    interleave: bool
    options: LinearLogpOptions
    session_batch: SessionBatch
    want: _containers.RepeatedScalarFieldContainer[Want]
    def __init__(self, options: _Optional[_Union[LinearLogpOptions, _Mapping]] = ..., inputs: _Optional[_Union[LinearLogpInputs, _Mapping]] = ..., want: _Optional[_Iterable[_Union[Want, str]]] = ..., digest: _Optional[_Union[_tensor_pb2.PayloadDigest, str]] = ..., interleave: bool = ..., session_batch: _Optional[_Union[SessionBatch, _Mapping]] = ...) -> None: ...

class GradientResponse(_message.Message):
    __slots__ = ["dispatch", "grad_bias", "grad_hidden", "grad_weight", "logp", "session_batch", "timing"]
    DISPATCH_FIELD_NUMBER: _ClassVar[int]
    GRAD_BIAS_FIELD_NUMBER: _ClassVar[int]
    GRAD_HIDDEN_FIELD_NUMBER: _ClassVar[int]
    GRAD_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    LOGP_FIELD_NUMBER: _ClassVar[int]
    SESSION_BATCH_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    dispatch: Dispatch
    grad_bias: Operand
    grad_hidden: Operand
    grad_weight: Operand
    logp: Operand
    session_batch: SessionBatchResult
    timing: Timing
    def __init__(self, logp: _Optional[_Union[Operand, _Mapping]] = ..., grad_hidden: _Optional[_Union[Operand, _Mapping]] = ..., grad_weight: _Optional[_Union[Operand, _Mapping]] = ..., grad_bias: _Optional[_Union[Operand, _Mapping]] = ..., dispatch: _Optional[_Union[Dispatch, _Mapping]] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., session_batch: _Optional[_Union[SessionBatchResult, _Mapping]] = ...) -> None: ...

class GradientSession(_message.Message):
    __slots__ = ["batches", "bias", "device", "expire_time_unix_ms", "num_tokens", "sequence", "session", "size_bytes", "weight"]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    batches: int
    bias: _tensor_pb2.TensorSpec
    device: str
    expire_time_unix_ms: int
    num_tokens: int
    sequence: int
    session: str
    size_bytes: int
    weight: _tensor_pb2.TensorSpec
    def __init__(self, session: _Optional[str] = ..., device: _Optional[str] = ..., weight: _Optional[_Union[_tensor_pb2.TensorSpec, _Mapping]] = ..., bias: _Optional[_Union[_tensor_pb2.TensorSpec, _Mapping]] = ..., batches: _Optional[int] = ..., num_tokens: _Optional[int] = ..., sequence: _Optional[int] = ..., size_bytes: _Optional[int] = ..., expire_time_unix_ms: _Optional[int] = ...) -> None: ...

class LinearLogpInputs(_message.Message):
    __slots__ = ["bias", "grad_logp", "hidden", "targets", "weight"]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    GRAD_LOGP_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    bias: Operand
    grad_logp: Operand
    hidden: Operand
    targets: Operand
    weight: Operand
    def __init__(self, hidden: _Optional[_Union[Operand, _Mapping]] = ..., weight: _Optional[_Union[Operand, _Mapping]] = ..., bias: _Optional[_Union[Operand, _Mapping]] = ..., targets: _Optional[_Union[Operand, _Mapping]] = ..., grad_logp: _Optional[_Union[Operand, _Mapping]] = ...) -> None: ...

class LinearLogpOptions(_message.Message):
    __slots__ = ["autocast", "chunk_elems", "device", "force_variant", "grad_dtype", "variant"]
    AUTOCAST_FIELD_NUMBER: _ClassVar[int]
    CHUNK_ELEMS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    FORCE_VARIANT_FIELD_NUMBER: _ClassVar[int]
    GRAD_DTYPE_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    autocast: Autocast
    chunk_elems: int
    device: str
    force_variant: bool
    grad_dtype: GradDtype
    variant: str
    def __init__(self, variant: _Optional[str] = ..., device: _Optional[str] = ..., autocast: _Optional[_Union[Autocast, str]] = ..., grad_dtype: _Optional[_Union[GradDtype, str]] = ..., chunk_elems: _Optional[int] = ..., force_variant: bool = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ["page_size", "page_token"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ["next_page_token", "sessions"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    sessions: _containers.RepeatedCompositeFieldContainer[GradientSession]
    def __init__(self, sessions: _Optional[_Iterable[_Union[GradientSession, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Operand(_message.Message):
    __slots__ = ["data", "handle", "spec"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    handle: str
    spec: _tensor_pb2.TensorSpec
    def __init__(self, spec: _Optional[_Union[_tensor_pb2.TensorSpec, _Mapping]] = ..., data: _Optional[bytes] = ..., handle: _Optional[str] = ...) -> None: ...

class PlanRequest(_message.Message):
    __slots__ = ["bias", "dtype", "hidden_size", "num_tokens", "options", "vocab_size"]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    bias: bool
    dtype: _tensor_pb2.DataType
    hidden_size: int
    num_tokens: int
    options: LinearLogpOptions
    vocab_size: int
    def __init__(self, options: _Optional[_Union[LinearLogpOptions, _Mapping]] = ..., num_tokens: _Optional[int] = ..., hidden_size: _Optional[int] = ..., vocab_size: _Optional[int] = ..., dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., bias: bool = ...) -> None: ...

class PlanResponse(_message.Message):
    __slots__ = ["add_ops_saved", "base_bytes", "candidate_bytes", "chunk_tokens", "chunks", "estimated_device_bytes", "saving_bytes", "variants"]
    ADD_OPS_SAVED_FIELD_NUMBER: _ClassVar[int]
    BASE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_DEVICE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SAVING_BYTES_FIELD_NUMBER: _ClassVar[int]
    VARIANTS_FIELD_NUMBER: _ClassVar[int]
    add_ops_saved: int
    base_bytes: int
    candidate_bytes: int
    chunk_tokens: int
    chunks: int
    estimated_device_bytes: int
    saving_bytes: int
    variants: _containers.RepeatedCompositeFieldContainer[VariantSupport]
    def __init__(self, chunk_tokens: _Optional[int] = ..., chunks: _Optional[int] = ..., base_bytes: _Optional[int] = ..., candidate_bytes: _Optional[int] = ..., saving_bytes: _Optional[int] = ..., add_ops_saved: _Optional[int] = ..., variants: _Optional[_Iterable[_Union[VariantSupport, _Mapping]]] = ..., estimated_device_bytes: _Optional[int] = ...) -> None: ...

class SessionBatch(_message.Message):
    __slots__ = ["batch_id", "session"]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    batch_id: bytes
    session: str
    def __init__(self, session: _Optional[str] = ..., batch_id: _Optional[bytes] = ...) -> None: ...

class SessionBatchResult(_message.Message):
    __slots__ = ["repeated", "sequence"]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    repeated: bool
    sequence: int
    def __init__(self, sequence: _Optional[int] = ..., repeated: bool = ...) -> None: ...

class StreamGradientDone(_message.Message):
    __slots__ = ["dispatch", "session_batch", "sha256", "timing", "xxh3"]
    DISPATCH_FIELD_NUMBER: _ClassVar[int]
    SESSION_BATCH_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    XXH3_FIELD_NUMBER: _ClassVar[int]
    dispatch: Dispatch
    session_batch: SessionBatchResult
    sha256: bytes
    timing: Timing
    xxh3: bytes
    def __init__(self, sha256: _Optional[bytes] = ..., dispatch: _Optional[_Union[Dispatch, _Mapping]] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., xxh3: _Optional[bytes] = ..., session_batch: _Optional[_Union[SessionBatchResult, _Mapping]] = ...) -> None: ...

class StreamGradientRequest(_message.Message):
    __slots__ = ["data", "header", "offset", "trailer"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TRAILER_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    header: GradientRequest
    offset: int
    trailer: _tensor_pb2.PayloadTrailer
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., header: _Optional[_Union[GradientRequest, _Mapping]] = ..., trailer: _Optional[_Union[_tensor_pb2.PayloadTrailer, _Mapping]] = ...) -> None: ...

class StreamGradientResponse(_message.Message):
    __slots__ = ["data", "done", "header", "offset"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    done: StreamGradientDone
    header: GradientResponse
    offset: int
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., header: _Optional[_Union[GradientResponse, _Mapping]] = ..., done: _Optional[_Union[StreamGradientDone, _Mapping]] = ...) -> None: ...

class Timing(_message.Message):
    __slots__ = ["compute_ns", "queue_ns"]
    COMPUTE_NS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_NS_FIELD_NUMBER: _ClassVar[int]
    compute_ns: int
    queue_ns: int
    def __init__(self, queue_ns: _Optional[int] = ..., compute_ns: _Optional[int] = ...) -> None: ...

class TouchSessionRequest(_message.Message):
    __slots__ = ["lease_ms", "session"]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    session: str
    def __init__(self, session: _Optional[str] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class VariantSupport(_message.Message):
    __slots__ = ["reason", "supported", "variant"]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    reason: str
    supported: bool
    variant: str
    def __init__(self, variant: _Optional[str] = ..., supported: bool = ..., reason: _Optional[str] = ...) -> None: ...

class ZeroSessionRequest(_message.Message):
    __slots__ = ["request_id", "session"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    request_id: bytes
    session: str
    def __init__(self, session: _Optional[str] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class Autocast(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class GradDtype(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class Want(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
