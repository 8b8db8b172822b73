"""The objects that OpenAI's API answers with, for chat and for plain completions."""

from __future__ import annotations

import dataclasses
from typing import Any

from orchestrator.http.openai.writing import Ending
from orchestrator.jobs import Job


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """Makes the objects of one answer. Its id is that of the job, so that it can be asked again."""

    job: Job
    chat: bool

    def whole(self, text: str, ending: Ending) -> dict[str, Any]:
        """The answer in one piece."""
        content: dict[str, Any] = (
            {"message": {"role": "assistant", "content": text, "refusal": None}}
            if self.chat
            else {"text": text}
        )
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": ending.finish_reason}
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._head(kind), "choices": [choice], "usage": usage(ending)}

    def beginning(self) -> dict[str, Any] | None:
        """The first chunk of a chat names the role."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}) if self.chat else None

    def piece(self, text: str) -> dict[str, Any]:
        return self._chunk({"delta": {"content": text}} if self.chat else {"text": text})

    def end(self, ending: Ending) -> dict[str, Any]:
        return self._chunk({"delta": {}} if self.chat else {"text": ""}, ending.finish_reason)

    def usage_chunk(self, ending: Ending) -> dict[str, Any]:
        """The chunk without choices that follows the last one, where usage is wanted."""
        return {**self._head(self._chunk_kind), "choices": [], "usage": usage(ending)}

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _chunk(self, content: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head(self._chunk_kind), "choices": [choice]}

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.job.id}",
            "object": kind,
            "created": int(self.job.created),
            "model": self.job.options.model,
        }


def usage(ending: Ending) -> dict[str, Any]:
    return {
        "prompt_tokens": ending.prompt_tokens,
        "completion_tokens": ending.completion_tokens,
        "total_tokens": ending.prompt_tokens + ending.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": ending.cached_tokens},
    }
