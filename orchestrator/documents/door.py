"""The one way in for documents, from the command line, over HTTP and from Python."""

from __future__ import annotations

import dataclasses
import stat
from pathlib import Path

from orchestrator.documents import sandbox
from orchestrator.documents.errors import Unreadable
from orchestrator.documents.kinds import kind_of
from orchestrator.documents.limits import ReadingLimits
from orchestrator.documents.text import clean, decode
from orchestrator.errors import DocumentError


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """A document's text, newlines as LF, without control characters; `title` is the file's name."""

    title: str
    text: str


def load_document(path: Path, *, limits: ReadingLimits | None = None) -> Document:
    """Reads a text, Markdown, HTML, PDF or Word file. Raises DocumentError."""
    limits = limits or ReadingLimits()
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise DocumentError(f"{path} is a directory, not a document")
        if not stat.S_ISREG(status.st_mode):
            raise DocumentError(f"{path} is not a regular file")
        with path.open("rb") as file:
            data = file.read(limits.document_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise DocumentError(f"{path} does not exist") from None
    except PermissionError:
        raise DocumentError(f"{path} may not be read by this user") from None
    except (OSError, ValueError) as error:
        raise DocumentError(f"{path} cannot be read: {error}") from error
    return document_from_bytes(data, path.name, limits=limits)


def document_from_bytes(
    data: bytes, title: str, *, name: str | None = None, limits: ReadingLimits | None = None
) -> Document:
    """The same for bytes that are already here (standard input, an upload). Raises DocumentError.

    `name` is the file's name where `title` is another; its ending is a hint.
    """
    limits = limits or ReadingLimits()
    try:
        _check_size(data, limits)
        kind = kind_of(data, name or title)
        text = decode(data) if kind == "text" else sandbox.extract(kind, data, limits)
        return Document(title, clean(text))
    except Unreadable as error:
        raise DocumentError(f"{title} {error}") from error


def document_from_text(text: str, title: str, *, limits: ReadingLimits | None = None) -> Document:
    """The same for what is text already, whatever it looks like. Raises DocumentError, UnicodeEncodeError."""
    limits = limits or ReadingLimits()
    try:
        _check_size(text.encode(), limits)
        return Document(title, clean(text))
    except Unreadable as error:
        raise DocumentError(f"{title} {error}") from error


def _check_size(data: bytes, limits: ReadingLimits) -> None:
    if len(data) > limits.document_bytes:
        raise Unreadable(f"has more than {limits.document_bytes:,} bytes, the most that is read")
