"""Writing to terminals, files and pipes: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import os
import sys
from typing import IO, Any

# A document, a model or a file name may hold control characters that would drive the reader's terminal (move
# the cursor, set the title, answer queries). C0 becomes its picture (U+2400 ...), DEL and C1 the replacement
# character, and so do marks that turn the direction of text around. Newline and tab stay.
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
_REPLACED = dict.fromkeys([*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd")
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
_CLEAN = _PICTURES | _REPLACED | _SURROGATES
_JSON_ESCAPED = {code: f"\\u{code:04x}" for code in (*_REPLACED, *_SURROGATES)}


def clean(text: str) -> str:
    """The text with control characters made visible, so that it cannot drive a terminal."""
    return text.translate(_CLEAN)


def clean_line(text: str) -> str:
    """The same on one line."""
    return clean(" ".join(text.split()))


def print_text(text: str) -> None:
    """A result for people, and for the next program in a pipe."""
    write(text if text.endswith("\n") else text + "\n")


def print_json(value: Any) -> None:
    """A result for programs: one JSON value on one line, letters of all scripts as they are."""
    unicode = (sys.stdout.encoding or "utf-8").lower().replace("-", "") == "utf8"
    text = json.dumps(value, ensure_ascii=not unicode).translate(_JSON_ESCAPED)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def write(text: str) -> None:
    """To standard output, at once; letters that its encoding lacks become question marks."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(clean(text).encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def is_terminal(stream: IO[str]) -> bool:
    """Whether control codes make sense there."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
