"""TLS and mutual TLS between orchestrator and worker, with certificates made here and a real gRPC server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import ValidationError

from cache_store.worker_registry import WorkerRecord, alive
from kernel_worker.server import NOT_STARTED, main
from kernel_worker.worker import Worker
from orchestrator import doctor
from orchestrator.channels import Channels
from orchestrator.cli.main import run
from orchestrator.errors import WorkerInsecure
from orchestrator.jobs import Job
from orchestrator.setting_problem import setting_problem
from orchestrator.settings import Settings
from protos.kernel_worker_pb2 import DescribeRequest
from tests.certificates import Authority, Pair
from tests.kernel_worker.server.harness import DEADLINE, Lab, refusal, stub_of, worker_settings
from tests.orchestrator.harness import Orchestrator

OWN_LOCAL_CONNECTION = ("grpc.use_local_subchannel_pool", 1)
NAME = "worker.docexpress.internal"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "another authority")


@pytest.fixture(scope="module")
def server(authority: Authority) -> Pair:
    return authority.pair("server")


@pytest.fixture(scope="module")
def caller_pair(authority: Authority) -> Pair:
    return authority.pair("caller", "orchestrator")


def secure_worker(lab: Lab, pair: Pair, **changes: Any) -> Worker:
    return lab.worker(grpc_server_cert=pair.cert, grpc_server_key=pair.key, **changes)


def settings_of(lab: Lab, ca: Path | None = None, pair: Pair | None = None, **changes: Any) -> Settings:
    own = {} if pair is None else {"grpc_cert": pair.cert, "grpc_key": pair.key}
    short = {"retry_backoff": 0.05, "reaper_interval": 0.05, "busy_pause": 0.05}
    return Settings(redis_url=lab.redis_url, grpc_ca=ca, **own, **short, **changes)


@contextmanager
def channels(settings: Settings) -> Iterator[Channels]:
    opened = Channels(settings)
    yield opened
    opened.close()


def record_of(lab: Lab) -> WorkerRecord:
    [record] = alive(lab.client)
    return record


def described(lab: Lab, settings: Settings) -> str:
    """The fingerprint that a worker tells its orchestrator."""
    with channels(settings) as opened, opened.stub(record_of(lab)) as stub:
        return str(stub.Describe(DescribeRequest(), timeout=DEADLINE).model_fingerprint)


def run_job(settings: Settings) -> Job:
    orchestrator = Orchestrator(settings)
    try:
        job = orchestrator.submit(
            "A text of some words. " * 4, model="tiny-llama", cache_entries=128, segment_tokens=96
        )
        return orchestrator.finish(job, 30)
    finally:
        orchestrator.close()


def test_a_job_goes_through_over_mutual_tls(
    lab: Lab, authority: Authority, server: Pair, caller_pair: Pair
) -> None:
    secure_worker(lab, server, grpc_client_ca=authority.ca)
    assert record_of(lab).tls == "mutual"
    job = run_job(settings_of(lab, authority.ca, caller_pair))
    assert job.status == "done", job.reason


def test_plaintext_and_strangers_are_refused(
    lab: Lab, authority: Authority, stranger: Authority, server: Pair
) -> None:
    worker = secure_worker(lab, server)
    assert record_of(lab).tls == "server"
    plain = stub_of(lab.channel(worker))
    refused = refusal(lambda: plain.Describe(DescribeRequest(), timeout=DEADLINE))
    assert refused.code() is grpc.StatusCode.UNAVAILABLE

    fingerprint = lab.loaded.fingerprint
    assert described(lab, settings_of(lab, authority.ca)) == fingerprint
    with pytest.raises(WorkerInsecure, match="DOCEXPRESS_GRPC_CA for the orchestrator"):
        described(lab, settings_of(lab))
    refused = refusal(lambda: described(lab, settings_of(lab, stranger.ca)))
    assert refused.code() is grpc.StatusCode.UNAVAILABLE


def test_mutual_tls_asks_for_a_certificate_of_the_right_authority(
    lab: Lab, authority: Authority, stranger: Authority, server: Pair, caller_pair: Pair
) -> None:
    secure_worker(lab, server, grpc_client_ca=authority.ca)
    assert described(lab, settings_of(lab, authority.ca, caller_pair)) == lab.loaded.fingerprint
    with pytest.raises(WorkerInsecure, match="DOCEXPRESS_GRPC_CERT"):
        described(lab, settings_of(lab, authority.ca))

    # Whatever its record says: the server itself refuses who shows none, or a stranger's.
    record = record_of(lab).model_copy(update={"tls": "server"})
    for own in (None, stranger.pair("caller", "orchestrator")):
        with channels(settings_of(lab, authority.ca, own)) as opened, opened.stub(record) as stub:
            refused = refusal(lambda stub=stub: stub.Describe(DescribeRequest(), timeout=DEADLINE))
            assert refused.code() is grpc.StatusCode.UNAVAILABLE


def test_a_record_cannot_talk_a_call_down_to_plain_text(lab: Lab, authority: Authority) -> None:
    lab.worker()
    assert record_of(lab).tls == "none"
    with pytest.raises(WorkerInsecure, match="DOCEXPRESS_GRPC_SERVER_CERT"):
        described(lab, settings_of(lab, authority.ca))
    forged = record_of(lab).model_copy(update={"tls": "server"})
    with channels(settings_of(lab, authority.ca)) as opened, opened.stub(forged) as stub:
        refused = refusal(lambda: stub.Describe(DescribeRequest(), timeout=DEADLINE))
    assert refused.code() is grpc.StatusCode.UNAVAILABLE


def test_a_certificate_is_for_the_address_or_the_agreed_name(lab: Lab, authority: Authority) -> None:
    secure_worker(lab, authority.pair("named", NAME))
    refused = refusal(lambda: described(lab, settings_of(lab, authority.ca)))
    assert "verification check failed" in refused.details().lower()
    settings = settings_of(lab, authority.ca, grpc_server_name=NAME)
    assert described(lab, settings) == lab.loaded.fingerprint


@pytest.mark.parametrize("trusted", ["stranger", "none"])
def test_a_job_fails_with_a_sentence(lab: Lab, stranger: Authority, server: Pair, trusted: str) -> None:
    secure_worker(lab, server)
    ca = stranger.ca if trusted == "stranger" else None
    job = run_job(settings_of(lab, ca, max_attempts=1))
    assert job.status == "failed"
    sentence = {"stranger": "a certificate that DOCEXPRESS_GRPC_CA has not signed", "none": "speaks TLS"}
    assert sentence[trusted] in job.reason


@pytest.mark.parametrize("mutual", [False, True], ids=["tls", "mutual"])
def test_the_health_check_and_the_doctor_speak_tls(
    lab: Lab,
    authority: Authority,
    stranger: Authority,
    caller_pair: Pair,
    mutual: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pair = authority.pair("named", NAME)
    worker = secure_worker(lab, pair, **({"grpc_client_ca": authority.ca} if mutual else {}))
    monkeypatch.setenv("DOCEXPRESS_LISTEN", worker.address)
    assert run(["worker", "--check"]) == 1  # in plain
    monkeypatch.setenv("DOCEXPRESS_GRPC_SERVER_CERT", str(pair.cert))
    monkeypatch.setenv("DOCEXPRESS_GRPC_SERVER_KEY", str(pair.key))
    assert run(["worker", "--check"]) == 0
    assert "SERVING" in capsys.readouterr().err

    def workers() -> doctor.Check:
        return next(check for check in doctor.examine() if check.name == "workers")

    monkeypatch.setenv("DOCEXPRESS_REDIS_URL", lab.redis_url)
    assert workers().status == doctor.BROKEN
    assert "set DOCEXPRESS_GRPC_CA" in workers().found
    monkeypatch.setenv("DOCEXPRESS_GRPC_CA", str(authority.ca))
    monkeypatch.setenv("DOCEXPRESS_GRPC_SERVER_NAME", NAME)
    if mutual:
        assert "asks callers for a certificate" in workers().found
        monkeypatch.setenv("DOCEXPRESS_GRPC_CERT", str(caller_pair.cert))
        monkeypatch.setenv("DOCEXPRESS_GRPC_KEY", str(caller_pair.key))
    assert workers().status == doctor.OK, workers().found
    monkeypatch.setenv("DOCEXPRESS_GRPC_CA", str(stranger.ca))
    assert "does not answer over TLS" in workers().found


def refused_settings(build: Any, **values: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        build(**values)
    return setting_problem(caught.value)


def test_files_are_checked_before_anything_starts(
    authority: Authority, stranger: Authority, server: Pair, tmp_path: Path
) -> None:
    absent, junk = tmp_path / "absent.pem", tmp_path / "junk.pem"
    junk.write_text("no certificate")
    other = stranger.pair("other")
    both = {"grpc_server_cert": server.cert, "grpc_server_key": server.key}

    def worker(**values: Any) -> str:
        return refused_settings(worker_settings, **values)

    def orchestrator(**values: Any) -> str:
        return refused_settings(Settings, **values)

    assert "absent.pem cannot be read: No such file" in worker(grpc_server_cert=absent)
    alone = "DOCEXPRESS_GRPC_SERVER_CERT needs DOCEXPRESS_GRPC_SERVER_KEY, too"
    assert worker(grpc_server_cert=server.cert) == alone
    assert worker(grpc_server_key=server.key).startswith("DOCEXPRESS_GRPC_SERVER_KEY needs")
    assert "are not a certificate and its own key" in worker(**both | {"grpc_server_key": other.key})
    assert "are not a certificate and its own key" in worker(**both | {"grpc_server_cert": junk})
    assert worker(grpc_client_ca=junk, **both).startswith("DOCEXPRESS_GRPC_CLIENT_CA: ")
    assert "needs DOCEXPRESS_GRPC_SERVER_CERT" in worker(grpc_client_ca=authority.ca)
    assert "unix socket" in worker(listen="unix:/tmp/socket", **both)

    assert orchestrator(grpc_ca=absent).startswith("DOCEXPRESS_GRPC_CA: ")
    assert "DOCEXPRESS_GRPC_KEY, too" in orchestrator(grpc_ca=authority.ca, grpc_cert=server.cert)
    pair = {"grpc_cert": server.cert, "grpc_key": server.key}
    assert "DOCEXPRESS_GRPC_CA has to be set" in orchestrator(**pair)
    assert "DOCEXPRESS_GRPC_CA has to be set" in orchestrator(grpc_server_name=NAME)
    assert Settings(grpc_ca="", grpc_cert="", grpc_server_name="").grpc_ca is None


def test_the_worker_process_says_what_is_wrong(
    server: Pair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCEXPRESS_GRPC_SERVER_CERT", str(server.cert))
    assert main() == NOT_STARTED
    said = capsys.readouterr().err
    assert said == "DOCEXPRESS_GRPC_SERVER_CERT needs DOCEXPRESS_GRPC_SERVER_KEY, too.\n"


def test_health_is_served_over_tls_alone(lab: Lab, authority: Authority, server: Pair) -> None:
    worker = secure_worker(lab, server)
    trusted = grpc.ssl_channel_credentials(authority.ca.read_bytes())
    request = health_pb2.HealthCheckRequest()
    with grpc.secure_channel(worker.address, trusted, options=[OWN_LOCAL_CONNECTION]) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=DEADLINE)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
