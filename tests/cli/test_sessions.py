"""Commands side by side: they share a stack, wait for each other, and never open the same data twice."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from orchestrator.embedded.errors import StackBusy, Terminated
from orchestrator.embedded.home import STORE_ONLY, WHOLE_STACK, Home
from orchestrator.embedded.session import Connection, connect, running_stack
from orchestrator.embedded.stack import StackOptions, signals_held
from tests.cli.commands import CommandLine

IMPATIENT = StackOptions(start_seconds=0.5)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"DOCEXPRESS_HOME": str(tmp_path / "home")}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def session(environment: dict[str, str]) -> Iterator[Connection]:
    with connect(STORE_ONLY, StackOptions(), lambda text: None, environment) as connection:
        yield connection


def ping(url: str) -> bool:
    with redis.Redis.from_url(url) as client:
        return bool(client.ping())


def test_a_named_redis_is_used_and_nothing_is_started(environment: dict[str, str], home: Home) -> None:
    environment["DOCEXPRESS_REDIS_URL"] = "redis://somewhere"
    with connect(WHOLE_STACK, StackOptions(), lambda text: None, environment) as connection:
        assert connection == Connection("redis://somewhere", embedded=False)
        connection.need(WHOLE_STACK)
    assert not home.path.exists()


def test_a_second_command_uses_the_running_stack(session: Connection, environment: dict[str, str]) -> None:
    with connect(STORE_ONLY, StackOptions(), lambda text: None, environment) as second:
        assert second == Connection(session.redis_url, embedded=True)
    assert ping(session.redis_url)


def test_a_command_that_needs_more_than_runs_waits_its_turn(
    session: Connection, environment: dict[str, str]
) -> None:
    said: list[str] = []
    with pytest.raises(StackBusy), connect(WHOLE_STACK, IMPATIENT, said.append, environment):
        pytest.fail("a stack without a worker was handed out")
    assert any("waiting for another docexpress command" in text for text in said)


def test_the_owner_stays_until_nobody_uses_the_stack(environment: dict[str, str]) -> None:
    said: list[str] = []
    user = ExitStack()

    def leave(text: str) -> None:
        said.append(text)
        if "waiting for other commands" in text:
            assert ping(second.redis_url)
            user.close()

    with connect(STORE_ONLY, StackOptions(), leave, environment):
        second = user.enter_context(connect(STORE_ONLY, StackOptions(), said.append, environment))
    assert any("waiting for other commands" in text for text in said)
    with pytest.raises(redis.ConnectionError):
        ping(second.redis_url)


def test_a_failed_command_waits_for_the_others_too(environment: dict[str, str]) -> None:
    asked: list[str] = []

    def busy(url: str) -> bool:
        asked.append(url)
        return ping(url) and len(asked) < 3

    with (
        pytest.raises(LookupError),
        connect(STORE_ONLY, StackOptions(), lambda text: None, environment, busy=busy),
    ):
        raise LookupError
    assert len(asked) == 3


def test_a_terminated_command_waits_for_nobody(environment: dict[str, str], home: Home) -> None:
    def busy(url: str) -> bool:
        pytest.fail("it asked whether others are busy")

    with (
        pytest.raises(Terminated),
        connect(STORE_ONLY, StackOptions(), lambda text: None, environment, busy=busy),
    ):
        raise Terminated(143)
    assert running_stack(home) is None


def test_a_stack_is_found_while_it_runs_and_only_then(environment: dict[str, str], home: Home) -> None:
    assert running_stack(home) is None
    with connect(STORE_ONLY, StackOptions(), lambda text: None, environment) as connection:
        run = running_stack(home)
        assert run is not None
        assert (run.redis_url, run.parts) == (connection.redis_url, STORE_ONLY)
    assert running_stack(home) is None
    assert not home.run_file.exists()


def test_many_commands_at_once_all_get_an_answer(cli: CommandLine) -> None:
    with ExitStack() as started:
        commands = [started.enter_context(cli.started("jobs", "--json")) for _ in range(4)]
        answers = [command.end() for command in commands]
    assert [(code, output) for code, output, _ in answers] == [(0, "[]\n")] * 4, answers


def test_a_signal_does_not_interrupt_the_stop() -> None:
    before = signal.getsignal(signal.SIGINT)
    with signals_held():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(number)
    assert signal.getsignal(signal.SIGINT) is before
