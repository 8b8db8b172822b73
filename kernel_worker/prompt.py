"""The chat template, cut in two: what goes before a document and what goes around an instruction."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_worker.tokenizer import TextTokenizer


@dataclass(frozen=True)
class PromptTemplate:
    """Token ids around document and instruction; control tokens are special here and nowhere else.

    prefix_ids  system text, opening of the user's turn, and a line that introduces the document
    stop_ids    every id that ends an answer
    """

    tokenizer: TextTokenizer
    prefix_ids: tuple[int, ...]
    suffix_text: str
    stop_ids: frozenset[int]

    def instruction_ids(self, instruction: str) -> list[int]:
        """Ids that follow on the document: blank line, instruction (as plain text), the template's end."""
        raise NotImplementedError
