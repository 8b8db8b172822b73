"""`docexpress serve` and `docexpress keys`, as processes over the running stack."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from pathlib import Path

import httpx
import pytest

from orchestrator.http.settings import ApiSettings
from tests.cli.commands import CommandLine

ANYWHERE = "0.0.0.0"  # noqa: S104


@pytest.fixture
def line(settings: ApiSettings, tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "home", {"DOCEXPRESS_REDIS_URL": settings.redis_url})


def served_url(process: subprocess.Popen[str]) -> str:
    """What the command says where it serves."""
    assert process.stderr is not None
    said = ""
    for text in iter(process.stderr.readline, ""):
        said += text
        if found := re.search(r"serves on (http://\S+);", text):
            return found.group(1).replace(ANYWHERE, "127.0.0.1")
    raise AssertionError(f"it ended before it served: {said}")


def test_keys_open_a_server_on_every_address(line: CommandLine) -> None:
    created = line.run("keys", "create", "--tenant", "commanded", "--name", "office")
    assert created.returncode == 0, created.stderr
    secret = created.stdout.strip()
    listed = json.loads(line.run("keys", "list", "--json").stdout)
    (key,) = [key for key in listed if key["tenant"] == "commanded"]
    assert secret not in line.run("keys", "list").stdout
    with line.started("serve", "--host", ANYWHERE, "--port", "0") as running:
        url = served_url(running.process)
        port = url.rpartition(":")[2]
        with httpx.Client(base_url=url, timeout=30) as http:
            assert http.get("/v1/jobs").status_code == 401
            headers = {"Authorization": f"Bearer {secret}"}
            assert http.get("/v1/jobs", headers=headers).status_code == 200
            assert line.run("serve", "--check", "--port", port).returncode == 0
            taken = line.run("serve", "--port", port, "--host", ANYWHERE)
            assert (taken.returncode, taken.stdout) == (2, "")
            assert port in taken.stderr
            assert len(taken.stderr.splitlines()) == 1
            assert line.run("keys", "revoke", key["id"]).stdout == f"{key['id']} revoked\n"
            assert http.get("/v1/jobs", headers=headers).status_code == 401
        code, output, errors = running.end(signal.SIGTERM)
    assert (code, output, errors) == (0, "", "")
    assert line.run("serve", "--check", "--port", port).returncode == 1


def test_a_tenants_budget_is_set_and_shown(line: CommandLine) -> None:
    created = line.run("keys", "create", "--tenant", "bounded", "--byte-budget", "2GiB")
    assert created.returncode == 0, created.stderr
    (key,) = [k for k in json.loads(line.run("keys", "list", "--json").stdout) if k["tenant"] == "bounded"]
    assert (key["stored_bytes"], key["byte_budget"]) == (0, 2 * 1024**3)
    assert line.run("keys", "budget", "bounded").stdout == "bounded stores 0 B of 2.15 GB\n"
    shown = json.loads(line.run("keys", "budget", "bounded", "default", "--json").stdout)
    assert shown == {"tenant": "bounded", "stored_bytes": 0, "byte_budget": 8 * 1024**3}


def test_mistakes_are_told_in_a_sentence(line: CommandLine, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        alone = CommandLine(tmp_path / "alone")
        for command in (["up", "--port", port], ["serve", "--port", port]):
            done = alone.run(*command)
            assert (done.returncode, done.stdout) == (2, ""), done.stderr
            assert len(done.stderr.splitlines()) == 1
        for arguments in (["revoke", "none"], ["create", "--tenant", "A B"], ["budget", "a", "much"]):
            done = line.run("keys", *arguments)
            assert (done.returncode, done.stdout) == (2, "")
            assert len(done.stderr.splitlines()) == 1
