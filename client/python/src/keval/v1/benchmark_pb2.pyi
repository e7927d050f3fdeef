from keval.v1 import linear_logp_pb2 as _linear_logp_pb2
from keval.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
PROCESS_MODE_CONCURRENT: ProcessMode
PROCESS_MODE_SEQUENTIAL: ProcessMode
PROCESS_MODE_UNSPECIFIED: ProcessMode

class Arm(_message.Message):
    __slots__ = ["variant"]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    variant: str
    def __init__(self, variant: _Optional[str] = ...) -> None: ...

class BenchmarkJob(_message.Message):
    __slots__ = ["create_time_unix_ms", "detail", "end_time_unix_ms", "failure_cause", "name", "non_inferior", "plan", "reason", "request_id", "restarts", "rounds_done", "rounds_planned", "spec", "spec_digest", "start_time_unix_ms", "state", "verdict"]
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    CANCELLED: BenchmarkJob.State
    CREATE_TIME_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    DONE: BenchmarkJob.State
    END_TIME_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_CAUSE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NON_INFERIOR_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    QUEUED: BenchmarkJob.State
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_DONE_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_PLANNED_FIELD_NUMBER: _ClassVar[int]
    RUNNING: BenchmarkJob.State
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    START_TIME_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_UNSPECIFIED: BenchmarkJob.State
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    create_time_unix_ms: int
    detail: str
    end_time_unix_ms: int
    failure_cause: str
    name: str
    non_inferior: bool
    plan: JobPlan
    reason: str
    request_id: str
    restarts: int
    rounds_done: int
    rounds_planned: int
    spec: BenchmarkSpec
    spec_digest: str
    start_time_unix_ms: int
    state: BenchmarkJob.State
    verdict: str
    def __init__(self, name: _Optional[str] = ..., request_id: _Optional[str] = ..., spec: _Optional[_Union[BenchmarkSpec, _Mapping]] = ..., state: _Optional[_Union[BenchmarkJob.State, str]] = ..., verdict: _Optional[str] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., failure_cause: _Optional[str] = ..., non_inferior: bool = ..., rounds_done: _Optional[int] = ..., rounds_planned: _Optional[int] = ..., plan: _Optional[_Union[JobPlan, _Mapping]] = ..., create_time_unix_ms: _Optional[int] = ..., start_time_unix_ms: _Optional[int] = ..., end_time_unix_ms: _Optional[int] = ..., restarts: _Optional[int] = ..., spec_digest: _Optional[str] = ...) -> None: ...

class BenchmarkSpec(_message.Message):
    __slots__ = ["base", "calibration", "candidate", "controls", "diagnostics", "display_name", "guards", "margin_calibrations", "margins", "max_device_seconds", "primaries", "procedure", "seed", "target"]
    class MarginsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    BASE_FIELD_NUMBER: _ClassVar[int]
    CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    CONTROLS_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    GUARDS_FIELD_NUMBER: _ClassVar[int]
    MARGINS_FIELD_NUMBER: _ClassVar[int]
    MARGIN_CALIBRATIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_DEVICE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PRIMARIES_FIELD_NUMBER: _ClassVar[int]
    PROCEDURE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    base: Arm
    calibration: Calibration
    candidate: Arm
    controls: _containers.RepeatedCompositeFieldContainer[Shape]
    diagnostics: Diagnostics
    display_name: str
    guards: _containers.RepeatedCompositeFieldContainer[Shape]
    margin_calibrations: _containers.RepeatedCompositeFieldContainer[MarginCalibration]
    margins: _containers.ScalarMap[str, float]
    max_device_seconds: float
    primaries: _containers.RepeatedCompositeFieldContainer[Shape]
    procedure: Procedure
    seed: int
    target: Target
    def __init__(self, display_name: _Optional[str] = ..., target: _Optional[_Union[Target, _Mapping]] = ..., base: _Optional[_Union[Arm, _Mapping]] = ..., candidate: _Optional[_Union[Arm, _Mapping]] = ..., primaries: _Optional[_Iterable[_Union[Shape, _Mapping]]] = ..., guards: _Optional[_Iterable[_Union[Shape, _Mapping]]] = ..., controls: _Optional[_Iterable[_Union[Shape, _Mapping]]] = ..., margins: _Optional[_Mapping[str, float]] = ..., diagnostics: _Optional[_Union[Diagnostics, _Mapping]] = ..., procedure: _Optional[_Union[Procedure, _Mapping]] = ..., max_device_seconds: _Optional[float] = ..., seed: _Optional[int] = ..., calibration: _Optional[_Union[Calibration, _Mapping]] = ..., margin_calibrations: _Optional[_Iterable[_Union[MarginCalibration, _Mapping]]] = ...) -> None: ...

