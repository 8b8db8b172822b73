"""One state in one file: written whole or not at all, and believed only as far as it can be checked.

    b"docexpress-state"                      16 bytes
    format version, length of the manifest   two little-endian uint64
    SHA-256 of the manifest                  32 bytes
    the manifest                             JSON, as in the store
    the parts                                one after the other, lengths and SHA-256 in the manifest

There are no file names inside, nothing is compressed, and the file ends with its last part.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cache_store.errors import FormatMismatch, ObjectDamaged, TransferError
from cache_store.keys import FORMAT_VERSION
from cache_store.layout import state_meta
from cache_store.manifest import MAX_MANIFEST_BYTES, Manifest, parse_manifest
from cache_store.store import CacheStore
from cache_store.upload import encode_manifest

MAGIC = b"docexpress-state"
_HEAD = struct.Struct("<16sQQ32s")


def export_state(store: CacheStore, name: str, path: Path) -> Manifest:
    """Writes the state `name` to `path`, replacing a file that is there, in one step.

    Raises TransferError where the file cannot be written; what `CacheStore.parts` raises.
    """
    manifest = store.manifest("state", name)
    raw = encode_manifest(manifest)
    with _file_errors(path, "written"), _replacing(path) as file:
        file.write(_HEAD.pack(MAGIC, FORMAT_VERSION, len(raw), hashlib.sha256(raw).digest()))
        file.write(raw)
        for part in store.parts("state", name, manifest=manifest):
            file.write(part)
    return manifest


def import_state(store: CacheStore, path: Path) -> Manifest:
    """Stores the state in `path` and marks it as kept; where it is there already, nothing is written.

    All sizes are checked against the file's length before anything of that size is read. Whether the entries
    come from the token ids that the name stands for cannot be checked: import files from people you trust.

    Raises TransferError for anything but a whole exported state; FormatMismatch for another format version;
    what `CacheStore.put` raises.
    """
    with _file_errors(path, "read"), _regular_file(path) as file:
        manifest = _read_manifest(file, path)
        stored = store.put(
            "state", manifest.name, _read_parts(file, path, manifest), size=manifest.size, meta=manifest.meta
        )
    store.keep("state", manifest.name)
    return stored


def _read_manifest(file: IO[bytes], path: Path) -> Manifest:
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or not head.startswith(MAGIC):
        raise TransferError(f"{path} is not an exported state.")
    _, version, length, digest = _HEAD.unpack(head)
    if version != FORMAT_VERSION:
        raise FormatMismatch(
            f"{path} has format version {version}; this program reads version {FORMAT_VERSION}."
        )
    if length > MAX_MANIFEST_BYTES:
        raise TransferError(f"{path} announces a manifest of {length} bytes; it is not an exported state.")
    raw = file.read(length)
    if hashlib.sha256(raw).digest() != digest:
        raise TransferError(f"The manifest in {path} is incomplete or does not match its checksum.")
    manifest = _checked_manifest(raw, path)
    size = os.fstat(file.fileno()).st_size
    if size != _HEAD.size + length + manifest.size:
        raise TransferError(f"{path} has {size} bytes, which is not what its manifest says.")
    return manifest


def _checked_manifest(raw: bytes, path: Path) -> Manifest:
    try:
        manifest = parse_manifest(raw, str(path))
        if manifest.kind != "state":
            raise TransferError(f"{path} holds an object of kind {manifest.kind}, not a state.")
        state_meta(manifest)
    except (ObjectDamaged, ValueError) as error:
        raise TransferError(f"{path} does not describe a state.") from error
    return manifest


def _read_parts(file: IO[bytes], path: Path, manifest: Manifest) -> Iterator[bytes]:
    for index, info in enumerate(manifest.parts):
        part = file.read(info.size)
        if len(part) != info.size or hashlib.sha256(part).hexdigest() != info.sha256:
            raise TransferError(f"Part {index} in {path} does not match its checksum; nothing was imported.")
        yield part


def _regular_file(path: Path) -> IO[bytes]:
    # Opening a pipe would wait for a writer, so it is refused before.
    if not stat.S_ISREG(path.stat().st_mode):
        raise TransferError(f"{path} is not a regular file.")
    return open(path, "rb")


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file beside `path` that takes its place once it is complete, and goes otherwise."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


@contextmanager
def _file_errors(path: Path, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TransferError(f"{path} cannot be {done}: {error.strerror or error}.") from error
