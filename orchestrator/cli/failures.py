"""What each exception means to a user: an exit code and one sentence. The only table of its kind."""

from __future__ import annotations

import typer
from pydantic import ValidationError

from cache_store import errors as store
from cache_store.exposition import MetricsAddressUnusable
from cache_store.tracing import TracesNotInstalled
from orchestrator import errors
from orchestrator.cli.errors import UsageProblem
from orchestrator.cli.terminal import clean
from orchestrator.embedded.errors import EmbeddedError
from orchestrator.setting_problem import setting_problem

FAILED, BAD_INPUT = 1, 2

BAD_INPUT_ERRORS = (
    errors.DocumentError,
    errors.OptionError,
    errors.UnknownJob,
    errors.ModelNotSized,
    store.ObjectMissing,
    store.TransferError,
    store.FormatMismatch,
)


def explain(error: Exception) -> tuple[int, str]:
    """Exit code and sentence for any error that a command let through; the sentence is on one line."""
    code, sentence = _explain(error)
    return code, clean(" ".join(sentence.split())) or type(error).__name__


def _explain(error: Exception) -> tuple[int, str]:
    match error:
        case typer.TyperException():
            return error.exit_code, f"{_plain(error.format_message())}{_where_to_read(error)}"
        case UsageProblem() | MetricsAddressUnusable() | TracesNotInstalled():
            return BAD_INPUT, str(error)
        case ValidationError():
            return BAD_INPUT, setting_problem(error)
        case errors.JobFailed():
            return BAD_INPUT if error.invalid else FAILED, str(error)
        case EmbeddedError():
            return error.exit_code, str(error)
        case _ if isinstance(error, BAD_INPUT_ERRORS):
            return BAD_INPUT, str(error)
        case errors.OrchestratorError() | store.StoreError():
            return FAILED, str(error)
        case OSError() if error.strerror:
            return FAILED, f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return FAILED, f"unexpected {type(error).__name__}: {error} (set DOCEXPRESS_DEBUG=1 for all of it)"


def _where_to_read(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f" (see {context.command_path} --help)" if context is not None else ""


def _plain(message: str) -> str:
    return message.rstrip().removesuffix(".")
