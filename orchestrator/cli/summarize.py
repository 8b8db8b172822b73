"""The main job and its questions: summarize, submit, ask, watch."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any, NoReturn

from cache_store.errors import ObjectMissing
from orchestrator.cli.display import Display, PlainLines, make_display
from orchestrator.cli.errors import UsageProblem
from orchestrator.cli.follow import follow
from orchestrator.cli.report import print_report
from orchestrator.cli.session import Session, open_session
from orchestrator.cli.terminal import is_terminal, print_json, print_text
from orchestrator.documents import Document, document_from_bytes, load_document
from orchestrator.embedded.errors import Terminated
from orchestrator.embedded.home import STORE_ONLY, WHOLE_STACK
from orchestrator.evidence import excerpt
from orchestrator.jobs import Job, JobOptions
from orchestrator.settings import Settings

EXCERPT_CHARACTERS = 120


def summarize(file: Path, options: JobOptions, *, as_json: bool, quiet: bool) -> None:
    """Read a document, write its summary, say what it cost."""
    document = read_document(file)
    display = make_display(quiet)
    with open_session(display, WHOLE_STACK, begin=STORE_ONLY) as session:
        session.need_workers(options.model)
        job = session.service.submit(document, options)
        _finish(session, job, display, as_json=as_json, quiet=quiet, cancel=True)


def submit(file: Path, options: JobOptions, *, as_json: bool) -> None:
    """Start the same job and leave it to a stack that goes on running."""
    document = read_document(file)
    with open_session(PlainLines(), STORE_ONLY) as session:
        if session.connection.stack is not None:
            raise UsageProblem(
                "nothing is running that would work on the job: start `docexpress up` first,"
                " or use `docexpress summarize`"
            )
        job = session.service.submit(document, options)
        print_json({"job_id": job.id, "status": job.status}) if as_json else print_text(job.id)
        print(f"Watch it:  docexpress watch {job.id}", file=sys.stderr)


def ask(job_id: str, question: str, *, as_json: bool, quiet: bool, **chosen: Any) -> None:
    """Answer a question about the document of a finished job, from passages of it or its stored state."""
    display = make_display(quiet)
    with open_session(display, WHOLE_STACK, begin=STORE_ONLY) as session:
        asked = session.service.job(job_id)
        session.service.result(job_id)  # a job without a result is refused before a model is loaded
        given = {name: value for name, value in chosen.items() if value is not None}
        options = dataclasses.replace(asked.options, **given)
        session.need_workers(asked.options.model)
        job = session.service.ask(job_id, question, options)
        _finish(session, job, display, as_json=as_json, quiet=quiet, cancel=True)


def watch(job_id: str, *, as_json: bool, quiet: bool) -> None:
    """Show a job until it ends; one that was interrupted goes on."""
    display = make_display(quiet)
    with open_session(display, WHOLE_STACK, begin=STORE_ONLY) as session:
        job = session.service.job(job_id)
        if not job.finished:
            session.need_workers(job.options.model)
        _finish(session, job, display, as_json=as_json, quiet=quiet, cancel=False)


def read_document(file: Path) -> Document:
    """The document in a file, or on standard input when it is named "-". Raises DocumentError."""
    limits = Settings().reading_limits
    if str(file) == "-":
        data = sys.stdin.buffer.read(limits.document_bytes + 1)
        return document_from_bytes(data, "standard input", limits=limits)
    return load_document(file, limits=limits)


def _finish(
    session: Session, job: Job, display: Display, *, as_json: bool, quiet: bool, cancel: bool
) -> None:
    # A pipe or a file gets the whole text or none: what a job that fails had written is no result.
    stream = not as_json and not job.finished and is_terminal(sys.stdout)
    try:
        result = follow(session.service, job, display, check=session.connection.check, stream=stream)
    except (KeyboardInterrupt, Terminated) as stopped:
        _interrupted(session, job, display, stopped, cancel=cancel)
    display.close()
    if as_json:
        print_json(result.to_json())
        return
    if not stream:
        print_text(result.text)
    if not quiet:
        print_report(result, _evidence(session, job))


def _evidence(session: Session, job: Job) -> list[str]:
    """The sentence of each passage that was read again; none where the document is gone meanwhile."""
    try:
        texts = session.service.reread_texts(job.id)
    except ObjectMissing:
        return []
    return [excerpt(text, job.sought, EXCERPT_CHARACTERS) for text in texts]


def _interrupted(
    session: Session, job: Job, display: Display, stopped: BaseException, *, cancel: bool
) -> NoReturn:
    display.close()
    if cancel:
        session.service.cancel(job.id)
        display.note(f"Job {job.id} is cancelled.")
    else:
        display.note(f"Job {job.id} is not finished. Watch it:  docexpress watch {job.id}")
    raise stopped
