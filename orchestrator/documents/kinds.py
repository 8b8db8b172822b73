"""What a document is, by what it holds; a name's ending only decides where the content leaves it open."""

from __future__ import annotations

import re
from typing import Literal

from orchestrator.documents.errors import Unreadable

# "zip" is a Word document, or else the reader of those says what it is not.
Kind = Literal["text", "html", "pdf", "zip"]
READ = "text, Markdown, HTML, PDF and Word (.docx) files are read"

_BEGINNINGS: tuple[tuple[bytes, Kind], ...] = ((b"%PDF-", "pdf"), (b"PK\x03\x04", "zip"))
# Beginnings of files that are something else, though they may hold much text.
_REFUSED = {
    b"PK\x05\x06": f"is an empty ZIP archive; {READ}",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "is an office document of the old kind, or one with a password; "
    "save it as .docx without a password",
    b"{\\rtf": "is an RTF document; save it as .docx or as text",
    b"\x89PNG": f"is a PNG image; {READ}",
    b"\xff\xd8\xff": f"is a JPEG image; {READ}",
    b"GIF8": f"is a GIF image; {READ}",
    b"\x1f\x8b": f"is a gzip archive; {READ}",
    b"\x7fELF": f"is a program; {READ}",
}
_HEAD_BYTES = 1024
_PAGE = re.compile(rb"(?:<\?xml[^>]*>|<!--.*?-->|\s)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S)
_TAG = re.compile(rb"<[a-z][a-z0-9]*[\s/>]", re.I)
_PAGE_NAME = (".html", ".htm", ".xhtml")


def kind_of(data: bytes, name: str) -> Kind:
    """The kind of a document called `name`. Raises Unreadable for what is known and not read."""
    for beginning, sentence in _REFUSED.items():
        if data.startswith(beginning):
            raise Unreadable(sentence)
    for beginning, kind in _BEGINNINGS:
        if data.startswith(beginning):
            return kind
    return _of_text(data[:_HEAD_BYTES], name.lower())


def _of_text(head: bytes, name: str) -> Kind:
    if name.endswith(".pdf") and b"%PDF-" in head:  # readers forgive what stands before it
        return "pdf"
    # Two bytes a letter, as UTF-16 has, or a byte order mark, must not hide the marks of a page.
    letters = head.replace(b"\x00", b"").lstrip(b"\xef\xbb\xbf\xff\xfe")
    if _PAGE.match(letters) or (name.endswith(_PAGE_NAME) and _TAG.search(letters)):
        return "html"
    return "text"
