"""Export and import: a state in one file, and nothing but that."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from cache_store.errors import BudgetExceeded, FormatMismatch, ObjectDamaged, ObjectMissing, TransferError
from cache_store.states import load_state, save_state
from cache_store.store import CacheStore
from cache_store.transfer import MAGIC, export_state, import_state
from tests.cache_store.helpers import keys_of, part_key, put
from tests.cache_store.states_data import NAME, PLAN, assert_same, make_state

HEAD = struct.Struct("<16sQQ32s")


@pytest.fixture
def exported(store: CacheStore, tmp_path: Path) -> Path:
    """The file of a state that is no longer in the store."""
    save_state(store, NAME, make_state(), PLAN, None)
    path = tmp_path / "state.docexpress"
    export_state(store, NAME, path)
    store.delete_all()
    return path


def test_import_of_an_export_is_the_state(store: CacheStore, exported: Path) -> None:
    manifest = import_state(store, exported)
    assert manifest.name == NAME
    assert_same(make_state(), load_state(store, NAME, PLAN))
    assert not store.delete_superseded("state", NAME), "an imported state is nobody's intermediate one"


def test_another_tenant_can_import(redis_client: redis.Redis, exported: Path) -> None:
    other = CacheStore(redis_client, "other")
    import_state(other, exported)
    assert_same(make_state(), load_state(other, NAME, PLAN))


def test_importing_twice_changes_nothing(store: CacheStore, exported: Path) -> None:
    first = import_state(store, exported)
    assert import_state(store, exported) == first
    assert store.usage().objects == 1


def test_export_again_gives_the_same_file(store: CacheStore, exported: Path, tmp_path: Path) -> None:
    import_state(store, exported)
    export_state(store, NAME, tmp_path / "a")
    export_state(store, NAME, tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_import_respects_the_budget(redis_client: redis.Redis, exported: Path) -> None:
    small = CacheStore(redis_client, "small", byte_budget=5000)
    with pytest.raises(BudgetExceeded):
        import_state(small, exported)
    assert keys_of(redis_client) == set()


def head_of(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The manifest and the parts of an exported file."""
    length = HEAD.unpack(content[: HEAD.size])[2]
    return json.loads(content[HEAD.size : HEAD.size + length]), content[HEAD.size + length :]


def file_of(manifest: dict[str, Any], parts: bytes, version: int = 1) -> bytes:
    """A file with a right checksum of whatever manifest."""
    raw = json.dumps(manifest).encode()
    return HEAD.pack(MAGIC, version, len(raw), hashlib.sha256(raw).digest()) + raw + parts


def with_fields(**fields: Any) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        manifest, parts = head_of(content)
        return file_of({**manifest, **fields}, parts)

    return change


def with_first_part(**fields: Any) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        manifest, parts = head_of(content)
        manifest["parts"][0].update(fields)
        manifest["size"] = sum(part["size"] for part in manifest["parts"])
        return file_of(manifest, parts)

    return change


def with_shape(**fields: Any) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        manifest, parts = head_of(content)
        manifest["meta"]["shape"].update(fields)
        return file_of(manifest, parts)

    return change


def flipped(content: bytes, at: int) -> bytes:
    changed = bytearray(content)
    changed[at] ^= 1
    return bytes(changed)


HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "only the magic": lambda content: content[:16],
    "half the manifest": lambda content: content[: HEAD.size + 100],
    "without the last byte": lambda content: content[:-1],
    "without all parts": lambda content: content[: -len(head_of(content)[1])],
    "with bytes after the end": lambda content: content + b"\0",
    "another magic": lambda content: b"X" + content[1:],
    "a pickle": lambda content: b"\x80\x04\x95" + content,
    "flipped in the manifest": lambda content: flipped(content, HEAD.size + 50),
    "flipped in the checksum": lambda content: flipped(content, 40),
    "flipped in the first part": lambda content: flipped(content, 9 - len(head_of(content)[1])),
    "flipped in the last part": lambda content: flipped(content, len(content) - 1),
    "manifest of 2^63 bytes": lambda content: HEAD.pack(MAGIC, 1, 2**63, bytes(32)) + content[HEAD.size :],
    "inflated size": with_fields(size=2**40),
    "inflated part": with_first_part(size=2**40),
    "part longer than the file": with_first_part(size=16 * 1024**2),
    "wrong checksum of a part": with_first_part(sha256="0" * 64),
    "path as name": with_fields(name="../../../etc/passwd"),
    "path as generation": with_fields(generation="../" * 10 + "aa"),
    "another kind": with_fields(kind="tokens"),
    "no state in meta": with_fields(meta={}),
    "inflated shape": with_shape(entries=2**30),
    "another number of layers": with_shape(layers=2),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_file(
    store: CacheStore, redis_client: redis.Redis, exported: Path, change: Callable[[bytes], bytes]
) -> None:
    exported.write_bytes(change(exported.read_bytes()))
    with pytest.raises(TransferError) as caught:
        import_state(store, exported)
    assert str(exported) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert keys_of(redis_client) == set()


def test_zip_with_path_names_is_no_state(store: CacheStore, tmp_path: Path) -> None:
    path = tmp_path / "state.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../outside", "x" * 1000)
    with pytest.raises(TransferError, match="not an exported state"):
        import_state(store, path)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["state.zip"]


@pytest.mark.parametrize("place", ["of the file", "of the manifest"])
def test_another_format_version(store: CacheStore, exported: Path, place: str) -> None:
    manifest, parts = head_of(exported.read_bytes())
    if place == "of the file":
        exported.write_bytes(file_of(manifest, parts, version=2))
    else:
        exported.write_bytes(file_of({**manifest, "format": 2}, parts))
    with pytest.raises(FormatMismatch, match="version 2; this program reads version 1"):
        import_state(store, exported)


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe"])
def test_what_is_no_file(store: CacheStore, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "thing"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(TransferError, match=r"thing (cannot be read|is not a regular file)"):
        import_state(store, path)


def test_export_of_nothing_writes_nothing(store: CacheStore, tmp_path: Path) -> None:
    with pytest.raises(ObjectMissing):
        export_state(store, NAME, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_failed_export_keeps_the_old_file(
    store: CacheStore, redis_client: redis.Redis, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    manifest = save_state(store, NAME, make_state(), PLAN, None)
    redis_client.set(part_key(store, manifest, 2), b"damage")
    with pytest.raises(ObjectDamaged):
        export_state(store, NAME, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_export_into_a_missing_folder(store: CacheStore, tmp_path: Path) -> None:
    put(store, NAME, b"x")
    with pytest.raises(TransferError, match="cannot be written: No such file"):
        export_state(store, NAME, tmp_path / "no" / "file")
