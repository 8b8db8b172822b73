from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatePlan(_message.Message):
    __slots__ = ("model_fingerprint", "policy", "cache_entries", "segment_tokens", "seed", "positions", "parameters")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    CACHE_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    model_fingerprint: str
    policy: str
    cache_entries: int
    segment_tokens: int
    seed: int
    positions: str
    parameters: _containers.ScalarMap[str, str]
    def __init__(self, model_fingerprint: _Optional[str] = ..., policy: _Optional[str] = ..., cache_entries: _Optional[int] = ..., segment_tokens: _Optional[int] = ..., seed: _Optional[int] = ..., positions: _Optional[str] = ..., parameters: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("worker_id", "model_name", "model_fingerprint", "tokenizer_fingerprint", "device", "backend", "dtype", "window", "layers", "kv_heads", "head_dim", "bytes_per_token", "capacity", "version")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    KV_HEADS_FIELD_NUMBER: _ClassVar[int]
    HEAD_DIM_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    model_name: str
    model_fingerprint: str
    tokenizer_fingerprint: str
    device: str
    backend: str
    dtype: str
    window: int
    layers: int
    kv_heads: int
    head_dim: int
    bytes_per_token: int
    capacity: int
    version: str
    def __init__(self, worker_id: _Optional[str] = ..., model_name: _Optional[str] = ..., model_fingerprint: _Optional[str] = ..., tokenizer_fingerprint: _Optional[str] = ..., device: _Optional[str] = ..., backend: _Optional[str] = ..., dtype: _Optional[str] = ..., window: _Optional[int] = ..., layers: _Optional[int] = ..., kv_heads: _Optional[int] = ..., head_dim: _Optional[int] = ..., bytes_per_token: _Optional[int] = ..., capacity: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...

class IngestRequest(_message.Message):
    __slots__ = ("tenant", "document", "plan")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    document: str
    plan: StatePlan
    def __init__(self, tenant: _Optional[str] = ..., document: _Optional[str] = ..., plan: _Optional[_Union[StatePlan, _Mapping]] = ...) -> None: ...

class IngestResponse(_message.Message):
    __slots__ = ("tokens", "token_count", "segments", "done_segments", "state", "positions")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    DONE_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    tokens: str
    token_count: int
    segments: int
    done_segments: int
    state: str
    positions: str
    def __init__(self, tokens: _Optional[str] = ..., token_count: _Optional[int] = ..., segments: _Optional[int] = ..., done_segments: _Optional[int] = ..., state: _Optional[str] = ..., positions: _Optional[str] = ...) -> None: ...

class PrefillRequest(_message.Message):
    __slots__ = ("tenant", "plan", "tokens", "segment", "parent")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    plan: StatePlan
    tokens: str
    segment: int
    parent: str
    def __init__(self, tenant: _Optional[str] = ..., plan: _Optional[_Union[StatePlan, _Mapping]] = ..., tokens: _Optional[str] = ..., segment: _Optional[int] = ..., parent: _Optional[str] = ...) -> None: ...

class PrefillEvent(_message.Message):
    __slots__ = ("progress", "done")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    progress: PrefillProgress
    done: PrefillDone
    def __init__(self, progress: _Optional[_Union[PrefillProgress, _Mapping]] = ..., done: _Optional[_Union[PrefillDone, _Mapping]] = ...) -> None: ...

class PrefillProgress(_message.Message):
    __slots__ = ("layers_done", "layers")
    LAYERS_DONE_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    layers_done: int
    layers: int
    def __init__(self, layers_done: _Optional[int] = ..., layers: _Optional[int] = ...) -> None: ...

class PrefillDone(_message.Message):
    __slots__ = ("lease", "worker_id", "tokens", "seconds")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    lease: str
    worker_id: str
    tokens: int
    seconds: float
    def __init__(self, lease: _Optional[str] = ..., worker_id: _Optional[str] = ..., tokens: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class CompressRequest(_message.Message):
    __slots__ = ("tenant", "plan", "tokens", "segment", "parent", "lease")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    plan: StatePlan
    tokens: str
    segment: int
    parent: str
    lease: str
    def __init__(self, tenant: _Optional[str] = ..., plan: _Optional[_Union[StatePlan, _Mapping]] = ..., tokens: _Optional[str] = ..., segment: _Optional[int] = ..., parent: _Optional[str] = ..., lease: _Optional[str] = ...) -> None: ...

class CompressResponse(_message.Message):
    __slots__ = ("state", "cache_entries", "state_bytes", "tokens_seen", "seconds")
    STATE_FIELD_NUMBER: _ClassVar[int]
    CACHE_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_SEEN_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    state: str
    cache_entries: int
    state_bytes: int
    tokens_seen: int
    seconds: float
    def __init__(self, state: _Optional[str] = ..., cache_entries: _Optional[int] = ..., state_bytes: _Optional[int] = ..., tokens_seen: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class RankRequest(_message.Message):
    __slots__ = ("tenant", "plan", "document", "tokens", "question", "instruction", "max_new_tokens", "count")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    plan: StatePlan
    document: str
    tokens: str
    question: str
    instruction: str
    max_new_tokens: int
    count: int
    def __init__(self, tenant: _Optional[str] = ..., plan: _Optional[_Union[StatePlan, _Mapping]] = ..., document: _Optional[str] = ..., tokens: _Optional[str] = ..., question: _Optional[str] = ..., instruction: _Optional[str] = ..., max_new_tokens: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class RankResponse(_message.Message):
    __slots__ = ("passages", "seconds")
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    passages: _containers.RepeatedCompositeFieldContainer[Passage]
    seconds: float
    def __init__(self, passages: _Optional[_Iterable[_Union[Passage, _Mapping]]] = ..., seconds: _Optional[float] = ...) -> None: ...

class Passage(_message.Message):
    __slots__ = ("segment", "span", "start", "end", "score")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    segment: int
    span: TokenSpan
    start: int
    end: int
    score: float
    def __init__(self, segment: _Optional[int] = ..., span: _Optional[_Union[TokenSpan, _Mapping]] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., score: _Optional[float] = ...) -> None: ...

class TokenSpan(_message.Message):
    __slots__ = ("first", "count")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    first: int
    count: int
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class EvidenceRequest(_message.Message):
    __slots__ = ("tenant", "plan", "document", "tokens", "state", "bins")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BINS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    plan: StatePlan
    document: str
    tokens: str
    state: str
    bins: int
    def __init__(self, tenant: _Optional[str] = ..., plan: _Optional[_Union[StatePlan, _Mapping]] = ..., document: _Optional[str] = ..., tokens: _Optional[str] = ..., state: _Optional[str] = ..., bins: _Optional[int] = ...) -> None: ...

class EvidenceResponse(_message.Message):
    __slots__ = ("bins", "seconds")
    BINS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    bins: _containers.RepeatedCompositeFieldContainer[EvidenceBin]
    seconds: float
    def __init__(self, bins: _Optional[_Iterable[_Union[EvidenceBin, _Mapping]]] = ..., seconds: _Optional[float] = ...) -> None: ...

class EvidenceBin(_message.Message):
    __slots__ = ("start", "end", "tokens", "weight", "entries")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    tokens: int
    weight: float
    entries: float
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., tokens: _Optional[int] = ..., weight: _Optional[float] = ..., entries: _Optional[float] = ...) -> None: ...

class DecodeRequest(_message.Message):
    __slots__ = ("tenant", "plan", "state", "instruction", "max_new_tokens", "temperature", "top_p", "seed", "repetition_penalty", "tokens", "reread")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    REREAD_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    plan: StatePlan
    state: str
    instruction: str
    max_new_tokens: int
    temperature: float
    top_p: float
    seed: int
    repetition_penalty: float
    tokens: str
    reread: _containers.RepeatedCompositeFieldContainer[TokenSpan]
    def __init__(self, tenant: _Optional[str] = ..., plan: _Optional[_Union[StatePlan, _Mapping]] = ..., state: _Optional[str] = ..., instruction: _Optional[str] = ..., max_new_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., seed: _Optional[int] = ..., repetition_penalty: _Optional[float] = ..., tokens: _Optional[str] = ..., reread: _Optional[_Iterable[_Union[TokenSpan, _Mapping]]] = ...) -> None: ...

class DecodeEvent(_message.Message):
    __slots__ = ("started", "token", "done", "reread")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    REREAD_FIELD_NUMBER: _ClassVar[int]
    started: DecodeStarted
    token: DecodeToken
    done: DecodeDone
    reread: RereadProgress
    def __init__(self, started: _Optional[_Union[DecodeStarted, _Mapping]] = ..., token: _Optional[_Union[DecodeToken, _Mapping]] = ..., done: _Optional[_Union[DecodeDone, _Mapping]] = ..., reread: _Optional[_Union[RereadProgress, _Mapping]] = ...) -> None: ...

class RereadProgress(_message.Message):
    __slots__ = ("tokens_done", "tokens")
    TOKENS_DONE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens_done: int
    tokens: int
    def __init__(self, tokens_done: _Optional[int] = ..., tokens: _Optional[int] = ...) -> None: ...

class DecodeStarted(_message.Message):
    __slots__ = ("prompt_tokens", "resumed_tokens", "checkpoint")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RESUMED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    resumed_tokens: int
    checkpoint: str
    def __init__(self, prompt_tokens: _Optional[int] = ..., resumed_tokens: _Optional[int] = ..., checkpoint: _Optional[str] = ...) -> None: ...

class DecodeToken(_message.Message):
    __slots__ = ("index", "text")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    index: int
    text: str
    def __init__(self, index: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class DecodeDone(_message.Message):
    __slots__ = ("finish_reason", "tokens_written", "seconds", "reread_seconds")
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    TOKENS_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    REREAD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    finish_reason: str
    tokens_written: int
    seconds: float
    reread_seconds: float
    def __init__(self, finish_reason: _Optional[str] = ..., tokens_written: _Optional[int] = ..., seconds: _Optional[float] = ..., reread_seconds: _Optional[float] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: str
    def __init__(self, lease: _Optional[str] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
