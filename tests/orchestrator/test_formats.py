"""HTML, PDF and Word: the text that a reader would see, and one sentence for whatever is not read.

The readers run in the process of the tests; test_sandbox.py has them where they belong.
"""

from __future__ import annotations

import codecs
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest

from orchestrator.documents import ReadingLimits
from orchestrator.documents.child import reader_of
from orchestrator.documents.errors import Unreadable
from orchestrator.documents.kinds import kind_of
from orchestrator.documents.pdf import without_running_lines
from orchestrator.documents.text import clean
from tests.orchestrator.made_documents import (
    archive,
    body,
    pdf,
    pdf_of,
    with_declared_size,
    word,
    word_with,
)

MIB = 1024**2
PARAGRAPH = "It was on a dreary night that somebody wrote a sentence of some length. " * 5
ARTICLE = f"<article><h1>Title</h1><p>{PARAGRAPH}</p><p>Caf&eacute; &lt;b&gt; &#8212; end.</p></article>"
PAGE = f"""<!-- c --><!DOCTYPE html><html><head><title>T</title><script>var noise = 1;</script>
<style>.noise {{}}</style></head><body><nav><a href="/">noise</a></nav><!-- noise -->{ARTICLE}
<div style="display:none">noise</div><footer>noise</footer></body></html>"""


def read(data: bytes, **limits: Any) -> str:
    return clean(reader_of(kind_of(data, "upload"))(data, ReadingLimits(**limits)))


def refusal(data: bytes, **limits: Any) -> str:
    with pytest.raises(Unreadable) as raised:
        read(data, **limits)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("data", "name", "kind"),
    [
        (b"%PDF-1.7", "a.txt", "pdf"),
        (b"junk\n%PDF-1.7", "a.PDF", "pdf"),
        (b"About %PDF-1.7", "a.txt", "text"),
        (b"PK\x03\x04", "a.txt", "zip"),
        (b"<!doctype HTML><p>", "a.txt", "html"),
        (b"\xef\xbb\xbf \n<html>", "a", "html"),
        (codecs.BOM_UTF16_LE + "<html>".encode("utf-16-le"), "a", "html"),
        (b"<?xml version='1.0'?><!-- a --><html>", "a", "html"),
        (b"<p>fragment", "a.htm", "html"),
        (b"<p align=center>a readme", "readme.md", "text"),
        (b"plain", "a.html", "text"),
        (b"plain", "a.pdf", "text"),
        (b"quarter,region\n1,2\n", "a.csv", "text"),
        (b"<!--" * 300, "a", "text"),
    ],
)
def test_the_kind_is_told_by_content(data: bytes, name: str, kind: str) -> None:
    assert kind_of(data, name) == kind


def test_a_page_is_read_without_what_surrounds_it() -> None:
    text = read(PAGE.encode())
    assert "dreary night" in text
    assert "Café <b> — end." in text
    assert "noise" not in text


@pytest.mark.parametrize(
    ("head", "encoding"),
    [("<meta charset=iso-8859-2>", "iso-8859-2"), ("", "utf-16"), ("<meta charset=nonsense>", "latin-1")],
)
def test_a_page_is_decoded_as_it_says(head: str, encoding: str) -> None:
    page = f"<html><head>{head}</head><body><p>{'Čí'[encoding == 'latin-1' :]} {PARAGRAPH}</p></body></html>"
    assert "í It was" in read(page.encode(encoding))


@pytest.mark.parametrize("tag", ["article", "div", "section"])
def test_all_chapters_of_a_page_are_read(tag: str) -> None:
    chapters = "".join(
        f"<{tag}><h2>Chapter {i}</h2><p>Dear friend,</p>"
        + "".join(f"<p>This is paragraph {j} of chapter {i}. {PARAGRAPH}</p>" for j in range(8))
        + f"</{tag}>"
        for i in range(5)
    )
    aside = '<div class="sidebar"><a href="/">noise</a></div><footer>noise</footer>'
    text = read(f"<html><body>{chapters}{aside}</body></html>".encode())
    begin = "Chapter {0}\nDear friend,\nThis is paragraph 0 of chapter {0}.".format
    assert [i for i in range(5) if begin(i) not in text] == []
    assert text.count("This is paragraph") == 40
    assert "noise" not in text


def test_a_page_that_is_no_article_is_read_all_the_same() -> None:
    assert "One line." in read(b"<html><body><span>One line.</span></body></html>")
    assert refusal(b"<html><body><script>x</script></body></html>") == "is empty or blank"


def test_a_pdf_is_read_page_by_page() -> None:
    assert read(pdf([["first line", "second line"], ["next page"]])).split("\n") == [
        "first line",
        "second line",
        "next page",
    ]


