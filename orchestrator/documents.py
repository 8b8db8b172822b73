"""Documents: what a user hands over becomes clean text, or one sentence that says why it cannot be read."""

from __future__ import annotations

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """A document's text, newlines as LF, without control characters; `title` is the file's name."""

    title: str
    text: str


def load_document(path: Path, *, limit: int) -> Document:
    """Reads a text or markdown file of at most `limit` bytes. Raises DocumentError."""
    raise NotImplementedError


def document_from_bytes(data: bytes, title: str, *, limit: int) -> Document:
    """The same for bytes that are already here (standard input, an upload). Raises DocumentError."""
    raise NotImplementedError
