"""Jobs: submit, look, watch, cancel, ask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Header, Query, Request

from orchestrator.documents import Document, document_from_bytes, document_from_text
from orchestrator.errors import DocumentError
from orchestrator.event_stream import check_event_id
from orchestrator.http.bodies import AskRequest, JobRequest, is_form, read_json, received_form
from orchestrator.http.context import Admitted, Api, TheApi, TheService
from orchestrator.http.errors import Problem, problem_of
from orchestrator.http.streams import EventStreamResponse, job_events
from orchestrator.jobs import Job, JobOptions
from orchestrator.service import Service
from orchestrator.wire import EvidenceInfo, JobInfo, TextInfo

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
MAX_BINS = 4096
MAX_CHARACTERS = 16_384
MAX_PLACE = 2**40
_JSON_BODY = {"application/json": {"schema": JobRequest.model_json_schema()}}


def job_info(job: Job) -> JobInfo:
    return JobInfo(
        id=job.id,
        kind=job.kind,
        title=job.title,
        question=job.question,
        status=job.status,
        stage=job.stage,
        segment=job.segment,
        segments=job.segments,
        model=job.options.model,
        document=job.document,
        state=job.state,
        tokens_read=job.token_count,
        created=job.created,
        updated=job.updated,
        reason=job.reason,
        retryable=job.retryable,
        result=None if job.result is None else dict(job.result),
    )


@router.post("", status_code=202, openapi_extra={"requestBody": {"content": _JSON_BODY}})
async def submit(request: Request, api: TheApi, service: Admitted) -> JobInfo:
    """Starts a job on a file (a form), a text, or a stored document; does not wait for it."""
    if is_form(request):
        async with received_form(request) as (body, file, name):
            # A file may cost a process of its own: only so many are read at once.
            return await run_sync(_submit_file, api, service, body, file, name, limiter=api.readers)
    return await run_sync(_submit_json, api, service, await read_json(request, JobRequest))


@router.get("")
def jobs(service: TheService, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> list[JobInfo]:
    """The jobs, the newest first."""
    return [job_info(job) for job in service.jobs()[:limit]]


@router.get("/{job_id}")
def job(job_id: str, service: TheService) -> JobInfo:
    return job_info(service.job(job_id))


# FastAPI cannot guess the status of such a response, and would fail to describe the API.
@router.get("/{job_id}/events", response_class=EventStreamResponse, status_code=200)
def events(
    job_id: str,
    api: TheApi,
    service: TheService,
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventStreamResponse:
    """The job's events as they come, from the beginning or after an event; ends after the terminal one."""
    after = check_event_id(last_event_id or "0-0")
    service.job(job_id)
    with api.stream():  # refused with a status code, while one can still be sent
        return EventStreamResponse(job_events(api, service, job_id, after))


@router.get("/{job_id}/evidence")
async def evidence(
    job_id: str, api: TheApi, service: TheService, bins: Annotated[int, Query(ge=1, le=MAX_BINS)] = 1024
) -> EvidenceInfo:
    """What of its document the state of a finished job holds, in so many equal parts of the document."""
    # It may take as long as a worker needs for a long document: in a thread that no short request waits for.
    return EvidenceInfo.model_validate(await run_sync(service.evidence, job_id, bins, limiter=api.threads))


@router.get("/{job_id}/document")
def document(
    job_id: str,
    service: TheService,
    start: Annotated[int, Query(ge=0, le=MAX_PLACE)] = 0,
    count: Annotated[int, Query(ge=1, le=MAX_CHARACTERS)] = MAX_CHARACTERS,
) -> TextInfo:
    """A piece of the text of the job's document: `count` characters from `start` on, or what there is."""
    text = service.document_text(job_id, start, start + count)
    return TextInfo(start=start, end=start + len(text), text=text)


@router.delete("/{job_id}")
def cancel(job_id: str, service: TheService) -> JobInfo:
    """Cancels the job; one that has ended stays as it is."""
    return job_info(service.cancel(job_id))


@router.delete("/{job_id}/record", status_code=204)
def remove(job_id: str, service: TheService) -> None:
    """Cancels the job and deletes it for good; its document and state stay until they expire."""
    service.remove(job_id)


@router.post(
    "/{job_id}/ask",
    status_code=202,
    openapi_extra={
        "requestBody": {"content": {"application/json": {"schema": AskRequest.model_json_schema()}}}
    },
)
async def ask(job_id: str, request: Request, api: TheApi, service: Admitted) -> JobInfo:
    """Starts a job that answers a question from the state of a finished job."""
    return await run_sync(_ask, api, service, job_id, await read_json(request, AskRequest))


def _submit_file(api: Api, service: Service, body: JobRequest, file: IO[bytes], name: str) -> JobInfo:
    if body.text is not None or body.document is not None:
        raise Problem(400, "file: give a file or a text, not both", code="invalid_value", param="file")
    name = name.replace("\\", "/").rpartition("/")[2][-200:]
    options = body.applied_to(JobOptions(), api.settings)  # refused before the file is read
    with naming_field("file"):
        document = document_from_bytes(
            file.read(), body.title or name or "upload", name=name, limits=api.settings.reading_limits
        )
    return job_info(service.submit(document, options))


def _submit_json(api: Api, service: Service, body: JobRequest) -> JobInfo:
    if (body.text is None) == (body.document is None):
        message = "text: give either a text or the name of a stored document"
        raise Problem(400, message, code="invalid_value", param="text")
    if body.document is not None:
        options = body.applied_to(JobOptions(), api.settings)
        return job_info(service.submit_stored(body.document, options))
    document = text_document(api, body.text or "", body.title or "text", "text")
    return job_info(service.submit(document, body.applied_to(JobOptions(), api.settings)))


def text_document(api: Api, text: str, title: str, param: str) -> Document:
    """A document from the text of a field, which is nothing but text. Raises Problem."""
    with naming_field(param):
        return document_from_text(text, title, limits=api.settings.reading_limits)


@contextmanager
def naming_field(param: str) -> Iterator[None]:
    """Turns what is wrong with a document into a problem with the name of the field that it came in."""
    try:
        yield
    except DocumentError as error:
        problem = problem_of(error)
        problem.param = param
        raise problem from error
    except UnicodeEncodeError:
        message = f"{param}: holds characters that no encoding has"
        raise Problem(400, message, code="invalid_value", param=param) from None


def _ask(api: Api, service: Service, job_id: str, body: AskRequest) -> JobInfo:
    options = body.applied_to(service.job(job_id).options, api.settings)
    return job_info(service.ask(job_id, body.question, options))
