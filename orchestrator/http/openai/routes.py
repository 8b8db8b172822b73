"""The routes of OpenAI's API."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from cache_store.errors import StoreError
from orchestrator.errors import OrchestratorError
from orchestrator.http.bodies import read_json
from orchestrator.http.context import Admitted, Api, TheApi, TheService
from orchestrator.http.errors import Problem, problem_of
from orchestrator.http.openai.answers import Answer
from orchestrator.http.openai.schemas import ChatRequest, CompletionOptions, CompletionRequest
from orchestrator.http.openai.split import Turn, split
from orchestrator.http.openai.writing import Ending, Written, abandon, write
from orchestrator.http.routes.jobs import text_document
from orchestrator.http.streams import COMMENT, EventStreamResponse, sse
from orchestrator.jobs import Job
from orchestrator.service import Service

router = APIRouter(prefix="/v1", tags=["openai"])
_DONE = b"data: [DONE]\n\n"


@router.get("/models")
def models(service: TheService) -> dict[str, Any]:
    """The models of the workers that are registered now."""
    return {"object": "list", "data": list(_models(service).values())}


@router.get("/models/{name:path}")
def model(name: str, service: TheService) -> dict[str, Any]:
    found = _models(service)
    if name not in found:
        raise _no_model(name)
    return found[name]


@router.post("/chat/completions", response_model=None)
async def chat(request: Request, api: TheApi, service: Admitted) -> Response:
    """Answers a conversation; see docs/http_api.md for where it is cut into document and instruction."""
    body = await read_json(request, ChatRequest)
    turns = [Turn(message.role, message.text) for message in body.messages]
    return await _complete(request, api, service, body, turns, "messages")


@router.post("/completions", response_model=None)
async def completion(request: Request, api: TheApi, service: Admitted) -> Response:
    """Does what the last paragraph of the prompt says with the paragraphs before it."""
    body = await read_json(request, CompletionRequest)
    return await _complete(request, api, service, body, [Turn("user", body.text)], "prompt")


async def _complete(
    request: Request,
    api: Api,
    service: Service,
    body: CompletionOptions,
    turns: Sequence[Turn],
    param: str,
) -> Response:
    with api.stream():  # refused here, before there is a job
        job = await run_sync(_start, api, service, body, turns, param)
    answer = Answer(job, chat=param == "messages")
    written = write(api, service, job.id, body.stops)
    finish = partial(abandon, service, job.id)
    if body.stream:
        return EventStreamResponse(_chunks(api, answer, written, body.wants_usage), finish)
    try:
        async with aclosing(written):
            return await _whole(request, answer, written)
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(finish)


def _start(api: Api, service: Service, body: CompletionOptions, turns: Sequence[Turn], param: str) -> Job:
    """Raises Problem, OptionError, DocumentError, StoreError."""
    options = body.options(api.settings)
    _check_model(service, options.model)
    if not any(turn.text.strip() for turn in turns):
        raise Problem(400, f"{param}: there is no text", code="invalid_value", param=param)
    prompt = split(turns)
    document = text_document(api, prompt.document, "completion", param)
    return service.complete(document, prompt.instruction, options)


async def _whole(request: Request, answer: Answer, written: AsyncGenerator[Written]) -> Response:
    """The answer in one piece. Raises Problem; ClientDisconnect when nobody waits for it any more."""
    text, looked = "", time.monotonic()
    async for piece in written:
        if isinstance(piece, Ending):
            return JSONResponse(answer.whole(text, piece))
        text += piece
        if time.monotonic() - looked > 1:
            looked = time.monotonic()
            if await request.is_disconnected():
                raise ClientDisconnect
    raise Problem(500, "The text ended too early.", code="internal_error")


async def _chunks(
    api: Api, answer: Answer, written: AsyncGenerator[Written], with_usage: bool
) -> AsyncGenerator[bytes]:
    """The answer as server-sent events; a failure is told as one and ends the stream without [DONE]."""
    extra = {"usage": None} if with_usage else {}
    async with aclosing(written):
        yield COMMENT
        told = time.monotonic()
        try:
            if (beginning := answer.beginning()) is not None:
                yield sse(beginning | extra)
            async for piece in written:
                if isinstance(piece, Ending):
                    yield sse(answer.end(piece) | extra)
                    if with_usage:
                        yield sse(answer.usage_chunk(piece))
                    yield _DONE
                elif piece:
                    yield sse(answer.piece(piece) | extra)
                elif time.monotonic() - told < api.settings.comment_seconds:
                    continue
                else:
                    yield COMMENT
                told = time.monotonic()
        except (Problem, OrchestratorError, StoreError) as error:
            yield sse(problem_of(error).body())


def _models(service: Service) -> dict[str, dict[str, Any]]:
    return {
        worker.model_name: {
            "id": worker.model_name,
            "object": "model",
            "created": int(worker.started_at),
            "owned_by": "docexpress",
        }
        for worker in service.workers()
    }


def _check_model(service: Service, name: str) -> None:
    """Raises Problem where no registered worker has the model: nobody would write."""
    workers = service.workers()
    if not workers:
        raise Problem(503, "No kernel worker is registered.", code="overloaded", retry_after=5)
    if not any(name in (worker.model_name, worker.model_fingerprint) for worker in workers):
        raise _no_model(name)


def _no_model(name: str) -> Problem:
    return Problem(404, f"There is no model {name[:200]!r}.", code="model_not_found", param="model")