class Calibration(_message.Message):
    __slots__ = ["effect"]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    effect: float
    def __init__(self, effect: _Optional[float] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class CreateJobRequest(_message.Message):
    __slots__ = ["request_id", "spec", "validate_only"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    spec: BenchmarkSpec
    validate_only: bool
    def __init__(self, spec: _Optional[_Union[BenchmarkSpec, _Mapping]] = ..., request_id: _Optional[str] = ..., validate_only: bool = ...) -> None: ...

class Diagnostics(_message.Message):
    __slots__ = ["backward_only", "chunk_sweep", "isolated_weight_gradient", "profile"]
    BACKWARD_ONLY_FIELD_NUMBER: _ClassVar[int]
    CHUNK_SWEEP_FIELD_NUMBER: _ClassVar[int]
    ISOLATED_WEIGHT_GRADIENT_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    backward_only: bool
    chunk_sweep: _containers.RepeatedScalarFieldContainer[int]
    isolated_weight_gradient: bool
    profile: bool
    def __init__(self, chunk_sweep: _Optional[_Iterable[int]] = ..., backward_only: bool = ..., isolated_weight_gradient: bool = ..., profile: bool = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetReportRequest(_message.Message):
    __slots__ = ["file_names", "name"]
    FILE_NAMES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    file_names: _containers.RepeatedScalarFieldContainer[str]
    name: str
    def __init__(self, name: _Optional[str] = ..., file_names: _Optional[_Iterable[str]] = ...) -> None: ...

class GetReportResponse(_message.Message):
    __slots__ = ["data", "file_name", "sha256"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    file_name: str
    sha256: bytes
    def __init__(self, file_name: _Optional[str] = ..., data: _Optional[bytes] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ["job", "look", "progress", "round_discarded", "round_done", "sequence", "time_unix_ms"]
    JOB_FIELD_NUMBER: _ClassVar[int]
    LOOK_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ROUND_DISCARDED_FIELD_NUMBER: _ClassVar[int]
    ROUND_DONE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    job: BenchmarkJob
    look: Look
    progress: JobProgress
    round_discarded: RoundDiscarded
    round_done: RoundDone
    sequence: int
    time_unix_ms: int
    def __init__(self, sequence: _Optional[int] = ..., time_unix_ms: _Optional[int] = ..., job: _Optional[_Union[BenchmarkJob, _Mapping]] = ..., round_done: _Optional[_Union[RoundDone, _Mapping]] = ..., round_discarded: _Optional[_Union[RoundDiscarded, _Mapping]] = ..., look: _Optional[_Union[Look, _Mapping]] = ..., progress: _Optional[_Union[JobProgress, _Mapping]] = ...) -> None: ...

class JobPlan(_message.Message):
    __slots__ = ["predicted_device_seconds", "predicted_memory_bytes", "procedure_version", "series", "unused_calibrations"]
    class DeltaCalibration(_message.Message):
        __slots__ = ["device", "origin", "rounds", "sha256", "uuid"]
        DEVICE_FIELD_NUMBER: _ClassVar[int]
        ORIGIN_FIELD_NUMBER: _ClassVar[int]
        ROUNDS_FIELD_NUMBER: _ClassVar[int]
        SHA256_FIELD_NUMBER: _ClassVar[int]
        UUID_FIELD_NUMBER: _ClassVar[int]
        device: str
        origin: str
        rounds: int
        sha256: str
        uuid: str
        def __init__(self, origin: _Optional[str] = ..., sha256: _Optional[str] = ..., rounds: _Optional[int] = ..., device: _Optional[str] = ..., uuid: _Optional[str] = ...) -> None: ...
    class SeriesPlan(_message.Message):
        __slots__ = ["delta", "delta_calibration", "delta_source", "discarded_repetitions", "pilot_ns", "quads", "role", "series", "shape", "timed_repetitions", "traffic"]
        DELTA_CALIBRATION_FIELD_NUMBER: _ClassVar[int]
        DELTA_FIELD_NUMBER: _ClassVar[int]
        DELTA_SOURCE_FIELD_NUMBER: _ClassVar[int]
        DISCARDED_REPETITIONS_FIELD_NUMBER: _ClassVar[int]
        PILOT_NS_FIELD_NUMBER: _ClassVar[int]
        QUADS_FIELD_NUMBER: _ClassVar[int]
        ROLE_FIELD_NUMBER: _ClassVar[int]
        SERIES_FIELD_NUMBER: _ClassVar[int]
        SHAPE_FIELD_NUMBER: _ClassVar[int]
        TIMED_REPETITIONS_FIELD_NUMBER: _ClassVar[int]
        TRAFFIC_FIELD_NUMBER: _ClassVar[int]
        delta: float
        delta_calibration: JobPlan.DeltaCalibration
        delta_source: str
        discarded_repetitions: int
        pilot_ns: float
        quads: int
        role: str
        series: str
        shape: Shape
        timed_repetitions: int
        traffic: _linear_logp_pb2.PlanResponse
        def __init__(self, series: _Optional[str] = ..., role: _Optional[str] = ..., shape: _Optional[_Union[Shape, _Mapping]] = ..., delta: _Optional[float] = ..., delta_source: _Optional[str] = ..., pilot_ns: _Optional[float] = ..., quads: _Optional[int] = ..., timed_repetitions: _Optional[int] = ..., discarded_repetitions: _Optional[int] = ..., traffic: _Optional[_Union[_linear_logp_pb2.PlanResponse, _Mapping]] = ..., delta_calibration: _Optional[_Union[JobPlan.DeltaCalibration, _Mapping]] = ...) -> None: ...
    PREDICTED_DEVICE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROCEDURE_VERSION_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    UNUSED_CALIBRATIONS_FIELD_NUMBER: _ClassVar[int]
    predicted_device_seconds: float
    predicted_memory_bytes: int
    procedure_version: str
    series: _containers.RepeatedCompositeFieldContainer[JobPlan.SeriesPlan]
    unused_calibrations: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, series: _Optional[_Iterable[_Union[JobPlan.SeriesPlan, _Mapping]]] = ..., predicted_device_seconds: _Optional[float] = ..., procedure_version: _Optional[str] = ..., predicted_memory_bytes: _Optional[int] = ..., unused_calibrations: _Optional[_Iterable[str]] = ...) -> None: ...

class JobProgress(_message.Message):
    __slots__ = ["phase", "round", "series", "series_count", "series_number"]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SERIES_COUNT_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    SERIES_NUMBER_FIELD_NUMBER: _ClassVar[int]
    phase: str
    round: int
    series: str
    series_count: int
    series_number: int
    def __init__(self, phase: _Optional[str] = ..., round: _Optional[int] = ..., series: _Optional[str] = ..., series_number: _Optional[int] = ..., series_count: _Optional[int] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ["page_size", "page_token", "spec_digest"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    spec_digest: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., spec_digest: _Optional[str] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ["jobs", "next_page_token"]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[BenchmarkJob]
    next_page_token: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[BenchmarkJob, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Look(_message.Message):
    __slots__ = ["candidate_verdict", "next_look", "rounds", "rounds_needed", "series"]
    class SeriesLook(_message.Message):
        __slots__ = ["mean", "positive", "series", "sup_hi", "sup_lo", "valued_rounds"]
        MEAN_FIELD_NUMBER: _ClassVar[int]
        POSITIVE_FIELD_NUMBER: _ClassVar[int]
        SERIES_FIELD_NUMBER: _ClassVar[int]
        SUP_HI_FIELD_NUMBER: _ClassVar[int]
        SUP_LO_FIELD_NUMBER: _ClassVar[int]
        VALUED_ROUNDS_FIELD_NUMBER: _ClassVar[int]
        mean: float
        positive: int
        series: str
        sup_hi: float
        sup_lo: float
        valued_rounds: int
        def __init__(self, series: _Optional[str] = ..., mean: _Optional[float] = ..., sup_lo: _Optional[float] = ..., sup_hi: _Optional[float] = ..., positive: _Optional[int] = ..., valued_rounds: _Optional[int] = ...) -> None: ...
    CANDIDATE_VERDICT_FIELD_NUMBER: _ClassVar[int]
    NEXT_LOOK_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_NEEDED_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    candidate_verdict: str
    next_look: int
    rounds: int
    rounds_needed: int
    series: _containers.RepeatedCompositeFieldContainer[Look.SeriesLook]
    def __init__(self, rounds: _Optional[int] = ..., candidate_verdict: _Optional[str] = ..., series: _Optional[_Iterable[_Union[Look.SeriesLook, _Mapping]]] = ..., next_look: _Optional[int] = ..., rounds_needed: _Optional[int] = ...) -> None: ...

class MarginCalibration(_message.Message):
    __slots__ = ["device", "means", "series", "sha256", "uuid"]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    MEANS_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    device: str
    means: _containers.RepeatedScalarFieldContainer[float]
    series: str
    sha256: str
    uuid: str
    def __init__(self, sha256: _Optional[str] = ..., device: _Optional[str] = ..., uuid: _Optional[str] = ..., series: _Optional[str] = ..., means: _Optional[_Iterable[float]] = ...) -> None: ...

class Procedure(_message.Message):
    __slots__ = ["a_ctl", "a_eq", "a_sup", "discarded_repetitions", "hang_timeout_seconds", "looks", "process_mode", "quads", "timed_repetitions", "worker_threads"]
    A_CTL_FIELD_NUMBER: _ClassVar[int]
    A_EQ_FIELD_NUMBER: _ClassVar[int]
    A_SUP_FIELD_NUMBER: _ClassVar[int]
    DISCARDED_REPETITIONS_FIELD_NUMBER: _ClassVar[int]
    HANG_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LOOKS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_MODE_FIELD_NUMBER: _ClassVar[int]
    QUADS_FIELD_NUMBER: _ClassVar[int]
    TIMED_REPETITIONS_FIELD_NUMBER: _ClassVar[int]
    WORKER_THREADS_FIELD_NUMBER: _ClassVar[int]
    a_ctl: _containers.RepeatedScalarFieldContainer[float]
    a_eq: _containers.RepeatedScalarFieldContainer[float]
    a_sup: _containers.RepeatedScalarFieldContainer[float]
    discarded_repetitions: int
    hang_timeout_seconds: float
    looks: _containers.RepeatedScalarFieldContainer[int]
    process_mode: ProcessMode
    quads: int
    timed_repetitions: int
    worker_threads: int
    def __init__(self, looks: _Optional[_Iterable[int]] = ..., a_sup: _Optional[_Iterable[float]] = ..., a_eq: _Optional[_Iterable[float]] = ..., a_ctl: _Optional[_Iterable[float]] = ..., quads: _Optional[int] = ..., timed_repetitions: _Optional[int] = ..., discarded_repetitions: _Optional[int] = ..., worker_threads: _Optional[int] = ..., hang_timeout_seconds: _Optional[float] = ..., process_mode: _Optional[_Union[ProcessMode, str]] = ...) -> None: ...

class RoundDiscarded(_message.Message):
    __slots__ = ["cause", "detail", "reason", "round"]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    cause: str
    detail: str
    reason: str
    round: int
    def __init__(self, round: _Optional[int] = ..., cause: _Optional[str] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class RoundDone(_message.Message):
    __slots__ = ["differences", "next_look", "round", "running", "seconds"]
    class DifferencesEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    NEXT_LOOK_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    differences: _containers.ScalarMap[str, float]
    next_look: int
    round: int
    running: _containers.RepeatedCompositeFieldContainer[Look.SeriesLook]
    seconds: float
    def __init__(self, round: _Optional[int] = ..., seconds: _Optional[float] = ..., differences: _Optional[_Mapping[str, float]] = ..., running: _Optional[_Iterable[_Union[Look.SeriesLook, _Mapping]]] = ..., next_look: _Optional[int] = ...) -> None: ...

class Shape(_message.Message):
    __slots__ = ["autocast", "bias", "chunk_elems", "display_name", "dtype", "hidden_size", "num_tokens", "vocab_size"]
    AUTOCAST_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_ELEMS_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    autocast: _linear_logp_pb2.Autocast
    bias: bool
    chunk_elems: int
    display_name: str
    dtype: _tensor_pb2.DataType
    hidden_size: int
    num_tokens: int
    vocab_size: int
    def __init__(self, display_name: _Optional[str] = ..., num_tokens: _Optional[int] = ..., hidden_size: _Optional[int] = ..., vocab_size: _Optional[int] = ..., dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., bias: bool = ..., autocast: _Optional[_Union[_linear_logp_pb2.Autocast, str]] = ..., chunk_elems: _Optional[int] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ["device", "force_variant", "min_compute_capability"]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    FORCE_VARIANT_FIELD_NUMBER: _ClassVar[int]
    MIN_COMPUTE_CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    device: str
    force_variant: bool
    min_compute_capability: str
    def __init__(self, device: _Optional[str] = ..., min_compute_capability: _Optional[str] = ..., force_variant: bool = ...) -> None: ...

class WatchJobRequest(_message.Message):
    __slots__ = ["after_sequence", "name", "progress"]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    after_sequence: int
    name: str
    progress: bool
    def __init__(self, name: _Optional[str] = ..., after_sequence: _Optional[int] = ..., progress: bool = ...) -> None: ...

class ProcessMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
