"""What documents take in Redis and on workers, from a model's config alone: nothing else is loaded."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cache_store.layout import DTYPE_BYTES, StateShape
from cache_store.manifest import first_problem
from cache_store.upload import OBJECT_OVERHEAD
from orchestrator.errors import ModelNotSized, OptionError
from orchestrator.jobs import DEFAULT_MODEL, JobOptions

GB = 1000**3
TOKEN_BYTES = 4
TEXT_BYTES_PER_TOKEN = 5  # of English prose; the text itself is stored, too
QUERIES = 16  # of a segment's last tokens, which a worker keeps for its estimate of the error
LEASES, LEASE_BYTES = 8, 2048 * 1024**2  # a worker's lease_count and lease_bytes, by default
DECODE_ROWS = 8  # a worker's, by default
FOLD_EVERY = 64  # tokens that a decode writes before it folds them
BLOCK = 256  # what lengths of rows are multiples of

EMBEDDED_NAMES = ("embedded", DEFAULT_MODEL)
_EMBEDDED = {
    "model_type": "llama",
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "hidden_size": 576,
    "max_position_embeddings": 8192,
    "dtype": "float32",
}


@dataclass(frozen=True)
class ModelSizes:
    """What of a model decides the size of its states. `window` is how many positions were trained."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: str
    window: int

    def shape(self, entries: int) -> StateShape:
        """Of a state with so many entries per KV head and layer. Raises ModelNotSized where none can be."""
        try:
            return StateShape(
                layers=self.layers,
                kv_heads=self.kv_heads,
                entries=entries,
                head_dim=self.head_dim,
                value_dim=self.head_dim,
                dtype=self.dtype,  # type: ignore[arg-type]  # checked by the model itself
            )
        except ValidationError as error:
            raise ModelNotSized(f"a state of {entries} entries cannot be: {first_problem(error)}") from error

    @property
    def bytes_per_token(self) -> int:
        """Of an uncompressed KV cache."""
        return 2 * self.layers * self.kv_heads * self.head_dim * DTYPE_BYTES[self.dtype]

    @property
    def query_bytes(self) -> int:
        """Of one token's queries in all layers."""
        return self.layers * self.heads * self.head_dim * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class Sizing:
    """Bytes, unless the name says otherwise.

    entry_bytes         one entry in all layers and KV heads
    state_bytes         the parts of one full state, exactly as stored (policies that keep scores: 4 more for
                        each entry, KV head and layer)
    document_bytes      all that stays of one document: state, token ids, text, and what is booked beside them
    segment_bytes       one segment between Prefill and Compress, on the worker
    in_flight_bytes     the most of such segments that a worker holds with its default settings
    row_bytes           one text that is being written, on the worker: its state, and what the model reads
    rows_bytes          as many of them as a worker writes together with its default settings
    full_cache_bytes    an uncompressed KV cache of one document
    fits_window         whether a full state and a segment have room in the trained positions
    """

    model: str
    layers: int
    kv_heads: int
    head_dim: int
    dtype: str
    window: int
    cache_entries: int
    segment_tokens: int
    tokens: int
    documents: int
    entry_bytes: int
    state_bytes: int
    document_bytes: int
    states_per_gb: float
    redis_bytes: int
    segment_bytes: int
    in_flight_bytes: int
    row_bytes: int
    rows_bytes: int
    full_cache_bytes: int
    fits_window: bool
    redis_gb: float | None
    documents_that_fit: int | None


