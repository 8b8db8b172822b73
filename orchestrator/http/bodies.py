"""Request bodies: JSON or a form, checked field by field, and files on their way to disk."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

from anyio.to_thread import run_sync
from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import FormData, UploadFile

from orchestrator.http.errors import Problem
from orchestrator.http.settings import ApiSettings
from orchestrator.jobs import JobOptions

Model = TypeVar("Model", bound=BaseModel)
_MAX_FIELDS = 32
_FIELD_BYTES = 64 * 1024


class TextOptions(BaseModel):
    """Those options that shape the text; what is not given is as the product, or the job that is asked, has
    it."""

    model_config = ConfigDict(extra="forbid")

    max_new_tokens: int | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    reread: int | None = None

    def applied_to(self, options: JobOptions, settings: ApiSettings) -> JobOptions:
        """`options` with what is given here. Raises OptionError, Problem (more text than is allowed)."""
        names = {field.name for field in dataclasses.fields(JobOptions)}
        given = {name: value for name, value in self.model_dump().items() if value is not None}
        chosen = dataclasses.replace(
            options, **{name: value for name, value in given.items() if name in names}
        )
        return checked(chosen, settings)


class AskRequest(TextOptions):
    """POST /v1/jobs/{id}/ask."""

    question: str


class ReadingOptions(TextOptions):
    """All options of a job."""

    model: str | None = None
    query: str | None = None
    cache_entries: int | None = None
    segment_tokens: int | None = None
    policy: str | None = None
    policy_parameters: dict[str, str] | None = None
    positions: str | None = None


class JobRequest(ReadingOptions):
    """POST /v1/jobs: a text, or the name of a stored document. A form has the field `file` in their place."""

    text: str | None = None
    document: str | None = None
    title: str | None = Field(default=None, max_length=200)


def checked(options: JobOptions, settings: ApiSettings) -> JobOptions:
    """The options themselves. Raises Problem when more text is wanted than is allowed."""
    limit = settings.max_new_tokens_limit
    if options.max_new_tokens > limit:
        message = f"max_new_tokens is {options.max_new_tokens}, but at most {limit} are written"
        raise Problem(400, message, code="invalid_value", param="max_new_tokens")
    return options


def is_form(request: Request) -> bool:
    return content_type(request) == "multipart/form-data"


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_json(request: Request, model: type[Model]) -> Model:
    """The body as `model`. Raises Problem 415; ValidationError.

    Another content type is refused, because a browser would send it for any web page without asking us.
    """
    if content_type(request) != "application/json":
        raise Problem(415, "The body must be application/json.", code="wrong_content_type")
    return await run_sync(model.model_validate_json, await request.body())


@asynccontextmanager
async def received_form(request: Request) -> AsyncIterator[tuple[JobRequest, IO[bytes], str]]:
    """Options, the file and its name, as long as the context lasts. Raises Problem 400, ValidationError."""
    async with request.form(max_files=1, max_fields=_MAX_FIELDS, max_part_size=_FIELD_BYTES) as form:
        file = _file(form)
        fields: dict[str, Any] = {name: value for name, value in form.items() if isinstance(value, str)}
        if "policy_parameters" in fields:
            fields["policy_parameters"] = _json_field("policy_parameters", fields["policy_parameters"])
        yield JobRequest.model_validate(fields), file.file, file.filename or ""


@asynccontextmanager
async def received_file(request: Request) -> AsyncIterator[Path]:
    """The file that is sent, as the body or in a form, on disk as long as the context lasts."""
    with tempfile.NamedTemporaryFile(prefix="docexpress-upload-") as target:
        if is_form(request):
            async with request.form(max_files=1, max_fields=_MAX_FIELDS) as form:
                await run_sync(shutil.copyfileobj, _file(form).file, target, 1024**2)
        else:
            async for chunk in request.stream():
                await run_sync(target.write, chunk)
        await run_sync(target.flush)
        yield Path(target.name)


def _file(form: FormData) -> UploadFile:
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise Problem(400, "file: the form has no file of this name", code="invalid_value", param="file")
    return file


def _json_field(name: str, value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        message = f"{name}: not a JSON object"
        raise Problem(400, message, code="invalid_value", param=name) from None
