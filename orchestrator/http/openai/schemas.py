"""What clients of OpenAI's API send. Fields that would change the answer and are not supported are refused,
those that would not are ignored."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.http.bodies import ReadingOptions, checked
from orchestrator.http.errors import Problem
from orchestrator.http.settings import ApiSettings
from orchestrator.jobs import JobOptions

_SEEDS = 2**63
# Values that change nothing; any other one is refused.
_HARMLESS: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "audio": (),
}

StopText = Annotated[str, Field(min_length=1, max_length=1000)]


class Part(BaseModel):
    """A part of a message's content; only text is read."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(BaseModel):
    include_usage: bool = False


class CompletionOptions(BaseModel):
    """What both kinds of completion have. `docexpress` takes the options of a job that OpenAI does not have:
    cache_entries, segment_tokens, policy, policy_parameters, positions, repetition_penalty."""

    model_config = ConfigDict(extra="allow")

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=16)] | None = None
    seed: int | None = None
    docexpress: ReadingOptions | None = None

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def limit(self) -> tuple[str, int | None]:
        """The field that says how many tokens to write at most, and what it says."""
        return "max_tokens", self.max_tokens

    def options(self, settings: ApiSettings) -> JobOptions:
        """The options of the job. Raises Problem, OptionError."""
        self._refuse_unsupported()
        name, tokens = self.limit()
        if tokens is not None and not 1 <= tokens <= settings.max_new_tokens_limit:
            message = f"{name} is {tokens}, but must be an integer from 1 to {settings.max_new_tokens_limit}"
            raise Problem(400, message, code="invalid_value", param=name)
        reading = (self.docexpress or ReadingOptions()).applied_to(JobOptions(), settings)
        given: dict[str, Any] = {
            "model": self.model,
            "query": None,
            "max_new_tokens": tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": None if self.seed is None else self.seed % _SEEDS,
        }
        chosen = {field: value for field, value in given.items() if value is not None}
        return checked(dataclasses.replace(reading, **chosen), settings)

    def _refuse_unsupported(self) -> None:
        for name, value in (self.model_extra or {}).items():
            if name in _HARMLESS and value is not None and value not in _HARMLESS[name]:
                message = f"{name} is not supported with this value"
                raise Problem(400, message, code="unsupported_value", param=name)


class ChatRequest(CompletionOptions):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = None

    def limit(self) -> tuple[str, int | None]:
        if self.max_completion_tokens is not None:
            return "max_completion_tokens", self.max_completion_tokens
        return super().limit()


class CompletionRequest(CompletionOptions):
    """POST /v1/completions. One prompt, as text."""

    prompt: str | Annotated[list[str], Field(min_length=1, max_length=1)]

    @property
    def text(self) -> str:
        return self.prompt if isinstance(self.prompt, str) else self.prompt[0]
