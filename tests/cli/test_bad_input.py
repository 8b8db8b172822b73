"""Bad input and bad usage: one sentence on standard error, the right exit code, nothing left behind."""

from pathlib import Path

import pytest

from tests.cli.commands import CommandLine
from tests.orchestrator.made_documents import word

FAILED, BAD_INPUT = 1, 2


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "empty.txt").touch()
    (folder / "blank.txt").write_text(" \n\t\n\u00a0\n")
    (folder / "binary.txt").write_bytes(bytes(range(256)) * 64)
    (folder / "damaged.docx").write_bytes(word(lambda document: None)[:5000])
    (folder / "fine.txt").write_text("A sentence that could be summarized. " * 20)
    (folder / "tab\x1b[2J.txt").touch()
    (folder / "folder").mkdir()
    return folder


WITHOUT_A_STACK = {
    "missing file": (["summarize", "nowhere.txt"], "nowhere.txt"),
    "directory": (["summarize", "folder"], "directory"),
    "empty": (["summarize", "empty.txt"], "empty"),
    "blank": (["summarize", "blank.txt"], "blank|no text"),
    "binary": (["summarize", "binary.txt"], "binary|text"),
    "damaged": (["summarize", "damaged.docx"], "damaged.docx is a damaged Word document"),
    "binary submitted": (["submit", "binary.txt"], "binary|text"),
    "no budget": (["summarize", "fine.txt", "--cache-entries", "0"], "cache_entries"),
    "no segment": (["summarize", "fine.txt", "--segment-tokens", "-1"], "segment_tokens"),
    "negative temperature": (["summarize", "fine.txt", "--temperature", "-1"], "temperature"),
    "unknown positions": (["summarize", "fine.txt", "--positions", "round"], "positions"),
    "no parameter": (["summarize", "fine.txt", "--policy-parameter", "sinks"], "NAME=VALUE"),
    "not a number": (["summarize", "fine.txt", "--seed", "x"], "--seed"),
    "no file": (["summarize"], "FILE"),
    "unknown command": (["summarise", "fine.txt"], "summarise"),
    "unknown option": (["jobs", "--all"], "--all"),
    "delete nothing": (["state", "delete"], "--all"),
    "delete too much": (["state", "delete", "--all", "abc"], "--all"),
    "delete unasked": (["state", "delete", "--all"], "--yes"),
    "submit to nothing": (["submit", "fine.txt"], "docexpress up"),
}


@pytest.mark.parametrize("name", WITHOUT_A_STACK)
def test_one_sentence_and_exit_code_2(
    name: str, cli: CommandLine, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, words = WITHOUT_A_STACK[name]
    monkeypatch.chdir(files)
    check_refusal(cli, arguments, words, BAD_INPUT)


UNKNOWN_THINGS = {
    "result": (["result", "nosuchjob"], "nosuchjob"),
    "watch": (["watch", "nosuchjob"], "nosuchjob"),
    "cancel": (["cancel", "nosuchjob"], "nosuchjob"),
    "ask": (["ask", "nosuchjob", "Why?"], "nosuchjob"),
    "show": (["state", "show", "abcdef"], "abcdef"),
    "delete": (["state", "delete", "abcdef"], "abcdef"),
    "export": (["state", "export", "abcdef", "out.state"], "abcdef"),
    "import": (["state", "import", "fine.txt"], "fine.txt"),
    "import nothing": (["state", "import", "nowhere.state"], "nowhere.state"),
}


@pytest.mark.parametrize("name", UNKNOWN_THINGS)
def test_what_is_not_there_is_bad_input(
    name: str, cli: CommandLine, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, words = UNKNOWN_THINGS[name]
    monkeypatch.chdir(files)
    check_refusal(cli, arguments, words, BAD_INPUT)
    assert not (files / "out.state").exists()


@pytest.mark.parametrize(
    "arguments", [["summarize", "fine.txt"], ["jobs"], ["submit", "fine.txt"]], ids=" ".join
)
def test_a_redis_that_cannot_be_reached(
    arguments: list[str], cli: CommandLine, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    cli.variables["DOCEXPRESS_REDIS_URL"] = "redis://:secret@127.0.0.1:1/0"
    check_refusal(cli, arguments, "127.0.0.1:1", FAILED)
    assert not cli.home.exists()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DOCEXPRESS_REDIS_URL", "http://:secret@somewhere"),
        ("DOCEXPRESS_STATE_TTL_SECONDS", "soon"),
        ("DOCEXPRESS_TENANT_BYTE_BUDGET", "many"),
    ],
)
def test_a_setting_that_is_wrong(variable: str, value: str, cli: CommandLine) -> None:
    cli.variables[variable] = value
    check_refusal(cli, ["jobs"], variable, BAD_INPUT)


def test_a_data_folder_that_cannot_be_made(cli: CommandLine, files: Path) -> None:
    cli.variables["DOCEXPRESS_HOME"] = str(files / "fine.txt" / "home")
    check_refusal(cli, ["jobs"], "DOCEXPRESS_HOME", BAD_INPUT)


def test_a_file_name_cannot_drive_the_terminal(cli: CommandLine, files: Path) -> None:
    done = cli.run("summarize", files / "tab\x1b[2J.txt")
    assert done.returncode == BAD_INPUT
    assert "\x1b" not in done.stderr


def check_refusal(cli: CommandLine, arguments: list[str], words: str, code: int) -> None:
    done = cli.run(*arguments)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("docexpress: ")
    assert any(word in lines[0] for word in words.split("|")), lines[0]
    assert "secret" not in lines[0]
    assert "Traceback" not in lines[0]
    assert cli.processes() == {}
