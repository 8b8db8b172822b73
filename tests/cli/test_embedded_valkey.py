"""The embedded Valkey: private, kept on disk, and gone with its owner, however that ends."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from orchestrator.embedded.errors import HomeUnusable, StartFailed
from orchestrator.embedded.home import Home, RunFile, default_home
from orchestrator.embedded.locks import FileLock
from orchestrator.embedded.valkey import Valkey, start_valkey
from tests.cli.commands import ROOT
from tests.cli.waiting import until

MEMORY = 256 * 1024**2


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "a folder with 'quotes' and \"more\"")
    made.create()
    return made


@pytest.fixture
def lock(home: Home) -> Iterator[FileLock]:
    with FileLock(home.stack_lock) as held:
        assert held.try_exclusive()
        yield held


@pytest.fixture
def valkey(home: Home, lock: FileLock) -> Iterator[Valkey]:
    started = start_valkey(home, lock, MEMORY, lambda: None)
    yield started
    started.stop()


def test_it_keeps_what_it_was_given(home: Home, lock: FileLock) -> None:
    first = start_valkey(home, lock, MEMORY, lambda: None)
    with redis.Redis.from_url(first.url) as client:
        client.set("state", b"\x00\xff" * 1000)
    assert first.stop()
    assert first.child.exit_code == 0
    second = start_valkey(home, lock, MEMORY, lambda: None)
    try:
        with redis.Redis.from_url(second.url) as client:
            assert client.get("state") == b"\x00\xff" * 1000
        assert second.url != first.url  # another port or another password, at least
    finally:
        second.stop()


def test_it_ends_even_where_it_cannot_save(home: Home, lock: FileLock) -> None:
    valkey = start_valkey(home, lock, MEMORY, lambda: None)
    shutil.rmtree(home.path)
    assert not valkey.stop()
    assert valkey.child.exit_code == 0  # by itself: it was not killed for taking too long


def test_it_evicts_nothing_and_is_bounded(valkey: Valkey) -> None:
    with redis.Redis.from_url(valkey.url) as client:
        assert client.config_get("maxmemory*")["maxmemory-policy"] == "noeviction"
        assert client.config_get("maxmemory")["maxmemory"] == str(MEMORY)


def test_nobody_gets_in_without_the_password(valkey: Valkey) -> None:
    options = redis.Redis.from_url(valkey.url).get_connection_kwargs()
    with (
        redis.Redis(host="127.0.0.1", port=options["port"]) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()
    arguments = Path(f"/proc/{valkey.child.pid}/cmdline").read_bytes()
    assert options["password"].encode() not in arguments


def test_nobody_else_can_read_the_folder(home: Home, valkey: Valkey) -> None:
    home.write_run_file(RunFile(os.getpid(), valkey.url, frozenset({"valkey"})))
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(home.run_file.stat().st_mode) == 0o600
    assert home.read_run_file() == RunFile(os.getpid(), valkey.url, frozenset({"valkey"}))


def test_what_it_says_when_it_cannot_start_is_passed_on(home: Home, lock: FileLock) -> None:
    (home.data / "docexpress.rdb").write_bytes(b"not a snapshot")
    with pytest.raises(StartFailed, match=r"did not start.*valkey\.log"):
        start_valkey(home, lock, MEMORY, lambda: None)


OWNER = """
import sys, time
from pathlib import Path
from orchestrator.embedded.home import Home
from orchestrator.embedded.locks import FileLock
from orchestrator.embedded.valkey import start_valkey
home = Home(Path(sys.argv[1]))
lock = FileLock(home.stack_lock)
lock.try_exclusive()
valkey = start_valkey(home, lock, 2**28, lambda: None)
print(valkey.child.pid, valkey.url, flush=True)
time.sleep(600)
"""


def test_an_owner_that_is_killed_leaves_neither_a_process_nor_a_loss(home: Home) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, home.path], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    with owner.stdout as output:
        pid, url = output.readline().split()
    with redis.Redis.from_url(url) as client:
        client.set("kept", "yes")
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    with FileLock(home.stack_lock) as lock:
        until(lock.try_exclusive)  # Valkey inherited the lock and holds it until it has saved
        assert not Path(f"/proc/{pid}").exists() or "valkey" not in Path(f"/proc/{pid}/cmdline").read_text()
        valkey = start_valkey(home, lock, MEMORY, lambda: None)
        try:
            with redis.Redis.from_url(valkey.url) as client:
                assert client.get("kept") == b"yes"
        finally:
            valkey.stop()


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HomeUnusable, match="DOCEXPRESS_HOME"):
        Home(tmp_path / "file" / "home").create()


def test_the_folder_is_the_users_own_unless_named(tmp_path: Path) -> None:
    assert default_home({"DOCEXPRESS_HOME": str(tmp_path)}).path == tmp_path
    assert default_home({"XDG_DATA_HOME": str(tmp_path)}).path == tmp_path / "docexpress"
    assert default_home({}).path == Path.home() / ".local/share/docexpress"
