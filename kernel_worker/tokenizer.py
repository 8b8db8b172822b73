"""Text to ids and back. Control tokens inside a text are only text (promise 5 of the architecture).

Three copies of one tokenizer: as the model's authors ship it (`opening`), the same without the space that
some put before every text (`continuing`, for text in the middle of a prompt), and one that knows no control
token (`plain`, for everything a user wrote). All are made once and never changed, so threads may share them.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tokenizers import Encoding, Tokenizer

from kernel_worker.errors import ModelUnsupported
from kernel_worker.text_pieces import split_text

UNFINISHED = "�"


@dataclass(frozen=True, slots=True)
class Piece:
    """Ids of one piece of a document, uint32, and the number of characters they come from."""

    ids: array[int]
    characters: int


class TextTokenizer:
    """The tokenizer of a model, for documents and prompts."""

    def __init__(self, tokenizer: Any) -> None:
        """Takes a tokenizer of transformers. Raises ModelUnsupported where it has no Rust backend."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise ModelUnsupported(f"The tokenizer {type(tokenizer).__name__} has no fast (Rust) version.")
        rules = json.loads(backend.to_str()) | {"truncation": None, "padding": None}
        # Runs of blanks are added tokens too in some vocabularies; they control nothing.
        added = [token for token in rules["added_tokens"] if not token["content"].isspace()]
        blanks = [token for token in rules["added_tokens"] if token["content"].isspace()]
        self.control_ids = frozenset(token["id"] for token in added) | frozenset(tokenizer.all_special_ids)
        self.control_texts = frozenset(token["content"] for token in added)
        self.fingerprint = _digest(rules, getattr(tokenizer, "chat_template", None))
        """SHA-256, hex, of everything that decides ids: rules, vocabulary, chat template."""
        self.opening = Tokenizer.from_str(json.dumps(rules))
        continuing = _without_space_in_front(rules)
        self.continuing = Tokenizer.from_str(json.dumps(continuing))
        self._plain = Tokenizer.from_str(
            json.dumps(continuing | {"added_tokens": blanks, "post_processor": None})
        )
        self._unknown: int | None = tokenizer.unk_token_id

    def encode(self, text: str) -> list[int]:
        """Ids of a short text as plain text: never a control token."""
        return [token for token, _, _ in self._tokens(text)]

    def encode_template(self, text: str, *, opening: bool = False) -> list[int]:
        """Ids of trusted text in which control tokens are meant; `opening` where it begins the prompt."""
        backend = self.opening if opening else self.continuing
        return list(backend.encode(text, add_special_tokens=False).ids)

    def encode_document(self, chunks: Iterable[str]) -> Iterator[Piece]:
        """Ids of a long text that comes in chunks: the same however it is chunked, in bounded memory.

        The text is cut into pieces by `split_text`, a function of the text alone, and every piece is
        encoded by itself. A piece is the unit of progress.
        """
        for piece in split_text(chunks):
            ids = self._plain.encode_batch_fast([piece], add_special_tokens=False)[0].ids
            if not self.control_ids.isdisjoint(ids):
                ids = self.encode(piece)
            yield Piece(array("I", ids), len(piece))

    def spans(self, chunks: Iterable[str]) -> Iterator[tuple[int, int]]:
        """The characters [start, end) of the document that each id of `encode_document` comes from.

        For evidence: a state names token indices, and this finds their text again by encoding the stored
        document once more. Ids that share one character (bytes of an emoji) have the same span.
        """
        start = 0
        for piece, spans in self.located(chunks):
            for first, last in spans:
                yield start + first, start + last
            start += len(piece)

    def located(self, chunks: Iterable[str]) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        """Each piece of a document, and the characters [start, end) of the piece that each id comes from."""
        for piece in split_text(chunks):
            yield piece, [(first, last) for _, first, last in self._tokens(piece)]

    def detokenizer(self) -> StreamDetokenizer:
        """A fresh detokenizer for one answer."""
        return StreamDetokenizer(self.opening, self.control_ids)

    def _tokens(self, text: str) -> Iterator[tuple[int, int, int]]:
        """(id, first character, last character + 1) of a text; control ids are split by hand."""
        encoding: Encoding = self._plain.encode(text, add_special_tokens=False)
        for token, (first, last) in zip(encoding.ids, encoding.offsets, strict=True):
            if token not in self.control_ids:
                yield token, first, last
                continue
            for place in range(first, last):
                for part in self._plain.encode(text[place], add_special_tokens=False).ids:
                    # A character without an id of its own may be unknown, and nothing else.
                    if part in self.control_ids and part != self._unknown:
                        raise ModelUnsupported(
                            f"The tokenizer knows the character {text[place]!r} as a control token alone."
                        )
                    yield part, place, place + 1


class StreamDetokenizer:
    """Ids in, text out, one by one; bytes of an unfinished character are held back.

    Control tokens give no text. All text returned, `finish` included, is the text of all ids decoded at once.
    """

    def __init__(self, backend: Tokenizer, silent: frozenset[int]) -> None:
        self._backend = backend
        self._silent = silent
        self._ids: list[int] = []
        self._shown = 0  # ids whose text was returned; those before them are kept for what they say of spaces

    def push(self, token: int) -> str:
        """The text that is certain now; may be empty."""
        if token in self._silent:
            return ""
        self._ids.append(token)
        text = self._pending()
        return "" if text.endswith(UNFINISHED) else self._show(text)

    def finish(self) -> str:
        """What was held back, unfinished characters as U+FFFD."""
        return self._show(self._pending())

    def _pending(self) -> str:
        shown = self._backend.decode(self._ids[: self._shown], skip_special_tokens=False)
        return self._backend.decode(self._ids, skip_special_tokens=False)[len(shown) :]

    def _show(self, text: str) -> str:
        if text:
            # One run of shown ids is enough context: whether a word has a space in front depends on no more.
            self._ids = self._ids[self._shown :]
            self._shown = len(self._ids)
        return text


def _without_space_in_front(rules: dict[str, Any]) -> dict[str, Any]:
    """The same rules for text that goes on: no space is put before it."""
    rules = json.loads(json.dumps(rules))
    for step in _steps(rules["pre_tokenizer"], "pretokenizers"):
        if step["type"] == "Metaspace":
            step["prepend_scheme"] = "never"
        if step["type"] == "ByteLevel":
            step["add_prefix_space"] = False
    normalizer = rules["normalizer"]
    if normalizer and normalizer["type"] == "Prepend":
        rules["normalizer"] = None
    elif normalizer and normalizer["type"] == "Sequence":
        normalizer["normalizers"] = [step for step in normalizer["normalizers"] if step["type"] != "Prepend"]
    return rules


def _steps(rule: dict[str, Any] | None, key: str) -> list[dict[str, Any]]:
    if rule is None:
        return []
    steps: list[dict[str, Any]] = rule[key] if rule["type"] == "Sequence" else [rule]
    return steps


def _digest(rules: dict[str, Any], template: Any) -> str:
    canonical = json.dumps([rules, template], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
