"""Documents made on the spot: PDF, Word, ZIP archives that lie."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import docx
from pypdf import PdfWriter
from pypdf.generic import DictionaryObject, NameObject, StreamObject

# A run of Word's XML; `python-docx` has no words of its own for the rarer ones.
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def pdf(
    pages: Sequence[Sequence[str]], *, protect: Callable[[PdfWriter], None] = lambda writer: None
) -> bytes:
    """A PDF with those lines (Latin letters) on its pages."""
    contents = []
    for lines in pages:
        shown = " ".join(f"({line}) Tj T*" for line in lines)
        contents.append(f"BT /F1 12 Tf 14 TL 72 720 Td {shown} ET".encode("latin-1"))
    return pdf_of(contents, protect=protect)


def pdf_of(contents: Sequence[bytes], *, protect: Callable[[PdfWriter], None] = lambda writer: None) -> bytes:
    """A PDF whose pages have those content streams, compressed."""
    writer = PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for content in contents:
        page = writer.add_blank_page(595, 842)
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        stream = StreamObject()
        stream.set_data(content)
        page[NameObject("/Contents")] = writer._add_object(stream.flate_encode())
    protect(writer)
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def word(build: Callable[[Any], None]) -> bytes:
    """A Word document as `build` fills it."""
    document = docx.Document()
    build(document)
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def word_with(parts: Mapping[str, bytes]) -> bytes:
    """A Word document with some parts replaced or added."""
    source = zipfile.ZipFile(io.BytesIO(word(lambda document: None)))
    held = {name: source.read(name) for name in source.namelist()} | parts
    return archive(held)


def archive(parts: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as target:
        for name, part in parts.items():
            target.writestr(name, part)
    return file.getvalue()


def body(xml: str, before: str = "") -> bytes:
    """The main part of a Word document."""
    return f'<?xml version="1.0"?>{before}<w:document {W}><w:body>{xml}</w:body></w:document>'.encode()


def with_declared_size(data: bytes, size: int, declared: int) -> bytes:
    """An archive whose entry of `size` bytes claims to have `declared`, in both places that tell it."""
    old, new = size.to_bytes(4, "little"), declared.to_bytes(4, "little")
    if data.count(old) != 2:
        raise ValueError("the size stands somewhere else, too")
    return data.replace(old, new)
