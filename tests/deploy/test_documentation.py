"""README and docs: every command, make target, link and setting that they name exists."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_worker.settings import WorkerSettings
from orchestrator.cli.figures import size
from orchestrator.http.settings import ApiSettings
from orchestrator.jobs import JobOptions
from orchestrator.settings import Settings
from orchestrator.sizing import plan
from tests.orchestrator.made_documents import pdf

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OWN_VARIABLES = {
    "home",
    "debug",
    "cache_dir",
    "allow_download",
    "models",
    "port",
    "kernels",
    "data",
    "compile_all",
}


def code(page: Path) -> str:
    return "\n".join(re.findall(r"^```(?:sh|bash)?\n(.*?)^```", page.read_text(), flags=re.M | re.S))


def commands() -> list[str]:
    """What follows `docexpress` in lines of code, without comments and placeholders' brackets."""
    lines = [line.partition("#")[0].strip() for page in PAGES for line in code(page).splitlines()]
    found = [line.removeprefix("docexpress ") for line in lines if line.startswith("docexpress ")]
    parts = [part for line in found for part in re.split(r"\s{2,}docexpress |, (?=\w+ [A-Z])", line)]
    return sorted({each for part in parts for each in alternatives(re.sub(r"[\[\]]", "", part))})


def alternatives(command: str) -> list[str]:
    """`state list | show` is two commands, and so is `up | worker`."""
    first, *others = command.split(" | ")
    group = "state " if first.startswith("state ") else ""
    return [first, *(group + other for other in others)]


@pytest.mark.parametrize("command", commands())
def test_every_command_exists(command: str) -> None:
    line = [sys.executable, "-m", "orchestrator.cli", *shlex.split(command), "--help"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_commands_are_found_at_all() -> None:
    assert len(commands()) >= 17


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    named = {
        name for page in PAGES for name in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), flags=re.M)
    }
    assert named
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_variable_is_a_setting(page: Path) -> None:
    known = {
        name for kind in (WorkerSettings, Settings, ApiSettings) for name in kind.model_fields
    } | OWN_VARIABLES
    named = {name.lower() for name in re.findall(r"DOCEXPRESS_([A-Z_]+[A-Z])", page.read_text())}
    assert named <= known


def test_the_sizing_table_is_what_plan_computes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "operate.md").read_text()
    rows = re.findall(r"^\| [\w. ]+ \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (.+) \|$", page, flags=re.M)
    assert len(rows) == 5
    for layers, heads, kv_heads, head_dim, cells in rows:
        config = {
            "num_hidden_layers": int(layers),
            "num_attention_heads": int(heads),
            "num_key_value_heads": int(kv_heads),
            "head_dim": int(head_dim),
            "max_position_embeddings": 32768,
            "dtype": "bfloat16",
        }
        (tmp_path / "config.json").write_text(json.dumps(config))
        found = plan(str(tmp_path), documents=1000, tokens=100_000, options=JobOptions())
        sizes = [found.redis_bytes, found.segment_bytes, found.in_flight_bytes]
        sizes += [found.rows_bytes, found.full_cache_bytes]
        computed = [size(found.state_bytes), str(found.states_per_gb), *map(size, sizes)]
        assert cells.split(" | ") == computed


def test_the_python_example_runs_as_far_as_it_can_without_a_server(tmp_path: Path) -> None:
    program = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)[0]
    (tmp_path / "report.pdf").write_bytes(pdf([["Something to read."]]))
    done = subprocess.run(
        [sys.executable, "-c", program.replace(":8000", ":1")],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Unreachable: the server does not answer" in done.stderr.splitlines()[-1]


def test_the_examples_for_researchers_run(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "express_attention.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S)
    assert len(blocks) == 3
    exec("".join(blocks), {})  # noqa: S102 - our own page
    printed = capsys.readouterr().out
    assert "torch.Size([1, 9, 4096, 64])" in printed
    assert "4096" in printed
    assert re.search(r"\d+ entries stand for \d+ tokens", printed)
