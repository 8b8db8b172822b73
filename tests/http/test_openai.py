"""The official client of OpenAI's API, as it comes, against our server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from orchestrator.http.settings import ApiSettings
from orchestrator.service import Service
from tests.http.stack import ENDLESS, MODEL, READING, serving, text_of
from tests.orchestrator.harness import until

READ: dict[str, Any] = {"docexpress": {name: READING[name] for name in READING if name != "model"}}


@pytest.fixture
def client(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=60) as made:
        yield made


@pytest.fixture
def service(settings: ApiSettings) -> Iterator[Service]:
    with Service(settings) as made:
        yield made


def chat(client: OpenAI, messages: list[dict[str, str]], **changes: Any) -> Any:
    values: dict[str, Any] = {"model": MODEL, "max_tokens": 12, "extra_body": READ}
    return client.chat.completions.create(messages=messages, **(values | changes))  # type: ignore[arg-type]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "docexpress"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")


def test_a_chat_and_a_conversation_that_finds_its_state(client: OpenAI) -> None:
    question = user(f"{text_of('chat')}\n\nWhat does sentence 3 tell?")
    first = chat(client, [question])
    choice = first.choices[0]
    assert choice.message.role == "assistant"
    assert choice.finish_reason in ("stop", "length")
    assert first.id.startswith("chatcmpl-")
    usage = first.usage
    assert usage.prompt_tokens > 96
    assert usage.prompt_tokens_details.cached_tokens == 0
    assert 0 < usage.completion_tokens <= 12
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens

    again = chat(client, [question], seed=5)  # greedy: the seed changes nothing
    assert again.choices[0].message.content == choice.message.content
    answer = {"role": "assistant", "content": "It tells of 10."}
    later = chat(client, [question, answer, user("And sentence 4?")])
    for found in (again, later):
        assert found.usage.prompt_tokens_details.cached_tokens == found.usage.prompt_tokens


def test_streams_tell_the_same(client: OpenAI) -> None:
    messages = [{"role": "system", "content": text_of("stream")}, user("Sum it up.")]
    whole = chat(client, messages)
    chunks = list(chat(client, messages, stream=True, stream_options={"include_usage": True}))
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == whole.usage.prompt_tokens
    without = list(chat(client, messages, stream=True))
    assert all(chunk.choices and chunk.usage is None for chunk in without)


def test_completions(client: OpenAI) -> None:
    values: dict[str, Any] = {
        "model": MODEL,
        "max_tokens": 8,
        "extra_body": READ,
        "temperature": 0.8,
        "top_p": 0.9,
    }
    prompt = f"{text_of('completion')}\n\nGo on:"
    whole = client.completions.create(prompt=prompt, seed=-3, **values)
    assert whole.object == "text_completion"
    assert whole.usage is not None
    assert whole.usage.completion_tokens <= 8
    streamed = list(client.completions.create(prompt=[prompt], seed=-3, stream=True, **values))
    assert "".join(chunk.choices[0].text for chunk in streamed) == whole.choices[0].text
    assert streamed[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    other = client.completions.create(prompt=prompt, seed=4, **values)
    assert other.choices[0].text != whole.choices[0].text
    assert other.usage is not None
    assert other.usage.prompt_tokens_details is not None
    assert other.usage.prompt_tokens_details.cached_tokens == other.usage.prompt_tokens


def test_stop_cuts_the_text_and_cancels_the_job(client: OpenAI, service: Service) -> None:
    messages = [{"role": "system", "content": text_of("stop")}, user("Sum it up.")]
    text = chat(client, messages, max_tokens=30).choices[0].message.content
    stop = text[len(text) // 2 :][:4]
    expected = text[: text.find(stop)]
    values: dict[str, Any] = {"max_completion_tokens": ENDLESS, "stop": [stop, "never comes"]}
    cut = chat(client, messages, **values)
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == (expected, "stop")
    assert 0 < cut.usage.completion_tokens < 31
    job = service.job(cut.id.removeprefix("chatcmpl-"))
    assert job.status == "cancelled"
    assert job.options.max_new_tokens == ENDLESS
    streamed = list(chat(client, messages, stream=True, **values))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == expected
    assert streamed[-1].choices[0].finish_reason == "stop"
    job_id = streamed[-1].id.removeprefix("chatcmpl-")
    until(lambda: service.job(job_id).status == "cancelled", "the streamed job is cancelled")


def test_who_goes_away_cancels_the_job(client: OpenAI, service: Service, url: str) -> None:
    messages = [{"role": "system", "content": text_of("leave")}, user("Sum it up.")]
    stream = chat(client, messages, stream=True, max_tokens=ENDLESS)
    job_id = next(iter(stream)).id.removeprefix("chatcmpl-")
    stream.close()
    until(lambda: service.job(job_id).status == "cancelled", "the streamed job is cancelled", 20)

    with (
        OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=1) as hasty,
        pytest.raises(openai.APITimeoutError),
    ):
        chat(hasty, messages, max_tokens=ENDLESS)
    until(lambda: service.unfinished()[0] == 0, "the job that nobody waits for is cancelled", 20)
    assert service.jobs()[0].status == "cancelled"


def test_a_failure_in_the_middle_is_an_error_event(client: OpenAI, service: Service) -> None:
    messages = [{"role": "system", "content": text_of("fail")}, user("Sum it up.")]
    stream = iter(chat(client, messages, stream=True, max_tokens=ENDLESS))
    job_id = next(stream).id.removeprefix("chatcmpl-")
    assert next(stream).choices[0].delta.content
    canceller = threading.Thread(target=service.cancel, args=(job_id,))
    canceller.start()
    with pytest.raises(openai.APIError, match="cancelled"):
        list(stream)
    canceller.join()
    few = {"docexpress": READ["docexpress"] | {"cache_entries": 2}}
    with pytest.raises(openai.APIError, match="entries") as failed:
        list(chat(client, messages, stream=True, extra_body=few))
    assert failed.value.body["code"] == "job_invalid"  # type: ignore[index]
    with pytest.raises(openai.BadRequestError, match="entries"):
        chat(client, messages, extra_body=few)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 10**6}, "max_completion_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"stop": [""]}, "stop"),
        ({"messages": [{"role": "user", "content": " "}]}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "judge", "content": "x"}]}, "messages"),
        ({"extra_body": {"docexpress": {"colour": "red"}}}, "docexpress"),
        ({"extra_body": {"docexpress": {"segment_tokens": 0}}}, "segment_tokens"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_requests_name_the_field(client: OpenAI, changes: dict[str, Any], param: str) -> None:
    values = {"messages": [user("Hello there.\n\nWhat?")]} | changes
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, **values)
    assert (refused.value.param or "").startswith(param)
    assert refused.value.type == "invalid_request_error"


def test_an_unknown_model_is_refused_at_once(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        chat(client, [user("Hello")], model="another")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")


def test_overload_and_the_client_s_own_patience(settings: ApiSettings, service: Service) -> None:
    with (
        serving(settings, unfinished_jobs_limit=1, tenant="busy", retry_after_seconds=1) as url,
        OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client,
    ):
        stream = chat(client, [user(text_of("busy"))], stream=True, max_tokens=ENDLESS)
        next(iter(stream))
        with pytest.raises(openai.RateLimitError) as refused:
            chat(client, [user("Hello")])
        assert refused.value.response.headers["Retry-After"] == "1"
        stream.close()
        assert chat(client.with_options(max_retries=5), [user("Hello")]).choices