def test_running_heads_and_page_numbers_are_left_out() -> None:
    pages = [f"The Book\nline {name}\nmiddle\nend {name}\nPage {i}" for i, name in enumerate("abcd")]
    assert without_running_lines(pages)[2] == "line c\nmiddle\nend c"
    assert without_running_lines(pages[:3]) == pages[:3]
    assert without_running_lines(["a\nb", "c\nd", "e\nf", "g"]) == ["a\nb", "c\nd", "e\nf", "g"]


def test_a_pdf_that_everybody_may_open_is_read() -> None:
    data = pdf([["open"]], protect=lambda w: w.encrypt("", "owner", algorithm="AES-256"))
    assert read(data) == "open"


REFUSED = {
    "pdf-with-a-password": (
        lambda: pdf([["closed"]], protect=lambda w: w.encrypt("secret", algorithm="AES-256")),
        "is encrypted",
    ),
    "pdf-without-text": (lambda: pdf_of([b"0 0 m 9 9 l S"]), "has no text"),
    "pdf-inflating": (lambda: pdf_of([b" " * 80_000_000]), "unpacks to more"),
    "word-cut": (lambda: word(lambda d: None)[:9000], "is a damaged Word document or ZIP archive"),
    "word-inflating": (
        lambda: word_with({"word/document.xml": body(" " * 20 * MIB)}),
        "unpacks to more than 8,388,608 bytes",
    ),
    "zip": (lambda: archive({"a.txt": b"text"}), "is a ZIP archive"),
    "zip-with-many-parts": (lambda: archive({str(i): b"" for i in range(10_001)}), "has 10,001 parts"),
    "zip-packed-otherwise": (lambda: archive({"a": b"a"}, zipfile.ZIP_BZIP2), "is a ZIP archive, packed"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_documents(name: str) -> None:
    make, sentence = REFUSED[name]
    assert refusal(make()).startswith(sentence)


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"pages": 2}, "has 3 pages; at most 2 are read"),
        ({"document_bytes": 2000}, "holds more than 2,000 bytes of text"),
    ],
)
def test_limits(limits: dict[str, Any], sentence: str) -> None:
    lines = ["a line of some length that comes again and again"] * 20
    assert refusal(pdf([lines] * 3), **limits).startswith(sentence)


def test_an_archive_that_lies_about_its_size_is_not_inflated() -> None:
    size = 64 * MIB + 12345
    data = with_declared_size(archive({"word/document.xml": bytes(size)}), size, 1000)
    tracemalloc.start()
    try:
        assert refusal(data).startswith("is a damaged Word document")
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_paragraphs_and_tables_of_a_word_document() -> None:
    def build(document: Any) -> None:
        document.add_heading("Title", 1)
        document.add_paragraph("before\ttab\nbreak").add_run(" bold").bold = True
        table = document.add_table(2, 3)
        table.cell(0, 0).merge(table.cell(0, 1)).text = "merged"
        table.cell(0, 2).text, table.cell(1, 0).text = "two\nlines", "a"
        table.cell(1, 2).add_table(1, 2).cell(0, 1).text = "inner"
        document.add_paragraph("第三", style="List Bullet")
        document.sections[0].header.paragraphs[0].text = "running head"

    text = read(word(build))
    assert text == "Title\n\nbefore\ttab\nbreak bold\n\nmerged | two lines\na |  |  | inner\n\n第三"


def test_revisions_controls_and_text_boxes() -> None:
    run = "<w:r><w:t>{}</w:t></w:r>".format
    box = f"<w:txbxContent><w:p>{run('box')}</w:p></w:txbxContent>"
    office = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    xml = (
        f"<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:ins>{run('new')}</w:ins>"
        "<w:del><w:r><w:delText>old</w:delText></w:r></w:del>"
        f"<w:hyperlink>{run(' link')}</w:hyperlink></w:p>"
        f"<w:sdt><w:sdtContent><w:p>{run('control')}</w:p></w:sdtContent></w:sdt>"
        f"<w:p><mc:AlternateContent {office}><mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>"
        "</mc:AlternateContent></w:p>"
    )
    assert read(word_with({"word/document.xml": body(xml)})).split() == ["new", "link", "control", "box"]


def test_xml_entities_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    lol = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10 if i else "lol"}">' for i in range(10))
    for entity in (lol + '<!ENTITY x "&l9;">', f'<!ENTITY x SYSTEM "file://{secret}">'):
        part = body("<w:p><w:r><w:t>&x;</w:t></w:r></w:p>", f"<!DOCTYPE d [{entity}]>")
        assert refusal(word_with({"word/document.xml": part})).startswith("declares XML entities")
        utf16 = part.decode().encode("utf-16")
        assert refusal(word_with({"word/document.xml": utf16})).startswith("declares XML entities")
