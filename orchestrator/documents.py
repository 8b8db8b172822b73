"""Documents: what a user hands over becomes clean text, or one sentence that says why it cannot be read."""

from __future__ import annotations

import codecs
import dataclasses
import re
import stat
from pathlib import Path

from charset_normalizer import from_bytes

from orchestrator.errors import DocumentError

# Beginnings of files that are something else than text, though they may hold much of it.
_FORMATS = {
    b"%PDF-": "a PDF file",
    b"PK\x03\x04": "a ZIP archive (or an office document)",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"\x1f\x8b": "a gzip archive",
    b"\x7fELF": "a program",
    b"{\\rtf": "an RTF document",
}
# The longer mark first: UTF-32's little-endian one begins with UTF-16's.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WESTERN = ("cp1252", "latin_1")
_SAMPLE_BYTES = 256 * 1024
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ufeff]")
_LINE_BREAK = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
# Text from old printers has some control characters; more than one in two hundred is no text.
_CONTROL_SHARE = 1 / 200


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """A document's text, newlines as LF, without control characters; `title` is the file's name."""

    title: str
    text: str


def load_document(path: Path, *, limit: int) -> Document:
    """Reads a text or markdown file of at most `limit` bytes. Raises DocumentError."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise DocumentError(f"{path} is a directory, not a document")
        if not stat.S_ISREG(status.st_mode):
            raise DocumentError(f"{path} is not a regular file")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise DocumentError(f"{path} does not exist") from None
    except PermissionError:
        raise DocumentError(f"{path} may not be read by this user") from None
    except (OSError, ValueError) as error:
        raise DocumentError(f"{path} cannot be read: {error}") from error
    return document_from_bytes(data, path.name, limit=limit)


def document_from_bytes(data: bytes, title: str, *, limit: int) -> Document:
    """The same for bytes that are already here (standard input, an upload). Raises DocumentError."""
    if len(data) > limit:
        raise DocumentError(f"{title} has more than {limit:,} bytes, the most that is read")
    for beginning, name in _FORMATS.items():
        if data.startswith(beginning):
            raise DocumentError(f"{title} is {name}; text and markdown files are read")
    text = _LINE_BREAK.sub("\n", _decode(data, title))
    clean = _CONTROL.sub("", text)
    if len(text) - len(clean) > len(text) * _CONTROL_SHARE:
        raise DocumentError(f"{title} is a binary file; text and markdown files are read")
    if not clean.strip():
        raise DocumentError(f"{title} is empty or blank")
    return Document(title, clean)


def _decode(data: bytes, title: str) -> str:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return _strict(data[len(mark) :], encoding, title)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _strict(data, _guess(data, title), title)


def _strict(data: bytes, encoding: str, title: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        name = encoding.replace("_", "-").upper()
        raise DocumentError(f"{title} is damaged: byte {error.start:,} is not {name} text") from None


def _guess(data: bytes, title: str) -> str:
    """The encoding of bytes that are not UTF-8, from a sample.

    Western European ones are taken where they fit: they are the most frequent by far, and a short text fits
    many encodings.
    """
    if b"\x00" in data:
        raise DocumentError(f"{title} is a binary file; text and markdown files are read")
    matches = from_bytes(data[:_SAMPLE_BYTES])
    best = matches.best()
    if best is None:
        raise DocumentError(f"{title} is a binary file, or text in an unknown encoding")
    fitting = {name for match in matches for name in (match.encoding, *match.could_be_from_charset)}
    return best.encoding if fitting.isdisjoint(_WESTERN) else _western(data)


def _western(data: bytes) -> str:
    """Windows' extension of Latin-1, unless a byte stands there that it leaves undefined."""
    try:
        data.decode("cp1252")
    except UnicodeDecodeError:
        return "latin_1"
    return "cp1252"
