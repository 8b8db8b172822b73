"""Plain text: the encoding it is in, its line breaks, and what does not belong into text."""

from __future__ import annotations

import codecs
import re

from orchestrator.documents.errors import Unreadable
from orchestrator.documents.kinds import READ

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
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f]")
_LINE_BREAK = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
# Text from old printers has some control characters; more than one in two hundred is no text.
_CONTROL_SHARE = 1 / 200
# Anything but blanks and the marks without width that only shape what stands beside them.
_VISIBLE = re.compile("[^\\s\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe0f]")


def clean(text: str) -> str:
    """Line breaks as LF, control characters removed. Raises Unreadable for what is blank or no text."""
    lines = _LINE_BREAK.sub("\n", text).replace("\ufeff", "")
    kept = _CONTROL.sub("", lines)
    if len(lines) - len(kept) > len(lines) * _CONTROL_SHARE:
        raise Unreadable(f"is a binary file; {READ}")
    if not _VISIBLE.search(kept):
        raise Unreadable("is empty or blank")
    return kept


def decode(data: bytes) -> str:
    """The text of bytes in any encoding that can be told. Raises Unreadable."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return _strict(data[len(mark) :], encoding)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if _is_cut(data, error):
            return data.decode("utf-8", "replace")
        return _strict(data, _guess(data))


def _is_cut(data: bytes, error: UnicodeDecodeError) -> bool:
    """Whether this is UTF-8 up to a last character that is not all there, as after a broken upload.

    One byte alone after nothing but ASCII is a letter of another encoding.
    """
    at_the_end = error.reason == "unexpected end of data" and error.end == len(data)
    return at_the_end and (len(data) - error.start > 1 or not data[: error.start].isascii())


def _strict(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        name = encoding.replace("_", "-").upper()
        raise Unreadable(f"is damaged: byte {error.start:,} is not {name} text") from None


def _guess(data: bytes) -> str:
    """The encoding of bytes that are not UTF-8, from a sample.

    Western European ones are taken where they fit: they are the most frequent by far, and a short text fits
    many encodings.
    """
    if b"\x00" in data:
        raise Unreadable(f"is a binary file; {READ}")
    from charset_normalizer import from_bytes  # slow to load, seldom needed

    matches = from_bytes(data[:_SAMPLE_BYTES])
    best = matches.best()
    if best is None:
        raise Unreadable("is a binary file, or text in an unknown encoding")
    fitting = {name for match in matches for name in (match.encoding, *match.could_be_from_charset)}
    return best.encoding if fitting.isdisjoint(_WESTERN) else _western(data)


def _western(data: bytes) -> str:
    """Windows' extension of Latin-1, unless a byte stands there that it leaves undefined."""
    try:
        data.decode("cp1252")
    except UnicodeDecodeError:
        return "latin_1"
    return "cp1252"
