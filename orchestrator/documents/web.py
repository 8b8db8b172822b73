"""HTML: what a page is about, without navigation, scripts, styles, comments and hidden text."""

from __future__ import annotations

import re

from lxml.html import HtmlElement
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
    _mark_main_text(tree)
    return extract(tree, include_comments=False, favor_recall=True)


def _mark_main_text(tree: HtmlElement) -> None:
    """Makes the extractor look at the whole body of a page that does not mark one part as the main one.

    It would take the first of several articles (the chapters of a book, say) for all of the text, and without
    a mark it drops headings and paragraphs that come again. Navigation and the like it finds all the same.
    """
    articles = list(tree.iter("article"))
    if len(articles) > 1:
        for article in articles:
            article.tag = "div"
    body = tree.find("body")
    if body is None or next(tree.iter("article", "main"), None) is not None:
        return
    main = body.makeelement("main")
    main.text, body.text = body.text, None
    main.extend(list(body))
    body.append(main)


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
