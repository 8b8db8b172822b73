"""Looking at jobs: jobs, result, cancel."""

from __future__ import annotations

from typing import Any

from orchestrator.cli.display import PlainLines
from orchestrator.cli.figures import moment
from orchestrator.cli.session import open_session
from orchestrator.cli.tables import print_table
from orchestrator.cli.terminal import print_json, print_text
from orchestrator.embedded.home import STORE_ONLY
from orchestrator.jobs import Job


def jobs(*, as_json: bool) -> None:
    """All jobs, the newest first."""
    with open_session(PlainLines(), STORE_ONLY) as session:
        found = session.service.jobs()
    if as_json:
        print_json([job_json(job) for job in found])
        return
    rows = [[job.id, job.kind, _status(job), moment(job.created), job.question or job.title] for job in found]
    print_table(["JOB", "KIND", "STATUS", "CREATED", "DOCUMENT OR QUESTION"], rows)


def result(job_id: str, *, as_json: bool) -> None:
    """The text of a finished job. Raises UnknownJob, NotFinished, JobFailed, JobCancelled."""
    with open_session(PlainLines(), STORE_ONLY) as session:
        found = session.service.result(job_id)
    if as_json:
        print_json(found.to_json())
    else:
        print_text(found.text)


def cancel(job_id: str, *, as_json: bool) -> None:
    """Cancel a job; one that has ended stays as it is."""
    with open_session(PlainLines(), STORE_ONLY) as session:
        job = session.service.cancel(job_id)
    if as_json:
        print_json({"job_id": job.id, "status": job.status})
    else:
        print_text(f"{job.id} {job.status}")


def job_json(job: Job) -> dict[str, Any]:
    """What a program may want to know of a job, finished or not."""
    return {
        "job_id": job.id,
        "kind": job.kind,
        "title": job.title,
        "question": job.question,
        "status": job.status,
        "stage": job.stage,
        "segment": job.segment,
        "segments": job.segments,
        "model": job.options.model,
        "state": job.state,
        "tokens_read": job.token_count,
        "created": job.created,
        "updated": job.updated,
        "reason": job.reason,
        "retryable": job.retryable,
    }


def _status(job: Job) -> str:
    if job.finished or not job.segments:
        return job.status
    if job.stage in ("prefill", "compress"):
        return f"{job.stage} {job.segment + 1}/{job.segments}"
    return job.stage
