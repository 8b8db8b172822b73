"""How a job begins: from a document, or as a question to a finished job."""

from __future__ import annotations

import dataclasses
import logging
import secrets
import time
from typing import Any

from cache_store.documents import text_chunks, write_document
from cache_store.errors import StoreError
from cache_store.naming import document_name
from cache_store.store import CacheStore
from orchestrator.documents import Document
from orchestrator.errors import (
    DocumentError,
    JobCancelled,
    JobFailed,
    JobStoreUnavailable,
    NotFinished,
    OptionError,
)
from orchestrator.job_store import JobStore
from orchestrator.jobs import Job, JobOptions

_log = logging.getLogger(__name__)


def submit(
    jobs: JobStore,
    store: CacheStore,
    document: Document,
    options: JobOptions,
    instruction: str | None = None,
) -> Job:
    """Stores a document and creates a job on it, or neither. Raises DocumentError; what the stores raise.

    With an `instruction` the job does what that says, in place of a summary. Then `options.seed` is that of
    the text alone, so that the same document under another seed finds the same state.
    """
    if not document.text.strip():
        raise DocumentError(f"{document.title} is empty or blank")
    try:
        size = sum(len(chunk) for chunk in text_chunks(document.text))
        name = document_name(text_chunks(document.text))
    except UnicodeEncodeError:
        raise DocumentError(f"{document.title} holds characters that no encoding has") from None
    known = store.exists("document", [name])[0]
    write_document(store, name, text_chunks(document.text), size=size, meta={"title": document.title[:200]})
    job = _document_job(store.tenant, document.title, name, options, instruction)
    try:
        jobs.create(job)
    except JobStoreUnavailable:
        if not known:
            _take_back(store, name)
        raise
    return job


def submit_stored(jobs: JobStore, store: CacheStore, name: str, options: JobOptions) -> Job:
    """Creates a job on a document that is stored already. Raises OptionError (no name), ObjectMissing."""
    try:
        title = store.manifest("document", name).meta.get("title")
    except ValueError as error:
        raise OptionError(str(error), "document") from None
    job = _document_job(store.tenant, str(title or name[:12]), name, options, None)
    jobs.create(job)
    return job


def _document_job(
    tenant: str, title: str, document: str, options: JobOptions, instruction: str | None
) -> Job:
    if instruction is None:
        return _new_job(tenant, "summarize", title, options, document=document, plan_seed=options.seed)
    return _new_job(tenant, "complete", title, options, document=document, question=instruction)


def ask(jobs: JobStore, asked: Job, question: str, options: JobOptions | None) -> Job:
    """Creates a job that begins behind the reading, on the state of `asked`, which must be finished."""
    if not question.strip():
        raise OptionError("the question is blank", "question")
    require_result(asked)
    chosen = asked.options if options is None else options
    merged = dataclasses.replace(
        asked.options,
        query=None,
        max_new_tokens=chosen.max_new_tokens,
        seed=chosen.seed,
        temperature=chosen.temperature,
        top_p=chosen.top_p,
        repetition_penalty=chosen.repetition_penalty,
        reread=chosen.reread,
    )
    job = _new_job(
        asked.tenant,
        "ask",
        asked.title,
        merged,
        question=question.strip(),
        stage="rank" if merged.reread else "decode",
        document=asked.document,
        tokens=asked.tokens,
        token_count=asked.token_count,
        segments=asked.segments,
        segment=asked.segments,
        best_segments=asked.segments,
        model_fingerprint=asked.model_fingerprint,
        positions=asked.positions,
        bytes_per_token=asked.bytes_per_token,
        state=asked.state,
        plan_seed=asked.plan_seed,
    )
    jobs.create(job)
    return job


def require_result(job: Job) -> None:
    """Raises NotFinished, JobFailed or JobCancelled unless the job is done."""
    if job.status == "failed":
        raise JobFailed(job.id, job.reason, retryable=job.retryable, invalid=job.invalid)
    if job.status == "cancelled":
        raise JobCancelled(job.id)
    if job.status != "done":
        raise NotFinished(job.id, job.status)


def _new_job(tenant: str, kind: Any, title: str, options: JobOptions, **fields: Any) -> Job:
    now = time.time()
    return Job(
        id=secrets.token_hex(6),
        tenant=tenant,
        kind=kind,
        title=title,
        status="submitted",
        options=options,
        created=now,
        updated=now,
        queued=now,
        **fields,
    )


def _take_back(store: CacheStore, name: str) -> None:
    """Deletes a document that no job knows of; if that fails too, it expires."""
    try:
        store.delete("document", name)
    except StoreError as error:
        _log.warning("document %s of a job that was not created stays until it expires: %s", name, error)
