"""`docexpress summarize` alone: it starts what it needs, and stops it however it ends."""

import json
import os
import signal
from pathlib import Path

import pytest

from orchestrator.cli.terminal import clean
from tests.cli.commands import CommandLine
from tests.cli.waiting import until
from tests.cluster import save_talkative_model

OPTIONS = ("--cache-entries=64", "--segment-tokens=128", "--policy=streaming", "--max-new-tokens=12")
SLOW = (*OPTIONS[:3], "--max-new-tokens=16000")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(save_talkative_model(tmp_path / "model"))


@pytest.fixture
def document(tmp_path: Path) -> Path:
    file = tmp_path / "document.txt"
    file.write_text("A sentence that could be summarized. " * 40)
    return file


def test_it_starts_and_stops_everything_and_the_state_stays(
    cli: CommandLine, model: Path, document: Path
) -> None:
    done = cli.run("summarize", document, "--model", os.path.relpath(model), *OPTIONS, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert cli.processes() == {}
    # Commands that only look start Valkey alone, a question starts all of it with the model of that job.
    assert [job["job_id"] for job in json.loads(cli.run("jobs", "--json").stdout)] == [result["job_id"]]
    assert cli.run("result", result["job_id"]).stdout.rstrip("\n") == clean(result["summary"]).rstrip("\n")
    answer = cli.run("ask", result["job_id"], "What could be summarized?", "--json")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["state"] == result["state"]
    assert json.loads(answer.stdout)["prefill_tokens"] == 0


def test_evaluate_hands_its_arguments_over(cli: CommandLine) -> None:
    done = cli.run("evaluate", "--help")
    assert done.returncode == 0, done.stderr
    assert "--profile" in done.stdout


def test_a_model_that_is_none_is_bad_input(cli: CommandLine, document: Path) -> None:
    done = cli.run("summarize", document, "--model", "no-such-model", "--quiet")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "no-such-model" in done.stderr
    assert cli.processes() == {}
    assert json.loads(cli.run("jobs", "--json").stdout) == []
    assert json.loads(cli.run("state", "list", "--json").stdout) == []


def test_a_part_that_dies_is_noticed_and_named(cli: CommandLine, model: Path, document: Path) -> None:
    with cli.started("summarize", document, "--model", model, *SLOW) as running:
        running.wait_for("reading", "writing")
        os.kill(worker_of(cli)[0], signal.SIGKILL)
        code, output, errors = running.end()
    assert (code, output) == (1, "")
    assert "The worker ended: killed by SIGKILL" in errors.splitlines()[-1]


def worker_of(cli: CommandLine) -> list[int]:
    return [pid for pid, command in cli.processes().items() if "-m kernel_worker" in command]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_whatever_ends_it_nothing_is_left_running(
    number: signal.Signals, cli: CommandLine, model: Path, document: Path
) -> None:
    with cli.started("summarize", document, "--model", model, *SLOW) as running:
        running.wait_for("reading", "writing")
        assert len(cli.processes()) == 4  # itself, Valkey, a worker, an orchestrator
        code, output, _ = running.end(number)
    assert (code, output) == (-number if number == signal.SIGKILL else 128 + number, "")
    until(lambda: not cli.processes())
    # What was stored is still there, and the data can be opened again.
    jobs = json.loads(cli.run("jobs", "--json").stdout)
    assert len(jobs) == 1
    assert (jobs[0]["status"] == "cancelled") == (number != signal.SIGKILL)


def test_ctrl_c_while_the_model_loads(cli: CommandLine, model: Path, document: Path) -> None:
    with cli.started("summarize", document, "--model", model, *OPTIONS) as running:
        until(lambda: worker_of(cli), seconds=60)
        code, output, errors = running.end(signal.SIGINT)
    assert (code, output) == (130, ""), errors
    assert "Traceback" not in errors
    assert cli.processes() == {}
