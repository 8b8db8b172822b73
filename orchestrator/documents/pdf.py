"""PDF: the text layer of every page, in order, without running heads and page numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from io import BytesIO

from pypdf import PdfReader
from pypdf.errors import LimitReachedError

from orchestrator.documents.errors import Unreadable
from orchestrator.documents.limits import ReadingLimits

_EDGE_LINES = 2  # of a page's top and bottom, where running heads are looked for
_FEWEST_PAGES = 4
_DIGITS = re.compile(r"\d+")


def read(data: bytes, limits: ReadingLimits) -> str:
    """The text. Raises Unreadable; whatever pypdf raises for a damaged file.

    pypdf bounds what each stream may unpack to (75 MB) and how deep its structures are.
    """
    try:
        pages = [page for page in _pages(data, limits) if page]
    except LimitReachedError:
        raise Unreadable("unpacks to more than is read of one page; save it as plain text") from None
    if not pages:
        raise Unreadable(
            "has no text: its pages seem to be pictures, as of a scan; make them text first (OCR)"
        )
    return "\n".join(without_running_lines(pages))


def _pages(data: bytes, limits: ReadingLimits) -> Iterator[str]:
    reader = PdfReader(BytesIO(data))
    # Many files are encrypted with an empty password: everybody may read them.
    if reader.is_encrypted and not reader.decrypt(""):
        raise Unreadable("is encrypted; save a copy without the password")
    if len(reader.pages) > limits.pages:
        raise Unreadable(f"has {len(reader.pages):,} pages; at most {limits.pages:,} are read")
    characters = 0
    for page in reader.pages:
        text = page.extract_text().strip()
        characters += len(text)
        if characters > limits.document_bytes:
            raise Unreadable(
                f"holds more than {limits.document_bytes:,} bytes of text, the most that is read"
            )
        yield text


def without_running_lines(pages: Sequence[str]) -> list[str]:
    """The pages without first and last lines that most of them share, numbers apart."""
    split = [page.splitlines() for page in pages]
    counts = Counter(line for lines in split for line in {_shape(lines[i]) for i in _edges(lines)})
    running = {line for line, count in counts.items() if count > len(pages) / 2}
    if len(pages) < _FEWEST_PAGES or not running:
        return list(pages)
    return ["\n".join(_kept(lines, running)) for lines in split]


def _kept(lines: Sequence[str], running: set[str]) -> list[str]:
    dropped = {i for i in _edges(lines) if _shape(lines[i]) in running}
    return [line for i, line in enumerate(lines) if i not in dropped]


def _edges(lines: Sequence[str]) -> set[int]:
    count = len(lines)
    return {i for i in range(count) if i < _EDGE_LINES or i >= count - _EDGE_LINES}


def _shape(line: str) -> str:
    return _DIGITS.sub("0", " ".join(line.split()))
