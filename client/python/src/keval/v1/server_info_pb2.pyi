from keval.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BuildInfo(_message.Message):
    __slots__ = ["build_type", "commit", "compiler", "cuda", "torch_version", "version"]
    BUILD_TYPE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    COMPILER_FIELD_NUMBER: _ClassVar[int]
    CUDA_FIELD_NUMBER: _ClassVar[int]
    TORCH_VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    build_type: str
    commit: str
    compiler: str
    cuda: bool
    torch_version: str
    version: str
    def __init__(self, version: _Optional[str] = ..., commit: _Optional[str] = ..., build_type: _Optional[str] = ..., cuda: bool = ..., torch_version: _Optional[str] = ..., compiler: _Optional[str] = ...) -> None: ...

class DeviceInfo(_message.Message):
    __slots__ = ["compute_capability", "free_bytes", "healthy", "memory_bytes", "model", "name", "note", "runs_benchmarks", "runs_gradients", "uuid"]
    COMPUTE_CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    RUNS_BENCHMARKS_FIELD_NUMBER: _ClassVar[int]
    RUNS_GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    compute_capability: str
    free_bytes: int
    healthy: bool
    memory_bytes: int
    model: str
    name: str
    note: str
    runs_benchmarks: bool
    runs_gradients: bool
    uuid: str
    def __init__(self, name: _Optional[str] = ..., model: _Optional[str] = ..., uuid: _Optional[str] = ..., compute_capability: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., runs_gradients: bool = ..., runs_benchmarks: bool = ..., healthy: bool = ..., note: _Optional[str] = ...) -> None: ...

class GetServerInfoRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Limits(_message.Message):
    __slots__ = ["default_lease_ms", "max_frame_bytes", "max_job_device_seconds", "max_lease_ms", "max_message_bytes", "max_queued_bytes", "max_queued_jobs", "max_queued_requests", "max_series", "max_sessions_per_caller", "max_stored_tensor_bytes", "max_stored_tensor_bytes_per_caller", "max_stored_tensors_per_caller", "max_unary_bytes", "remembered_batches"]
    DEFAULT_LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_JOB_DEVICE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_JOBS_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    MAX_SERIES_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSIONS_PER_CALLER_FIELD_NUMBER: _ClassVar[int]
    MAX_STORED_TENSORS_PER_CALLER_FIELD_NUMBER: _ClassVar[int]
    MAX_STORED_TENSOR_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_STORED_TENSOR_BYTES_PER_CALLER_FIELD_NUMBER: _ClassVar[int]
    MAX_UNARY_BYTES_FIELD_NUMBER: _ClassVar[int]
    REMEMBERED_BATCHES_FIELD_NUMBER: _ClassVar[int]
    default_lease_ms: int
    max_frame_bytes: int
    max_job_device_seconds: float
    max_lease_ms: int
    max_message_bytes: int
    max_queued_bytes: int
    max_queued_jobs: int
    max_queued_requests: int
    max_series: int
    max_sessions_per_caller: int
    max_stored_tensor_bytes: int
    max_stored_tensor_bytes_per_caller: int
    max_stored_tensors_per_caller: int
    max_unary_bytes: int
    remembered_batches: int
    def __init__(self, max_unary_bytes: _Optional[int] = ..., max_frame_bytes: _Optional[int] = ..., max_queued_requests: _Optional[int] = ..., max_queued_bytes: _Optional[int] = ..., max_stored_tensor_bytes: _Optional[int] = ..., default_lease_ms: _Optional[int] = ..., max_lease_ms: _Optional[int] = ..., max_series: _Optional[int] = ..., max_job_device_seconds: _Optional[float] = ..., max_queued_jobs: _Optional[int] = ..., max_stored_tensor_bytes_per_caller: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., max_stored_tensors_per_caller: _Optional[int] = ..., max_sessions_per_caller: _Optional[int] = ..., remembered_batches: _Optional[int] = ...) -> None: ...

class QueueInfo(_message.Message):
    __slots__ = ["queued_bytes", "queued_jobs", "queued_requests", "running_jobs"]
    QUEUED_BYTES_FIELD_NUMBER: _ClassVar[int]
    QUEUED_JOBS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_JOBS_FIELD_NUMBER: _ClassVar[int]
    queued_bytes: int
    queued_jobs: int
    queued_requests: int
    running_jobs: int
    def __init__(self, queued_requests: _Optional[int] = ..., queued_bytes: _Optional[int] = ..., running_jobs: _Optional[int] = ..., queued_jobs: _Optional[int] = ...) -> None: ...

class ServerInfo(_message.Message):
    __slots__ = ["advertise_bulk", "build", "bulk_port", "devices", "draining", "limits", "payload_digests", "queue", "start_time_unix_ms", "tensor_store", "variants"]
    ADVERTISE_BULK_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    BULK_PORT_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    START_TIME_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    TENSOR_STORE_FIELD_NUMBER: _ClassVar[int]
    VARIANTS_FIELD_NUMBER: _ClassVar[int]
    advertise_bulk: str
    build: BuildInfo
    bulk_port: int
    devices: _containers.RepeatedCompositeFieldContainer[DeviceInfo]
    draining: bool
    limits: Limits
    payload_digests: _containers.RepeatedScalarFieldContainer[_tensor_pb2.PayloadDigest]
    queue: QueueInfo
    start_time_unix_ms: int
    tensor_store: TensorStoreInfo
    variants: _containers.RepeatedCompositeFieldContainer[VariantInfo]
    def __init__(self, build: _Optional[_Union[BuildInfo, _Mapping]] = ..., devices: _Optional[_Iterable[_Union[DeviceInfo, _Mapping]]] = ..., variants: _Optional[_Iterable[_Union[VariantInfo, _Mapping]]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., bulk_port: _Optional[int] = ..., advertise_bulk: _Optional[str] = ..., draining: bool = ..., start_time_unix_ms: _Optional[int] = ..., queue: _Optional[_Union[QueueInfo, _Mapping]] = ..., payload_digests: _Optional[_Iterable[_Union[_tensor_pb2.PayloadDigest, str]]] = ..., tensor_store: _Optional[_Union[TensorStoreInfo, _Mapping]] = ...) -> None: ...

class TensorStoreInfo(_message.Message):
    __slots__ = ["expired_bytes", "idle_bytes", "sessions", "tensors", "used_bytes"]
    EXPIRED_BYTES_FIELD_NUMBER: _ClassVar[int]
    IDLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    expired_bytes: int
    idle_bytes: int
    sessions: int
    tensors: int
    used_bytes: int
    def __init__(self, used_bytes: _Optional[int] = ..., expired_bytes: _Optional[int] = ..., tensors: _Optional[int] = ..., idle_bytes: _Optional[int] = ..., sessions: _Optional[int] = ...) -> None: ...

class VariantInfo(_message.Message):
    __slots__ = ["description", "devices", "exact_target", "name"]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    EXACT_TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    description: str
    devices: _containers.RepeatedScalarFieldContainer[str]
    exact_target: bool
    name: str
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., exact_target: bool = ..., devices: _Optional[_Iterable[str]] = ...) -> None: ...
