"""Word (.docx): paragraphs, tables and lists of the body, without headers, footers, notes and comments."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import docx
from docx.oxml.ns import qn

from orchestrator.documents.errors import Unreadable
from orchestrator.documents.kinds import READ
from orchestrator.documents.limits import ReadingLimits

_PARTS = 10_000
_CHUNK = 64 * 1024
# Word's XML is packed to a fiftieth at most; a small file may do what it likes.
_MOST_PACKED = 100
_SMALL = 8 * 1024**2
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # of the others the inflated size cannot be bounded
_ENTITIES = tuple("<!DOCTYPE".encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be"))

_PARAGRAPH, _TABLE, _ROW, _CELL = (qn(name) for name in ("w:p", "w:tbl", "w:tr", "w:tc"))
_AFTER = {_PARAGRAPH: "\n\n", _TABLE: "\n"}
_CHARACTERS = {
    qn("w:tab"): "\t",
    qn("w:br"): "\n",
    qn("w:cr"): "\n",
    qn("w:noBreakHyphen"): "-",
}
_TEXT = qn("w:t")
# Properties hold tab stops, not tabs; a fallback says again what stands before it.
_SKIPPED = {
    qn("w:pPr"),
    qn("w:rPr"),
    qn("w:sectPr"),
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",
}


def read(data: bytes, limits: ReadingLimits) -> str:
    """The text, an empty line between paragraphs. Raises Unreadable; what the libraries raise for damage."""
    package = _checked(data, limits)
    try:
        document = docx.Document(package)
    except (KeyError, ValueError):
        raise Unreadable(f"is a ZIP archive or another kind of office document; {READ}") from None
    return "".join(_pieces(document.element.body)).strip()


def _checked(data: bytes, limits: ReadingLimits) -> BytesIO:
    """A package whose parts are what they say: small enough, without entities, and not packed.

    Sizes that an archive declares may lie, so that parts are unpacked chunk by chunk within what is left. Of
    pictures only the names are kept.
    """
    package = BytesIO()
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive, zipfile.ZipFile(package, "w") as target:
            _check_promises(archive, len(data), limits)
            left = _allowed(len(data), limits)
            for name in dict.fromkeys(archive.namelist()):
                part = _unpacked(archive, name, left) if name.endswith((".xml", ".rels")) else b""
                left -= len(part)
                target.writestr(name, part)
    except (zipfile.BadZipFile, EOFError) as error:
        raise Unreadable("is a damaged Word document or ZIP archive: not all of it is there") from error
    return package


def _allowed(packed: int, limits: ReadingLimits) -> int:
    return min(limits.unpacked_bytes, max(_SMALL, packed * _MOST_PACKED))


def _check_promises(archive: zipfile.ZipFile, packed: int, limits: ReadingLimits) -> None:
    entries = archive.infolist()
    if len(entries) > _PARTS:
        raise Unreadable(f"has {len(entries):,} parts; at most {_PARTS:,} are read")
    if any(entry.flag_bits & 1 for entry in entries):
        raise Unreadable("is encrypted; save a copy without the password")
    if any(entry.compress_type not in _METHODS for entry in entries):
        raise Unreadable(f"is a ZIP archive, packed as no Word document is; {READ}")
    if sum(entry.file_size for entry in entries) > _allowed(packed, limits):
        raise _too_large(_allowed(packed, limits))


def _unpacked(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    part = bytearray()
    with archive.open(name) as packed:
        while chunk := packed.read(_CHUNK):
            part += chunk
            if len(part) > most:
                raise _too_large(most)
    if any(mark in part for mark in _ENTITIES):
        raise Unreadable("declares XML entities, which no Word document does")
    return bytes(part)


def _too_large(most: int) -> Unreadable:
    return Unreadable(f"unpacks to more than {most:,} bytes, the most that is read of a file of its size")


def _pieces(element: Any) -> Iterator[str]:
    """The text below an element, in order. libxml2 bounds how deep that can be (256)."""
    for child in element:
        tag = child.tag
        if tag == _TEXT:
            yield child.text or ""
        elif tag in _CHARACTERS:
            yield _CHARACTERS[tag]
        elif tag == _ROW:
            cells = ("".join(_pieces(cell)).split("\n") for cell in child.iterchildren(_CELL))
            yield " | ".join(" ".join(filter(None, cell)) for cell in cells) + "\n"
        elif tag not in _SKIPPED:
            yield from _pieces(child)
            yield _AFTER.get(tag, "")
