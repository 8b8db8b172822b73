"""HTML: what a page is about, without navigation, scripts, styles, comments and hidden text."""

from __future__ import annotations

import re

from trafilatura import extract, html2txt, load_html

from orchestrator.documents.limits import ReadingLimits
from orchestrator.documents.text import decode

_CHARSET = re.compile(rb"""<(?:meta|\?xml)[^>]+?(?:charset|encoding)\s*=\s*["']?([A-Za-z0-9_.:-]+)""", re.I)
_HEAD_BYTES = 4096


def read(data: bytes, _: ReadingLimits) -> str:
    """The main text, or all of it where no part of the page stands out; blank where there is none."""
    page = _decoded(data)
    return _main_text(page) or html2txt(page)


def _main_text(page: str) -> str | None:
    tree = load_html(page)
    if tree is None:
        return None
    articles = list(tree.iter("article"))
    if (
        len(articles) > 1
    ):  # the chapters of a book, say: taken for the main text, the first would be all of it
        for article in articles:
            article.tag = "div"
    return extract(tree, include_comments=False, favor_recall=True)


def _decoded(data: bytes) -> str:
    """By byte order mark or as UTF-8 where that fits, else as the page says, else as plain text."""
    declared = _CHARSET.search(data[:_HEAD_BYTES])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        encoding = declared[1].decode("ascii").lower() if declared else "utf-8"
    if not encoding.startswith("utf"):  # a page whose declaration can be read in ASCII is in none of these
        try:
            return data.decode(encoding, "replace")
        except LookupError:
            pass  # a name that nobody knows says nothing
    return decode(data)
