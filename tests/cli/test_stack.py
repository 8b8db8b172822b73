"""Every command over a running stack (`docexpress up`) with a tiny model, as a user meets it."""

import json
import signal
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.terminal import clean
from tests.cli.commands import CommandLine
from tests.cli.waiting import until
from tests.cluster import save_talkative_model

OPTIONS = (
    "--cache-entries=64",
    "--segment-tokens=128",
    "--policy=streaming",
    "--max-new-tokens=12",
)
RESULT_FIELDS = {
    "job_id",
    "kind",
    "model",
    "question",
    "state",
    "tokens_read",
    "prefill_tokens",
    "tokens_written",
    "segments",
    "cache_entries",
    "state_bytes",
    "full_cache_bytes",
    "seconds",
    "finish_reason",
    "reread_segments",
    "error_estimate",
    "error_by_layer",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(save_talkative_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def up(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """A command line beside a running `docexpress up`, which Ctrl-C then stops."""
    line = CommandLine(tmp_path_factory.mktemp("up") / "home")
    with line.started("up", "--model", model) as running:
        running.wait_for("docexpress is up")
        yield line
        code, output, errors = running.end(signal.SIGINT)
    assert (code, output) == (0, ""), errors
    until(lambda: not line.processes())
    assert not (line.home / "stack.json").exists()


@pytest.fixture
def document(tmp_path: Path) -> Path:
    file = tmp_path / "document.txt"
    file.write_text("\n\n".join(f"Paragraph {number} of {tmp_path.name}. " * 3 for number in range(12)))
    return file


def summarize(up: CommandLine, document: Path, model: Path, *more: str) -> dict[str, Any]:
    done = up.run("summarize", document, "--model", model, *OPTIONS, "--json", "--quiet", *more)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_the_summary_goes_to_standard_output_and_all_else_to_standard_error(
    up: CommandLine, document: Path, model: Path
) -> None:
    done = up.run("summarize", document, "--model", model, *OPTIONS)
    assert done.returncode == 0, done.stderr
    again = summarize(up, document, model)
    assert done.stdout.rstrip("\n") == clean(again["summary"]).rstrip("\n")
    for word in (
        "reading: ",
        "writing: ",
        "full KV cache",
        "% by estimate",
        again["state"],
        "docexpress ask ",
    ):
        assert word in done.stderr
    assert "\x1b" not in done.stderr  # not a terminal


def test_in_a_terminal_there_are_bars_and_the_text_comes_after_them(
    up: CommandLine, document: Path, model: Path
) -> None:
    code, shown = up.run_in_terminal("summarize", document, "--model", model, *OPTIONS)
    assert code == 0, shown
    text = clean(summarize(up, document, model)["summary"]).split()[0]
    bars, _, after = shown.partition(text)
    assert "reading" in bars
    assert "━" in bars
    assert "segments" in bars
    assert "docexpress ask" in after
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h")  # a cursor that was hidden is shown again
    assert "\x1b" not in after.replace("\x1b[?25h", "")


def test_json_is_one_object_with_the_documented_fields(up: CommandLine, document: Path, model: Path) -> None:
    result = summarize(up, document, model)
    assert result.keys() == RESULT_FIELDS | {"summary"}
    assert result["cache_entries"] == 64
    assert result["tokens_read"] == result["prefill_tokens"] > 128 * (result["segments"] - 1)
    assert result["seconds"].keys() == {"ingest", "prefill", "compress", "decode"}
    assert result["error_estimate"] == pytest.approx(statistics.mean(result["error_by_layer"]), abs=1e-6)
    assert result["state_bytes"] > 0 < result["full_cache_bytes"]


def test_the_same_document_again_is_not_read_again(up: CommandLine, document: Path, model: Path) -> None:
    first = summarize(up, document, model)
    second = summarize(up, document, model)
    assert second["prefill_tokens"] == 0
    assert (second["summary"], second["state"]) == (first["summary"], first["state"])


def test_standard_input_is_a_document_too(up: CommandLine, document: Path, model: Path) -> None:
    from_file = summarize(up, document, model)
    done = up.run("summarize", "-", "--model", model, *OPTIONS, "--json", stdin=document.read_bytes())
    assert json.loads(done.stdout)["state"] == from_file["state"]


def test_questions_are_answered_from_passages_or_from_the_state(
    up: CommandLine, document: Path, model: Path
) -> None:
    result = summarize(up, document, model)
    ask = ("ask", result["job_id"], "What is paragraph 3 of?")
    done = up.run(*ask)
    again, from_state = (json.loads(up.run(*ask, "--json", *more).stdout) for more in ((), ("--reread=0",)))
    for answer in (again, from_state):
        assert answer.keys() == RESULT_FIELDS | {"answer"}
        assert (answer["prefill_tokens"], answer["state"]) == (0, result["state"])
        assert answer["question"] == "What is paragraph 3 of?"
    assert done.stdout.rstrip("\n") == clean(again["answer"]).rstrip("\n")
    best = max(again["reread_segments"], key=lambda passage: passage["score"])
    assert "Paragraph 3 of" in document.read_text()[best["start"] : best["end"]]
    assert f"{best['segment'] + 1}: Paragraph 3 of" in done.stderr
    assert "reading again: " in done.stderr
    assert again["seconds"].keys() == {"rank", "reread", "decode"}
    assert from_state["reread_segments"] == []
    assert from_state["seconds"].keys() == {"decode"}


def test_a_blank_question_is_refused(up: CommandLine, document: Path, model: Path) -> None:
    result = summarize(up, document, model)
    done = up.run("ask", result["job_id"], "  ")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


def test_submit_watch_result_jobs_and_cancel(up: CommandLine, document: Path, model: Path) -> None:
    submitted = up.run("submit", document, "--model", model, *OPTIONS)
    job = submitted.stdout.strip()
    assert f"docexpress watch {job}" in submitted.stderr
    watched = up.run("watch", job, "--json")
    assert json.loads(watched.stdout)["job_id"] == job
    assert json.loads(up.run("result", job, "--json").stdout) == json.loads(watched.stdout)
    text = clean(json.loads(watched.stdout)["summary"])  # a random model writes control characters, too
    assert up.run("result", job).stdout.rstrip("\n") == text.rstrip("\n")
    listed = {each["job_id"]: each for each in json.loads(up.run("jobs", "--json").stdout)}
    assert (listed[job]["status"], listed[job]["title"]) == ("done", "document.txt")
    assert job in up.run("jobs").stdout
    assert json.loads(up.run("cancel", job, "--json").stdout) == {"job_id": job, "status": "done"}


def test_a_cancelled_job_has_no_result(up: CommandLine, document: Path, model: Path) -> None:
    slow = (*OPTIONS[:3], "--max-new-tokens=16000")
    job = json.loads(up.run("submit", document, "--model", model, *slow, "--json").stdout)["job_id"]
    assert up.run("cancel", job).stdout == f"{job} cancelled\n"
    for command in ("result", "watch"):
        done = up.run(command, job)
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        assert "cancelled" in done.stderr


def test_ctrl_c_cancels_the_job_that_it_waits_for(up: CommandLine, document: Path, model: Path) -> None:
    slow = (*OPTIONS[:3], "--max-new-tokens=16000")
    with up.started("summarize", document, "--model", model, *slow) as waiting:
        waiting.wait_for("reading", "writing")
        code, output, errors = waiting.end(signal.SIGINT)
    assert (code, output) == (130, "")
    assert "is cancelled" in errors
    newest = json.loads(up.run("jobs", "--json").stdout)[0]
    assert newest["status"] == "cancelled"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--policy=nonsense"], "nonsense"),
        (["--policy-parameter=sinks=many"], "sinks"),
        (["--cache-entries=8"], "entries"),
        (["--segment-tokens=5000"], "positions|window|trained"),
    ],
    ids=["policy", "parameter", "budget too small", "segment too long"],
)
def test_what_only_a_worker_can_judge_is_bad_input_too(
    options: list[str], words: str, up: CommandLine, document: Path, model: Path
) -> None:
    before = state_names(up)
    done = up.run("summarize", document, "--model", model, *OPTIONS, *options, "--quiet")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert any(word in done.stderr for word in words.split("|"))
    assert state_names(up) == before


def state_names(up: CommandLine) -> list[str]:
    return [state["name"] for state in json.loads(up.run("state", "list", "--json").stdout)]


def test_a_model_that_no_worker_has(up: CommandLine, document: Path) -> None:
    up.variables["DOCEXPRESS_WORKER_WAIT_SECONDS"] = "1"  # of no effect: the orchestrator decides
    done = up.run("submit", document, "--model", "another-model", *OPTIONS)
    job = done.stdout.strip()
    del up.variables["DOCEXPRESS_WORKER_WAIT_SECONDS"]
    assert up.run("cancel", job).returncode == 0


def test_states_travel_through_files(
    up: CommandLine, document: Path, model: Path, tmp_path: Path, cli: CommandLine
) -> None:
    name = summarize(up, document, model)["state"]
    shown = json.loads(up.run("state", "show", name[:16], "--json").stdout)
    assert shown["name"] == name
    assert name in up.run("state", "show", name[:16]).stdout
    file = tmp_path / "one.state"
    exported = json.loads(up.run("state", "export", name[:16], file, "--json").stdout)
    assert exported["bytes"] == file.stat().st_size
    assert (
        cli.run("state", "import", file).stdout.strip() == name
    )  # into another data folder, without a worker
    assert [each["name"] for each in json.loads(cli.run("state", "list", "--json").stdout)] == [name]
    assert name[:12] in cli.run("state", "list").stdout
    file.write_bytes(file.read_bytes()[:-100])
    assert cli.run("state", "import", file).returncode == 2
    assert cli.run("state", "delete", name).stdout == "1 object deleted\n"
    assert json.loads(cli.run("state", "list", "--json").stdout) == []


def test_everything_can_be_deleted(up: CommandLine, document: Path, model: Path) -> None:
    summarize(up, document, model)
    deleted = json.loads(up.run("state", "delete", "--all", "--yes", "--json").stdout)["deleted"]
    assert deleted >= 3  # document, tokens, state
    assert json.loads(up.run("state", "list", "--json").stdout) == []
    assert summarize(up, document, model)["prefill_tokens"] > 0


def test_the_doctor_sees_the_running_stack(up: CommandLine, model: Path) -> None:
    done = up.run("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 0
    assert checks["embedded Valkey"]["status"] == "ok"
    assert "noeviction" in checks["embedded Valkey"]["found"]
    assert str(model) in checks["workers"]["found"]
    assert checks["orchestrators"]["status"] == "ok"


def test_a_second_stack_is_refused(up: CommandLine) -> None:
    done = up.run("up")
    assert (done.returncode, done.stdout) == (2, "")
    assert "running already" in done.stderr


def test_the_worker_and_the_orchestrator_answer_health_checks(up: CommandLine) -> None:
    address = next(
        check["found"]
        for check in json.loads(up.run("doctor", "--json").stdout)["checks"]
        if check["name"] == "workers"
    )
    assert address
    url = json.loads((up.home / "stack.json").read_text())["redis_url"]
    outside = CommandLine(up.home.parent / "elsewhere", {"DOCEXPRESS_REDIS_URL": url})
    assert outside.run("orchestrate", "--check").returncode == 0
    assert outside.run("worker", "--check", "--listen", "127.0.0.1:1").returncode == 1
