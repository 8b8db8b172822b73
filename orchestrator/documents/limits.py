"""How much a document may take."""

from __future__ import annotations

import dataclasses

DOCUMENT_BYTES = 64 * 1024**2
UNPACKED_BYTES = 256 * 1024**2
PAGES = 5_000
SECONDS = 120.0
MEMORY_BYTES = 1024**3


@dataclasses.dataclass(frozen=True, slots=True)
class ReadingLimits:
    """Of one document.

    `document_bytes` bounds the file and the text that is found in it; `unpacked_bytes` all parts of a Word
    file together; `pages` a PDF. `seconds` and `memory_bytes` (of address space) are what the process may
    take that reads a format other than plain text.
    """

    document_bytes: int = DOCUMENT_BYTES
    unpacked_bytes: int = UNPACKED_BYTES
    pages: int = PAGES
    seconds: float = SECONDS
    memory_bytes: int = MEMORY_BYTES
