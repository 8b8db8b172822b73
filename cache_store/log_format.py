"""How a process writes its log: as text or as JSON, one line each, never with a document's text.

What a line is about (job, stage, segment) is bound to the thread's context where it is known, and stands in
every line from there on, also in those of libraries.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal, TextIO, TypeAlias

LogFormat: TypeAlias = Literal["text", "json"]
LogLevel: TypeAlias = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

_about: ContextVar[Mapping[str, str | int] | None] = ContextVar("docexpress_log", default=None)
# The messages of these come from the system and from libraries; others may repeat what a user wrote.
_SPEAKING = (RuntimeError, OSError, TypeError, AttributeError, ImportError)


@contextmanager
def about(**facts: str | int) -> Iterator[None]:
    """Lines of this context tell these facts, too."""
    before = _about.get()
    _about.set({**(before or {}), **facts})
    try:
        yield
    finally:
        # Not by token: a generator may be closed in another context than it was begun in.
        _about.set(before)


def facts() -> Mapping[str, str | int]:
    """What the lines of this context are about."""
    return _about.get() or {}


def error_name(error: BaseException) -> str:
    """The kind of an exception, with its message where that cannot hold a text."""
    name = type(error).__name__
    return f"{name}: {error}" if isinstance(error, _SPEAKING) else name


class _Quiet(logging.Formatter):
    """Where an exception happened, and of what kind it was."""

    def formatException(self, ei: ExcInfo) -> str:
        _, error, trace = ei
        if error is None:
            return ""
        return "".join(traceback.format_tb(trace)) + error_name(error)


class TextFormatter(_Quiet):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")


class JsonFormatter(_Quiet):
    """One object a line: time (ISO 8601, UTC), level, logger, message, and what the line is about."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, str | int] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **facts(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def make_handler(form: LogFormat, stream: TextIO | None = None) -> logging.Handler:
    """A handler on a stream, standard error by default."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    return handler


def configure(level: LogLevel, form: LogFormat) -> None:
    """Makes the process write its log, and Python's warnings with it, to standard error.

    To be called once, at its start; where the log is set up already, that stays.
    """
    logging.basicConfig(level=level, handlers=[make_handler(form)])
    logging.captureWarnings(True)
