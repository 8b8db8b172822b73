"""Documents: every encoding a user may bring, and one sentence for everything that is none."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

import pytest

from orchestrator.documents import ReadingLimits, document_from_bytes, document_from_text, load_document
from orchestrator.errors import DocumentError

LIMIT = 100_000
LIMITS = ReadingLimits(document_bytes=LIMIT)
GERMAN = "Über die Straße ging ein älterer Herr; »grüß Gott«, sagte er, und öffnete höflich die Tür.\n"
FRENCH = "L'été dernier, à l'hôtel, la garçonnière était très chère : où étaient les élèves ?\n"


def read(data: bytes) -> str:
    return document_from_bytes(data, "a.txt", limits=LIMITS).text


@pytest.mark.parametrize("text", [GERMAN, FRENCH, "plain\n", "日本語の文章。\n", "emoji 🦜\n"])
@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (b"", "utf-8"),
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
    ],
    ids=["utf8", "utf8-bom", "utf16le", "utf16be", "utf32le"],
)
def test_unicode(text: str, mark: bytes, encoding: str) -> None:
    assert read(mark + text.encode(encoding)) == text


@pytest.mark.parametrize(
    "text",
    [GERMAN, FRENCH, GERMAN * 500, "¿Dónde está el niño?", "Rødgrød med fløde på", "café"],
    ids=["german", "french", "long", "spanish", "danish", "one-word"],
)
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_western_text(text: str, encoding: str) -> None:
    assert read(text.encode(encoding)) == text


def test_quotes_and_euro_of_windows() -> None:
    text = "“Ten €”, she said – “not more…”. Très bien, déjà vu, à bientôt.\n"
    assert read(text.encode("cp1252")) == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("В начале было слово, и слово было длинное. Потом пришли другие слова.\n", "cp1251"),
        ("Był sobie człowiek, który żył długo. Zażółć gęślą jaźń. Chrząszcz brzmi w trzcinie.\n", "cp1250"),
        ("日本語の文章です。これは試験です。\n", "shift_jis"),
    ],
    ids=["russian", "polish", "japanese"],
)
def test_other_encodings(text: str, encoding: str) -> None:
    assert read((text * 20).encode(encoding)) == text * 20


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"a\rb", "a\nb"),
        (b"a\n\nb", "a\n\nb"),
        (b"page\x0cpage", "page\npage"),
        ("a\u2028b\u2029c\x85d".encode(), "a\nb\nc\nd"),
        (b"a\tb", "a\tb"),
        (b"x" * 400 + b"\x07\x1b", "x" * 400),
        (("x" * 400 + "\ufeff" + "y").encode(), "x" * 400 + "y"),
    ],
    ids=["crlf", "cr", "lf", "formfeed", "separators", "tab", "controls", "inner-bom"],
)
def test_line_breaks_and_control_characters(data: bytes, text: str) -> None:
    assert read(data) == text


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is empty or blank"),
        (b" \n\t \r\n", "is empty or blank"),
        (codecs.BOM_UTF8, "is empty or blank"),
        ("\u00a0\u3000".encode(), "is empty or blank"),
        ("\u200b\ufeff \u2060".encode(), "is empty or blank"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" * 9, "is an office document of the old kind"),
        (b"{\\rtf1 text}", "is an RTF document"),
        (b"\x89PNG\r\n\x1a\n", "is a PNG image"),
        (b"text\x00text" * 10, "is a binary file"),
        (bytes(range(256)) * 20, "is a binary file"),
        (b"abc\x01\x02\x03" * 10, "is a binary file"),
        (codecs.BOM_UTF16_LE + b"a\x00b", "is damaged: byte 2 is not UTF-16-LE text"),
        (b"x" * (LIMIT + 1), "has more than 100,000 bytes"),
    ],
)
def test_refused_bytes(data: bytes, sentence: str) -> None:
    with pytest.raises(DocumentError) as raised:
        read(data)
    assert str(raised.value).startswith("a.txt " + sentence)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Größe: 3 €".encode()[:-1], "Größe: 3 \ufffd"),
        ("costs 3 €".encode()[:-1], "costs 3 \ufffd"),
        ("naïve café".encode()[:-1], "naïve caf\ufffd"),
        (b"caf\xe9", "café"),
    ],
    ids=["after-others", "two-bytes", "one-byte-after-others", "no-utf8"],
)
def test_a_last_character_that_is_cut_does_not_garble_the_rest(data: bytes, text: str) -> None:
    assert read(data) == text


@pytest.mark.parametrize("text", ["<html><p>page</p></html>", "%PDF-1.7", "PK\x03\x04", "{\\rtf1"])
def test_text_stays_text_whatever_it_looks_like(text: str) -> None:
    text += " and more" * 200
    assert document_from_text(text, "text", limits=LIMITS).text == text.replace("\x03\x04", "")


def test_random_bytes_are_refused() -> None:
    with pytest.raises(DocumentError):
        read(os.urandom(5000))


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "Büch.md"
    path.write_text("# Title\n\nText.\n")
    document = load_document(path, limits=LIMITS)
    assert (document.title, document.text) == ("Büch.md", "# Title\n\nText.\n")


def test_refused_paths(tmp_path: Path) -> None:
    missing, fifo, loop = tmp_path / "missing", tmp_path / "fifo", tmp_path / "loop"
    os.mkfifo(fifo)
    loop.symlink_to(loop)
    file = tmp_path / "file"
    file.write_bytes(b"x" * 11)
    for path, sentence in [
        (missing, "does not exist"),
        (file / "below", "does not exist"),
        (tmp_path, "is a directory"),
        (fifo, "is not a regular file"),
        (loop, "cannot be read"),
        (Path("a\x00b"), "cannot be read"),
    ]:
        with pytest.raises(DocumentError, match=sentence):
            load_document(path, limits=LIMITS)
    with pytest.raises(DocumentError, match="more than 10 bytes"):
        load_document(file, limits=ReadingLimits(document_bytes=10))


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DocumentError, match="more than 1,000 bytes"):
        load_document(path, limits=ReadingLimits(document_bytes=1000))