def plan(
    model: str,
    *,
    documents: int,
    tokens: int,
    options: JobOptions,
    dtype: str | None = None,
    redis_gb: float | None = None,
) -> Sizing:
    """Sizes for `documents` documents of `tokens` tokens each; cache_entries and segment_tokens of `options`.

    Raises ModelNotSized, OptionError.
    """
    if redis_gb is not None and not (math.isfinite(redis_gb) and redis_gb > 0):
        raise OptionError(f"redis-gb is {redis_gb}; allowed is a number above 0", "redis_gb")
    sizes = model_sizes(model, dtype)
    state = sizes.shape(min(options.cache_entries, tokens)).stored_bytes()
    kept = state + (TOKEN_BYTES + TEXT_BYTES_PER_TOKEN) * tokens + 3 * OBJECT_OVERHEAD
    entry = sizes.layers * sizes.shape(0).entry_bytes
    read = min(options.segment_tokens, tokens)
    segment = entry * read + sizes.query_bytes * min(QUERIES, read)
    row = _row_bytes(sizes, min(options.cache_entries, tokens))
    return Sizing(
        model=model,
        layers=sizes.layers,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        dtype=sizes.dtype,
        window=sizes.window,
        cache_entries=options.cache_entries,
        segment_tokens=options.segment_tokens,
        tokens=tokens,
        documents=documents,
        entry_bytes=entry,
        state_bytes=state,
        document_bytes=kept,
        states_per_gb=round(GB / (state + OBJECT_OVERHEAD), 1),
        redis_bytes=kept * documents,
        segment_bytes=segment,
        in_flight_bytes=min(LEASES * segment, max(LEASE_BYTES, segment)),
        row_bytes=row,
        rows_bytes=DECODE_ROWS * row,
        full_cache_bytes=sizes.bytes_per_token * tokens,
        fits_window=options.cache_entries + options.segment_tokens <= sizes.window,
        redis_gb=redis_gb,
        documents_that_fit=None if redis_gb is None else int(redis_gb * GB) // kept,
    )


def _row_bytes(sizes: ModelSizes, entries: int) -> int:
    """Entries, and a table's row of rotated keys, values, log-weights, and new keys as they were."""
    length = -(-(entries + FOLD_EVERY) // BLOCK) * BLOCK
    new_keys = sizes.bytes_per_token // 2 * FOLD_EVERY
    table = (sizes.bytes_per_token + 4 * sizes.layers * sizes.kv_heads) * length + new_keys
    return sizes.layers * sizes.shape(0).entry_bytes * entries + table


def model_sizes(model: str, dtype: str | None = None) -> ModelSizes:
    """Of a folder, a name in the local Hugging Face cache, or the embedded model; never downloaded.

    `dtype` None is the checkpoint's own, as on a GPU. Raises ModelNotSized.
    """
    config = _EMBEDDED if model in EMBEDDED_NAMES else _read(model)
    _refuse(model, config)
    heads = _whole(model, config, "num_attention_heads")
    kv_heads = _whole(model, config, "num_key_value_heads") if config.get("num_key_value_heads") else heads
    named = "head_dim" if config.get("head_dim") else "hidden_size"
    head_dim = _whole(model, config, named) // (1 if named == "head_dim" else heads)
    chosen = dtype or config.get("dtype") or config.get("torch_dtype")
    if not isinstance(chosen, str) or chosen not in DTYPE_BYTES:
        raise ModelNotSized(f"the config of {model!r} names no known dtype ({chosen!r}): give --dtype")
    return ModelSizes(
        layers=_whole(model, config, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        dtype=chosen,
        window=_whole(model, config, "max_position_embeddings"),
    )


def _read(model: str) -> Mapping[str, Any]:
    path = Path(model) / "config.json" if Path(model).is_dir() else _cached(model)
    if path is None or not path.is_file():
        raise ModelNotSized(
            f"there is no model {model!r}: neither a folder with a config.json, nor in the local Hugging Face"
            " cache (nothing is downloaded)"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelNotSized(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ModelNotSized(f"{path} holds no object")
    return config


def _cached(model: str) -> Path | None:
    """config.json of the snapshot that the name's main branch means."""
    environment = os.environ
    home = Path(environment.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(environment.get("HF_HUB_CACHE") or home / "hub")
    repository = cache / f"models--{model.replace('/', '--')}"
    try:
        revision = (repository / "refs" / "main").read_text().strip()
    except (OSError, ValueError):
        return None
    return repository / "snapshots" / revision / "config.json"


def _refuse(model: str, config: Mapping[str, Any]) -> None:
    """What a worker refuses, too, as far as a config tells."""
    kind = str(config.get("model_type", ""))
    other = sorted(set(config.get("layer_types") or ()) - {"full_attention"})
    slides = config.get("sliding_window") is not None and config.get(
        "use_sliding_window", not kind.startswith("qwen")
    )
    if config.get("is_encoder_decoder"):
        raise ModelNotSized(f"{model!r} has an encoder; only decoders suit")
    if other or (slides and not config.get("layer_types")):
        what = ", ".join(other) or "a sliding window"
        raise ModelNotSized(f"{model!r} has layers of {what}; only full attention suits")


def _whole(model: str, config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelNotSized(f"the config of {model!r} does not say {name}")
    return value
