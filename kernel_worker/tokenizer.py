"""Text to ids and back. Control tokens inside a text are only text (promise 5)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Piece:
    """Ids of one piece of a document, uint32, and how many characters they come from."""

    ids: array[int]
    characters: int


class StreamDetokenizer:
    """Ids in, text out, one by one; bytes of an unfinished character are held back."""

    def push(self, token: int) -> str:
        """Text that is certain now; may be empty."""
        raise NotImplementedError

    def finish(self) -> str:
        """What was held back, unfinished characters as U+FFFD."""
        raise NotImplementedError


class TextTokenizer:
    """A transformers tokenizer for documents; safe to use from several threads."""

    def __init__(self, tokenizer: Any) -> None:
        """Raises ModelUnsupported for a tokenizer without a Rust backend."""
        raise NotImplementedError

    @property
    def fingerprint(self) -> str:
        """SHA-256, hex, of everything that decides ids."""
        raise NotImplementedError

    def encode(self, text: str) -> list[int]:
        """Ids of a short text as plain text: never a control token."""
        raise NotImplementedError

    def encode_document(self, chunks: Iterable[str]) -> Iterator[Piece]:
        """Ids of a long text that comes in chunks, in bounded memory; the same however it is chunked."""
        raise NotImplementedError

    def detokenizer(self) -> StreamDetokenizer:
        """A fresh detokenizer for one answer; control tokens give no text."""
        raise NotImplementedError
