"""What can go wrong in the orchestrator, each error one sentence that may be shown to a user.

    OrchestratorError
    ├── DocumentError        the document cannot be read: missing, a directory, binary, blank, too long
    ├── OptionError          an option's value is not allowed
    ├── ModelNotSized        a model's config cannot be read, or does not tell what a state of it takes
    ├── UnknownJob           no job of that id in this tenant
    ├── NotFinished          a result was asked of a job that still runs
    ├── JobFailed            a result was asked of a failed job; carries `reason`, `retryable`, `invalid`
    ├── JobCancelled         a result was asked of a cancelled job
    ├── JobStoreUnavailable  Redis (jobs, events, queues) cannot be reached
    ├── WorkerUnavailable    no worker that could answer does so at the moment
    └── StageError           inside a stage; never leaves a task
        ├── ClaimLost        the job was cancelled, or another worker took the stage over
        ├── PoolBusy         workers of the model are registered, all of them are busy
        ├── NoWorker         no registered worker has the model
        ├── WorkerInsecure   a worker and the orchestrator were not told the same about TLS
        └── StageFailed      a call failed; carries the remedy (`remedies.py`)

The cache store's own errors (`cache_store.errors.StoreError`) pass through the facade as they are.
"""

from __future__ import annotations


class OrchestratorError(Exception):
    """Root of the tree; `str(error)` is one sentence for the user."""


class DocumentError(OrchestratorError):
    """The document cannot be read."""


class OptionError(OrchestratorError):
    """An option's value is not allowed; the sentence names the option, the value, and what is allowed.

    Attribute `option`: its name, None where the sentence is about no single one.
    """

    def __init__(self, message: str, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


class ModelNotSized(OrchestratorError):
    """A model's config is not there, cannot be read, or does not tell what a state of the model takes."""


class UnknownJob(OrchestratorError):
    """No job of that id in this tenant (or it has expired)."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job {job_id!r}")
        self.job_id = job_id


class NotFinished(OrchestratorError):
    """The job still runs."""

    def __init__(self, job_id: str, status: str) -> None:
        super().__init__(f"job {job_id} has no result yet: it is in {status}")
        self.job_id = job_id
        self.status = status


class JobFailed(OrchestratorError):
    """The job has failed.

    Attributes: `reason` one sentence; `retryable` whether the same job may succeed later; `invalid` whether
    the request itself was refused (unknown policy, budget too small), so that no retry can help.
    """

    def __init__(self, job_id: str, reason: str, *, retryable: bool, invalid: bool) -> None:
        super().__init__(f"job {job_id} failed: {reason}")
        self.job_id = job_id
        self.reason = reason
        self.retryable = retryable
        self.invalid = invalid


class JobCancelled(OrchestratorError):
    """The job was cancelled."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} was cancelled")
        self.job_id = job_id


class JobStoreUnavailable(OrchestratorError):
    """Redis (jobs, events, queues) cannot be reached."""


class WorkerUnavailable(OrchestratorError):
    """No worker that could answer does so at the moment; a little later one may."""


class StageError(OrchestratorError):
    """Inside a stage; never leaves a task."""


class ClaimLost(StageError):
    """The job was cancelled, or another worker took the stage over: stop and write nothing."""


class PoolBusy(StageError):
    """Workers of the model are registered, all of them are busy."""


class NoWorker(StageError):
    """No registered worker has the model."""


class WorkerInsecure(StageError):
    """A worker speaks TLS and this process does not, or the other way round; it says what to set."""
