"""A client of the HTTP API, to be used with `with` (or `async with`).

with Client("http://127.0.0.1:8000") as client:
    job = client.submit_file("book.txt")
    print(client.wait(job.id).text)
    print(client.wait(client.ask(job.id, "Who did it?").id).text)
"""

from orchestrator.client.asynchronous import AsyncClient
from orchestrator.client.errors import (
    ApiError,
    BadRequest,
    Busy,
    ClientError,
    JobCancelled,
    JobFailed,
    NotAllowed,
    NotFound,
    ServerFailed,
    Unreachable,
)
from orchestrator.client.synchronous import Client
from orchestrator.events import Event
from orchestrator.jobs import JobOptions, JobResult
from orchestrator.wire import EvidenceBinInfo, EvidenceInfo, JobInfo, StateInfo, TextInfo, WorkerInfo

__all__ = [
    "ApiError",
    "AsyncClient",
    "BadRequest",
    "Busy",
    "Client",
    "ClientError",
    "Event",
    "EvidenceBinInfo",
    "EvidenceInfo",
    "JobCancelled",
    "JobFailed",
    "JobInfo",
    "JobOptions",
    "JobResult",
    "NotAllowed",
    "NotFound",
    "ServerFailed",
    "StateInfo",
    "TextInfo",
    "Unreachable",
    "WorkerInfo",
]
